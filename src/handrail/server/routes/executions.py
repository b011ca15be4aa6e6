"""Runs: listed, looked at, waited for, explained, and overridden by people."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, assert_never

from litestar import Request, Response, get, post
from litestar.openapi.spec import OpenAPIMediaType, OpenAPIResponse, Operation, Schema
from litestar.openapi.spec.enums import OpenAPIType
from litestar.params import Parameter
from msgspec import Meta

from handrail.engine.engine import Engine
from handrail.engine.pages import LIMIT, Page
from handrail.engine.reading import IDS_MAX, NoteView, RunItem
from handrail.engine.refused import Refused
from handrail.engine.runs import Override
from handrail.engine.whole import WholeRun
from handrail.engine.why import Why
from handrail.kernel.definition import TerminalStatus
from handrail.kernel.report import Report, markdown
from handrail.kernel.run import commands as c
from handrail.kernel.run.state import Person, RunStatus
from handrail.kernel.shown import Transition
from handrail.kernel.steps import FullStep
from handrail.kernel.view import RunSummary, RunView
from handrail.server.access import Caller
from handrail.server.authors import Signed, check_author
from handrail.server.bodies import Text
from handrail.server.idempotency import key_of
from handrail.server.paging import MOMENT, Cursor, Limit, in_utc
from handrail.server.problems import Place, Wrong, documented, misnamed
from handrail.server.waits import Waits

MARKDOWN = "text/markdown"
Seconds = Annotated[
    float,
    Parameter(ge=0, description="Answer at the end of the run, or after so many seconds."),
]
Status = Annotated[RunStatus | None, Parameter(description="Runs that stand so.")]
Ended = Annotated[TerminalStatus | None, Parameter(description="Runs that ended so.")]
OfWorkflow = Annotated[
    str | None, Parameter(max_length=1_000, description="Of this definition, by its id.")
]
Query = Annotated[
    str | None,
    Parameter(
        max_length=200,
        description="What the title contains, or the id of the run or of its bead begins with.",
    ),
]
Since = Annotated[
    str | None, Parameter(schema_extra=MOMENT, description="Begun at this moment or later.")
]
EndedSince = Annotated[
    str | None, Parameter(schema_extra=MOMENT, description="Ended at this moment or later.")
]
EndedBefore = Annotated[
    str | None, Parameter(schema_extra=MOMENT, description="Ended before this moment.")
]
Ids = Annotated[
    str,
    Parameter(
        max_length=100 * IDS_MAX, description=f"Of runs, {IDS_MAX} at most, with commas between."
    ),
]


class TakeOver(Signed, kw_only=True):
    """`move` needs `node`, `migrate` needs `version`; it goes to `node`, else stays where it is."""

    action: Literal["move", "close", "pause", "resume", "migrate"]
    reason: Annotated[str, Meta(pattern=r"^\s*[^\s\x00][^\x00]*$")]  # one way to match: linear
    node: Text | None = None
    version: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None


@dataclass
class TwoForms(Operation):
    """The report as JSON or as Markdown, for the OpenAPI document."""

    def __post_init__(self) -> None:
        assert self.responses is not None, "documented"
        answer = self.responses["200"]
        assert isinstance(answer, OpenAPIResponse), "documented"
        assert answer.content is not None, "documented"
        answer.content[MARKDOWN] = OpenAPIMediaType(schema=Schema(type=OpenAPIType.STRING))


@get("/executions", responses=documented())
async def executions(
    engine: Engine,
    status: Status = None,
    terminal_status: Ended = None,
    workflow_id: OfWorkflow = None,
    q: Query = None,
    since: Since = None,
    ended_since: EndedSince = None,
    ended_before: EndedBefore = None,
    cursor: Cursor = "",
    limit: Limit = LIMIT,
) -> Page[RunItem]:
    """Runs, the newest first."""
    return await engine.executions(
        status=status.value if status is not None else None,
        terminal_status=terminal_status.value if terminal_status is not None else None,
        workflow_id=workflow_id,
        q=q,
        since=in_utc("since", since),
        ended_since=in_utc("ended_since", ended_since),
        ended_before=in_utc("ended_before", ended_before),
        cursor=cursor,
        limit=limit,
    )


@get("/executions/summaries", responses=documented())
async def summaries(engine: Engine, ids: Ids) -> Page[RunSummary]:
    """Of many runs what a list shows of each: its steps, what it may still use, its cost. Those
    that nobody knows are left out."""
    return Page(items=await engine.summaries([one for one in ids.split(",") if one]))


@get("/executions/{execution_id:str}", responses=documented(404))
async def execution(
    request: Request[Any, Any, Any],
    engine: Engine,
    caller: Caller,
    waits: Waits,
    execution_id: str,
    wait: Seconds = 0,
) -> RunView:
    """A run with everything that is shown of it."""
    seconds = waits.seconds(wait)
    if seconds > 0:
        async with waits.place(caller):
            await waits.or_drain(engine.wait(execution_id, seconds), request)
    return await engine.view(execution_id)


@get("/executions/{execution_id:str}/whole", responses=documented(404))
async def whole(engine: Engine, execution_id: str) -> WholeRun:
    """A run with its bead, its steps, its report and why it stands there, as of one moment: for
    whoever follows it."""
    return await engine.whole(execution_id)


@get("/executions/{execution_id:str}/transitions", responses=documented(404))
async def transitions(engine: Engine, execution_id: str) -> tuple[Transition, ...]:
    """Where the run went, and who sent it: all of it, in order."""
    return await engine.transitions(execution_id)


@get("/executions/{execution_id:str}/steps", responses=documented(404))
async def steps(engine: Engine, execution_id: str) -> Page[FullStep]:
    """Every dispatch of the run with its result in full."""
    return Page(items=await engine.steps(execution_id))


@get("/executions/{execution_id:str}/notes", responses=documented(404))
async def notes(engine: Engine, execution_id: str) -> Page[NoteView]:
    """What was refused, changed nothing and is kept as evidence: late, doubled and foreign results,
    answers to what is settled, forged names. The first 100 of a run."""
    return Page(items=await engine.notes(execution_id))


@get("/executions/{execution_id:str}/report", responses=documented(404), operation_class=TwoForms)
async def report(
    request: Request[Any, Any, Any], engine: Engine, execution_id: str
) -> Response[Report]:
    """What happened, what was counted, and why the run ended: as JSON, or with
    `Accept: text/markdown` as a text for people."""
    found = await engine.report_of(execution_id)
    wanted = request.accept.best_match(["application/json", MARKDOWN])
    if wanted == MARKDOWN:
        text: Response[Any] = Response(markdown(found), media_type=MARKDOWN)
        return text
    return Response(found)


@get("/executions/{execution_id:str}/why", responses=documented(404))
async def why(engine: Engine, execution_id: str) -> Why:
    """Why the run stopped, waits, or is not worked on, and what to do about it."""
    return await engine.explain(execution_id)


@post("/executions/{execution_id:str}/override", status_code=200, responses=documented(404, 409))
async def override(
    request: Request[Any, Any, Any],
    engine: Engine,
    caller: Caller,
    execution_id: str,
    data: TakeOver,
) -> RunView:
    """A person takes over, with a reason. An operator only closes runs of beads that it filed."""
    run = await engine.state(execution_id)
    await check_author(engine, caller, data, execution_id)
    command = _command(data, caller.person, run.definition_id)
    try:
        await engine.override(execution_id, command, key=key_of(request))
    except Refused as refused:
        raise misnamed(refused, unknown_place="node", unknown_definition="version") from refused
    return await engine.view(execution_id)


def _command(data: TakeOver, by: Person, definition_id: str) -> Override:
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
                raise _needed("node", "say which node, or agent of a team, the run should go to")
            return c.Move(by=by, place=data.node, reason=reason)
        case "migrate":
            if data.version is None:
                raise _needed("version", "say which version of its definition the run should have")
            return c.Migrate(
                by=by,
                definition_id=definition_id,
                version=data.version,
                place=data.node or "",
                reason=reason,
            )
        case _:
            assert_never(data.action)


def _needed(path: str, hint: str) -> Wrong:
    told = f"there is no `{path}`"
    return Wrong(422, "bad_body", f"{told}; {hint}", errors=(Place("missing", path, told, hint),))


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
