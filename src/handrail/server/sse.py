"""Server-sent events: a response that sends events as they happen.

Rules
1. A stream holds one page of events in memory and reads the next when the reader has taken it: a
   slow reader slows down no other. A reader that takes nothing for `STALL_SECONDS_MAX` is cut off.
2. A frame is sent whole or not at all, with its position as `id`: a reader that returns with its
   last position misses nothing and sees nothing twice, at any server of the database.
3. While nothing happens, the server sends a comment now and then, so that neither side takes the
   other for dead.
4. A stream ends after the last event, when the reader disconnects, when the server shuts down, when
   its token or session becomes invalid, and after `LIFE_SECONDS_MAX`. If more events are possible,
   `retry` tells the reader to reconnect.
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

from handrail.engine.log_events import log_event
from handrail.server.authentication import SCOPE_IS_STILL_ALLOWED
from handrail.server.long_polls import LongPolls, wait_for_disconnect
from handrail.store.rows import StoreError
from handrail.views.event_view import EventView

log = logging.getLogger("handrail.http")

MEDIA_TYPE = "text/event-stream"
RESPONSE_HEADERS = (
    (b"content-type", MEDIA_TYPE.encode()),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)
CHUNK_BYTES = 64_000
STALL_SECONDS_MAX = 60.0
LIFE_SECONDS_MAX = 900.0
RECHECK_SECONDS = 15.0
"""How often the stream checks that the reader still has access."""
COMMENT_FRAME = b":\n\n"
RETRY_FRAME = b"retry: 1000\n\n"
"""In milliseconds."""

PositionedEvent = tuple[str, EventView]
"""A position, and its event."""
EventPages = AsyncGenerator[Sequence[PositionedEvent], None]
"""Pages of events as they happen; an empty page means nothing new for a moment."""


class EventStreamResponse(Response[str]):
    """An event stream. `comment_seconds` is the time between two comments. `position` is where it
    begins, for a reader that reconnects before it saw an event."""

    def __init__(
        self, pages: EventPages, long_polls: LongPolls, comment_seconds: float, position: str = ""
    ) -> None:
        super().__init__("", media_type=MEDIA_TYPE)
        self.stream = ASGIEventStream(pages, long_polls, comment_seconds, position)

    def to_asgi_response(self, *_: Any, **__: Any) -> ASGIResponse:  # noqa: ANN401 - as Litestar's
        return self.stream


class ASGIEventStream(ASGIResponse):
    """Sends the stream."""

    def __init__(
        self, pages: EventPages, long_polls: LongPolls, comment_seconds: float, position: str
    ) -> None:
        super().__init__(media_type=MEDIA_TYPE)
        self.pages, self.long_polls, self.comment_seconds, self.position = (
            pages,
            long_polls,
            comment_seconds,
            position,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self.long_polls.slot(scope["user"]):
            await send(
                {"type": "http.response.start", "status": 200, "headers": [*RESPONSE_HEADERS]}
            )
            sending = asyncio.ensure_future(self._send_all(send))
            disconnected = asyncio.ensure_future(wait_for_disconnect(receive))
            draining = asyncio.ensure_future(self.long_polls.draining.wait())
            denied = asyncio.ensure_future(
                _wait_until_denied(cast("dict[str, Any]", scope)[SCOPE_IS_STILL_ALLOWED])
            )
            tasks = (sending, disconnected, draining, denied)
            try:
                await asyncio.wait(
                    tasks, timeout=LIFE_SECONDS_MAX, return_when=asyncio.FIRST_COMPLETED
                )
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            if disconnected.cancelled():
                await self._finish(sending, send)

    async def _send_all(self, send: Send) -> None:
        loop = asyncio.get_running_loop()
        sent_at = loop.time()
        keepalive = (
            COMMENT_FRAME if not self.position else b":\nid: %b\n\n" % self.position.encode()
        )
        async with aclosing(self.pages):
            async for page in self.pages:
                is_due = (
                    loop.time() - sent_at >= self.comment_seconds or keepalive is not COMMENT_FRAME
                )
                for chunk in _encode_chunks(page) if page else (keepalive,) * is_due:
                    await _send_chunk(send, chunk)
                    sent_at, keepalive = loop.time(), COMMENT_FRAME

    async def _finish(self, sending: "asyncio.Future[None]", send: Send) -> None:
        """End the stream of a reader that is still connected."""
        error = None if sending.cancelled() else sending.exception()
        if isinstance(error, TimeoutError):
            return  # the reader has stalled
        if isinstance(error, StoreError):
            log_event(log, "database_away", reason=str(error))
        elif error is not None:
            raise error
        is_over = not sending.cancelled() and error is None
        await _send_chunk(send, b"" if is_over else RETRY_FRAME, more=False)


async def _wait_until_denied(is_still_allowed: Callable[[], Awaitable[bool]]) -> None:
    """Return when the reader no longer has access."""
    while True:
        await asyncio.sleep(RECHECK_SECONDS)
        try:
            if not await is_still_allowed():
                return
        except StoreError:  # unknown; the events need the database too
            continue


async def _send_chunk(send: Send, body: bytes, *, more: bool = True) -> None:
    async with asyncio.timeout(STALL_SECONDS_MAX):
        await send({"type": "http.response.body", "body": body, "more_body": more})


def _encode_chunks(page: Sequence[PositionedEvent]) -> Iterator[bytes]:
    """Yield the page's frames, several per chunk."""
    chunk = bytearray()
    for position, event in page:
        chunk += encode_frame(position, event)
        if len(chunk) >= CHUNK_BYTES:
            yield bytes(chunk)
            chunk.clear()
    if chunk:
        yield bytes(chunk)


def encode_frame(position: str, event: EventView) -> bytes:
    """Encode one event as a frame. Encoded JSON has no line breaks."""
    data = msgspec.json.encode(event)
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (position.encode(), event["type"].encode(), data)
