"""`handrail bead create`: file a bead for a definition that is stored, or in a file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from handrail.cli import output
from handrail.cli.api import open_client
from handrail.cli.arguments import read_context
from handrail.cli.command import InputError, command_group
from handrail.cli.formatting import decode_argument
from handrail.cli.options import AsJson, Database, ReviewMode, Server
from handrail.client.errors import NotFoundError

if TYPE_CHECKING:
    from handrail.client.clients import AsyncClient

bead = command_group("File beads.")


@bead.command("create")
async def create_bead(
    definition: Annotated[
        str, typer.Argument(help="The definition: a file, else an id, else a name.")
    ],
    title: Annotated[str, typer.Option(help="The bead's title.")],
    description: Annotated[str, typer.Option(help="The bead's description.")] = "",
    context: Annotated[
        str, typer.Option(help="The bead's context: a JSON object, or @FILE with one.")
    ] = "",
    review: Annotated[
        ReviewMode | None, typer.Option(help="Default: as the definition says.")
    ] = None,
    priority: Annotated[
        int, typer.Option(help="Dispatches of a higher priority are offered first.")
    ] = 0,
    database: Database = "",
    server: Server = "",
    as_json: AsJson = False,
) -> None:
    """File a bead, and start a run of it.

    A definition in a file is stored first. A server on the database works on the run.
    """
    async with open_client(database, server) as client:
        created = await client.beads.create(
            decode_argument(title),
            description=decode_argument(description),
            context=read_context(context) or None,
            workflow_id=await _resolve_definition_id(client, definition),
            review=review,
            priority=priority or None,
        )
    output.show(created, [f"bead {created.id}, run {created.execution_id}"], as_json=as_json)


async def _resolve_definition_id(client: "AsyncClient", definition: str) -> str:
    """Resolve a file, which is stored first, else an id, else a name."""
    if definition != "-" and not Path(definition).is_file():
        return await _find_stored_id(client, decode_argument(definition))
    from handrail.cli.definitions import find_definition

    source = find_definition(definition)
    if source.problems:
        raise InputError(source.format_problems(source.problems[:1], "error")[0])
    stored = await client.definitions.create(cast("dict[str, Any]", source.document))
    for line in source.format_problems(stored.warnings, "warning"):
        output.print_note(line)
    return stored.id


async def _find_stored_id(client: "AsyncClient", name: str) -> str:
    from handrail.teams import BUILTIN_IDS

    try:
        return (await client.definitions.get(name)).id
    except NotFoundError:
        if name not in BUILTIN_IDS:
            raise
        message = f"'{name}' is built in, but no server has started it here"
        raise InputError(f"{message}; start `handrail serve --builtin-agents`") from None
