"""`handrail memory`: what the helpdesk remembers of resolved tickets, seen, corrected, removed."""

from handrail.cli import tables
from handrail.cli.asking import Where, ask
from handrail.cli.ids import WHOLE, only
from handrail.cli.words import first_line, typed
from handrail.client.clients import AsyncClient
from handrail.engine.memory import Memory

PAGE = 500
STYLES = {"kept": "green", "failed": "red", "reopened": "red"}


def list_memories(where: Where, text: str, limit: int) -> int:
    async def do(client: AsyncClient) -> None:
        page = await client.memories(q=typed(text) or None, limit=limit)
        if where.as_json:
            tables.print_json(page)
            return
        heads = ("memory", "status", "used", "ticket", "resolution", "at")
        tables.print_table(heads, [_row(one) for one in page.items], "nothing is remembered")

    return ask(where, do)


def show_memory(where: Where, given: str) -> int:
    async def do(client: AsyncClient) -> None:
        _print(where, await client.memory(await _memory_id(client, given)))

    return ask(where, do)


def correct_memory(where: Where, given: str, text: str) -> int:
    async def do(client: AsyncClient) -> None:
        _print(where, await client.correct_memory(await _memory_id(client, given), typed(text)))

    return ask(where, do)


def remove_memory(where: Where, given: str) -> int:
    async def do(client: AsyncClient) -> None:
        memory = await _memory_id(client, given)
        await client.remove_memory(memory)
        if where.as_json:
            tables.print_json({"id": memory, "removed": True})
        else:
            print(f"memory {memory} is removed")

    return ask(where, do)


async def _memory_id(client: AsyncClient, given: str) -> str:
    """The memory that is meant, by its whole id or as much of its beginning or end as is enough."""
    given = typed(given)
    if len(given) == WHOLE:
        return given
    known = [one.id async for one in client.each(client.memories, limit=PAGE)]
    found = [one for one in known if one.startswith(given) or one.endswith(given)]
    return only(given, found, "memory", "`handrail memory list` lists them")


def _row(memory: Memory) -> list[tables.Cell]:
    return [
        tables.short(memory.id),
        (memory.status, STYLES.get(memory.status, "")),
        str(memory.times_used),
        first_line(memory.title),
        first_line(memory.resolution),
        tables.at(memory.created_at),
    ]


def _print(where: Where, memory: Memory) -> None:
    if where.as_json:
        tables.print_json(memory)
        return
    lines = [
        f"memory {memory.id}: {memory.status}, used {memory.times_used} times",
        f"ticket: {memory.title}",
        f"bead {memory.bead_id}, run {memory.execution_id}",
        f"remembered by {memory.remembered_by} at {tables.at(memory.created_at)}",
    ]
    if memory.corrected_at is not None:
        lines.append(f"corrected by {memory.corrected_by} at {tables.at(memory.corrected_at)}")
    for line in [*lines, "", *memory.resolution.splitlines()]:
        tables.print_line(line)
