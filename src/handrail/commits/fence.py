"""The fence at the repository: a ref that names the newest holder of the commit lock, so that the
repository itself refuses whoever lost it.

Rules
1. A holder raises the ref to its own fence before it looks at the branch. From then on nothing that
   an earlier holder pushes is taken, whether or not that one knows that it has lost the lock.
2. A commit is pushed together with a new value of the ref, both or neither (`--atomic`), and both
   only if they are as they were read (`--force-with-lease`). The value changes with every push: git
   leaves out what is the same, and the repository would not compare it.
3. A higher fence than one's own means that the lock was lost. That is final.

The ref points to a small text: the fence, and the commit that was pushed with it. One database
gives the fences of a branch; whoever starts another deletes the ref first.
"""

from pathlib import Path

from handrail.agents.commands import CommandLimits, Ran
from handrail.commits.git import LIMITS, Git
from handrail.commits.repository import Repository
from handrail.commits.trouble import NotApplied, last_words

TRIES_MAX = 5
"""To raise the fence: each that fails is a push of somebody else's."""


class Fence:
    """The ref as this folder last fetched it."""

    def __init__(self, git: Git, repository: Repository, fence: int) -> None:
        self.git, self.repository, self.fence = git, repository, fence

    async def fetch(self) -> str:
        """Branch and fence as they are; the branch's head."""
        head = self.repository.head
        await self.git.say(
            *(
                "fetch",
                "--quiet",
                "--prune",
                "--no-tags",
                "--no-write-fetch-head",
                "--no-auto-maintenance",
            ),
            *("--no-recurse-submodules", "--", self.repository.url),
            *(f"+{head}:{head}", "+refs/handrail/fence/*:refs/handrail/fence/*"),
        )
        return await self.git.say("rev-parse", "--verify", f"{head}^{{commit}}")

    async def held(self) -> str:
        """The object that the ref points to, once it is ours. Raises if the lock was lost."""
        for _ in range(TRIES_MAX):
            now = await self._object()
            known = await self._read(now)
            if known > self.fence:
                told = f"the commit lock was lost: fence {self.fence} is behind {known}"
                hint = f"drop it; if the database was made anew, delete {self.repository.fence}"
                raise NotApplied("fence_lost", told, hint, fence=self.fence, seen=known)
            if known == self.fence:
                return now
            fresh = await self._write("")
            ran = await self._push(now, (), (f"{fresh}:{self.repository.fence}",))
            await self.fetch()
            if ran.exit_code and await self._object() == now:
                told = f"the fence cannot be raised: {last_words(ran.stderr)}"
                hint = f"allow the lane to push {self.repository.fence}"
                raise NotApplied("push_refused", told, hint)
        told = f"the fence was not raised in {TRIES_MAX} tries: others push all the time"
        raise NotApplied("busy", told, "try again later")

    async def push(
        self, commit: str, head: str, held: str, hooks: Path, limits: CommandLimits
    ) -> bool:
        """Whether the commit is on the branch now. False: somebody was faster, look again."""
        fresh, repository = await self._write(commit), self.repository
        ran = await self._push(
            held,
            (f"--force-with-lease={repository.head}:{head}",),
            (f"{commit}:{repository.head}", f"{fresh}:{repository.fence}"),
            hooks,
            limits,
        )
        if not ran.exit_code:
            return True
        # It may have arrived all the same; the ref tells, since nobody else writes this value.
        now = await self.fetch()
        there = await self._object()
        if there == fresh:
            return True
        if (now, there) == (head, held):
            told = f"the repository refused the commit: {last_words(ran.stderr)}"
            raise NotApplied("push_refused", told, "see what its hooks ask for", commit=commit)
        return False

    async def _push(
        self,
        held: str,
        options: tuple[str, ...],
        specs: tuple[str, ...],
        hooks: Path | None = None,
        limits: CommandLimits = LIMITS,
    ) -> Ran:
        return await self.git.run(
            *("push", "--quiet", "--atomic", "--no-recurse-submodules", "--no-signed"),
            f"--force-with-lease={self.repository.fence}:{held}",
            *options,
            *("--", self.repository.url, *specs),
            hooks=hooks,
            limits=limits,
        )

    async def _object(self) -> str:
        ran = await self.git.run("rev-parse", "--verify", "--quiet", self.repository.fence)
        return ran.stdout.decode().strip()

    async def _read(self, blob: str) -> int:
        if not blob:
            return 0
        told = await self.git.say("cat-file", "blob", blob)
        first = told.partition("\n")[0]
        if not first.isdecimal() or len(first) > 18:
            told = f"{self.repository.fence} says {first[:40]!r}, which is no fence"
            raise NotApplied("fence_lost", told, "see who wrote it, and delete the ref")
        return int(first)

    async def _write(self, commit: str) -> str:
        told = f"{self.fence}\n{commit}\n".encode()
        return await self.git.say("hash-object", "-w", "--stdin", stdin=told)
