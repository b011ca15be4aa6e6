"""Guarded runs: programs elsewhere begin them, record events, and request approvals."""

from typing import Any

from litestar import Request, post

from handrail.api.guarded_runs import GuardedEvents, NewGuardedApproval, NewGuardedRun
from handrail.engine.engine import Engine
from handrail.guard import recording
from handrail.kernel.run.events import Ended
from handrail.server.access import Caller
from handrail.server.author_check import AuthoredBody, check_author
from handrail.server.idempotency import read_key
from handrail.server.problems import problem_responses
from handrail.views.guarded_run import GuardedRunStatus

REFUSAL_RESPONSES = problem_responses(403, 404, 409)


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
        await engine.runs.state(execution_id)  # refuses an unknown run
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
