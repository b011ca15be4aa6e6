"""Beads: people file them, look them up, change them, and start runs of them."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from litestar import Request, get, patch, post
from litestar.openapi.spec import Operation, RequestBody
from litestar.params import Parameter

from handrail.api.beads import BeadPatch, NewBead
from handrail.api.runs import NewRun
from handrail.engine.engine import Engine
from handrail.engine.errors import RefusedError
from handrail.server.access import Caller
from handrail.server.author_check import check_author
from handrail.server.idempotency import read_key
from handrail.server.paging import Cursor, Limit
from handrail.server.problems import HTTPProblemError, problem_responses, refusal_at_field
from handrail.views.beads import BeadView
from handrail.views.event_view import EventView
from handrail.views.pages import PAGE_ITEMS_DEFAULT, Page
from handrail.views.run_view import RunItem, RunView

TITLE_CHARS_MAX = 1_000
BeadStatus = Literal["open", "in_progress", "waiting", "closed", "error"]
BeadTypeQuery = Annotated[
    Literal["work", "approval"] | None,
    Parameter(description="`work`, or questions to people: `approval`."),
]
BeadStatusQuery = Annotated[BeadStatus | None, Parameter(description="Beads that stand so.")]
DefinitionIdQuery = Annotated[
    str | None, Parameter(max_length=1_000, description="Of this definition, by its id.")
]


@dataclass
class OptionalBodyOperation(Operation):
    """Documents the body as optional in the OpenAPI document."""

    def __post_init__(self) -> None:
        assert isinstance(self.request_body, RequestBody), "documented"
        self.request_body.required = False


@post("/beads", responses=problem_responses())
async def file_bead(
    request: Request[Any, Any, Any], engine: Engine, caller: Caller, data: NewBead
) -> BeadView:
    """File a bead. With a definition a run of it begins at once: `execution_id`."""
    await check_author(engine, caller, data)
    try:
        return await engine.beads.create(
            title=data.title,
            description=data.description,
            workflow_id=data.workflow_id or "",
            context=data.context,
            review=data.review,
            priority=data.priority,
            filed_by=caller.name,
            key=read_key(request),
        )
    except RefusedError as refused:
        field = "workflow_id"
        raise refusal_at_field(refused, unknown_definition=field, no_workflow=field) from refused


@get("/beads", responses=problem_responses())
async def beads(
    engine: Engine,
    status: BeadStatusQuery = None,
    type: BeadTypeQuery = None,  # noqa: A002 - as the API has it
    workflow_id: DefinitionIdQuery = None,
    cursor: Cursor = "",
    limit: Limit = PAGE_ITEMS_DEFAULT,
) -> Page[BeadView]:
    """Work and questions to people, the newest first."""
    return await engine.beads.list(
        status=status, type=type, workflow_id=workflow_id, cursor=cursor, limit=limit
    )


@get("/beads/{bead_id:str}", responses=problem_responses(404))
async def bead(engine: Engine, bead_id: str) -> BeadView:
    """One bead as it stands; also a question to people, by its id."""
    return await engine.beads.get(bead_id)


@patch("/beads/{bead_id:str}", responses=problem_responses(404, 409))
async def patch_bead(engine: Engine, caller: Caller, bead_id: str, data: BeadPatch) -> BeadView:
    """Change the bead's context. An open question that had shown what changed is void, and asked
    anew."""
    bead = await engine.beads.get(bead_id)
    await check_author(engine, caller, data, bead.execution_id)
    return await engine.beads.patch(bead_id, data.context, caller.person)


@post(
    "/beads/{bead_id:str}/executions",
    responses=problem_responses(404, 409),
    operation_class=OptionalBodyOperation,
)
async def run_bead(
    request: Request[Any, Any, Any],
    engine: Engine,
    caller: Caller,
    bead_id: str,
    data: NewRun = NewRun(),  # noqa: B008 - frozen
) -> RunView:
    """Run the bead, for the first time or again. 409 while a run of it is active. To begin behind
    an approval takes a ceo."""
    bead = await engine.beads.get(bead_id)
    await check_author(engine, caller, data, bead.execution_id)
    try:
        await _check_start_node(
            engine, caller, data.workflow_id or bead.workflow_id, data.from_node
        )
        run_id = await engine.beads.restart(
            bead_id,
            workflow_id=data.workflow_id or "",
            from_node=data.from_node or "",
            by=caller.name,
            key=read_key(request),
        )
    except RefusedError as refused:
        field_by_code = {"unknown_definition": "workflow_id", "no_workflow": "workflow_id"}
        raise refusal_at_field(refused, **field_by_code, unknown_place="from_node") from refused
    return await engine.run_queries.view(run_id)


async def _check_start_node(
    engine: Engine, caller: Caller, workflow_id: str | None, node_id: str | None
) -> None:
    """Raise 403 for a start behind an approval: it skips the approval, and so is an override."""
    if not node_id or not workflow_id or caller.is_at_least("ceo"):
        return
    document = (await engine.definitions.get(workflow_id)).definition
    predecessors = _find_predecessors(document, node_id)
    approval_nodes = [
        node["id"] for node in document.get("nodes", ()) if node["type"] == "approval"
    ]
    skipped = [approval_node for approval_node in approval_nodes if approval_node in predecessors]
    if skipped:
        message = (
            f"{caller.name} (operator) may not begin at '{node_id}': '{skipped[0]}' is before it"
        )
        raise HTTPProblemError(403, "behind_approval", f"{message}; begin before it, or ask a ceo")


def _find_predecessors(document: dict[str, Any], node_id: str) -> set[str]:
    """Return the nodes from which the node can be reached."""
    sources: dict[str, list[str]] = {}
    for edge in document.get("edges", ()):
        sources.setdefault(edge["to_node_id"], []).append(edge["from_node_id"])
    predecessors, to_visit = set[str](), [node_id]
    while to_visit:
        unseen = [
            source for source in sources.get(to_visit.pop(), ()) if source not in predecessors
        ]
        predecessors.update(unseen)
        to_visit += unseen
    return predecessors


@get("/beads/{bead_id:str}/executions", responses=problem_responses(404))
async def runs_of_bead(
    engine: Engine, bead_id: str, cursor: Cursor = "", limit: Limit = PAGE_ITEMS_DEFAULT
) -> Page[RunItem]:
    """The bead's runs, the newest first."""
    await engine.beads.get(bead_id)
    return await engine.run_queries.list(bead_id=bead_id, cursor=cursor, limit=limit)


@get("/beads/{bead_id:str}/history", responses=problem_responses(404))
async def history_of_bead(
    engine: Engine, bead_id: str, cursor: Cursor = "", limit: Limit = PAGE_ITEMS_DEFAULT
) -> Page[EventView]:
    """Everything that happened to the bead, in order, over all its runs."""
    await engine.beads.get(bead_id)
    return await engine.run_queries.bead_history(bead_id, cursor=cursor, limit=limit)


HANDLERS = [file_bead, beads, bead, patch_bead, run_bead, runs_of_bead, history_of_bead]
