"""Real repositories for the lane: a bare one with a commit, hooks that leave a trace, and changes
that are approved."""

import asyncio
import os
import subprocess
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from handrail.commits import Change, Copies, Lane, NotApplied, Proposal, Repository

T = TypeVar("T")
TRACE = '#!/bin/sh\necho "pre-commit $(git rev-parse HEAD)" >> "{trace}"\n{more}\n'
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


class House:
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
        self.lane = Lane(self.repository, folder / "lane")
        self.copies = Copies(self.repository, folder / "copies")

    def hook(self, name: str, text: str) -> None:
        place = self.bare / "hooks" / name
        place.write_text(text)
        place.chmod(0o755)

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

    def log(self, form: str = "%H") -> list[str]:
        """The branch, the oldest first."""
        return git(self.bare, "log", "--reverse", f"--format={form}", "main").splitlines()

    def traced(self) -> list[str]:
        """The heads on which the pre-commit hook ran."""
        return [line.split()[1] for line in self.trace.read_text().splitlines()]

    async def propose(self, bead: str, files: dict[str, str]) -> Proposal:
        folder = await self.copies.open(bead, fresh=True)
        for path, text in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
        return await self.copies.propose(bead)

    async def change(self, bead: str, files: dict[str, str]) -> Change:
        return approved(bead, await self.propose(bead, files))


def approved(bead: str, proposal: Proposal, run: str = "") -> Change:
    return Change(
        bead=bead,
        run=run or f"run-{bead}",
        title=f"Fix {bead}",
        author="specialist",
        committer="manager",
        approved_by=("ana",),
        proposal=proposal,
    )


async def refused(work: Coroutine[Any, Any, object]) -> NotApplied:
    try:
        await work
    except NotApplied as trouble:
        return trouble
    raise AssertionError("it was not refused")


def go(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, 60))
