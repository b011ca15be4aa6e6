"""Budgets in the store: their limits, and what their runs have spent of them.

Sums are added up by the database, in the transaction that records the spending, so that processes
on one database see what the others have spent.
"""

from msgspec.structs import asdict

from handrail.store.columns import Row, Time
from handrail.store.database import Subject
from handrail.store.record import BUDGETS, Change, record
from handrail.store.rows import SpendingRow

__all__ = ["BudgetRow", "BudgetStore", "SpendingRow"]


class BudgetRow(Row):
    """The limits of a budget."""

    name: str
    per: str
    """run, day or month"""
    cost: float | None
    tokens: int | None
    warn_at: float
    updated_by: str
    """The person who set it; empty if a guarded program did."""
    updated_at: Time


class BudgetStore(Subject):
    def get(self, name: str) -> BudgetRow | None:
        return self._fetch_row(BudgetRow, "budget", name=name)

    def list(self, after: str, limit: int) -> list[BudgetRow]:
        """List budgets by name, those after that one."""
        return self._fetch_rows(BudgetRow, "budgets", after=after, limit=limit)

    def put(self, row: BudgetRow) -> None:
        """Set a budget. A program's limits do not replace those that a person has set."""
        if not row.updated_by:
            self._database.execute("put_program_budget", **asdict(row))
            return
        with self._database.transaction() as transaction:
            transaction.execute("put_budget", **asdict(row))
            change = Change(table=BUDGETS, row=row, type="budget_set", by=row.updated_by)
            record(transaction, row.updated_at, change)

    def delete(self, name: str, at: str, by: str) -> bool:
        """Return False if there is no such budget. What was spent stays."""
        with self._database.transaction() as transaction:
            values = transaction.fetch_one("delete_budget", name=name)
            if values is not None:
                row = BudgetRow(*values)
                change = Change(table=BUDGETS, row=row, type="budget_deleted", by=by, removed=True)
                record(transaction, at, change)
        return values is not None

    def spend(self, spending: SpendingRow) -> SpendingRow:
        """Add to what was spent in a period, and return the sum."""
        with self._database.transaction() as transaction:
            row = transaction.fetch_one("add_spending", **asdict(spending))
        assert row is not None, "it was written"
        return SpendingRow(*row)

    def delete_spending_before(self, updated_at: str) -> int:
        """Forget periods of which nothing was spent since then; return how many."""
        return self._database.execute("delete_spending_before", updated_at=updated_at)

    def get_spending(self, name: str, period: str) -> SpendingRow | None:
        return self._fetch_row(SpendingRow, "spending", name=name, period=period)
