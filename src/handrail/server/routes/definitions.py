"""Definitions: stored, validated, listed; each change makes a new version."""

import asyncio
from typing import Any

from handrail.api.definitions import (
    DefinitionCalls,
    DefinitionText,
    DefinitionValidation,
    ParsedDocument,
    VersionQuery,
)
from handrail.api.shared import PageQuery
from handrail.engine.document_parser import load_document
from handrail.engine.engine import Engine, StoredDefinition
from handrail.server.access import Caller
from handrail.server.binding import serves
from handrail.server.problems import field_errors
from handrail.views.definitions import DefinitionItem, DefinitionView
from handrail.views.pages import Page


@serves(DefinitionCalls.create)
async def create_definition(
    engine: Engine, caller: Caller, data: dict[str, Any]
) -> StoredDefinition:
    return await engine.define(data, by=caller.name, role=caller.role)


@serves(DefinitionCalls.validate)
async def validate_definition(engine: Engine, data: dict[str, Any]) -> DefinitionValidation:
    plan, checked = await engine.definitions.check(data)
    return DefinitionValidation(
        valid=plan is not None,
        errors=field_errors(checked.errors),
        bound=checked.bound,
        warnings=field_errors(checked.warnings),
    )


@serves(DefinitionCalls.parse)
async def parse_definition(data: DefinitionText) -> ParsedDocument:
    document, problems = await asyncio.to_thread(load_document, data.text)
    return ParsedDocument(document=document, errors=field_errors(tuple(problems)))


@serves(DefinitionCalls.list)
async def list_definitions(engine: Engine, query: PageQuery) -> Page[DefinitionItem]:
    return await engine.definitions.list(cursor=query.cursor, limit=query.limit)


@serves(DefinitionCalls.get)
async def get_definition(engine: Engine, workflow_id: str, query: VersionQuery) -> DefinitionView:
    return await engine.definitions.get(workflow_id, query.version)


@serves(DefinitionCalls.list_versions)
async def list_definition_versions(engine: Engine, workflow_id: str) -> Page[DefinitionItem]:
    return Page(items=tuple(await engine.definitions.versions(workflow_id)))


@serves(DefinitionCalls.update)
async def update_definition(
    engine: Engine, caller: Caller, workflow_id: str, data: dict[str, Any]
) -> StoredDefinition:
    definition = await engine.definitions.get(workflow_id)
    return await engine.define(data, by=caller.name, role=caller.role, workflow_id=definition.id)
