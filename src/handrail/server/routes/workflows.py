"""Definitions: stored, validated, listed; each change makes a new version."""

import asyncio
from typing import Annotated, Any

from litestar import get, post, put
from litestar.params import Parameter

from handrail.engine.definitions import DefinitionItem, DefinitionView
from handrail.engine.documents import Document, load
from handrail.engine.engine import Defined, Engine
from handrail.engine.pages import LIMIT, Page
from handrail.kernel.certificate import Bound
from handrail.kernel.decision import Value
from handrail.server.access import Caller
from handrail.server.idempotency import PASSING
from handrail.server.paging import Cursor, Limit
from handrail.server.problems import Place, documented, places

Version = Annotated[int | None, Parameter(description="One of its versions; left out, the newest.")]


class Validated(Value, omit_defaults=False):
    valid: bool
    errors: tuple[Place, ...]
    bound: Bound | None
    warnings: tuple[Place, ...]


class Written(Value, forbid_unknown_fields=True):
    """A definition as somebody types it: JSON or YAML."""

    text: str


class Read(Value, omit_defaults=False):
    """`document` is null where the text is none; what is wrong says in which line."""

    document: Document
    errors: tuple[Place, ...]


@post("/workflows", responses=documented())
async def define(engine: Engine, caller: Caller, data: dict[str, Any]) -> Defined:
    """Store a definition. The same again changes nothing; a changed one of the same id becomes its
    next version."""
    return await engine.define(data, by=caller.name, role=caller.role)


@post("/workflows/validate", status_code=200, responses=documented(), opt={PASSING: True})
async def validate(engine: Engine, data: dict[str, Any]) -> Validated:
    """Everything that is wrong or doubtful with a definition, and what a run can cost at most."""
    plan, found = await engine.checked(data)
    return Validated(
        valid=plan is not None,
        errors=places(found.errors),
        bound=found.bound,
        warnings=places(found.warnings),
    )


@post("/workflows/read", status_code=200, responses=documented(), opt={PASSING: True})
async def read(data: Written) -> Read:
    """The document that a JSON or YAML text holds. What it means is for `validate` to say."""
    document, problems = await asyncio.to_thread(load, data.text)
    return Read(document=document, errors=places(tuple(problems)))


@get("/workflows", responses=documented())
async def workflows(
    engine: Engine, cursor: Cursor = "", limit: Limit = LIMIT
) -> Page[DefinitionItem]:
    """The newest version of each definition."""
    return await engine.definitions(cursor=cursor, limit=limit)


@get("/workflows/{workflow_id:str}", responses=documented(404))
async def workflow(engine: Engine, workflow_id: str, version: Version = None) -> DefinitionView:
    """A definition by id or name; without `version` its newest one."""
    return await engine.definition(workflow_id, version)


@get("/workflows/{workflow_id:str}/versions", responses=documented(404))
async def versions(engine: Engine, workflow_id: str) -> Page[DefinitionItem]:
    """Every version, the newest first."""
    return Page(items=tuple(await engine.versions(workflow_id)))


@put("/workflows/{workflow_id:str}", responses=documented(404))
async def redefine(
    engine: Engine, caller: Caller, workflow_id: str, data: dict[str, Any]
) -> Defined:
    """A new version; runs keep the one they began with."""
    known = await engine.definition(workflow_id)
    return await engine.define(data, by=caller.name, role=caller.role, workflow_id=known.id)


HANDLERS = [define, validate, read, workflows, workflow, versions, redefine]
