"""`handrail memory`: show, correct and remove the helpdesk's memory of resolved tickets."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from handrail.cli import output
from handrail.cli.arguments import (
    ID_CHARS,
    PAGE_ITEMS,
    AsJson,
    Database,
    Server,
    decode_argument,
    require_one_match,
)
from handrail.cli.command_group import command_group
from handrail.cli.connection import open_client

if TYPE_CHECKING:
    from handrail.client.clients import AsyncClient
    from handrail.views.memories import MemoryView

MemoryId = Annotated[
    str,
    typer.Argument(metavar="MEMORY", help="The memory's id, or a unique beginning or end of it."),
]
STATUS_STYLES = {"kept": "green", "failed": "red", "reopened": "red"}

memory = command_group("Show, correct and remove remembered resolutions.")


@memory.command("list")
async def list_memories(
    text: Annotated[
        str, typer.Option(help="Only those with this in the ticket or the resolution.")
    ] = "",
    limit: Annotated[int, typer.Option(min=1, max=500, help="The most resolutions to list.")] = 50,
    database: Database = "",
    server: Server = "",
    as_json: AsJson = False,
) -> None:
    """List remembered resolutions, the newest first."""
    async with open_client(database, server) as client:
        page = await client.memories.list(q=decode_argument(text) or None, limit=limit)
    output.show(
        page,
        output.TextTable(
            ("memory", "status", "used", "ticket", "resolution", "at"),
            map(_memory_row, page.items),
            "nothing is remembered",
        ),
        as_json=as_json,
    )


@memory.command("show")
async def show_memory(
    memory: MemoryId, database: Database = "", server: Server = "", as_json: AsJson = False
) -> None:
    """Show a resolution with its ticket and its status."""
    async with open_client(database, server) as client:
        stored = await client.memories.get(await _find_memory_id(client, memory))
    output.show(stored, _memory_lines(stored), as_json=as_json)


@memory.command("correct")
async def correct_memory(
    memory: MemoryId,
    resolution: Annotated[str, typer.Argument(help="The new resolution for such tickets.")],
    database: Database = "",
    server: Server = "",
    as_json: AsJson = False,
) -> None:
    """Replace a resolution; the change is recorded with its author."""
    async with open_client(database, server) as client:
        corrected = await client.memories.correct(
            await _find_memory_id(client, memory), decode_argument(resolution)
        )
    output.show(corrected, _memory_lines(corrected), as_json=as_json)


@memory.command("remove")
async def remove_memory(
    memory: MemoryId, database: Database = "", server: Server = "", as_json: AsJson = False
) -> None:
    """Remove a resolution: tickets are no longer answered with it."""
    async with open_client(database, server) as client:
        memory_id = await _find_memory_id(client, memory)
        await client.memories.remove(memory_id)
    output.show(
        {"id": memory_id, "removed": True}, [f"memory {memory_id} is removed"], as_json=as_json
    )


async def _find_memory_id(client: "AsyncClient", partial_id: str) -> str:
    """Return the memory's id from the whole id, or from enough of its beginning or end."""
    partial_id = decode_argument(partial_id)
    if len(partial_id) == ID_CHARS:
        return partial_id
    return require_one_match(
        partial_id,
        [memory.id async for memory in client.each(client.memories.list, limit=PAGE_ITEMS)],
        "memory",
        "`handrail memory list` lists them",
    )


def _memory_row(memory: "MemoryView") -> list[output.Cell]:
    return [
        output.short_id(memory.id),
        (memory.status, STATUS_STYLES.get(memory.status, "")),
        str(memory.times_used),
        output.first_line(memory.title),
        output.first_line(memory.resolution),
        output.format_time(memory.created_at),
    ]


def _memory_lines(memory: "MemoryView") -> Iterator[str]:
    yield f"memory {memory.id}: {memory.status}, used {memory.times_used} times"
    yield f"ticket: {memory.title}"
    yield f"bead {memory.bead_id}, run {memory.execution_id}"
    yield f"remembered by {memory.remembered_by} at {output.format_time(memory.created_at)}"
    if memory.corrected_at is not None:
        yield f"corrected by {memory.corrected_by} at {output.format_time(memory.corrected_at)}"
    yield ""
    yield from memory.resolution.splitlines()
