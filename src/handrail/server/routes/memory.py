"""Remembered resolutions: people list, correct and remove them. The built-in agents use the memory
through the engine itself."""

from typing import Annotated

from litestar import delete, get, patch
from litestar.params import Parameter
from msgspec import Meta

from handrail.api.memories import MemoryPatch
from handrail.engine.engine import Engine
from handrail.server.access import Caller
from handrail.server.author_check import check_author
from handrail.server.paging import Cursor, Limit
from handrail.server.problems import problem_responses
from handrail.server.request_body import NulFreeText
from handrail.views.memories import QUERY_CHARS_MAX, RESOLUTION_CHARS_MAX, MemoryView
from handrail.views.pages import PAGE_ITEMS_DEFAULT, Page

TextQuery = Annotated[
    str | None,
    Parameter(max_length=QUERY_CHARS_MAX, description="A part of the ticket or of the resolution."),
]
Resolution = Annotated[NulFreeText, Meta(min_length=1, max_length=RESOLUTION_CHARS_MAX)]


@get("/memory", responses=problem_responses())
async def memories(
    engine: Engine, q: TextQuery = None, cursor: Cursor = "", limit: Limit = PAGE_ITEMS_DEFAULT
) -> Page[MemoryView]:
    """Remembered resolutions, the newest first; also those that are not offered any more."""
    return await engine.memory.list(q=q, cursor=cursor, limit=limit)


@get("/memory/{memory_id:str}", responses=problem_responses(404))
async def memory(engine: Engine, memory_id: str) -> MemoryView:
    """One of them."""
    return await engine.memory.get(memory_id)


@patch("/memory/{memory_id:str}", responses=problem_responses(404, 409))
async def correct(engine: Engine, caller: Caller, memory_id: str, data: MemoryPatch) -> MemoryView:
    """Another resolution; the record says who wrote it. One that is not offered any more, because
    its run ended badly or its ticket was opened again, is 409."""
    await check_author(engine, caller, data)
    return await engine.memory.correct(memory_id, data.resolution, by=caller.name)


@delete("/memory/{memory_id:str}", responses=problem_responses(404))
async def remove(engine: Engine, caller: Caller, memory_id: str) -> None:
    """It answers no ticket any more; the record says who removed it."""
    await engine.memory.forget(memory_id, by=caller.name)


HANDLERS = [memories, memory, correct, remove]
