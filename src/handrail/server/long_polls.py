"""Long polls: bounds on their number and time, and their end when the server drains. A caller has
only a part of the slots, so that no caller keeps all others out."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Literal, TypeVar

from litestar.types import Receive

from handrail.server.access import Caller, HTTPRequest
from handrail.server.problems import RETRY_HEADERS, HTTPProblemError
from handrail.server.settings import ServerSettings

T = TypeVar("T")

CALLER_SHARE = 4
"""One caller has at most a fourth of the slots,"""
CALLER_SLOTS_MIN = 100
"""or this many, if that is more."""


class LongPolls:
    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self.count = 0
        self._count_by_caller: Counter[str] = Counter()
        self.draining = asyncio.Event()
        """Set when the server begins to shut down."""

    def allowed_seconds(self, requested: float | None) -> float:
        """Return how many of the requested seconds a request may wait."""
        return 0.0 if self.draining.is_set() else min(requested or 0.0, self.settings.wait_max)

    @asynccontextmanager
    async def slot(self, caller: Caller) -> AsyncGenerator[None]:
        """Hold a slot; 503 if too many requests wait, in all or of this caller."""
        caller_key = f"{caller.role}:{caller.name}"
        slots_max = self.settings.waiting_max
        if self.count >= slots_max:
            raise _too_many(f"{self.count} requests are waiting already")
        if self._count_by_caller[caller_key] >= max(CALLER_SLOTS_MIN, slots_max // CALLER_SHARE):
            raise _too_many(
                f"{self._count_by_caller[caller_key]} requests of {caller.name} are waiting already"
            )
        self.count += 1
        self._count_by_caller[caller_key] += 1
        try:
            yield
        finally:
            self.count -= 1
            self._count_by_caller[caller_key] -= 1
            if not self._count_by_caller[caller_key]:
                del self._count_by_caller[caller_key]

    async def hold(
        self, request: HTTPRequest, requested: float, work: Callable[[float], Awaitable[T]]
    ) -> T | None:
        """Return the result of `work(seconds)`, which waits as long as the request may, in a slot;
        None if the server drains first, or the client disconnects."""
        seconds = self.allowed_seconds(requested)
        if seconds <= 0:
            return await work(0)
        async with self.slot(request.scope["user"]):
            return await self.wait_or_drain(work(seconds), request)

    async def wait_or_drain(
        self,
        work: Awaitable[T],
        request: HTTPRequest,
        on_disconnect: Callable[[], Awaitable[None]] | None = None,
    ) -> T | None:
        """Return the result of the work; None if the server drains first, or the client disconnects
        (then `on_disconnect` is called). In both cases the work is cancelled."""
        task = asyncio.ensure_future(work)
        ends = (self.draining.wait(), wait_for_disconnect(request.receive))
        end_waiters = [asyncio.ensure_future(end) for end in ends]
        try:
            await asyncio.wait((task, *end_waiters), return_when=asyncio.FIRST_COMPLETED)
            if on_disconnect is not None and not task.done() and not self.draining.is_set():
                await on_disconnect()
            return task.result() if task.done() else None
        finally:
            for waiter in end_waiters:
                waiter.cancel()
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)


def _too_many(reason: str) -> HTTPProblemError:
    return HTTPProblemError(503, "too_many_waiting", reason, "try again", headers=RETRY_HEADERS)


async def wait_for_disconnect(receive: Receive) -> Literal[True]:
    """Return when the connection is closed; the request's body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass
    return True
