"""Batched memory writes: rows that arrive during one transaction make the next. A hundred tickets
that end together pay for a few commits, not for a hundred."""

import asyncio
from collections.abc import Awaitable, Callable

from handrail.store.ticket_memory import MemoryRow

WRITE_BATCH_ROWS = 200
WriteRows = Callable[[list[MemoryRow]], Awaitable[list[MemoryRow]]]


class MemoryWriter:
    def __init__(self, write_rows: WriteRows) -> None:
        self._write_rows = write_rows
        self._waiting: list[tuple[MemoryRow, asyncio.Future[MemoryRow]]] = []
        self._task: asyncio.Task[None] | None = None

    async def write(self, row: MemoryRow) -> MemoryRow:
        """Store a row and return it as stored, on disk. It is stored even if the caller goes
        away."""
        loop = asyncio.get_running_loop()
        written: asyncio.Future[MemoryRow] = loop.create_future()
        self._waiting.append((row, written))
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._write_waiting())
        return await written

    async def wait_idle(self) -> None:
        """Wait until nothing is left to store."""
        if self._task is not None:
            await self._task

    async def _write_waiting(self) -> None:
        await asyncio.sleep(0)  # callers that are about to arrive do
        while self._waiting:
            batch, self._waiting = (
                self._waiting[:WRITE_BATCH_ROWS],
                self._waiting[WRITE_BATCH_ROWS:],
            )
            try:
                stored_rows = await self._write_rows([row for row, _ in batch])
            except Exception as error:  # every caller concerned gets it
                for _, written in batch:
                    if not written.done():
                        written.set_exception(error)
            else:
                for (_, written), row in zip(batch, stored_rows, strict=True):
                    if not written.done():
                        written.set_result(row)
