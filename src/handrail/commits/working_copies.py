"""Give each bead a working copy of its own, and make a proposal of what changed in it.

A copy is a repository that borrows objects and shares nothing else: its agent's configuration
affects no other copy. It is not trusted either. The lane's own git reads a proposal with the copy
as a mere folder of files; neither its configuration nor its index nor its history is used.
"""

import shutil
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

from msgspec.structs import replace

from handrail.commits.errors import CommitRejectedError
from handrail.commits.fence import FenceRef
from handrail.commits.folders import LaneFolders
from handrail.commits.git import Git
from handrail.commits.message import find_unreverted, is_id
from handrail.commits.patches import PatchProposal, build_proposal, list_changed_files
from handrail.commits.repository import Repository

BLAME_HEADER_LINES = 12
"""Lines that git prints about one line before the line itself."""


class WorkingCopies:
    """The working copies of a repository under `home`, which agents may reach; the lane's own
    folders are there too, beside them."""

    def __init__(self, repository: Repository, home: Path | str) -> None:
        self.repository = repository
        self.folders = LaneFolders(repository, Path(home))

    async def open(self, bead_id: str, *, fresh: bool = False, commit: str = "") -> Path:
        """Return the bead's folder: as it was left, or, fresh or new, as the branch is now; or as
        it was at `commit`, if that is still on the branch.

        A fresh folder shares nothing with the one before: changed, untracked and ignored files,
        index and lock files are gone.
        """
        folder, base_file = self._bead_folder(bead_id), self._base_file(bead_id)
        if fresh:
            self.remove(bead_id)
        if folder.is_dir() and base_file.is_file():
            return folder
        await self.folders.refresh_cache()
        staging = self._new_scratch_folder()
        git = Git(staging / ".git", staging, self.repository.variables)
        staging.mkdir(parents=True)
        try:
            git.init(self.folders.object_cache.folder)
            head = await FenceRef(git, self.repository, 0).fetch()
            base_commit = commit if commit and await _is_on_branch(git, commit, head) else head
            await git.check_output("checkout", "--quiet", "--force", "--detach", base_commit)
            self.remove(bead_id)
            folder.parent.mkdir(parents=True, exist_ok=True)
            base_file.write_text(base_commit, encoding="utf-8")
            staging.rename(folder)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
        return folder

    async def propose(self, bead_id: str, *, run_id: str = "") -> PatchProposal:
        """Return the changes in the bead's folder as a proposal.

        Without changes, return the commit that the run has pushed and not reported, if any. Raises
        if there is nothing that may be committed.
        """
        folder, base_file = self._bead_folder(bead_id), self._base_file(bead_id)
        if folder.is_symlink() or not folder.is_dir() or not base_file.is_file():
            raise CommitRejectedError(
                "no_copy", f"bead '{bead_id}' has no working copy", "open one"
            )
        async with self.folders.open_scratch(tree=folder) as git:
            head = await FenceRef(git, self.repository, 0).fetch()
            base_commit = base_file.read_text(encoding="utf-8")
            await git.check_output("read-tree", base_commit)
            await git.check_output("add", "--all", ".")
            tree = await git.check_output("write-tree")
            files = await list_changed_files(git, base_commit, tree)
            self.repository.check_files(files)
            return await (
                build_proposal(git, base_commit, tree)
                if files
                else _propose_pushed_commit(git, head, bead_id, run_id)
            )

    async def diff(self, bead_id: str, files: Iterable[str]) -> str:
        """Return the patch from the base of the folder to these files; "" if they are the same.

        Raises `CommitRejectedError` if it is too large, or no text.
        """
        async with self.folders.open_scratch(tree=self._bead_folder(bead_id)) as git:
            await FenceRef(git, self.repository, 0).fetch()
            base = self.base_commit(bead_id)
            await git.check_output("read-tree", base)
            await git.check_output("update-index", "--add", "--remove", "--", *files)
            tree = await git.check_output("write-tree")
            return (await build_proposal(git, base, tree)).patch

    async def apply_patch(self, bead_id: str, patch: str) -> bool:
        """Apply a patch of `diff` to the bead's folder; False, and nothing, if it does not fit."""
        async with self.folders.open_scratch(tree=self._bead_folder(bead_id)) as git:
            completed = await git.run("apply", "--whitespace=nowarn", "-", stdin=patch.encode())
            return completed.exit_code == 0

    def base_commit(self, bead_id: str) -> str:
        """Return the base commit of the bead's folder; "" without a folder."""
        base_file = self._base_file(bead_id)
        return base_file.read_text(encoding="utf-8") if base_file.is_file() else ""

    async def blame(self, bead_id: str, path: str, line: int) -> str:
        """Return who wrote that line of the base: commit, author and title; "" if that is
        unknown.
        """
        base, line_range = self.base_commit(bead_id), f"{line},{line}"
        async with self.folders.open_scratch() as git:
            await FenceRef(git, self.repository, 0).fetch()
            completed = await git.run("blame", "--porcelain", "-L", line_range, base, "--", path)
            rows = [
                row.partition(" ") for row in completed.stdout.decode(errors="replace").splitlines()
            ]
            header = {name: value for name, _, value in rows[:BLAME_HEADER_LINES]}
            attribution = f"{header.get('author')}: {header.get('summary')}"
            return f"{rows[0][0][:12]} {attribution}" if rows else ""

    @asynccontextmanager
    async def checkout(self, commit: str) -> AsyncGenerator[Path]:
        """Check out that commit of the branch in a temporary folder."""
        async with self.folders.open_scratch() as git:
            head = await FenceRef(git, self.repository, 0).fetch()
            if not await _is_on_branch(git, commit, head):
                message = f"commit '{commit[:60]}' is not on {self.repository.branch}"
                raise CommitRejectedError("unknown_commit", message, "there is nothing to look at")
            await git.check_output("checkout", "--quiet", "--force", "--detach", commit)
            assert git.tree is not None
            yield git.tree

    def remove(self, bead_id: str) -> None:
        """Move the folder out of the way at once; the sweep deletes what is left of it.

        This also works if parts of it cannot be deleted, or a command that outlived a killed server
        still works in it.
        """
        self._base_file(bead_id).unlink(missing_ok=True)
        folder, discarded_folder = self._bead_folder(bead_id), self._new_scratch_folder()
        if folder.is_symlink():
            folder.unlink()
        elif folder.exists():
            discarded_folder.parent.mkdir(parents=True, exist_ok=True)
            folder.rename(discarded_folder)
            shutil.rmtree(discarded_folder, ignore_errors=True)

    def _new_scratch_folder(self) -> Path:
        """Return a new path among the scratch folders, which are swept."""
        return self.folders.home / "at-work" / uuid4().hex

    def _bead_folder(self, bead_id: str) -> Path:
        if not is_id(bead_id) or bead_id.startswith("."):
            raise ValueError(f"{bead_id!r} is no id of a bead")
        return self.folders.home / "beads" / bead_id

    def _base_file(self, bead_id: str) -> Path:
        return self._bead_folder(bead_id).with_name(f"{bead_id}.base")


async def _is_on_branch(git: Git, commit: str, head: str) -> bool:
    return is_id(commit) and await git.succeeds("merge-base", "--is-ancestor", commit, head)


async def _propose_pushed_commit(git: Git, head: str, bead_id: str, run_id: str) -> PatchProposal:
    """Propose what the lane has committed for this run: once approved again, it is found and
    reported.
    """
    trailers = {"Bead": bead_id, "Run": run_id}
    commits = await find_unreverted(git, head, head, trailers) if is_id(run_id) else []
    if not commits:
        message = f"nothing changed in the working copy of bead '{bead_id}'"
        raise CommitRejectedError("nothing", message, "change something, then propose it")
    parent = await git.check_output("rev-parse", "--verify", f"{commits[0]}^")
    return replace(await build_proposal(git, parent, commits[0]), commit=commits[0])
