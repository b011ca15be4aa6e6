"""Commit locks: their holders and queues."""

from litestar import get

from handrail.engine.engine import Engine
from handrail.server.paging import Cursor, Limit
from handrail.server.problems import problem_responses
from handrail.views.locks import LockView
from handrail.views.pages import PAGE_ITEMS_DEFAULT, Page


@get("/locks", responses=problem_responses())
async def locks(
    engine: Engine, cursor: Cursor = "", limit: Limit = PAGE_ITEMS_DEFAULT
) -> Page[LockView]:
    """Every repository that runs have committed to: the holder, the queue in order, the fence."""
    return await engine.locks.list(cursor=cursor, limit=limit)


HANDLERS = [locks]
