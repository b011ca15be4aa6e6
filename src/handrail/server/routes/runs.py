"""Runs: lists, views, waits, explanations, and overrides by people."""

from typing import Any, assert_never

from litestar import Request, Response

from handrail.api.runs import OverrideRequest, RunCalls, RunIdsQuery, RunQuery, WaitQuery
from handrail.api.shared import MARKDOWN
from handrail.engine.engine import Engine
from handrail.engine.errors import RefusedError
from handrail.engine.services.runs import OverrideCommand
from handrail.kernel.run import commands as c
from handrail.kernel.run.state import Person
from handrail.server.access import Caller, check_author
from handrail.server.binding import serves
from handrail.server.idempotency import read_key
from handrail.server.long_polls import LongPolls
from handrail.server.paging import parse_time
from handrail.server.problems import (
    FieldError,
    HTTPProblemError,
    refusal_at_field,
)
from handrail.views.pages import Page
from handrail.views.report import RunReport, report_markdown
from handrail.views.run_details import RunDetails, RunExplanation
from handrail.views.run_view import NoteView, RunItem, RunSummary, RunView
from handrail.views.steps import StepDetails
from handrail.views.view_types import TransitionView


@serves(RunCalls.list)
async def list_runs(
    engine: Engine,
    query: RunQuery,
) -> Page[RunItem]:
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
    request: Request[Any, Any, Any],
    engine: Engine,
    caller: Caller,
    long_polls: LongPolls,
    execution_id: str,
    query: WaitQuery,
) -> RunView:
    seconds = long_polls.allowed_seconds(query.wait)
    if seconds > 0:
        async with long_polls.slot(caller):
            await long_polls.wait_or_drain(engine.runs.wait(execution_id, seconds), request)
    return await engine.run_queries.view(execution_id)


@serves(RunCalls.get_details)
async def get_run_details(engine: Engine, execution_id: str) -> RunDetails:
    return await engine.run_queries.details(execution_id)


@serves(RunCalls.list_transitions)
async def list_transitions(engine: Engine, execution_id: str) -> tuple[TransitionView, ...]:
    return await engine.run_queries.transitions(execution_id)


@serves(RunCalls.list_steps)
async def list_steps(engine: Engine, execution_id: str) -> Page[StepDetails]:
    return Page(items=await engine.run_queries.steps(execution_id))


@serves(RunCalls.list_notes)
async def list_notes(engine: Engine, execution_id: str) -> Page[NoteView]:
    return Page(items=await engine.run_queries.notes(execution_id))


@serves(RunCalls.get_report)
async def get_report(
    request: Request[Any, Any, Any], engine: Engine, execution_id: str
) -> Response[RunReport]:
    run_report = await engine.run_queries.report(execution_id)
    media_type = request.accept.best_match(["application/json", MARKDOWN])
    if media_type == MARKDOWN:
        text: Response[Any] = Response(report_markdown(run_report), media_type=MARKDOWN)
        return text
    return Response(run_report)


@serves(RunCalls.explain)
async def explain_run(engine: Engine, execution_id: str) -> RunExplanation:
    return await engine.run_queries.why(execution_id)


@serves(RunCalls.override)
async def override_run(
    request: Request[Any, Any, Any],
    engine: Engine,
    caller: Caller,
    execution_id: str,
    data: OverrideRequest,
) -> RunView:
    run = await engine.runs.state(execution_id)
    await check_author(engine, caller, data, execution_id)
    command = _build_override(data, caller.person, run.definition_id)
    try:
        await engine.runs.override(execution_id, command, key=read_key(request))
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
                raise _missing_field(
                    "node", "say which node, or agent of a team, the run should go to"
                )
            return c.Move(by=by, step_id=data.node, reason=reason)
        case "migrate":
            if data.version is None:
                raise _missing_field(
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


def _missing_field(path: str, hint: str) -> HTTPProblemError:
    message = f"there is no `{path}`"
    return HTTPProblemError(
        422, "bad_body", f"{message}; {hint}", errors=(FieldError("missing", path, message, hint),)
    )
