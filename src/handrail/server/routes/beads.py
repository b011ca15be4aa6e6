"""Beads: the work as people file it, look it up, change it, and have it run again."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from litestar import Request, get, patch, post
from litestar.openapi.spec import Operation, RequestBody
from litestar.params import Parameter
from msgspec import Meta

from handrail.engine.beads import PRIORITY_MAX, BeadView
from handrail.engine.engine import Engine
from handrail.engine.pages import LIMIT, Page
from handrail.engine.reading import RunItem
from handrail.engine.refused import Refused
from handrail.kernel.event_shown import ShownEvent
from handrail.kernel.view import RunView
from handrail.server.access import Caller
from handrail.server.authors import Signed, check_author
from handrail.server.bodies import Text
from handrail.server.idempotency import key_of
from handrail.server.paging import Cursor, Limit
from handrail.server.problems import Wrong, documented, misnamed

TITLE_MAX = 1_000
BeadStatus = Literal["open", "in_progress", "waiting", "closed", "error"]
Kind = Annotated[
    Literal["work", "approval"] | None,
    Parameter(description="`work`, or questions to people: `approval`."),
]
Status = Annotated[BeadStatus | None, Parameter(description="Beads that stand so.")]
OfWorkflow = Annotated[
    str | None, Parameter(max_length=1_000, description="Of this definition, by its id.")
]


class NewBead(Signed, kw_only=True):
    """Work to be done; with `workflow_id`, the id or name of a definition, it begins at once."""

    title: Annotated[str, Meta(min_length=1, max_length=TITLE_MAX, pattern=r"\S")]
    description: Text = ""
    workflow_id: Text | None = None
    context: dict[str, Any] = {}
    review: Literal["required", "skip"] | None = None
    """Left out, as the definition says."""
    priority: Annotated[int, Meta(ge=-PRIORITY_MAX, le=PRIORITY_MAX)] = 0
    """More is sooner."""


class BeadPatch(Signed, kw_only=True):
    context: dict[str, Any]
    """Merged into the bead's (RFC 7396): a null takes a key away."""


class NewRun(Signed, kw_only=True):
    """Left out: the definition of the last run, from its start."""

    workflow_id: Text | None = None
    from_node: Text | None = None


@dataclass
class MayBeEmpty(Operation):
    """A call that can do without a body, for the OpenAPI document."""

    def __post_init__(self) -> None:
        assert isinstance(self.request_body, RequestBody), "documented"
        self.request_body.required = False


@post("/beads", responses=documented())
async def file_bead(
    request: Request[Any, Any, Any], engine: Engine, caller: Caller, data: NewBead
) -> BeadView:
    """File a bead. With a definition a run of it begins at once: `execution_id`."""
    await check_author(engine, caller, data)
    try:
        return await engine.file_bead(
            title=data.title,
            description=data.description,
            workflow_id=data.workflow_id or "",
            context=data.context,
            review=data.review,
            priority=data.priority,
            filed_by=caller.name,
            key=key_of(request),
        )
    except Refused as refused:
        place = "workflow_id"
        raise misnamed(refused, unknown_definition=place, no_workflow=place) from refused


@get("/beads", responses=documented())
async def beads(
    engine: Engine,
    status: Status = None,
    type: Kind = None,  # noqa: A002 - as the API has it
    workflow_id: OfWorkflow = None,
    cursor: Cursor = "",
    limit: Limit = LIMIT,
) -> Page[BeadView]:
    """Work and questions to people, the newest first."""
    return await engine.beads(
        status=status, type=type, workflow_id=workflow_id, cursor=cursor, limit=limit
    )


@get("/beads/{bead_id:str}", responses=documented(404))
async def bead(engine: Engine, bead_id: str) -> BeadView:
    """One bead as it stands; also a question to people, by its id."""
    return await engine.bead(bead_id)


@patch("/beads/{bead_id:str}", responses=documented(404, 409))
async def patch_bead(engine: Engine, caller: Caller, bead_id: str, data: BeadPatch) -> BeadView:
    """Change the bead's context. An open question that had shown what changed is void, and asked
    anew."""
    known = await engine.bead(bead_id)
    await check_author(engine, caller, data, known.execution_id)
    return await engine.patch_bead(bead_id, data.context, caller.person)


@post("/beads/{bead_id:str}/executions", responses=documented(404, 409), operation_class=MayBeEmpty)
async def run_bead(
    request: Request[Any, Any, Any],
    engine: Engine,
    caller: Caller,
    bead_id: str,
    data: NewRun = NewRun(),  # noqa: B008 - frozen
) -> RunView:
    """Run the bead, for the first time or again. 409 while a run of it is active. To begin behind
    an approval takes a ceo."""
    known = await engine.bead(bead_id)
    await check_author(engine, caller, data, known.execution_id)
    try:
        await _may_begin(engine, caller, data.workflow_id or known.workflow_id, data.from_node)
        run = await engine.restart(
            bead_id,
            workflow_id=data.workflow_id or "",
            from_node=data.from_node or "",
            by=caller.name,
            key=key_of(request),
        )
    except Refused as refused:
        places = {"unknown_definition": "workflow_id", "no_workflow": "workflow_id"}
        raise misnamed(refused, **places, unknown_place="from_node") from refused
    return await engine.view(run.id)


async def _may_begin(
    engine: Engine, caller: Caller, workflow_id: str | None, place: str | None
) -> None:
    """To begin behind an approval is to pass it over, and so an override."""
    if not place or not workflow_id or caller.is_at_least("ceo"):
        return
    document = (await engine.definition(workflow_id)).definition
    passed = _before(document, place)
    asks = [node["id"] for node in document.get("nodes", ()) if node["type"] == "approval"]
    missed = [one for one in asks if one in passed]
    if missed:
        told = f"{caller.name} (operator) may not begin at '{place}': '{missed[0]}' is before it"
        raise Wrong(403, "behind_approval", f"{told}; begin before it, or ask a ceo")


def _before(document: dict[str, Any], place: str) -> set[str]:
    """The nodes from which a way leads there."""
    ways: dict[str, list[str]] = {}
    for edge in document.get("edges", ()):
        ways.setdefault(edge["to_node_id"], []).append(edge["from_node_id"])
    found, left = set[str](), [place]
    while left:
        more = [one for one in ways.get(left.pop(), ()) if one not in found]
        found.update(more)
        left += more
    return found


@get("/beads/{bead_id:str}/executions", responses=documented(404))
async def runs_of_bead(
    engine: Engine, bead_id: str, cursor: Cursor = "", limit: Limit = LIMIT
) -> Page[RunItem]:
    """The bead's runs, the newest first."""
    await engine.bead(bead_id)
    return await engine.executions(bead_id=bead_id, cursor=cursor, limit=limit)


@get("/beads/{bead_id:str}/history", responses=documented(404))
async def history_of_bead(
    engine: Engine, bead_id: str, cursor: Cursor = "", limit: Limit = LIMIT
) -> Page[ShownEvent]:
    """Everything that happened to the bead, in order, over all its runs."""
    await engine.bead(bead_id)
    return await engine.bead_history(bead_id, cursor=cursor, limit=limit)


HANDLERS = [file_bead, beads, bead, patch_bead, run_bead, runs_of_bead, history_of_bead]
