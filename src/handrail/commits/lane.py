"""The commit lane: an approved change becomes a commit on the branch, once, or nothing happens.

    hold      the fence of the commit lock is raised at the repository (fence.py)
    pull      the branch as it is now
    find      a commit that is there already is the result: its maker was killed before reporting
    make      the patch on top of the branch, through the hooks, by its author, with trailers
    compare   the commit is what was approved: the same patch-id (patches.py)
    push      branch and fence together, both as they were read, or neither

After a concurrent push all of this is repeated on a fresh pull, PUSH_ATTEMPTS_MAX times. A patch
that does not fit any more, or only with other content, is not applied: it has to be approved again.
Each attempt works in a folder of its own, so a process that is killed at any point leaves nothing
behind that the next one would meet.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path

from msgspec.structs import replace

from handrail.commits.errors import CommitRejectedError, output_tail
from handrail.commits.fence import FenceRef
from handrail.commits.folders import LaneFolders
from handrail.commits.git import GIT_LIMITS, Git
from handrail.commits.hooks import install_hooks
from handrail.commits.message import (
    find_revert,
    find_unreverted,
    format_message,
    identity_variables,
    is_id,
    read_trailers,
)
from handrail.commits.patches import PatchProposal, build_tree, compute_patch_id, list_changed_files
from handrail.commits.repository import Repository
from handrail.kernel.decision import Value

PUSH_ATTEMPTS_MAX = 5


class ApprovedChange(Value):
    """An approved proposal with its people: `author` is the agent that made it, `committer` the one
    that applies it.
    """

    bead_id: str
    run_id: str
    title: str
    author: str
    committer: str
    approved_by: tuple[str, ...]
    proposal: PatchProposal
    body: str = ""

    @property
    def trailers(self) -> list[tuple[str, str]]:
        approved_by = [("Approved-by", name) for name in self.approved_by]
        return [("Bead", self.bead_id), ("Run", self.run_id), *approved_by]


class AppliedCommit(Value):
    """A commit that is on the branch. `already_pushed`: an earlier attempt had pushed it."""

    commit: str
    parent: str
    files: tuple[str, ...]
    attempts: int
    already_pushed: bool = False


FindExisting = Callable[[Git, str], Awaitable[str]]
StageChange = Callable[[Git, str], Awaitable[None]]


class CommitLane:
    """Commits to one repository. `home` is a folder of its own, which agents do not reach."""

    def __init__(self, repository: Repository, home: Path | str) -> None:
        self.repository = repository
        self.folders = LaneFolders(repository, Path(home))

    async def apply(self, change: ApprovedChange, fence: int) -> AppliedCommit:
        """Commit and push the change, under the fence of the lock that its dispatch holds."""
        _check_ids(change.bead_id, change.run_id)
        proposal = change.proposal

        async def find_existing(git: Git, head: str) -> str:
            await self._check_proposal(git, proposal, head)
            return await _find_change(git, change, head)

        async def stage(git: Git, head: str) -> None:
            completed = await git.run(
                *("apply", "--3way", "--index", "--whitespace=nowarn", "-"),
                stdin=proposal.patch.encode(),
            )
            if completed.exit_code:
                message = f"the patch of bead '{change.bead_id}' conflicts with {head[:12]}"
                stderr_tail = output_tail(completed.stderr)
                hint = "propose it again on the branch as it is, and have that approved"
                raise CommitRejectedError(
                    *("conflict", f"{message}: {stderr_tail}", hint),
                    head=head,
                    files=list(proposal.files),
                )

        return await self._commit_and_push(change, fence, find_existing, stage, proposal.patch_id)

    async def find_pushed_commit(self, change: ApprovedChange, fence: int) -> str:
        """Return the commit that attempts at this change have left on the branch; "" if none.

        The fence is raised first, so an attempt that still runs comes too late.
        """
        async with self.folders.open_scratch() as git:
            fence_ref = FenceRef(git, self.repository, fence)
            await fence_ref.fetch()
            await fence_ref.acquire()
            head = await fence_ref.fetch()
            is_base_known = await _is_on_branch(git, change.proposal.base, head)
            return await _find_change(git, change, head) if is_base_known else ""

    async def revert(self, commit: str, change: ApprovedChange, fence: int) -> AppliedCommit:
        """Revert a commit of the lane; `change` says for whom and why."""
        _check_ids(change.bead_id, change.run_id, commit)

        async def find_existing(git: Git, head: str) -> str:
            if not await _is_on_branch(git, commit, head):
                message = f"commit '{commit}' is not on {self.repository.branch}"
                raise CommitRejectedError(
                    "unknown_commit", message, "there is nothing to take back"
                )
            return await find_revert(git, commit, head)

        async def stage(git: Git, head: str) -> None:
            reverse_patch = await git.run(
                *("diff-tree", "-p", "--binary", "--full-index", "--no-renames"),
                *("--no-ext-diff", "--no-textconv", commit, f"{commit}^"),
            )
            completed = await git.run(
                *("apply", "--3way", "--index", "--whitespace=nowarn", "-"),
                stdin=reverse_patch.stdout,
            )
            if completed.exit_code:
                message = f"{commit[:12]} cannot be taken back: {output_tail(completed.stderr)}"
                raise CommitRejectedError("conflict", message, "a person takes it back", head=head)

        return await self._commit_and_push(
            change, fence, find_existing, stage, "", ("Reverts", commit)
        )

    async def _commit_and_push(
        self,
        change: ApprovedChange,
        fence: int,
        find_existing: FindExisting,
        stage: StageChange,
        patch_id: str,
        *extra_trailers: tuple[str, str],
    ) -> AppliedCommit:
        await self.folders.refresh_cache()
        text = format_message(change.title, change.body, [*change.trailers, *extra_trailers])
        async with self.folders.open_scratch() as git:
            fence_ref = FenceRef(git, self.repository, fence)
            head = await fence_ref.fetch()
            for attempt in range(1, PUSH_ATTEMPTS_MAX + 1):
                fence_object = await fence_ref.acquire()
                head = await git.check_output("rev-parse", "--verify", self.repository.head_ref)
                if existing_commit := await find_existing(git, head):
                    return await _load_applied(git, existing_commit, attempt, already_pushed=True)
                try:
                    commit = await self._commit(git, head, stage, change, text)
                except CommitRejectedError as error:
                    if error.code == "conflict" and await fence_ref.fetch() != head:
                        continue
                    raise
                await self._check_commit(git, head, commit, change, patch_id)
                hooks = await self._install_hooks(git, head)
                limits = replace(GIT_LIMITS, seconds=self.repository.hook_seconds)
                if await fence_ref.push(commit, head, fence_object, hooks, limits):
                    return await _load_applied(git, commit, attempt, already_pushed=False)
        rejection = (
            f"others pushed to {self.repository.branch} during each of {PUSH_ATTEMPTS_MAX} tries"
        )
        raise CommitRejectedError("busy", rejection, "try again later", head=head)

    async def _check_proposal(self, git: Git, proposal: PatchProposal, head: str) -> None:
        """Check that the patch is what was approved, and may be applied at all."""
        base = proposal.base
        if not await _is_on_branch(git, base, head):
            message = (
                f"the patch is based on '{base[:60]}', which is not on {self.repository.branch}"
            )
            raise CommitRejectedError(
                "unknown_base", message, "propose it again on the branch as it is"
            )
        tree = await build_tree(git, proposal)
        if await compute_patch_id(git, base, tree) != proposal.patch_id:
            message = "the patch is not the one that was approved: its patch-id is another"
            raise CommitRejectedError("patch_changed", message, "have this one approved")
        self.repository.check_files(await list_changed_files(git, base, tree))

    async def _commit(
        self, git: Git, head: str, stage: StageChange, change: ApprovedChange, text: str
    ) -> str:
        await git.check_output("checkout", "--quiet", "--force", "--detach", head)
        await stage(git, head)
        completed = await git.run(
            *("commit", "--quiet", "--file=-"),
            stdin=text.encode(),
            variables={
                **identity_variables(change.author, "AUTHOR"),
                **identity_variables(change.committer, "COMMITTER"),
            },
            hooks=await self._install_hooks(git, head),
            limits=replace(GIT_LIMITS, seconds=self.repository.hook_seconds),
        )
        if completed.exit_code:
            output = output_tail(completed.stderr + completed.stdout)
            if await git.succeeds("diff-index", "--quiet", "--cached", head):
                message = f"bead '{change.bead_id}' changes nothing: it is on the branch already"
                raise CommitRejectedError("nothing", message, "see who committed it", head=head)
            message = f"a hook refused the commit of bead '{change.bead_id}': {output}"
            raise CommitRejectedError(
                "hook_refused", message, "propose what the hooks accept", said=output
            )
        return await git.check_output("rev-parse", "--verify", "HEAD^{commit}")

    async def _check_commit(
        self, git: Git, head: str, commit: str, change: ApprovedChange, patch_id: str
    ) -> None:
        """Check that hooks have left the commit as it was approved."""
        parent_and_author = await git.check_output("show", "-s", "--format=%P%n%an", commit)
        trailers = await read_trailers(git, commit)
        is_unchanged = parent_and_author.splitlines() == [
            head,
            identity_variables(change.author, "AUTHOR")["GIT_AUTHOR_NAME"],
        ]
        if not is_unchanged or (trailers.get("Bead"), trailers.get("Run")) != (
            change.bead_id,
            change.run_id,
        ):
            message = f"a hook changed the commit of bead '{change.bead_id}'"
            raise CommitRejectedError(
                "patch_changed", message, "a hook may check a commit, not rewrite it"
            )
        if patch_id and await compute_patch_id(git, head, commit) != patch_id:
            message = f"on {head[:12]} the patch of bead '{change.bead_id}' has become another one"
            hint = "propose it again on the branch as it is, and have that approved"
            raise CommitRejectedError("patch_changed", message, hint, head=head)

    async def _install_hooks(self, git: Git, head: str) -> Path:
        return await install_hooks(git, self.repository, head, git.folder.parent / "hooks")


async def _is_on_branch(git: Git, commit: str, head: str) -> bool:
    return is_id(commit) and await git.succeeds("merge-base", "--is-ancestor", commit, head)


async def _find_change(git: Git, change: ApprovedChange, head: str) -> str:
    """Return the commit of this change, if it is on the branch and was not reverted."""
    proposal, trailers = change.proposal, {"Bead": change.bead_id, "Run": change.run_id}
    for commit in await find_unreverted(git, f"{proposal.base}..{head}", head, trailers):
        if await compute_patch_id(git, f"{commit}^", commit) == proposal.patch_id:
            return commit
    return ""


async def _load_applied(
    git: Git, commit: str, attempts: int, *, already_pushed: bool
) -> AppliedCommit:
    parent = await git.check_output("rev-parse", "--verify", f"{commit}^")
    files = await list_changed_files(git, parent, commit)
    return AppliedCommit(
        commit=commit,
        parent=parent,
        files=tuple(sorted(files)),
        attempts=attempts,
        already_pushed=already_pushed,
    )


def _check_ids(*ids: str) -> None:
    for value in ids:
        if not is_id(value):
            raise ValueError(f"{value!r} is no id")
