"""What is spent of budgets that runs share, and their limits, in a database.

What a run spends is added to the sum of the period in one transaction, which returns the sum: so
of several processes on one database, each knows what the others had spent when it goes on, and
passes a limit by no more than the call that it was in. Limits that a person has set win over those
of a program. Periods begin at midnight UTC.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import cast

from handrail.kernel.stop.budgets import BudgetPeriod, BudgetState, period_at
from handrail.store.budgets import BudgetRow, SpendingRow
from handrail.store.rows import iso
from handrail.store.store import Store
from handrail.store.urls import open_store


class SpendingRecord:
    """Budgets in a database, for callers that wait: a guard, or the engine's service."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def set_limits(self, limits: BudgetState, at: datetime, by: str = "") -> None:
        """Set a budget; a program's limits (`by` is empty) do not replace those of a person."""
        row = BudgetRow(
            name=limits.name,
            per=limits.per,
            cost=None if limits.cost_max is None else float(limits.cost_max),
            tokens=limits.tokens_max,
            warn_at=limits.warn_at,
            updated_by=by,
            updated_at=iso(at),
        )
        self._store.budgets.put(row)

    def spend(self, limits: BudgetState, cost: float, tokens: int, at: datetime) -> BudgetState:
        """Add to what was spent, and return the sum with the limits in force."""
        row = self._store.budgets.get(limits.name)
        limits = limits if row is None else limits_of(row)
        period, _ = period_at(limits.per, at)
        spending = SpendingRow(limits.name, period, float(cost), tokens, iso(at))
        if limits.per != "run":
            if cost or tokens:
                spending = self._store.budgets.spend(spending)
            else:
                spending = self._store.budgets.get_spending(limits.name, period) or spending
        return with_spending(limits, spending, at)

    def states(self, names: Iterable[str], at: datetime) -> list[BudgetState]:
        """Return the budgets of these names as they stand; those that exist."""
        rows = [row for name in names if (row := self._store.budgets.get(name)) is not None]
        return [self.spend(limits_of(row), 0, 0, at) for row in rows]

    def close(self) -> None:
        self._store.close()


def open_spending_record(database: str) -> SpendingRecord:
    """Open the budgets of a database. Raises StoreError."""
    return SpendingRecord(open_store(database))


def limits_of(row: BudgetRow) -> BudgetState:
    """Return a budget of which nothing is spent."""
    return BudgetState(
        name=row.name,
        per=cast("BudgetPeriod", row.per),
        cost_max=row.cost,
        tokens_max=row.tokens,
        warn_at=row.warn_at,
    )


def with_spending(limits: BudgetState, spending: SpendingRow, at: datetime) -> BudgetState:
    _, until = period_at(limits.per, at)
    return BudgetState(
        name=limits.name,
        per=limits.per,
        cost=spending.cost,
        tokens=spending.tokens,
        cost_max=limits.cost_max,
        tokens_max=limits.tokens_max,
        warn_at=limits.warn_at,
        until=until,
    )
