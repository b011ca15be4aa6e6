"""Event streams of one run or of everything, as server-sent events.

A position is the `id` of an event in its stream: in a run its number, in the feed of everything
"COMMIT-EVENT". The header `Last-Event-ID`, which browsers send by themselves, overrides `after`.

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

from handrail.api.runs import (
    LAST_EVENT_ID_HEADER,
    LAST_EVENT_TYPE,
    POSITION_CHARS_MAX,
    EventCalls,
    PositionQuery,
    RunCalls,
)
from handrail.api.shared import EVENT_STREAM
from handrail.engine.engine import Engine
from handrail.engine.log_events import log_event
from handrail.server.access import SCOPE_IS_STILL_ALLOWED, HTTPRequest
from handrail.server.binding import serves
from handrail.server.long_polls import LongPolls, wait_for_disconnect
from handrail.server.problems import HTTPProblemError
from handrail.store.rows import StoreError
from handrail.views.event_view import EventView

log = logging.getLogger("handrail.http")

RESPONSE_HEADERS = (
    (b"content-type", EVENT_STREAM.encode()),
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

PAGE_EVENTS = 50
"""Events that a stream holds in memory."""
SEQ_DIGITS_MAX = 15
POSITION_BEGINNING = "0"

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
        super().__init__("", media_type=EVENT_STREAM)
        self.stream = ASGIEventStream(pages, long_polls, comment_seconds, position)

    def to_asgi_response(self, *_: Any, **__: Any) -> ASGIResponse:  # noqa: ANN401 - as Litestar's
        return self.stream


class ASGIEventStream(ASGIResponse):
    """Sends the stream."""

    def __init__(
        self, pages: EventPages, long_polls: LongPolls, comment_seconds: float, position: str
    ) -> None:
        super().__init__(media_type=EVENT_STREAM)
        self.pages, self.long_polls = pages, long_polls
        self.comment_seconds, self.position = comment_seconds, position

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


@serves(RunCalls.follow)
async def follow_run(
    engine: Engine,
    long_polls: LongPolls,
    execution_id: str,
    request: HTTPRequest,
    query: PositionQuery,
) -> Response[str]:
    seq = _parse_seq(_read_position(request, query) or POSITION_BEGINNING)
    run = await engine.runs.state(execution_id)
    if seq > run.seq:
        raise _bad_position(str(seq), f"run '{run.id}' has {run.seq} events")
    if run.has_ended and seq == run.seq:
        return Response("", status_code=204)
    return EventStreamResponse(
        _run_pages(engine, run.id, seq), long_polls, engine.settings.heartbeat
    )


@serves(EventCalls.follow)
async def follow_events(
    engine: Engine,
    long_polls: LongPolls,
    request: HTTPRequest,
    query: PositionQuery,
) -> Response[str]:
    end = await engine.feed.position()
    position = _read_position(request, query) or end
    if position == POSITION_BEGINNING:
        position = ""
    await engine.feed.read(position, 1)  # refuses an invalid position
    if _position_key(position) > _position_key(end):
        raise _bad_position(position, f"the record goes to {end}")
    return EventStreamResponse(
        _feed_pages(engine, position), long_polls, engine.settings.heartbeat, position
    )


def _read_position(request: HTTPRequest, query: PositionQuery) -> str | None:
    position = request.headers.get(LAST_EVENT_ID_HEADER.lower())
    if position and len(position) > POSITION_CHARS_MAX:
        raise _bad_position(position[:POSITION_CHARS_MAX], "it is too long")
    return position or query.after


async def _run_pages(engine: Engine, run_id: str, after: int) -> EventPages:
    async with aclosing(cast("AsyncGenerator[None, None]", engine.runs.changes(run_id))) as changes:
        async for _ in changes:
            while page := await engine.run_queries.events(run_id, after, PAGE_EVENTS):
                yield [(str(event["seq"]), event) for event in page]
                after = page[-1]["seq"]
                if page[-1]["type"] == LAST_EVENT_TYPE:
                    return
            yield ()


async def _feed_pages(engine: Engine, after: str) -> EventPages:
    while True:  # until the response closes it
        while page := await engine.feed.read(after, PAGE_EVENTS):
            yield page
            after = page[-1][0]
        yield ()
        await engine.feed.wait(engine.settings.heartbeat, after)


def _parse_seq(position: str) -> int:
    if not (position.isascii() and position.isdigit() and len(position) <= SEQ_DIGITS_MAX):
        raise _bad_position(position, "events of a run have numbers from 1")
    return int(position)


def _position_key(position: str) -> tuple[int, int]:
    """Return a sort key of a position that the engine has validated."""
    commit, _, event = position.partition("-")
    return int(commit or 0), int(event or 0)


def _bad_position(position: str, reason: str) -> HTTPProblemError:
    return HTTPProblemError(
        422,
        "bad_position",
        f"'{position}' is not a position in this stream: {reason}",
        "send the `id` of the last event that was seen, or 0 for the beginning",
        field=LAST_EVENT_ID_HEADER,
    )
