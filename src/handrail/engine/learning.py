"""What is to be remembered, many at a time: whatever comes in while one transaction is under way
makes the next. A hundred tickets that end together pay for a few commits, not for a hundred."""

import asyncio
from collections.abc import Awaitable, Callable

from handrail.store.memory import MemoryRow

AT_ONCE = 200
Keep = Callable[[list[MemoryRow]], Awaitable[list[MemoryRow]]]


class Learning:
    def __init__(self, keep: Keep) -> None:
        self._keep = keep
        self._waiting: list[tuple[MemoryRow, asyncio.Future[MemoryRow]]] = []
        self._task: asyncio.Task[None] | None = None

    async def learn(self, row: MemoryRow) -> MemoryRow:
        """As it is kept; on disk when this returns. Whoever asked may go away: it is kept all the
        same."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[MemoryRow] = loop.create_future()
        self._waiting.append((row, done))
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._go_on())
        return await done

    async def settled(self) -> None:
        """Until nothing is left to keep."""
        if self._task is not None:
            await self._task

    async def _go_on(self) -> None:
        await asyncio.sleep(0)  # those who are about to come in do
        while self._waiting:
            taken, self._waiting = self._waiting[:AT_ONCE], self._waiting[AT_ONCE:]
            try:
                kept = await self._keep([row for row, _ in taken])
            except Exception as error:  # told to everybody whom it concerns
                for _, done in taken:
                    if not done.done():
                        done.set_exception(error)
            else:
                for (_, done), row in zip(taken, kept, strict=True):
                    if not done.done():
                        done.set_result(row)
