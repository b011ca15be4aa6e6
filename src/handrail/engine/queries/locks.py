"""The commit locks as they are shown: holders, and waiting runs in order."""

from operator import attrgetter

from handrail.engine.commit.lock_change import decode_lock
from handrail.engine.environment import StoreAccess
from handrail.engine.pagination import check_cursor, check_limit, to_page
from handrail.kernel import lock as locks
from handrail.store.rows import LockRow
from handrail.views.locks import LockHolderView, LockView, LockWaiter
from handrail.views.view_types import PAGE_ITEMS_DEFAULT, Page


class LockQueries:
    """Lists the commit locks."""

    def __init__(self, access: StoreAccess) -> None:
        self._access = access

    async def list(self, *, cursor: str = "", limit: int = PAGE_ITEMS_DEFAULT) -> Page[LockView]:
        """The locks by repository."""
        after, limit = check_cursor(cursor) or None, check_limit(limit)
        rows = await self._access.query(
            lambda store: store.locks.list(after=after, limit=limit + 1)
        )
        return to_page(rows, limit, _to_view, attrgetter("repository"))


def _to_view(row: LockRow) -> LockView:
    lock = decode_lock(row.state)
    held, due = lock.holder, locks.next_due(lock)
    holder = None
    if held is not None and due is not None:
        holder = LockHolderView(
            execution_id=held.request.run,
            node_id=held.request.step,
            asked_at=held.request.asked_at,
            fence=held.fence,
            granted_at=held.granted_at,
            expires_at=due,
        )
    waiting = (
        LockWaiter(execution_id=request.run, node_id=request.step, asked_at=request.asked_at)
        for request in lock.queue
    )
    return LockView(
        repository=lock.repository, fence=lock.fence, holder=holder, queue=tuple(waiting)
    )
