"""`handrail memory`: show, correct and remove the helpdesk's memory of resolved tickets."""

from handrail.cli import output
from handrail.cli.api import ApiTarget, call_api
from handrail.cli.formatting import decode_argument, first_line
from handrail.cli.ids import ID_CHARS, require_one_match
from handrail.client.clients import AsyncClient
from handrail.views.memories import MemoryView

PAGE_ITEMS = 500
STATUS_STYLES = {"kept": "green", "failed": "red", "reopened": "red"}


def list_memories(target: ApiTarget, text: str, limit: int) -> int:
    async def do(client: AsyncClient) -> None:
        page = await client.list_memories(q=decode_argument(text) or None, limit=limit)
        if target.as_json:
            output.print_json(page)
            return
        heads = ("memory", "status", "used", "ticket", "resolution", "at")
        output.print_table(
            heads, [_memory_row(memory) for memory in page.items], "nothing is remembered"
        )

    return call_api(target, do)


def show_memory(target: ApiTarget, partial_id: str) -> int:
    async def do(client: AsyncClient) -> None:
        _print_memory(target, await client.get_memory(await _find_memory_id(client, partial_id)))

    return call_api(target, do)


def correct_memory(target: ApiTarget, partial_id: str, text: str) -> int:
    async def do(client: AsyncClient) -> None:
        _print_memory(
            target,
            await client.correct_memory(
                await _find_memory_id(client, partial_id), decode_argument(text)
            ),
        )

    return call_api(target, do)


def remove_memory(target: ApiTarget, partial_id: str) -> int:
    async def do(client: AsyncClient) -> None:
        memory_id = await _find_memory_id(client, partial_id)
        await client.remove_memory(memory_id)
        if target.as_json:
            output.print_json({"id": memory_id, "removed": True})
        else:
            print(f"memory {memory_id} is removed")

    return call_api(target, do)


async def _find_memory_id(client: AsyncClient, partial_id: str) -> str:
    """Return the memory's id from the whole id, or from enough of its beginning or end."""
    partial_id = decode_argument(partial_id)
    if len(partial_id) == ID_CHARS:
        return partial_id
    memory_ids = [memory.id async for memory in client.each(client.list_memories, limit=PAGE_ITEMS)]
    matches = [
        full_id
        for full_id in memory_ids
        if full_id.startswith(partial_id) or full_id.endswith(partial_id)
    ]
    return require_one_match(partial_id, matches, "memory", "`handrail memory list` lists them")


def _memory_row(memory: MemoryView) -> list[output.Cell]:
    return [
        output.short_id(memory.id),
        (memory.status, STATUS_STYLES.get(memory.status, "")),
        str(memory.times_used),
        first_line(memory.title),
        first_line(memory.resolution),
        output.format_time(memory.created_at),
    ]


def _print_memory(target: ApiTarget, memory: MemoryView) -> None:
    if target.as_json:
        output.print_json(memory)
        return
    lines = [
        f"memory {memory.id}: {memory.status}, used {memory.times_used} times",
        f"ticket: {memory.title}",
        f"bead {memory.bead_id}, run {memory.execution_id}",
        f"remembered by {memory.remembered_by} at {output.format_time(memory.created_at)}",
    ]
    if memory.corrected_at is not None:
        lines.append(
            f"corrected by {memory.corrected_by} at {output.format_time(memory.corrected_at)}"
        )
    for line in [*lines, "", *memory.resolution.splitlines()]:
        output.print_line(line)
