"""What is known of budgets while a batch is decided: as stored, and what was spent since."""

from collections.abc import Sequence
from datetime import datetime

from handrail.kernel.run.shared_budgets import add_usage
from handrail.kernel.stop.budgets import BudgetState, period_at
from handrail.kernel.stop.ledger import Ledger
from handrail.store.rows import SpendingRow, iso


class BudgetBook:
    """The budgets that the runs of a batch name."""

    def __init__(self, states: Sequence[BudgetState] = ()) -> None:
        self._states = {state.name: state for state in states}

    def known(self, names: Sequence[str]) -> tuple[BudgetState, ...]:
        """Return the budgets as they stand; one that was deleted has no limit."""
        return tuple(self._states.get(name) or BudgetState(name=name, per="day") for name in names)

    def spend(
        self, names: Sequence[str], before: Ledger | None, after: Ledger, at: datetime
    ) -> tuple[SpendingRow, ...]:
        """Add what a run has used between the two; return it for the database."""
        states = self.known(names)
        rows: list[SpendingRow] = []
        for old, new in zip(states, add_usage(states, before, after), strict=True):
            cost, tokens = float(new.cost - old.cost), new.tokens - old.tokens
            if old.per != "run" and (cost or tokens):
                self._states[old.name] = new
                period, _ = period_at(old.per, at)
                rows.append(SpendingRow(old.name, period, cost, tokens, iso(at)))
        return tuple(rows)
