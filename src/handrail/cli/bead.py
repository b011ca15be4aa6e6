"""`handrail bead create`: a new bead, worked by a definition that is stored, or in a file."""

from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from handrail.cli import tables
from handrail.cli.asking import Where, ask
from handrail.cli.database import InputError
from handrail.cli.definitions import context_of, find
from handrail.cli.words import typed
from handrail.client.clients import AsyncClient
from handrail.client.errors import NotFound
from handrail.teams import NAMES


class Wanted(NamedTuple):
    definition: str
    title: str
    description: str = ""
    context: str = ""
    review: Literal["required", "skip"] | None = None
    priority: int = 0


def create_bead(where: Where, wanted: Wanted) -> int:
    async def do(client: AsyncClient) -> None:
        context = context_of(wanted.context)
        bead = await client.create_bead(
            typed(wanted.title),
            description=typed(wanted.description),
            workflow_id=await definition_id(client, wanted.definition),
            context=context or None,
            review=wanted.review,
            priority=wanted.priority or None,
        )
        if where.as_json:
            tables.print_json(bead)
        else:
            tables.print_line(f"bead {bead.id}, run {bead.execution_id}")

    return ask(where, do)


async def definition_id(client: AsyncClient, given: str) -> str:
    """A file, which is stored first, else an id, else a name."""
    if given != "-" and not Path(given).is_file():
        return await _stored_id(client, typed(given))
    found = find(given)
    if found.problems:
        raise InputError(found.told(found.problems[:1], "error")[0])
    stored = await client.create_workflow(cast("dict[str, Any]", found.document))
    for line in found.told(stored.warnings, "warning"):
        tables.note(line)
    return stored.id


async def _stored_id(client: AsyncClient, name: str) -> str:
    try:
        return (await client.workflow(name)).id
    except NotFound:
        if name not in NAMES:
            raise
        told = f"'{name}' is built in, and nobody here works it yet"
        raise InputError(f"{told}; start `handrail serve --builtin-agents`") from None
