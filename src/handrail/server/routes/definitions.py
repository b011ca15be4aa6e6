"""Definitions: stored, validated, listed; each change makes a new version."""

import asyncio
from typing import Annotated, Any

from litestar import get, post, put
from litestar.params import Parameter

from handrail.api.definitions import DefinitionText, DefinitionValidation, ParsedDocument
from handrail.engine.document_parser import load_document
from handrail.engine.engine import Engine, StoredDefinition
from handrail.server.access import Caller
from handrail.server.idempotency import MEMORY_ONLY
from handrail.server.paging import Cursor, Limit
from handrail.server.problems import field_errors, problem_responses
from handrail.views.definitions import DefinitionItem, DefinitionView
from handrail.views.pages import PAGE_ITEMS_DEFAULT, Page

VersionQuery = Annotated[
    int | None, Parameter(description="One of its versions; left out, the newest.")
]


@post("/workflows", responses=problem_responses())
async def define(engine: Engine, caller: Caller, data: dict[str, Any]) -> StoredDefinition:
    """Store a definition. The same again changes nothing; a changed one of the same id becomes its
    next version."""
    return await engine.define(data, by=caller.name, role=caller.role)


@post(
    "/workflows/validate", status_code=200, responses=problem_responses(), opt={MEMORY_ONLY: True}
)
async def validate(engine: Engine, data: dict[str, Any]) -> DefinitionValidation:
    """Everything that is wrong or doubtful with a definition, and what a run can cost at most."""
    plan, checked = await engine.definitions.check(data)
    return DefinitionValidation(
        valid=plan is not None,
        errors=field_errors(checked.errors),
        bound=checked.bound,
        warnings=field_errors(checked.warnings),
    )


@post("/workflows/read", status_code=200, responses=problem_responses(), opt={MEMORY_ONLY: True})
async def read(data: DefinitionText) -> ParsedDocument:
    """The document that a JSON or YAML text holds. What it means is for `validate` to say."""
    document, problems = await asyncio.to_thread(load_document, data.text)
    return ParsedDocument(document=document, errors=field_errors(tuple(problems)))


@get("/workflows", responses=problem_responses())
async def workflows(
    engine: Engine, cursor: Cursor = "", limit: Limit = PAGE_ITEMS_DEFAULT
) -> Page[DefinitionItem]:
    """The newest version of each definition."""
    return await engine.definitions.list(cursor=cursor, limit=limit)


@get("/workflows/{workflow_id:str}", responses=problem_responses(404))
async def workflow(
    engine: Engine, workflow_id: str, version: VersionQuery = None
) -> DefinitionView:
    """A definition by id or name; without `version` its newest one."""
    return await engine.definitions.get(workflow_id, version)


@get("/workflows/{workflow_id:str}/versions", responses=problem_responses(404))
async def versions(engine: Engine, workflow_id: str) -> Page[DefinitionItem]:
    """Every version, the newest first."""
    return Page(items=tuple(await engine.definitions.versions(workflow_id)))


@put("/workflows/{workflow_id:str}", responses=problem_responses(404))
async def redefine(
    engine: Engine, caller: Caller, workflow_id: str, data: dict[str, Any]
) -> StoredDefinition:
    """A new version; runs keep the one they began with."""
    definition = await engine.definitions.get(workflow_id)
    return await engine.define(data, by=caller.name, role=caller.role, workflow_id=definition.id)


HANDLERS = [define, validate, read, workflows, workflow, versions, redefine]
