"""A network that duplicates, reorders and drops requests, by a seed.

Dropped is a request before it arrives, or its answer on the way back: whoever asked sees the same,
and cannot know. A duplicate arrives some time before or after the one that is answered. A request
that is held back is overtaken by others.
"""

import asyncio
from collections import Counter
from random import Random

import httpx

OVERTAKEN_MAX = 8
"""Requests that may overtake one that is held back."""
PASSES_MAX = 400
"""Turns of the loop that it is held back at most, if nobody overtakes it."""


class Faulty(httpx.AsyncBaseTransport):
    def __init__(
        self,
        inner: httpx.AsyncBaseTransport,
        seed: int,
        *,
        duplicate: float = 0.2,
        reorder: float = 0.2,
        drop: float = 0.1,
    ) -> None:
        self.inner, self.chance = inner, Random(seed)
        self.duplicate, self.reorder, self.drop = duplicate, reorder, drop
        self.met: Counter[str] = Counter()
        """How many requests there were, and what happened to them."""
        self._arrived = 0
        self._copies: set[asyncio.Task[None]] = set()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        body = await request.aread()
        chance = self.chance
        self.met["sent"] += 1
        if chance.random() < self.duplicate:
            self.met["duplicated"] += 1
            self._copy(request, body, chance.randrange(OVERTAKEN_MAX))
        if chance.random() < self.reorder:
            self.met["reordered"] += 1
            await self._hold(chance.randrange(1, OVERTAKEN_MAX))
        dropped, early = chance.random() < self.drop, chance.random() < 0.5
        self.met["dropped"] += dropped
        if dropped and early:
            raise httpx.ConnectError("it never arrived", request=request)
        answer = await self._deliver(request, body)
        if dropped:
            await answer.aread()
            raise httpx.ReadError("the answer got lost", request=request)
        return answer

    async def _deliver(self, request: httpx.Request, body: bytes) -> httpx.Response:
        self._arrived += 1
        again = httpx.Request(request.method, request.url, headers=request.headers, content=body)
        return await self.inner.handle_async_request(again)

    def _copy(self, request: httpx.Request, body: bytes, overtaken: int) -> None:
        async def arrive() -> None:
            await self._hold(overtaken)
            await (await self._deliver(request, body)).aread()

        task = asyncio.create_task(arrive())
        self._copies.add(task)
        task.add_done_callback(self._copies.discard)

    async def _hold(self, overtaken: int) -> None:
        until = self._arrived + overtaken
        for _ in range(PASSES_MAX):
            if self._arrived >= until:
                return
            await asyncio.sleep(0)

    async def settled(self) -> None:
        """Until nothing is on its way any more."""
        await asyncio.gather(*self._copies)
