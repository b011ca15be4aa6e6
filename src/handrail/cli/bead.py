"""`handrail bead create`: a new bead, worked by a definition that is stored, or in a file."""

from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from handrail.cli import tables
from handrail.cli.asking import Where, ask
from handrail.cli.database import InputError
from handrail.cli.definitions import context_of, find
from handrail.cli.words import placed, typed
from handrail.client.clients import AsyncClient


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
        return (await client.workflow(typed(given))).id
    found = find(given)
    if found.problems:
        raise InputError(placed(found.problems[0], found.label, "error"))
    return (await client.create_workflow(cast("dict[str, Any]", found.document))).id
