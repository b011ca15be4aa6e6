"""Server-sent events: an answer that goes on as long as something happens.

Rules
1. A stream holds one page of events in memory and reads the next when the reader has taken it: a
   slow reader slows down nobody else. One that takes nothing for `STALL_SECONDS` is cut off.
2. A frame is sent whole or not at all, with its position as `id`: whoever comes back with the last
   one it saw misses nothing and sees nothing twice, at any server of the database.
3. While nothing happens there is a comment now and then, so that neither side takes the other for
   dead.
4. A stream ends when there will be no more events, when the reader goes away, when the server is
   about to end, when its token or session is good no more, and after `LIFE_SECONDS`. Whoever could
   see more is told to come back: `retry`.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from typing import Any, cast

import msgspec
from litestar import Response
from litestar.response.base import ASGIResponse
from litestar.types import Receive, Scope, Send

from handrail.engine.vocabulary import tell
from handrail.kernel.event_shown import ShownEvent
from handrail.server.authenticate import STILL
from handrail.server.waits import Waits, gone
from handrail.store.port import StoreError

log = logging.getLogger("handrail.http")

MEDIA_TYPE = "text/event-stream"
HEADERS = (
    (b"content-type", MEDIA_TYPE.encode()),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)
CHUNK_BYTES = 64_000
STALL_SECONDS = 60.0
LIFE_SECONDS = 900.0
ASK_SECONDS = 15.0
"""How often it is asked whether the reader would be let in still."""
COMMENT = b":\n\n"
COME_BACK = b"retry: 1000\n\n"
"""In milliseconds."""

Told = tuple[str, ShownEvent]
"""A position, and the event there."""
Pages = AsyncGenerator[Sequence[Told], None]
"""Events as they happen; an empty page says that there was nothing new for a moment."""


class EventStream(Response[str]):
    """The answer to whoever wants to follow. `beat` is the seconds between two comments. `at` is
    where it begins, for a reader that comes back before it saw an event."""

    def __init__(self, pages: Pages, waits: Waits, beat: float, at: str = "") -> None:
        super().__init__("", media_type=MEDIA_TYPE)
        self.stream = Streaming(pages, waits, beat, at)

    def to_asgi_response(self, *_: Any, **__: Any) -> ASGIResponse:  # noqa: ANN401 - as Litestar's
        return self.stream


class Streaming(ASGIResponse):
    """The answer on its way."""

    def __init__(self, pages: Pages, waits: Waits, beat: float, at: str) -> None:
        super().__init__(media_type=MEDIA_TYPE)
        self.pages, self.waits, self.beat, self.at = pages, waits, beat, at

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self.waits.place(scope["user"]):
            await send({"type": "http.response.start", "status": 200, "headers": [*HEADERS]})
            sending = asyncio.ensure_future(self._send_all(send))
            left = asyncio.ensure_future(gone(receive))
            ends = asyncio.ensure_future(self.waits.draining.wait())
            shut = asyncio.ensure_future(_shut_out(cast("dict[str, Any]", scope)[STILL]))
            tasks = (sending, left, ends, shut)
            try:
                await asyncio.wait(tasks, timeout=LIFE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            if left.cancelled():
                await self._end(sending, send)

    async def _send_all(self, send: Send) -> None:
        loop = asyncio.get_running_loop()
        said = loop.time()
        here = COMMENT if not self.at else b":\nid: %b\n\n" % self.at.encode()
        async with aclosing(self.pages):
            async for page in self.pages:
                quiet = loop.time() - said >= self.beat or here is not COMMENT
                for chunk in _chunks(page) if page else (here,) * quiet:
                    await _within(send, chunk)
                    said, here = loop.time(), COMMENT

    async def _end(self, sending: "asyncio.Future[None]", send: Send) -> None:
        """The reader is still there."""
        error = None if sending.cancelled() else sending.exception()
        if isinstance(error, TimeoutError):
            return  # it takes nothing any more
        if isinstance(error, StoreError):
            tell(log, "database_away", reason=str(error))
        elif error is not None:
            raise error
        is_over = not sending.cancelled() and error is None
        await _within(send, b"" if is_over else COME_BACK, more=False)


async def _shut_out(still: Callable[[], Awaitable[bool]]) -> None:
    """Until whoever reads would not be let in any more."""
    while True:
        await asyncio.sleep(ASK_SECONDS)
        try:
            if not await still():
                return
        except StoreError:  # nobody knows; what is sent needs the database too
            continue


async def _within(send: Send, body: bytes, *, more: bool = True) -> None:
    async with asyncio.timeout(STALL_SECONDS):
        await send({"type": "http.response.body", "body": body, "more_body": more})


def _chunks(page: Sequence[Told]) -> Iterator[bytes]:
    """The page's frames, some together."""
    chunk = bytearray()
    for position, event in page:
        chunk += frame(position, event)
        if len(chunk) >= CHUNK_BYTES:
            yield bytes(chunk)
            chunk.clear()
    if chunk:
        yield bytes(chunk)


def frame(position: str, event: ShownEvent) -> bytes:
    """One event as it stands in the stream. JSON has no line breaks of its own."""
    data = msgspec.json.encode(event)
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (position.encode(), event["type"].encode(), data)
