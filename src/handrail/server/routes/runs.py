"""Runs: lists, views, waits, explanations, and overrides by people."""

from dataclasses import dataclass
from typing import Annotated, Any, assert_never

from litestar import Request, Response, get, post
from litestar.openapi.spec import OpenAPIMediaType, OpenAPIResponse, Operation, Schema
from litestar.openapi.spec.enums import OpenAPIType
from litestar.params import Parameter

from handrail.api.runs import OverrideRequest
from handrail.engine.engine import Engine
from handrail.engine.errors import RefusedError
from handrail.engine.services.runs import OverrideCommand
from handrail.kernel.definition.model import TerminalStatus
from handrail.kernel.run import commands as c
from handrail.kernel.run.state import Person, RunStatus
from handrail.server.access import Caller
from handrail.server.author_check import check_author
from handrail.server.idempotency import read_key
from handrail.server.long_polls import LongPolls
from handrail.server.paging import DATE_TIME_SCHEMA, Cursor, Limit, parse_time
from handrail.server.problems import (
    FieldError,
    HTTPProblemError,
    problem_responses,
    refusal_at_field,
)
from handrail.views.pages import PAGE_ITEMS_DEFAULT, Page
from handrail.views.report import RunReport, report_markdown
from handrail.views.run_details import RunDetails, RunExplanation
from handrail.views.run_view import RUN_IDS_MAX, NoteView, RunItem, RunSummary, RunView
from handrail.views.steps import StepDetails
from handrail.views.view_types import TransitionView

MARKDOWN = "text/markdown"
WaitQuery = Annotated[
    float,
    Parameter(ge=0, description="Answer at the end of the run, or after so many seconds."),
]
RunStatusQuery = Annotated[RunStatus | None, Parameter(description="Runs that stand so.")]
TerminalStatusQuery = Annotated[TerminalStatus | None, Parameter(description="Runs that ended so.")]
DefinitionIdQuery = Annotated[
    str | None, Parameter(max_length=1_000, description="Of this definition, by its id.")
]
TextQuery = Annotated[
    str | None,
    Parameter(
        max_length=200,
        description="What the title contains, or the id of the run or of its bead begins with.",
    ),
]
SinceQuery = Annotated[
    str | None,
    Parameter(schema_extra=DATE_TIME_SCHEMA, description="Begun at this moment or later."),
]
EndedSinceQuery = Annotated[
    str | None,
    Parameter(schema_extra=DATE_TIME_SCHEMA, description="Ended at this moment or later."),
]
EndedBeforeQuery = Annotated[
    str | None, Parameter(schema_extra=DATE_TIME_SCHEMA, description="Ended before this moment.")
]
RunIdsQuery = Annotated[
    str,
    Parameter(
        max_length=100 * RUN_IDS_MAX,
        description=f"Of runs, {RUN_IDS_MAX} at most, with commas between.",
    ),
]


@dataclass
class ReportOperation(Operation):
    """Documents the report as JSON or Markdown in the OpenAPI document."""

    def __post_init__(self) -> None:
        assert self.responses is not None, "documented"
        response = self.responses["200"]
        assert isinstance(response, OpenAPIResponse), "documented"
        assert response.content is not None, "documented"
        response.content[MARKDOWN] = OpenAPIMediaType(schema=Schema(type=OpenAPIType.STRING))


@get("/executions", responses=problem_responses())
async def executions(
    engine: Engine,
    status: RunStatusQuery = None,
    terminal_status: TerminalStatusQuery = None,
    workflow_id: DefinitionIdQuery = None,
    q: TextQuery = None,
    since: SinceQuery = None,
    ended_since: EndedSinceQuery = None,
    ended_before: EndedBeforeQuery = None,
    cursor: Cursor = "",
    limit: Limit = PAGE_ITEMS_DEFAULT,
) -> Page[RunItem]:
    """Runs, the newest first."""
    return await engine.run_queries.list(
        status=status.value if status is not None else None,
        terminal_status=terminal_status.value if terminal_status is not None else None,
        workflow_id=workflow_id,
        q=q,
        since=parse_time("since", since),
        ended_since=parse_time("ended_since", ended_since),
        ended_before=parse_time("ended_before", ended_before),
        cursor=cursor,
        limit=limit,
    )


