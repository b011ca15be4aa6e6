"""Commit locks: their holders and queues."""

from handrail.api.locks import LockCalls
from handrail.api.shared import PageQuery
from handrail.engine.engine import Engine
from handrail.server.binding import serves
from handrail.views.locks import LockView
from handrail.views.pages import Page


@serves(LockCalls.list)
async def list_locks(engine: Engine, query: PageQuery) -> Page[LockView]:
    return await engine.locks.list(cursor=query.cursor, limit=query.limit)
