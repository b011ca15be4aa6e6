"""Event streams of one run or of everything, as server-sent events.

A position is the `id` of an event in its stream: in a run its number, in the feed of everything
"COMMIT-EVENT". The header `Last-Event-ID`, which browsers send by themselves, overrides `after`.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, cast

from litestar import Request, Response

from handrail.api.events import (
    LAST_EVENT_ID_HEADER,
    LAST_EVENT_TYPE,
    POSITION_CHARS_MAX,
    EventCalls,
    PositionQuery,
)
from handrail.api.runs import RunCalls
from handrail.engine.engine import Engine
from handrail.server.binding import serves
from handrail.server.long_polls import LongPolls
from handrail.server.problems import FieldError, HTTPProblemError
from handrail.server.sse import EventPages, EventStreamResponse

PAGE_EVENTS = 50
"""Events that a stream holds in memory."""
SEQ_DIGITS_MAX = 15
POSITION_BEGINNING = "0"


@serves(RunCalls.follow)
async def follow_run(
    engine: Engine,
    long_polls: LongPolls,
    execution_id: str,
    request: Request[Any, Any, Any],
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
    request: Request[Any, Any, Any],
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


def _read_position(request: Request[Any, Any, Any], query: PositionQuery) -> str | None:
    position = request.headers.get(LAST_EVENT_ID_HEADER.lower())
    if position and len(position) > POSITION_CHARS_MAX:
        raise _bad_position(position[:POSITION_CHARS_MAX], "it is too long")
    return position or query.after


async def _run_pages(engine: Engine, run_id: str, after: int) -> EventPages:
    source = cast("AsyncGenerator[None, None]", engine.runs.changes(run_id))
    async with aclosing(source) as changes:
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
        raise _bad_position(position, "the events of a run are numbered from 1")
    return int(position)


def _position_key(position: str) -> tuple[int, int]:
    """Return a sort key of a position that the engine has validated."""
    commit, _, event = position.partition("-")
    return int(commit or 0), int(event or 0)


def _bad_position(position: str, reason: str) -> HTTPProblemError:
    message = f"'{position}' is no position in this stream: {reason}"
    hint = "send the `id` of the last event that was seen, or 0 for the beginning"
    field_error = FieldError("bad_position", "Last-Event-ID", message, hint)
    return HTTPProblemError(422, "bad_position", f"{message}; {hint}", errors=(field_error,))
