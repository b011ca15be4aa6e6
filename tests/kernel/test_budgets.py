"""Budgets that runs share: their periods, what is spent of them, and how many a run has."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from handrail.kernel.stop.budgets import (
    BUDGETS_MAX,
    BudgetPeriod,
    BudgetState,
    describe_budget,
    period_at,
    update_budgets,
)


@pytest.mark.parametrize(
    ("per", "at", "name", "until"),
    [
        ("run", datetime(2026, 3, 4, 5, tzinfo=UTC), "", None),
        (
            "day",
            datetime(2026, 3, 4, 5, tzinfo=UTC),
            "2026-03-04",
            datetime(2026, 3, 5, tzinfo=UTC),
        ),
        ("day", datetime(2026, 2, 28, tzinfo=UTC), "2026-02-28", datetime(2026, 3, 1, tzinfo=UTC)),
        ("month", datetime(2026, 1, 31, tzinfo=UTC), "2026-01", datetime(2026, 2, 1, tzinfo=UTC)),
        ("month", datetime(2026, 12, 1, tzinfo=UTC), "2026-12", datetime(2027, 1, 1, tzinfo=UTC)),
        (
            "day",  # half past one in the morning, two hours east: yesterday in UTC
            datetime(2026, 3, 4, 1, 30, tzinfo=timezone(timedelta(hours=2))),
            "2026-03-03",
            datetime(2026, 3, 4, tzinfo=UTC),
        ),
    ],
)
def test_periods_are_those_of_utc(
    per: BudgetPeriod, at: datetime, name: str, until: datetime | None
):
    assert period_at(per, at) == (name, until)


def test_the_nearest_limit_of_a_budget_is_described():
    state = BudgetState(name="b", per="run", cost=1, cost_max=10, tokens=90, tokens_max=100)
    assert describe_budget(state) == "90 of 100 tokens"
    assert (state.is_nearly_spent, state.is_spent) == (True, False)
    assert BudgetState(name="b", per="day", cost_max=0.0).is_spent
    assert not BudgetState(name="b", per="day", cost=5).is_spent


def test_a_run_has_no_more_budgets_than_it_may():
    states = [BudgetState(name=f"b{n}", per="day") for n in range(BUDGETS_MAX + 5)]
    assert len(update_budgets({}, states)) == BUDGETS_MAX
