"""Runs of programs elsewhere, under a guard: begun, told of while they go on, with questions."""

from datetime import datetime
from typing import Annotated, Any

from litestar import Request, post
from msgspec import Meta

from handrail.client.guard_calls import Heard
from handrail.engine.engine import Engine
from handrail.guard import record
from handrail.kernel.decision import Value
from handrail.kernel.limits import Limits
from handrail.kernel.run.events import Ended, HandedOff, Reported
from handrail.server.access import Caller
from handrail.server.authors import Signed, check_author
from handrail.server.bodies import Text
from handrail.server.idempotency import key_of
from handrail.server.problems import documented

NAME_MAX, TITLE_MAX = 200, 1_000
EVENTS_MAX, PATHS_MAX = 1_000, 10_000
WAIT_MAX = 30 * 24 * 3600
"""Seconds that a person has for an answer."""
WAIT_MIN = 0.1
Name = Annotated[str, Meta(min_length=1, max_length=NAME_MAX, pattern=r"\S")]
IN_ADDRESSES = r"^[^/\\]*[^/\\.\s][^/\\]*$"
TeamName = Annotated[str, Meta(min_length=1, max_length=NAME_MAX, pattern=IN_ADDRESSES)]


REFUSALS = documented(403, 404, 409)


class NewGuardedRun(Value):
    """`team` is the name of its definition, `agent` who has the turn first."""

    team: TeamName
    limits: Limits
    agent: Name
    title: Annotated[Text, Meta(max_length=TITLE_MAX)] = ""
    paths: Annotated[tuple[Text, ...], Meta(max_length=PATHS_MAX)] | None = None


class SeenByGuard(Value):
    """Results, handoffs and the end, in their order; `at` is the teller's clock."""

    events: Annotated[tuple[Reported | HandedOff | Ended, ...], Meta(max_length=EVENTS_MAX)]
    at: Annotated[datetime, Meta(tz=True)]


class NewQuestion(Value):
    """Unanswered after so many seconds, the run ends."""

    question: Annotated[Text, Meta(min_length=1)]
    seconds: Annotated[float, Meta(ge=WAIT_MIN, le=WAIT_MAX)]


@post("/guarded-runs", responses=documented(409))
async def begin(
    request: Request[Any, Any, Any], engine: Engine, caller: Caller, data: NewGuardedRun
) -> Heard:
    """A run that goes on elsewhere, under a guard, is on record from now on."""
    return await record.begin(
        engine,
        data.team,
        data.limits,
        by=caller.name,
        title=data.title,
        agent=data.agent,
        paths=data.paths,
        key=key_of(request),
    )


@post("/guarded-runs/{execution_id:str}/events", status_code=200, responses=REFUSALS)
async def tell(
    request: Request[Any, Any, Any],
    engine: Engine,
    caller: Caller,
    execution_id: str,
    data: SeenByGuard,
) -> Heard:
    """What its guard has seen since; nothing is a sign of life. 409 once it has ended here."""
    key, named = key_of(request), [one.by for one in data.events if isinstance(one, Ended)]
    if any(named):
        await engine.state(execution_id)  # there is such a run, to keep it with
        await check_author(engine, caller, Signed(by=named[-1]), execution_id)
    return await record.tell(engine, execution_id, data.events, by=caller.name, at=data.at, key=key)


@post(
    "/guarded-runs/{execution_id:str}/question",
    status_code=200,
    responses=REFUSALS,
)
async def ask(
    request: Request[Any, Any, Any],
    engine: Engine,
    caller: Caller,
    execution_id: str,
    data: NewQuestion,
) -> Heard:
    """The program waits for a person: the question is in the inbox, and the run waits."""
    asked, key = data, key_of(request)
    return await record.ask(
        engine, execution_id, asked.question, asked.seconds, by=caller.name, key=key
    )


HANDLERS = [begin, tell, ask]
