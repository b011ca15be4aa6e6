"""Each bead has a working copy of its own; what changed in it becomes a proposal.

A copy is a repository that borrows objects and shares nothing else: what its agent configures there
is nobody else's. It is not trusted either. A proposal is read by the lane's own git with the copy
as a mere folder of files; neither its configuration nor its index nor its history is looked at.
"""

import shutil
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

from msgspec.structs import replace

from handrail.commits.fence import Fence
from handrail.commits.git import Git
from handrail.commits.message import is_id, standing
from handrail.commits.patches import Proposal, propose, touched
from handrail.commits.places import Places
from handrail.commits.repository import Repository
from handrail.commits.trouble import NotApplied

BLAME_LINES = 12
"""What git says of one line before it shows it."""


class Copies:
    """The working copies of a repository under `home`, which agents may reach; the lane's own
    folders are there too, beside them."""

    def __init__(self, repository: Repository, home: Path | str) -> None:
        self.repository = repository
        self.places = Places(repository, Path(home))

    async def open(self, bead: str, *, fresh: bool = False, commit: str = "") -> Path:
        """The bead's folder: as it was left, or, fresh or new, as the branch is now; or as it was
        at `commit`, if that is still on the branch. A fresh folder shares nothing with the one
        before: changed, untracked and ignored files, index and lock files are gone."""
        folder, base = self._folder(bead), self._base(bead)
        if fresh:
            self.remove(bead)
        if folder.is_dir() and base.is_file():
            return folder
        await self.places.refresh()
        making = self._unused()
        git = Git(making / ".git", making, self.repository.variables)
        making.mkdir(parents=True)
        try:
            git.lay_out(self.places.kept.folder)
            head = await Fence(git, self.repository, 0).fetch()
            begun = commit if commit and await _is_on(git, commit, head) else head
            await git.say("checkout", "--quiet", "--force", "--detach", begun)
            self.remove(bead)
            folder.parent.mkdir(parents=True, exist_ok=True)
            base.write_text(begun, encoding="utf-8")
            making.rename(folder)
        finally:
            shutil.rmtree(making, ignore_errors=True)
        return folder

    async def propose(self, bead: str, *, run: str = "") -> Proposal:
        """What changed in the bead's folder. If that is nothing, since that run has pushed it and
        was lost before it told: its commit. Raises if there is nothing that may be committed."""
        folder, base = self._folder(bead), self._base(bead)
        if folder.is_symlink() or not folder.is_dir() or not base.is_file():
            raise NotApplied("no_copy", f"bead '{bead}' has no working copy", "open one")
        async with self.places.at_work(tree=folder) as git:
            head = await Fence(git, self.repository, 0).fetch()
            begun = base.read_text(encoding="utf-8")
            await git.say("read-tree", begun)
            await git.say("add", "--all", ".")
            tree = await git.say("write-tree")
            files = await touched(git, begun, tree)
            self.repository.refuse_files(files)
            return await (propose(git, begun, tree) if files else _pushed(git, head, bead, run))

    async def diff(self, bead: str, files: Iterable[str]) -> str:
        """The patch that makes these files of the folder out of those that it began with; "" if
        they are the same. Raises `NotApplied` if it is too large, or no text."""
        async with self.places.at_work(tree=self._folder(bead)) as git:
            await Fence(git, self.repository, 0).fetch()
            begun = self.begun(bead)
            await git.say("read-tree", begun)
            await git.say("update-index", "--add", "--remove", "--", *files)
            tree = await git.say("write-tree")
            return (await propose(git, begun, tree)).patch

    async def patch(self, bead: str, patch: str) -> bool:
        """Apply a patch of `diff` to the bead's folder; False, and nothing, if it does not fit."""
        async with self.places.at_work(tree=self._folder(bead)) as git:
            ran = await git.run("apply", "--whitespace=nowarn", "-", stdin=patch.encode())
            return ran.exit_code == 0

    def begun(self, bead: str) -> str:
        """The commit that the bead's folder began with; "" without a folder."""
        base = self._base(bead)
        return base.read_text(encoding="utf-8") if base.is_file() else ""

    async def blame(self, bead: str, path: str, line: int) -> str:
        """Who wrote that line, as the folder began: commit, author and title; "" if nobody can
        say."""
        begun, at = self.begun(bead), f"{line},{line}"
        async with self.places.at_work() as git:
            await Fence(git, self.repository, 0).fetch()
            ran = await git.run("blame", "--porcelain", "-L", at, begun, "--", path)
            rows = [row.partition(" ") for row in ran.stdout.decode(errors="replace").splitlines()]
            told = {name: value for name, _, value in rows[:BLAME_LINES]}
            written = f"{told.get('author')}: {told.get('summary')}"
            return f"{rows[0][0][:12]} {written}" if rows else ""

    @asynccontextmanager
    async def at(self, commit: str) -> AsyncGenerator[Path]:
        """A folder with that commit of the branch, for as long as somebody looks at it."""
        async with self.places.at_work() as git:
            head = await Fence(git, self.repository, 0).fetch()
            if not await _is_on(git, commit, head):
                told = f"commit '{commit[:60]}' is not on {self.repository.branch}"
                raise NotApplied("unknown_commit", told, "there is nothing to look at")
            await git.say("checkout", "--quiet", "--force", "--detach", commit)
            assert git.tree is not None
            yield git.tree

    def remove(self, bead: str) -> None:
        """The folder is out of the way at once, also if parts of it cannot be deleted, or a command
        that outlived a killed server still works in it; the sweep takes what is left of it."""
        self._base(bead).unlink(missing_ok=True)
        folder, unused = self._folder(bead), self._unused()
        if folder.is_symlink():
            folder.unlink()
        elif folder.exists():
            unused.parent.mkdir(parents=True, exist_ok=True)
            folder.rename(unused)
            shutil.rmtree(unused, ignore_errors=True)

    def _unused(self) -> Path:
        """A new name among the folders at work, which are swept."""
        return self.places.home / "at-work" / uuid4().hex

    def _folder(self, bead: str) -> Path:
        if not is_id(bead) or bead.startswith("."):
            raise ValueError(f"{bead!r} is no id of a bead")
        return self.places.home / "beads" / bead

    def _base(self, bead: str) -> Path:
        return self._folder(bead).with_name(f"{bead}.base")


async def _is_on(git: Git, commit: str, head: str) -> bool:
    return is_id(commit) and await git.finds("merge-base", "--is-ancestor", commit, head)


async def _pushed(git: Git, head: str, bead: str, run: str) -> Proposal:
    """What the lane has committed for this run: approved again, it is found there, and told."""
    trailers = {"Bead": bead, "Run": run}
    found = await standing(git, head, head, trailers) if is_id(run) else []
    if not found:
        told = f"nothing changed in the working copy of bead '{bead}'"
        raise NotApplied("nothing", told, "change something, then propose it")
    parent = await git.say("rev-parse", "--verify", f"{found[0]}^")
    return replace(await propose(git, parent, found[0]), commit=found[0])
