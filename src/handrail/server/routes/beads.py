"""Beads: people file them, look them up, change them, and start runs of them."""

from typing import Any

from litestar import Request

from handrail.api.beads import BeadCalls, BeadPatch, BeadQuery, NewBead
from handrail.api.runs import NewRun, RunCalls
from handrail.api.shared import PageQuery
from handrail.engine.engine import Engine
from handrail.engine.errors import RefusedError
from handrail.server.access import Caller, check_author
from handrail.server.binding import serves
from handrail.server.idempotency import read_key
from handrail.server.problems import HTTPProblemError, refusal_at_field
from handrail.views.beads import BeadView
from handrail.views.event_view import EventView
from handrail.views.pages import Page
from handrail.views.run_view import RunItem, RunView


@serves(BeadCalls.create)
async def create_bead(
    request: Request[Any, Any, Any], engine: Engine, caller: Caller, data: NewBead
) -> BeadView:
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


@serves(BeadCalls.list)
async def list_beads(
    engine: Engine,
    query: BeadQuery,
) -> Page[BeadView]:
    return await engine.beads.list(
        status=query.status,
        type=query.type,
        workflow_id=query.workflow_id,
        cursor=query.cursor,
        limit=query.limit,
    )


@serves(BeadCalls.get)
async def get_bead(engine: Engine, bead_id: str) -> BeadView:
    return await engine.beads.get(bead_id)


@serves(BeadCalls.patch)
async def patch_bead(engine: Engine, caller: Caller, bead_id: str, data: BeadPatch) -> BeadView:
    bead = await engine.beads.get(bead_id)
    await check_author(engine, caller, data, bead.execution_id)
    return await engine.beads.patch(bead_id, data.context, caller.person)


@serves(RunCalls.start)
async def start_run(
    request: Request[Any, Any, Any],
    engine: Engine,
    caller: Caller,
    bead_id: str,
    data: NewRun,
) -> RunView:
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


@serves(BeadCalls.list_runs)
async def list_bead_runs(engine: Engine, bead_id: str, query: PageQuery) -> Page[RunItem]:
    await engine.beads.get(bead_id)
    return await engine.run_queries.list(bead_id=bead_id, cursor=query.cursor, limit=query.limit)


@serves(BeadCalls.list_history)
async def list_bead_history(engine: Engine, bead_id: str, query: PageQuery) -> Page[EventView]:
    await engine.beads.get(bead_id)
    return await engine.run_queries.bead_history(bead_id, cursor=query.cursor, limit=query.limit)
