"""Events as they happen, of one run or of everything, as server-sent events.

A position is the `id` of an event in its stream: in a run its number, in the feed of everything
"COMMIT-EVENT". The header `Last-Event-ID`, which browsers send by themselves, goes before `after`.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, cast

from litestar import Response, get
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import HeaderParameter, Parameter

from handrail.engine.engine import Engine
from handrail.server.problems import Place, Wrong, documented
from handrail.server.streams import MEDIA_TYPE, EventStream, Pages
from handrail.server.waits import Waits

PAGE = 50
"""Events that a stream holds in memory."""
SEQ_DIGITS_MAX = 15
BEGINNING = "0"
LAST = "ended"
"""The type of a run's last event."""
POSITION_MAX = 40
LastEventId = Annotated[
    str | None,
    HeaderParameter(
        name="Last-Event-ID", max_length=POSITION_MAX, description="Go on after this event."
    ),
]
After = Annotated[
    str | None,
    Parameter(max_length=POSITION_MAX, description="As Last-Event-ID; 0 is the beginning."),
]
NO_MORE = {204: ResponseSpec(data_container=None, description="There will be no more events.")}


@get(
    "/executions/{execution_id:str}/events",
    media_type=MEDIA_TYPE,
    responses={**documented(404), **NO_MORE},
)
async def events_of_run(
    engine: Engine,
    waits: Waits,
    execution_id: str,
    last_event_id: LastEventId = None,
    after: After = None,
) -> Response[str]:
    """The events of a run, from its beginning or after the last one seen, until the last one. 204
    once all were seen."""
    seq = _seq(last_event_id or after or BEGINNING)
    run = await engine.state(execution_id)
    if seq > run.seq:
        raise _bad(str(seq), f"run '{run.id}' has {run.seq} events")
    if run.ended and seq == run.seq:
        return Response("", status_code=204)
    return EventStream(_of_run(engine, run.id, seq), waits, engine.settings.heartbeat)


@get("/events", media_type=MEDIA_TYPE, responses=documented())
async def events(
    engine: Engine, waits: Waits, last_event_id: LastEventId = None, after: After = None
) -> Response[str]:
    """Everything that happens from now on, or after the last event seen; with `after=0` from the
    very beginning."""
    end = await engine.position()
    position = last_event_id or after or end
    if position == BEGINNING:
        position = ""
    await engine.feed(position, 1)  # refused, if it is no position
    if _place(position) > _place(end):
        raise _bad(position, f"the record goes to {end}")
    return EventStream(_of_all(engine, position), waits, engine.settings.heartbeat, position)


async def _of_run(engine: Engine, run_id: str, after: int) -> Pages:
    found = cast("AsyncGenerator[None, None]", engine.changes(run_id))
    async with aclosing(found) as changes:
        async for _ in changes:
            while page := await engine.history_of(run_id, after, PAGE):
                yield [(str(event["seq"]), event) for event in page]
                after = page[-1]["seq"]
                if page[-1]["type"] == LAST:
                    return
            yield ()


async def _of_all(engine: Engine, after: str) -> Pages:
    while True:  # until it is closed, by whoever sends it on
        while page := await engine.feed(after, PAGE):
            yield page
            after = page[-1][0]
        yield ()
        await engine.feed_changed(engine.settings.heartbeat, after)


def _seq(position: str) -> int:
    if not (position.isascii() and position.isdigit() and len(position) <= SEQ_DIGITS_MAX):
        raise _bad(position, "the events of a run are numbered from 1")
    return int(position)


def _place(position: str) -> tuple[int, int]:
    """Of a position that the engine has looked at, for comparing."""
    commit, _, event = position.partition("-")
    return int(commit or 0), int(event or 0)


def _bad(position: str, why: str) -> Wrong:
    told = f"'{position}' is no position in this stream: {why}"
    hint = "send the `id` of the last event that was seen, or 0 for the beginning"
    place = Place("bad_position", "Last-Event-ID", told, hint)
    return Wrong(422, "bad_position", f"{told}; {hint}", errors=(place,))


HANDLERS = [events_of_run, events]
