"""Runs: lists, views, waits, replays, overrides by people; guarded runs, which programs elsewhere
begin, report on, and request approvals for.
"""

from functools import partial
from typing import Any, assert_never

from litestar import Response
from msgspec.structs import asdict

from handrail.api.runs import (
    GuardedEvents,
    GuardedRunCalls,
    NewGuardedApproval,
    NewGuardedRun,
    OverrideRequest,
    ReplayRequest,
    RunCalls,
    RunIdsQuery,
    RunQuery,
    WaitQuery,
)
from handrail.api.shared import MARKDOWN, AuthoredBody
from handrail.engine.engine import Engine
from handrail.engine.errors import RefusedError
from handrail.engine.services.definitions import InvalidDefinitionError
from handrail.engine.services.runs import OverrideCommand
from handrail.guard import recording
from handrail.kernel.run import commands as c
from handrail.kernel.run.events import Ended
from handrail.kernel.run.state import Person
from handrail.replay.replay_report import ReplayResults
from handrail.server.access import Caller, HTTPRequest, check_author
from handrail.server.binding import parse_time, serves
from handrail.server.long_polls import LongPolls
from handrail.server.problems import HTTPProblemError, field_errors, missing_field, refusal_at_field
from handrail.views.guarded_run import GuardedRunStatus
from handrail.views.report import RunReport, report_markdown
from handrail.views.run_view import RunItem, RunSummary, RunView
from handrail.views.view_types import Page


@serves(RunCalls.list)
async def list_runs(engine: Engine, query: RunQuery) -> Page[RunItem]:
    return await engine.run_queries.list(
        status=query.status,
        terminal_status=query.terminal_status,
        workflow_id=query.workflow_id,
        q=query.q,
        since=parse_time("since", query.since),
        ended_since=parse_time("ended_since", query.ended_since),
        ended_before=parse_time("ended_before", query.ended_before),
        cursor=query.cursor,
        limit=query.limit,
    )


@serves(RunCalls.list_summaries)
async def list_run_summaries(engine: Engine, query: RunIdsQuery) -> Page[RunSummary]:
    return Page(
        items=await engine.run_queries.summaries(
            [run_id for run_id in query.ids.split(",") if run_id]
        )
    )


@serves(RunCalls.get)
async def get_run(
    request: HTTPRequest,
    engine: Engine,
    long_polls: LongPolls,
    execution_id: str,
    query: WaitQuery,
) -> RunView:
    if query.wait > 0:
        await long_polls.hold(request, query.wait, partial(engine.runs.wait, execution_id))
    return await engine.run_queries.view(execution_id)


@serves(RunCalls.get_report)
async def get_report(
    request: HTTPRequest, engine: Engine, execution_id: str
) -> Response[RunReport]:
    run_report = await engine.run_queries.report(execution_id)
    if request.accept.best_match(["application/json", MARKDOWN]) == MARKDOWN:
        text: Response[Any] = Response(report_markdown(run_report), media_type=MARKDOWN)
        return text
    return Response(run_report)


@serves(RunCalls.override)
async def override_run(
    engine: Engine, caller: Caller, key: str, execution_id: str, data: OverrideRequest
) -> RunView:
    run = await engine.runs.state(execution_id)
    command = _build_override(data, caller.person, run.definition_id)
    try:
        await engine.runs.override(execution_id, command, key=key)
    except RefusedError as refused:
        raise refusal_at_field(
            refused, unknown_place="node", unknown_definition="version"
        ) from refused
    return await engine.run_queries.view(execution_id)


def _build_override(data: OverrideRequest, by: Person, definition_id: str) -> OverrideCommand:
    reason = data.reason
    match data.action:
        case "close":
            return c.Close(by=by, reason=reason)
        case "pause":
            return c.Pause(by=by, reason=reason)
        case "resume":
            return c.Resume(by=by, reason=reason)
        case "move":
            if not data.node:
                raise missing_field(
                    "node", "say which node, or agent of a team, the run should go to"
                )
            return c.Move(by=by, step_id=data.node, reason=reason)
        case "migrate":
            if data.version is None:
                raise missing_field(
                    "version", "say which version of its definition the run should have"
                )
            return c.Migrate(
                by=by,
                definition_id=definition_id,
                version=data.version,
                step_id=data.node or "",
                reason=reason,
            )
        case _:
            assert_never(data.action)


RUN_ID_REFUSALS = ("unknown_run", "too_many_events", "events_gone", "unknown_definition")
"""Refusals of a run that `ids` names."""


@serves(RunCalls.replay)
async def replay_runs(engine: Engine, data: ReplayRequest) -> ReplayResults:
    try:
        return await engine.replays.replay(data.ids, data.rules)
    except InvalidDefinitionError as error:
        raise HTTPProblemError(
            422,
            "invalid_rules",
            f"the rules cannot be used: {error}",
            errors=field_errors(error.problems),
        ) from error
    except RefusedError as refused:
        raise refusal_at_field(refused, **dict.fromkeys(RUN_ID_REFUSALS, "ids")) from refused


@serves(GuardedRunCalls.begin)
async def begin_guarded_run(
    engine: Engine, caller: Caller, key: str, data: NewGuardedRun
) -> GuardedRunStatus:
    return await recording.begin_run(engine, **asdict(data), by=caller.name, key=key)


@serves(GuardedRunCalls.record)
async def record_guarded_events(
    request: HTTPRequest,
    engine: Engine,
    caller: Caller,
    key: str,
    execution_id: str,
    data: GuardedEvents,
) -> GuardedRunStatus:
    authors = [event.by for event in data.events if isinstance(event, Ended)]
    if any(authors):
        await engine.runs.state(execution_id)  # refuses an unknown run
        await check_author(engine, caller, AuthoredBody(by=authors[-1]), request.path_params)
    return await recording.record_events(
        engine, execution_id, data.events, by=caller.name, sent_at=data.at, key=key
    )


@serves(GuardedRunCalls.request_approval)
async def request_guarded_approval(
    engine: Engine, caller: Caller, key: str, execution_id: str, data: NewGuardedApproval
) -> GuardedRunStatus:
    return await recording.open_approval(
        engine,
        execution_id,
        data.question,
        data.seconds,
        by=caller.name,
        key=key,
        stop=data.stop,
        options=data.options,
    )
