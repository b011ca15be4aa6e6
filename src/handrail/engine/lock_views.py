"""The commit locks as they are looked at: who holds which, who waits, in which order."""

from datetime import datetime

from handrail.engine.core import Core
from handrail.engine.pages import LIMIT, Page, checked_cursor, checked_limit
from handrail.engine.works import decode_lock
from handrail.kernel import lock as locks
from handrail.kernel.shown import Shown
from handrail.store.port import LockState


class Wanting(Shown):
    """A run that waits for the lock, and since when."""

    execution_id: str
    node_id: str
    asked_at: datetime


class Holding(Wanting, frozen=True, kw_only=True):
    """The run that has it. A holder that is silent until `expires_at` loses it."""

    fence: int
    granted_at: datetime
    expires_at: datetime


class LockView(Shown):
    """The lock of a repository. `fence` is the last that was given; the queue is in order."""

    repository: str
    fence: int
    holder: Holding | None
    queue: tuple[Wanting, ...]


class WithLocks(Core):
    """An engine whose locks can be looked at."""

    async def locks(self, *, cursor: str = "", limit: int = LIMIT) -> Page[LockView]:
        """By repository."""
        after, limit = checked_cursor(cursor) or None, checked_limit(limit)
        rows = await self._slowly(lambda store: store.locks(after=after, limit=limit + 1))
        items = tuple(_view(row) for row in rows[:limit])
        return Page(items=items, next_cursor=items[-1].repository if len(rows) > limit else None)


def _view(row: LockState) -> LockView:
    lock = decode_lock(row.state)
    held, due = lock.holder, locks.next_due(lock)
    holder = None
    if held is not None and due is not None:
        holder = Holding(
            execution_id=held.request.run,
            node_id=held.request.step,
            asked_at=held.request.asked_at,
            fence=held.fence,
            granted_at=held.granted_at,
            expires_at=due,
        )
    waiting = (
        Wanting(execution_id=one.run, node_id=one.step, asked_at=one.asked_at) for one in lock.queue
    )
    return LockView(
        repository=lock.repository, fence=lock.fence, holder=holder, queue=tuple(waiting)
    )
