"""Budgets as people see them: what is spent of which limit, until when."""

from datetime import datetime

from handrail.kernel.stop.budgets import BudgetState
from handrail.views.view_types import View


class BudgetFigures(View):
    """Money and tokens; None where there is no limit."""

    cost: float | None
    tokens: int | None


class BudgetView(View):
    name: str
    per: str
    spent: BudgetFigures
    """In this period, by all of its runs; nothing for a budget of each run."""
    limit: BudgetFigures
    warn_at: float
    until: datetime | None
    """When the next period begins."""
    updated_by: str
    """The person who set the limits; empty if a guarded program did."""


def budget_view(state: BudgetState, updated_by: str) -> BudgetView:
    cost_max = None if state.cost_max is None else float(state.cost_max)
    return BudgetView(
        name=state.name,
        per=state.per,
        spent=BudgetFigures(cost=float(state.cost), tokens=state.tokens),
        limit=BudgetFigures(cost=cost_max, tokens=state.tokens_max),
        warn_at=state.warn_at,
        until=state.until,
        updated_by=updated_by,
    )
