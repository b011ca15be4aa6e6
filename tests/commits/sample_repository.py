"""Real repositories for the lane: a bare one with a commit, hooks that leave a trace and at which a
process can be made to stand still, and changes that are approved."""

import asyncio
import os
import subprocess
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from tests.patience import PATIENCE, wait_until

from handrail.commits import (
    ApprovedChange,
    CommitLane,
    CommitRejectedError,
    PatchProposal,
    Repository,
    WorkingCopies,
)

T = TypeVar("T")
TRACE = '#!/bin/sh\necho "pre-commit $(git rev-parse HEAD)" >> "{trace}"\n{more}\n'
PUSHED = """#!/bin/sh
commit= fence=
while read old new ref; do case "$ref" in
    refs/heads/main) commit=$new ;;
    refs/handrail/fence/main) fence=$(git cat-file blob "$new" | head -n 1) ;;
esac; done
[ -n "$commit" ] || exit 0
echo "$commit $fence" >> "{pushed}"
"""
"""Of each push to the branch: the commit, and the fence that came with it."""
STANDS = """
mv "{gate}" "{gate}.held" 2> /dev/null || exit 0
echo "$$ $(ps -o pgid= $$)" > "{gate}.new" && mv "{gate}.new" "{gate}.reached"
n=0; while [ -e "{gate}.held" ] && [ $n -lt 2400 ]; do sleep 0.05; n=$((n+1)); done
"""
FILES = {"app.py": "def total(n):\n    return n\n", "README.md": "An app.\n"}
WHO = {
    "GIT_AUTHOR_NAME": "ana",
    "GIT_AUTHOR_EMAIL": "ana@example.org",
    "GIT_COMMITTER_NAME": "ana",
    "GIT_COMMITTER_EMAIL": "ana@example.org",
}


def git(folder: Path, *words: str, stdin: str = "", ok: bool = True) -> str:
    """Git as a person uses it, apart from whatever is configured on this machine."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    variables = {**clean, **WHO, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    ran = subprocess.run(
        ["git", *words], cwd=folder, input=stdin, env=variables, capture_output=True, text=True
    )
    assert not ok or ran.returncode == 0, (words, ran.stderr)
    return ran.stdout.strip() if ok else ran.stdout + ran.stderr


def wait_for_process(holds: Callable[[], object]) -> None:
    """Until another process has come so far."""
    wait_until(holds, 6 * PATIENCE)


class Gate:
    """Where the next process that comes along stands still, for two minutes at most."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._held = place.with_name(f"{place.name}.held")
        self._reached = place.with_name(f"{place.name}.reached")

    def shut(self) -> None:
        self.place.touch()

    @property
    def reached(self) -> bool:
        return self._reached.exists()

    @property
    def pid(self) -> int:
        """Of the hook that stands there."""
        return int(self._reached.read_text().split()[0])

    @property
    def goes_on(self) -> bool:
        """Whether any process of its group is alive."""
        group = self._reached.read_text().split()[1]
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                state, _, found, *_ = stat.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if found == group and state != "Z":
                return True
        return False

    def open(self) -> None:
        """Whoever stands there goes on, and has ended afterwards."""
        for path in (self.place, self._held):
            path.unlink(missing_ok=True)
        if self.reached:
            wait_for_process(lambda: not self.goes_on)
            self._reached.unlink()


class SampleRepository:
    """A bare repository, a person's clone of it, and the folders of lane and beads."""

    def __init__(self, folder: Path, files: dict[str, str] | None = None, **rules: Any) -> None:
        self.folder, self.trace = folder, folder / "trace"
        self.bare, self.mine = folder / "app.git", folder / "mine"
        folder.mkdir(parents=True, exist_ok=True)
        git(folder, "init", "--quiet", "--bare", "--initial-branch=main", str(self.bare))
        git(folder, "clone", "--quiet", str(self.bare), str(self.mine))
        git(self.mine, "checkout", "--quiet", "-B", "main")
        self.push(files or FILES, "begin")
        self.hook("pre-commit", TRACE.format(trace=self.trace, more=""))
        self.repository = Repository(url=str(self.bare), **rules)
        self.lane = CommitLane(self.repository, folder / "lane")
        self.copies = WorkingCopies(self.repository, folder / "copies")
        self.gates: dict[str, Gate] = {}

    def hook(self, name: str, text: str) -> None:
        place = self.bare / "hooks" / name
        place.write_text(text)
        place.chmod(0o755)

    def put_gates(self) -> None:
        """In the middle of a commit, of a push, and between a push and the word that it was."""
        self.pushed = self.folder / "pushed"
        texts = {
            "pre-commit": TRACE.format(trace=self.trace, more=""),
            "pre-push": "#!/bin/sh\ncat > /dev/null\n",
            "post-receive": PUSHED.format(pushed=self.pushed),
        }
        for moment, text in texts.items():
            gate = self.gates[moment] = Gate(self.folder / f"gate-{moment}")
            self.hook(moment, text + STANDS.format(gate=gate.place))

    def fences(self) -> dict[str, int]:
        """Commit -> the fence that it was pushed with, in that order."""
        told = self.pushed.read_text() if self.pushed.exists() else ""
        rows = [line.split() for line in told.splitlines()]
        return {commit: int(fence) for commit, fence in rows}

    def fence(self) -> int:
        """The newest holder's."""
        return int(git(self.bare, "cat-file", "blob", self.repository.fence_ref).split()[0])

    def push(self, files: dict[str, str], title: str) -> str:
        """What a person commits by hand."""
        git(self.mine, "fetch", "--quiet")
        git(self.mine, "reset", "--quiet", "--hard", "origin/main", ok=False)
        for path, text in files.items():
            (self.mine / path).parent.mkdir(parents=True, exist_ok=True)
            (self.mine / path).write_text(text)
        git(self.mine, "add", "--all")
        git(self.mine, "commit", "--quiet", "-m", title)
        git(self.mine, "push", "--quiet", "origin", "HEAD:main")
        return git(self.mine, "rev-parse", "HEAD")

    def head(self) -> str:
        return git(self.bare, "rev-parse", "main")

    def read(self, path: str) -> str:
        return git(self.bare, "show", f"main:{path}")

    def log(self, form: str = "%H", *paths: str) -> list[str]:
        """The branch, or what of it touches these paths, the oldest first."""
        words = ("log", "--reverse", f"--format={form}", "main", "--", *paths)
        return git(self.bare, *words).splitlines()

    def traced(self) -> list[str]:
        """The heads on which the pre-commit hook ran."""
        return [line.split()[1] for line in self.trace.read_text().splitlines()]

    async def propose(self, bead: str, files: dict[str, str]) -> PatchProposal:
        folder = await self.copies.open(bead, fresh=True)
        for path, text in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
        return await self.copies.propose(bead)

    async def change(self, bead: str, files: dict[str, str]) -> ApprovedChange:
        return approved(bead, await self.propose(bead, files))


def approved(bead: str, proposal: PatchProposal, run: str = "") -> ApprovedChange:
    return ApprovedChange(
        bead_id=bead,
        run_id=run or f"run-{bead}",
        title=f"Fix {bead}",
        author="specialist",
        committer="manager",
        approved_by=("ana",),
        proposal=proposal,
    )


async def refusal_code(work: Coroutine[Any, Any, object]) -> CommitRejectedError:
    try:
        await work
    except CommitRejectedError as trouble:
        return trouble
    raise AssertionError("it was not refused")


def run_async(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, 60))
