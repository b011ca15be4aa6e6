"""Checking the record while the server goes on: off its loop, one check at a time.

Whoever asks while the same check runs hears its result. A check reads everything there is, on a
connection of its own that can only read; when the server ends, or nobody waits for it any more, it
is broken off. So many wait for their turn and no more.
"""

import asyncio

from handrail.engine.audit import Verified, verify
from handrail.engine.engine import Engine
from handrail.server.problems import RETRY_SECONDS, Wrong
from handrail.store.port import StoreError

CHECKS_MAX = 8
"""Under way, or waiting for their turn: each is for another head."""


class Check:
    """One check, and how many wait for it."""

    def __init__(self) -> None:
        self.listeners = 0
        self.begun = False
        self.task: asyncio.Task[Verified] | None = None


class Verifying:
    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._checks: dict[str | None, Check] = {}
        self._tasks: set[asyncio.Task[Verified]] = set()
        self._turn = asyncio.Lock()
        self._broken = False

    async def check(self, head: str | None) -> Verified:
        """The record as it is; `head` was kept elsewhere, and must be among its heads."""
        check = self._checks.get(head) or self._begin(head)
        assert check.task is not None, "begun"
        check.listeners += 1
        try:
            return await asyncio.shield(check.task)
        finally:
            check.listeners -= 1
            if not check.listeners:
                self._leave(head, check)

    async def close(self) -> None:
        """Nobody waits for the end of a check that nobody will hear of."""
        self._broken = True
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin(self, head: str | None) -> Check:
        if len(self._checks) >= CHECKS_MAX:
            told = f"{CHECKS_MAX} checks of the record are asked for already"
            again = {"Retry-After": str(RETRY_SECONDS)}
            raise Wrong(503, "too_many_checks", f"{told}; try again later", headers=again)
        check = self._checks[head] = Check()
        check.task = asyncio.create_task(self._check(head, check))
        self._tasks.add(check.task)
        check.task.add_done_callback(self._done)
        return check

    def _leave(self, head: str | None, check: Check) -> None:
        """It was heard, or nobody waits for it: whoever asks from now on begins another one."""
        if self._checks.get(head) is check:
            del self._checks[head]
        if check.task is not None and not check.begun:
            check.task.cancel()

    def _done(self, task: asyncio.Task[Verified]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # heard by whoever still waits

    async def _check(self, head: str | None, check: Check) -> Verified:
        async with self._turn:
            check.begun = True
            return await asyncio.get_running_loop().run_in_executor(None, self._verify, head, check)

    def _verify(self, head: str | None, check: Check) -> Verified:
        records = self.engine.store.records()
        if records is None:
            told = "the database is in the memory of this server, where only it can look"
            hint = "serve a database on disk, or verify a backup of it: handrail verify"
            raise Wrong(409, "in_memory", f"{told}; {hint}")

        def going() -> None:
            if self._broken or not check.listeners:
                raise StoreError("the server ends, or nobody waits; the check was broken off")

        try:
            return verify(records, head, going=going)
        finally:
            records.close()
