"""Definitions: stored, validated, measured; each change makes a new version."""

import asyncio
from typing import Any

from handrail.api.definitions import (
    DefinitionCalls,
    DefinitionText,
    DefinitionValidation,
    MetricsQuery,
    ParsedDocument,
    WorkflowMetrics,
)
from handrail.engine.document_parser import load_document
from handrail.engine.engine import Engine, StoredDefinition
from handrail.server.access import Caller
from handrail.server.binding import parse_time, serves
from handrail.server.problems import field_errors


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
    return ParsedDocument(document=document, errors=field_errors(problems))


@serves(DefinitionCalls.update)
async def update_definition(
    engine: Engine, caller: Caller, workflow_id: str, data: dict[str, Any]
) -> StoredDefinition:
    definition = await engine.definitions.get(workflow_id)
    return await engine.define(data, by=caller.name, role=caller.role, workflow_id=definition.id)


@serves(DefinitionCalls.get_metrics)
async def get_definition_metrics(engine: Engine, query: MetricsQuery) -> WorkflowMetrics:
    at = parse_time("since", query.since)
    return WorkflowMetrics(
        items=tuple(await engine.statistics.by_definition(query.workflow_id, at)), since=at
    )
