"""Remembered resolutions: people list, correct and remove them. The built-in agents use the memory
through the engine itself."""

from handrail.api.memories import MemoryCalls, MemoryPatch, MemoryQuery
from handrail.engine.engine import Engine
from handrail.server.access import Caller, check_author
from handrail.server.binding import serves
from handrail.views.memories import MemoryView
from handrail.views.pages import Page


@serves(MemoryCalls.list)
async def list_memories(engine: Engine, query: MemoryQuery) -> Page[MemoryView]:
    return await engine.memory.list(q=query.q, cursor=query.cursor, limit=query.limit)


@serves(MemoryCalls.get)
async def get_memory(engine: Engine, memory_id: str) -> MemoryView:
    return await engine.memory.get(memory_id)


@serves(MemoryCalls.correct)
async def correct_memory(
    engine: Engine, caller: Caller, memory_id: str, data: MemoryPatch
) -> MemoryView:
    await check_author(engine, caller, data)
    return await engine.memory.correct(memory_id, data.resolution, by=caller.name)


@serves(MemoryCalls.remove)
async def remove_memory(engine: Engine, caller: Caller, memory_id: str) -> None:
    await engine.memory.forget(memory_id, by=caller.name)
