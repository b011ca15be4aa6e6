"""Guarded runs: programs elsewhere begin them, record events, and request approvals."""

from typing import Any

from litestar import Request

from handrail.api.guarded_runs import (
    GuardedEvents,
    GuardedRunCalls,
    NewGuardedApproval,
    NewGuardedRun,
)
from handrail.api.shared import AuthoredBody
from handrail.engine.engine import Engine
from handrail.guard import recording
from handrail.kernel.run.events import Ended
from handrail.server.access import Caller, check_author
from handrail.server.binding import serves
from handrail.server.idempotency import read_key
from handrail.views.guarded_run import GuardedRunStatus


@serves(GuardedRunCalls.begin)
async def begin_guarded_run(
    request: Request[Any, Any, Any], engine: Engine, caller: Caller, data: NewGuardedRun
) -> GuardedRunStatus:
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


@serves(GuardedRunCalls.record)
async def record_guarded_events(
    request: Request[Any, Any, Any],
    engine: Engine,
    caller: Caller,
    execution_id: str,
    data: GuardedEvents,
) -> GuardedRunStatus:
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


@serves(GuardedRunCalls.request_approval)
async def request_guarded_approval(
    request: Request[Any, Any, Any],
    engine: Engine,
    caller: Caller,
    execution_id: str,
    data: NewGuardedApproval,
) -> GuardedRunStatus:
    key = read_key(request)
    return await recording.open_approval(
        engine, execution_id, data.question, data.seconds, by=caller.name, key=key
    )
