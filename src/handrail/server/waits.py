"""Requests that wait for something: how many there may be, how long, and that they end when the
server does. Nobody has more than a part of the places, so that nobody keeps all others out."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal, TypeVar

from litestar import Request
from litestar.types import Receive

from handrail.server.access import Caller
from handrail.server.problems import RETRY_SECONDS, Wrong
from handrail.server.settings import ServerSettings

T = TypeVar("T")

SHARE = 4
"""One caller has a fourth of the places at most,"""
SHARE_MIN = 100
"""or so many, if that is more."""


class Waits:
    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self.count = 0
        self._of: Counter[str] = Counter()
        self.draining = asyncio.Event()
        """Set when the server is about to end."""

    def seconds(self, wanted: float | None) -> float:
        """How long a request that wants to wait so long may."""
        return 0.0 if self.draining.is_set() else min(wanted or 0.0, self.settings.wait_max)

    @asynccontextmanager
    async def place(self, caller: Caller) -> AsyncGenerator[None]:
        """A place for one that waits; none is left if too many do, or too many of this caller's."""
        who = f"{caller.role}:{caller.name}"
        most = self.settings.waiting_max
        if self.count >= most:
            raise _too_many(f"{self.count} requests are waiting already")
        if self._of[who] >= max(SHARE_MIN, most // SHARE):
            raise _too_many(f"{self._of[who]} requests of {caller.name} are waiting already")
        self.count += 1
        self._of[who] += 1
        try:
            yield
        finally:
            self.count -= 1
            self._of[who] -= 1
            if not self._of[who]:
                del self._of[who]

    async def or_drain(
        self,
        work: Awaitable[T],
        request: Request[Any, Any, Any] | None = None,
        cut: Callable[[], Awaitable[None]] | None = None,
    ) -> T | None:
        """What comes of it; None if the server ends before, or whoever made the request is gone
        (then `cut` is called). The work is cancelled then."""
        task = asyncio.ensure_future(work)
        ends = [asyncio.ensure_future(self.draining.wait())]
        ends += [asyncio.ensure_future(gone(request.receive))] if request is not None else []
        try:
            await asyncio.wait((task, *ends), return_when=asyncio.FIRST_COMPLETED)
            if cut is not None and not task.done() and not self.draining.is_set():
                await cut()
            return task.result() if task.done() else None
        finally:
            for end in ends:
                end.cancel()
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)


def _too_many(told: str) -> Wrong:
    again = {"Retry-After": str(RETRY_SECONDS)}
    return Wrong(503, "too_many_waiting", f"{told}; try again", headers=again)


async def gone(receive: Receive) -> Literal[True]:
    """Until the connection is closed; the request's body was read, or there is none."""
    while (await receive())["type"] != "http.disconnect":
        pass
    return True
