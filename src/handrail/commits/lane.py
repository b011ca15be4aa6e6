"""The commit lane: what was approved becomes a commit on the branch, once, or nothing happens.

    hold      the fence of the commit lock is raised at the repository (fence.py)
    pull      the branch as it is now
    find      if the commit is there already, that was it: whoever made it was killed before it told
    make      the patch on top of the branch, through the hooks, by its author, with trailers
    compare   what was committed is what was approved: the same patch-id (patches.py)
    push      branch and fence together, both as they were read, or neither

If somebody else pushed meanwhile, it is done again on a fresh pull, TRIES_MAX times at most. A
patch that does not fit any more, or only with other content, is not applied: it has to be approved
again. Nothing lies between two commits of this list but a folder that nobody else uses, so being
killed at any point leaves nothing behind that the next one would find.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path

from msgspec.structs import replace

from handrail.commits.fence import Fence
from handrail.commits.git import LIMITS, Git
from handrail.commits.hooks import lay_hooks
from handrail.commits.message import is_id, message, person, standing, taken_back, trailers_of
from handrail.commits.patches import Proposal, identify, touched, tree_of
from handrail.commits.places import Places
from handrail.commits.repository import Repository
from handrail.commits.trouble import NotApplied, last_words
from handrail.kernel.decision import Value

TRIES_MAX = 5


class Change(Value):
    """An approved proposal, and whose it is. `author` is the agent that made it, `committer` the
    one that applies it."""

    bead: str
    run: str
    title: str
    author: str
    committer: str
    approved_by: tuple[str, ...]
    proposal: Proposal
    body: str = ""

    @property
    def trailers(self) -> list[tuple[str, str]]:
        approved = [("Approved-by", name) for name in self.approved_by]
        return [("Bead", self.bead), ("Run", self.run), *approved]


class Applied(Value):
    """It is on the branch. `found`: an earlier attempt had pushed it."""

    commit: str
    parent: str
    files: tuple[str, ...]
    tries: int
    found: bool = False


Find = Callable[[Git, str], Awaitable[str]]
Make = Callable[[Git, str], Awaitable[None]]


class Lane:
    """The way into one repository. `home` is a folder of its own, which agents do not reach."""

    def __init__(self, repository: Repository, home: Path | str) -> None:
        self.repository = repository
        self.places = Places(repository, Path(home))

    async def apply(self, change: Change, fence: int) -> Applied:
        """Commits and pushes it, under the fence of the lock that its dispatch holds."""
        _check_ids(change.bead, change.run)
        wanted = change.proposal

        async def find(git: Git, head: str) -> str:
            await self._check(git, wanted, head)
            return await _standing(git, change, head)

        async def make(git: Git, head: str) -> None:
            ran = await git.run(
                *("apply", "--3way", "--index", "--whitespace=nowarn", "-"),
                stdin=wanted.patch.encode(),
            )
            if ran.exit_code:
                told = f"the patch of bead '{change.bead}' conflicts with {head[:12]}"
                said = last_words(ran.stderr)
                hint = "propose it again on the branch as it is, and have that approved"
                raise NotApplied(
                    *("conflict", f"{told}: {said}", hint), head=head, files=list(wanted.files)
                )

        return await self._land(change, fence, find, make, wanted.patch_id)

    async def left(self, change: Change, fence: int) -> str:
        """The commit that attempts at this change have left on the branch; "" if none. Whoever is
        still at it comes too late: the fence is raised first."""
        async with self.places.at_work() as git:
            rail = Fence(git, self.repository, fence)
            await rail.fetch()
            await rail.held()
            head = await rail.fetch()
            known = await _is_on(git, change.proposal.base, head)
            return await _standing(git, change, head) if known else ""

    async def revert(self, commit: str, change: Change, fence: int) -> Applied:
        """Takes back a commit of the lane; `change` says for whom and why."""
        _check_ids(change.bead, change.run, commit)

        async def find(git: Git, head: str) -> str:
            if not await _is_on(git, commit, head):
                told = f"commit '{commit}' is not on {self.repository.branch}"
                raise NotApplied("unknown_commit", told, "there is nothing to take back")
            return await taken_back(git, commit, head)

        async def make(git: Git, head: str) -> None:
            undo = await git.run(
                *("diff-tree", "-p", "--binary", "--full-index", "--no-renames"),
                *("--no-ext-diff", "--no-textconv", commit, f"{commit}^"),
            )
            ran = await git.run(
                *("apply", "--3way", "--index", "--whitespace=nowarn", "-"), stdin=undo.stdout
            )
            if ran.exit_code:
                told = f"{commit[:12]} cannot be taken back: {last_words(ran.stderr)}"
                raise NotApplied("conflict", told, "a person takes it back", head=head)

        return await self._land(change, fence, find, make, "", ("Reverts", commit))

    async def _land(
        self,
        change: Change,
        fence: int,
        find: Find,
        make: Make,
        patch_id: str,
        *more: tuple[str, str],
    ) -> Applied:
        await self.places.refresh()
        text = message(change.title, change.body, [*change.trailers, *more])
        async with self.places.at_work() as git:
            rail = Fence(git, self.repository, fence)
            head = await rail.fetch()
            for tries in range(1, TRIES_MAX + 1):
                held = await rail.held()
                head = await git.say("rev-parse", "--verify", self.repository.head)
                if known := await find(git, head):
                    return await _told(git, known, tries, found=True)
                try:
                    commit = await self._commit(git, head, make, change, text)
                except NotApplied as trouble:
                    if trouble.code == "conflict" and await rail.fetch() != head:
                        continue
                    raise
                await self._compare(git, head, commit, change, patch_id)
                hooks = await self._hooks(git, head)
                limits = replace(LIMITS, seconds=self.repository.hook_seconds)
                if await rail.push(commit, head, held, hooks, limits):
                    return await _told(git, commit, tries, found=False)
        told = f"others pushed to {self.repository.branch} during each of {TRIES_MAX} tries"
        raise NotApplied("busy", told, "try again later", head=head)

    async def _check(self, git: Git, wanted: Proposal, head: str) -> None:
        """What is to be applied is what was approved, and may be applied at all."""
        base = wanted.base
        if not await _is_on(git, base, head):
            told = f"the patch is based on '{base[:60]}', which is not on {self.repository.branch}"
            raise NotApplied("unknown_base", told, "propose it again on the branch as it is")
        tree = await tree_of(git, wanted)
        if await identify(git, base, tree) != wanted.patch_id:
            told = "the patch is not the one that was approved: its patch-id is another"
            raise NotApplied("patch_changed", told, "have this one approved")
        self.repository.refuse_files(await touched(git, base, tree))

    async def _commit(self, git: Git, head: str, make: Make, change: Change, text: str) -> str:
        await git.say("checkout", "--quiet", "--force", "--detach", head)
        await make(git, head)
        ran = await git.run(
            *("commit", "--quiet", "--file=-"),
            stdin=text.encode(),
            variables={**person(change.author, "AUTHOR"), **person(change.committer, "COMMITTER")},
            hooks=await self._hooks(git, head),
            limits=replace(LIMITS, seconds=self.repository.hook_seconds),
        )
        if ran.exit_code:
            said = last_words(ran.stderr + ran.stdout)
            if await git.finds("diff-index", "--quiet", "--cached", head):
                told = f"bead '{change.bead}' changes nothing: it is on the branch already"
                raise NotApplied("nothing", told, "see who committed it", head=head)
            told = f"a hook refused the commit of bead '{change.bead}': {said}"
            raise NotApplied("hook_refused", told, "propose what the hooks accept", said=said)
        return await git.say("rev-parse", "--verify", "HEAD^{commit}")

    async def _compare(
        self, git: Git, head: str, commit: str, change: Change, patch_id: str
    ) -> None:
        """Hooks may look at a commit; what they make of it has to be what was approved."""
        told = await git.say("show", "-s", "--format=%P%n%an", commit)
        carried = await trailers_of(git, commit)
        same = told.splitlines() == [head, person(change.author, "AUTHOR")["GIT_AUTHOR_NAME"]]
        if not same or (carried.get("Bead"), carried.get("Run")) != (change.bead, change.run):
            told = f"a hook changed the commit of bead '{change.bead}'"
            raise NotApplied("patch_changed", told, "a hook may check a commit, not rewrite it")
        if patch_id and await identify(git, head, commit) != patch_id:
            told = f"on {head[:12]} the patch of bead '{change.bead}' has become another one"
            hint = "propose it again on the branch as it is, and have that approved"
            raise NotApplied("patch_changed", told, hint, head=head)

    async def _hooks(self, git: Git, head: str) -> Path:
        return await lay_hooks(git, self.repository, head, git.folder.parent / "hooks")


async def _is_on(git: Git, commit: str, head: str) -> bool:
    return is_id(commit) and await git.finds("merge-base", "--is-ancestor", commit, head)


async def _standing(git: Git, change: Change, head: str) -> str:
    """The commit of this change, if it is on the branch and was not taken back."""
    wanted, carried = change.proposal, {"Bead": change.bead, "Run": change.run}
    for commit in await standing(git, f"{wanted.base}..{head}", head, carried):
        if await identify(git, f"{commit}^", commit) == wanted.patch_id:
            return commit
    return ""


async def _told(git: Git, commit: str, tries: int, *, found: bool) -> Applied:
    parent = await git.say("rev-parse", "--verify", f"{commit}^")
    files = await touched(git, parent, commit)
    return Applied(
        commit=commit, parent=parent, files=tuple(sorted(files)), tries=tries, found=found
    )


def _check_ids(*ids: str) -> None:
    for one in ids:
        if not is_id(one):
            raise ValueError(f"{one!r} is no id")
