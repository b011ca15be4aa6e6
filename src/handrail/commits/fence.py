"""The fence at the repository: a ref that names the newest holder of the commit lock, so that the
repository itself refuses a holder that lost it.

Rules
1. A holder raises the ref to its own fence before it reads the branch. From then on the repository
   refuses every push of an earlier holder, whether or not that one knows that it has lost the lock.
2. A commit is pushed together with a new value of the ref, both or neither (`--atomic`), and both
   only if they are as they were read (`--force-with-lease`). The value changes with every push: git
   leaves out equal values, and the repository would not compare them.
3. A higher fence than one's own means that the lock was lost. That is final.

The ref points to a small text: the fence, and the commit that was pushed with it. One database
gives the fences of a branch; an operator who starts another deletes the ref first.
"""

from pathlib import Path

from handrail.agents.commands import CommandLimits, CompletedCommand
from handrail.commits.errors import CommitRejectedError, output_tail
from handrail.commits.git import GIT_LIMITS, Git
from handrail.commits.repository import Repository

RAISE_ATTEMPTS_MAX = 5
"""Attempts to raise the fence: each failure is a concurrent push."""


class FenceRef:
    """The ref as this folder last fetched it."""

    def __init__(self, git: Git, repository: Repository, fence: int) -> None:
        self.git, self.repository, self.fence = git, repository, fence

    async def fetch(self) -> str:
        """Fetch branch and fence; return the branch's head."""
        head = self.repository.head_ref
        await self.git.check_output(
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
        return await self.git.check_output("rev-parse", "--verify", f"{head}^{{commit}}")

    async def acquire(self) -> str:
        """Raise the fence and return the object that the ref points to. Raises if the lock was
        lost.
        """
        for _ in range(RAISE_ATTEMPTS_MAX):
            current_object = await self._read_ref()
            stored_fence = await self._read_fence(current_object)
            if stored_fence > self.fence:
                message = f"the commit lock was lost: fence {self.fence} is behind {stored_fence}"
                hint = f"drop it; if the database was made anew, delete {self.repository.fence_ref}"
                raise CommitRejectedError(
                    "fence_lost", message, hint, fence=self.fence, seen=stored_fence
                )
            if stored_fence == self.fence:
                return current_object
            new_object = await self._write_fence("")
            completed = await self._push(
                current_object, (), (f"{new_object}:{self.repository.fence_ref}",)
            )
            await self.fetch()
            if completed.exit_code and await self._read_ref() == current_object:
                message = f"the fence cannot be raised: {output_tail(completed.stderr)}"
                hint = f"allow the lane to push {self.repository.fence_ref}"
                raise CommitRejectedError("push_refused", message, hint)
        message = (
            f"the fence was not raised in {RAISE_ATTEMPTS_MAX} tries: others push all the time"
        )
        raise CommitRejectedError("busy", message, "try again later")

    async def push(
        self, commit: str, head: str, expected_object: str, hooks: Path, limits: CommandLimits
    ) -> bool:
        """Push; return whether the commit is on the branch now. False: a concurrent push won,
        retry.
        """
        new_object, repository = await self._write_fence(commit), self.repository
        completed = await self._push(
            expected_object,
            (f"--force-with-lease={repository.head_ref}:{head}",),
            (f"{commit}:{repository.head_ref}", f"{new_object}:{repository.fence_ref}"),
            hooks,
            limits,
        )
        if not completed.exit_code:
            return True
        # It may have arrived all the same; the ref tells, since only this push writes this value.
        current_head = await self.fetch()
        current_object = await self._read_ref()
        if current_object == new_object:
            return True
        if (current_head, current_object) == (head, expected_object):
            message = f"the repository refused the commit: {output_tail(completed.stderr)}"
            raise CommitRejectedError(
                "push_refused", message, "see what its hooks ask for", commit=commit
            )
        return False

    async def _push(
        self,
        expected_object: str,
        options: tuple[str, ...],
        refspecs: tuple[str, ...],
        hooks: Path | None = None,
        limits: CommandLimits = GIT_LIMITS,
    ) -> CompletedCommand:
        return await self.git.run(
            *("push", "--quiet", "--atomic", "--no-recurse-submodules", "--no-signed"),
            f"--force-with-lease={self.repository.fence_ref}:{expected_object}",
            *options,
            *("--", self.repository.url, *refspecs),
            hooks=hooks,
            limits=limits,
        )

    async def _read_ref(self) -> str:
        completed = await self.git.run(
            "rev-parse", "--verify", "--quiet", self.repository.fence_ref
        )
        return completed.stdout.decode().strip()

    async def _read_fence(self, blob: str) -> int:
        if not blob:
            return 0
        content = await self.git.check_output("cat-file", "blob", blob)
        first = content.partition("\n")[0]
        if not first.isdecimal() or len(first) > 18:
            message = f"{self.repository.fence_ref} says {first[:40]!r}, which is no fence"
            raise CommitRejectedError("fence_lost", message, "see who wrote it, and delete the ref")
        return int(first)

    async def _write_fence(self, commit: str) -> str:
        content = f"{self.fence}\n{commit}\n".encode()
        return await self.git.check_output("hash-object", "-w", "--stdin", stdin=content)
