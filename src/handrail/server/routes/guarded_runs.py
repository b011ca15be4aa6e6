"""Guarded runs: programs elsewhere begin them, record events, and request approvals."""

from datetime import datetime
from typing import Annotated, Any

from litestar import Request, post
from msgspec import Meta

from handrail.engine.engine import Engine
from handrail.guard import recording
from handrail.kernel.decision import Value
from handrail.kernel.definition.limits import Limits
from handrail.kernel.run.events import Ended, GuardedEvent
from handrail.kernel.run.guarded import ASK_SECONDS_MAX
from handrail.server.access import Caller
from handrail.server.author_check import AuthoredBody, check_author
from handrail.server.idempotency import read_key
from handrail.server.problems import problem_responses
from handrail.server.request_body import NulFreeText
from handrail.views.guarded_run import GuardedRunStatus

NAME_CHARS_MAX, TITLE_CHARS_MAX = 200, 1_000
EVENTS_MAX, PATHS_MAX = 1_000, 10_000
ANSWER_SECONDS_MIN = 0.1
Name = Annotated[str, Meta(min_length=1, max_length=NAME_CHARS_MAX, pattern=r"\S")]
URL_SAFE_PATTERN = r"^[^/\\]*[^/\\.\s][^/\\]*$"
TeamName = Annotated[str, Meta(min_length=1, max_length=NAME_CHARS_MAX, pattern=URL_SAFE_PATTERN)]


REFUSAL_RESPONSES = problem_responses(403, 404, 409)


class NewGuardedRun(Value):
    """`team` is the name of the definition, `agent` acts first."""

    team: TeamName
    limits: Limits
    agent: Name
    title: Annotated[NulFreeText, Meta(max_length=TITLE_CHARS_MAX)] = ""
    paths: Annotated[tuple[NulFreeText, ...], Meta(max_length=PATHS_MAX)] | None = None


class GuardedEvents(Value):
    """Results, handoffs and the end, in order; `at` is the time by the caller's clock."""

    events: Annotated[tuple[GuardedEvent, ...], Meta(max_length=EVENTS_MAX)]
    at: Annotated[datetime, Meta(tz=True)]


class NewGuardedApproval(Value):
    """Without an answer, the run ends after `seconds`."""

    question: Annotated[NulFreeText, Meta(min_length=1)]
    seconds: Annotated[float, Meta(ge=ANSWER_SECONDS_MIN, le=ASK_SECONDS_MAX)]


@post("/guarded-runs", responses=problem_responses(409))
async def begin(
    request: Request[Any, Any, Any], engine: Engine, caller: Caller, data: NewGuardedRun
) -> GuardedRunStatus:
    """A run that goes on elsewhere, under a guard, is on record from now on."""
    return await recording.begin_run(
        engine,
        data.team,
        data.limits,
        by=caller.name,
        title=data.title,
        agent=data.agent,
        paths=data.paths,
        key=read_key(request),
    )


@post("/guarded-runs/{execution_id:str}/events", status_code=200, responses=REFUSAL_RESPONSES)
async def tell(
    request: Request[Any, Any, Any],
    engine: Engine,
    caller: Caller,
    execution_id: str,
    data: GuardedEvents,
) -> GuardedRunStatus:
    """What its guard has seen since; nothing is a sign of life. 409 once it has ended here."""
    key, authors = (
        read_key(request),
        [event.by for event in data.events if isinstance(event, Ended)],
    )
    if any(authors):
        await engine.state(execution_id)  # refuses an unknown run
        await check_author(engine, caller, AuthoredBody(by=authors[-1]), execution_id)
    return await recording.record_events(
        engine, execution_id, data.events, by=caller.name, sent_at=data.at, key=key
    )


@post(
    "/guarded-runs/{execution_id:str}/question",
    status_code=200,
    responses=REFUSAL_RESPONSES,
)
async def ask(
    request: Request[Any, Any, Any],
    engine: Engine,
    caller: Caller,
    execution_id: str,
    data: NewGuardedApproval,
) -> GuardedRunStatus:
    """The program waits for a person: the question is in the inbox, and the run waits."""
    key = read_key(request)
    return await recording.open_approval(
        engine, execution_id, data.question, data.seconds, by=caller.name, key=key
    )


HANDLERS = [begin, tell, ask]
