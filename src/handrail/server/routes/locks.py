"""Commit locks: who holds which, who waits for it."""

from litestar import get

from handrail.engine.engine import Engine
from handrail.engine.lock_views import LockView
from handrail.engine.pages import LIMIT, Page
from handrail.server.paging import Cursor, Limit
from handrail.server.problems import documented


@get("/locks", responses=documented())
async def locks(engine: Engine, cursor: Cursor = "", limit: Limit = LIMIT) -> Page[LockView]:
    """Every repository that runs have committed to: the holder, the queue in order, the fence."""
    return await engine.locks(cursor=cursor, limit=limit)


HANDLERS = [locks]
