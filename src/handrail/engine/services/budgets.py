"""Budgets that runs share: people set, look at and delete them; guarded runs spend."""

from collections.abc import Sequence

from handrail.engine.environment import Clock, StoreAccess
from handrail.engine.errors import require_known
from handrail.engine.pagination import check_cursor, check_limit, to_page
from handrail.engine.spending import SpendingRecord, limits_of
from handrail.kernel.stop.budgets import BudgetState, parse_budget
from handrail.store.budgets import BudgetRow
from handrail.store.rows import iso
from handrail.views.budgets import BudgetView, budget_view
from handrail.views.view_types import PAGE_ITEMS_DEFAULT, Page


class BudgetService:
    def __init__(self, access: StoreAccess, clock: Clock) -> None:
        self._access, self._store, self._clock = access, access.store, clock
        self._record = SpendingRecord(access.store)

    async def list(self, *, limit: int = PAGE_ITEMS_DEFAULT, cursor: str = "") -> Page[BudgetView]:
        """List budgets by name. Refused: bad_limit, bad_cursor."""
        check_limit(limit)
        rows = await self._access.call(self._store.budgets.list, check_cursor(cursor), limit + 1)
        views = [await self._view(row) for row in rows]
        return to_page(views, limit, lambda view: view, lambda view: view.name)

    async def put(self, limits: BudgetState, *, by: str) -> BudgetView:
        """Set a budget; what was spent of it in this period stays."""
        self._access.check_open()
        await self._access.call(self._record.set_limits, limits, self._clock(), by)
        return await self.get(limits.name)

    async def get(self, name: str) -> BudgetView:
        """Return a budget. Refused: unknown_budget."""
        row = await self._access.call(self._store.budgets.get, name)
        return await self._view(require_known(row, "unknown_budget", name))

    async def delete(self, name: str, *, by: str) -> None:
        """Delete a budget: it ends no run any more. Refused: unknown_budget."""
        self._access.check_open()
        is_deleted = await self._access.call(
            self._store.budgets.delete, name, iso(self._clock()), by
        )
        require_known(is_deleted or None, "unknown_budget", name)

    async def set_from_settings(self, texts: Sequence[str]) -> None:
        """Set the budgets of the settings; those that a person has set stay as they are."""
        for text in texts:
            limits = parse_budget(text)
            await self._access.call(self._record.set_limits, limits, self._clock())

    async def spend(self, limits: BudgetState, cost: float, tokens: int) -> BudgetState:
        """Add what a guarded run has spent, and return the sum with the limits in force."""
        self._access.check_open()
        now = self._clock()
        await self._access.call(self._record.set_limits, limits, now)
        return await self._access.call(self._record.spend, limits, cost, tokens, now)

    async def _view(self, row: BudgetRow) -> BudgetView:
        state = await self._access.call(self._record.spend, limits_of(row), 0, 0, self._clock())
        return budget_view(state, row.updated_by)