@get("/executions/summaries", responses=problem_responses())
async def summaries(engine: Engine, ids: RunIdsQuery) -> Page[RunSummary]:
    """Of many runs what a list shows of each: its steps, what it may still use, its cost. Those
    that nobody knows are left out."""
    return Page(
        items=await engine.run_queries.summaries([run_id for run_id in ids.split(",") if run_id])
    )


@get("/executions/{execution_id:str}", responses=problem_responses(404))
async def execution(
    request: Request[Any, Any, Any],
    engine: Engine,
    caller: Caller,
    long_polls: LongPolls,
    execution_id: str,
    wait: WaitQuery = 0,
) -> RunView:
    """A run with everything that is shown of it."""
    seconds = long_polls.allowed_seconds(wait)
    if seconds > 0:
        async with long_polls.slot(caller):
            await long_polls.wait_or_drain(engine.runs.wait(execution_id, seconds), request)
    return await engine.run_queries.view(execution_id)


@get("/executions/{execution_id:str}/whole", responses=problem_responses(404))
async def whole(engine: Engine, execution_id: str) -> RunDetails:
    """A run with its bead, its steps, its report and why it stands there, as of one moment: for
    whoever follows it."""
    return await engine.run_queries.details(execution_id)


@get("/executions/{execution_id:str}/transitions", responses=problem_responses(404))
async def transitions(engine: Engine, execution_id: str) -> tuple[TransitionView, ...]:
    """Where the run went, and who sent it: all of it, in order."""
    return await engine.run_queries.transitions(execution_id)


@get("/executions/{execution_id:str}/steps", responses=problem_responses(404))
async def steps(engine: Engine, execution_id: str) -> Page[StepDetails]:
    """Every dispatch of the run with its result in full."""
    return Page(items=await engine.run_queries.steps(execution_id))


@get("/executions/{execution_id:str}/notes", responses=problem_responses(404))
async def notes(engine: Engine, execution_id: str) -> Page[NoteView]:
    """What was refused, changed nothing and is kept as evidence: late, doubled and foreign results,
    answers to what is settled, forged names. The first 100 of a run."""
    return Page(items=await engine.run_queries.notes(execution_id))


@get(
    "/executions/{execution_id:str}/report",
    responses=problem_responses(404),
    operation_class=ReportOperation,
)
async def report(
    request: Request[Any, Any, Any], engine: Engine, execution_id: str
) -> Response[RunReport]:
    """What happened, what was counted, and why the run ended: as JSON, or with
    `Accept: text/markdown` as a text for people."""
    run_report = await engine.run_queries.report(execution_id)
    media_type = request.accept.best_match(["application/json", MARKDOWN])
    if media_type == MARKDOWN:
        text: Response[Any] = Response(report_markdown(run_report), media_type=MARKDOWN)
        return text
    return Response(run_report)


@get("/executions/{execution_id:str}/why", responses=problem_responses(404))
async def why(engine: Engine, execution_id: str) -> RunExplanation:
    """Why the run stopped, waits, or is not worked on, and what to do about it."""
    return await engine.run_queries.why(execution_id)


@post(
    "/executions/{execution_id:str}/override",
    status_code=200,
    responses=problem_responses(404, 409),
)
async def override(
    request: Request[Any, Any, Any],
    engine: Engine,
    caller: Caller,
    execution_id: str,
    data: OverrideRequest,
) -> RunView:
    """A person takes over, with a reason. An operator only closes runs of beads that it filed."""
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


HANDLERS = [
    executions,
    summaries,
    execution,
    whole,
    transitions,
    steps,
    notes,
    report,
    why,
    override,
]
