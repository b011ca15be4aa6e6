"""Budgets that several runs share: what they have spent, as it stood when an event was decided.

The sums are kept outside of the runs, and what another run has spent decides about this one. So
each event that spends holds the state of its budgets: a run is recomputed from its own events
(K41).
A budget ends a run, it does not let it wait (K42), and ends it only earlier than its own limits:
neither certificate nor measure know it. Periods are days and months of UTC.
"""

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from handrail.kernel.decision import Value, prepare_types
from handrail.kernel.definition.limits import SHARED_BUDGETS_MAX, SharedBudgetName
from handrail.kernel.result import FIGURE_MAX

BudgetPeriod = Literal["run", "day", "month"]
BUDGETS_MAX = SHARED_BUDGETS_MAX
WARN_AT_DEFAULT = 0.8
"""The share of a budget from which on a run warns that it is nearly spent."""
_WRITTEN_BUDGET = re.compile(
    r"(\S[^=]{0,199}?) *= *(\d{1,15}(?:\.\d{1,9})?) (cost|tokens) a (run|day|month)"
)
_Figure = Meta(ge=0, le=FIGURE_MAX)
Cost = Annotated[int, _Figure] | Annotated[float, _Figure]
Tokens = Annotated[int, _Figure]
BudgetName = SharedBudgetName


class BudgetState(Value):
    """A budget with what all of its runs have spent in this period."""

    name: BudgetName
    per: BudgetPeriod
    cost: Cost = 0.0
    tokens: Tokens = 0
    cost_max: Cost | None = None
    tokens_max: Tokens | None = None
    warn_at: Annotated[float, Meta(ge=0, le=1)] = WARN_AT_DEFAULT
    until: datetime | None = None
    """When the next period begins; None for a budget of each run."""

    @property
    def share(self) -> float:
        """The largest share of a limit that is spent; 1 if a limit of nothing is."""
        pairs = ((self.cost, self.cost_max), (self.tokens, self.tokens_max))
        return max(
            (spent / limit if limit else 1.0 for spent, limit in pairs if limit is not None),
            default=0.0,
        )

    @property
    def is_spent(self) -> bool:
        return self.share >= 1

    @property
    def is_nearly_spent(self) -> bool:
        return self.share >= self.warn_at

    @property
    def spent_limit(self) -> tuple[str, float, float]:
        """The unit whose limit is nearest, what was spent of it, and the limit."""
        if self.cost_max is not None and (
            self.tokens_max is None or self.cost * self.tokens_max >= self.tokens * self.cost_max
        ):
            return "cost", self.cost, self.cost_max
        return "tokens", self.tokens, self.tokens_max or 0


prepare_types(BudgetState)


def period_at(per: BudgetPeriod, at: datetime) -> tuple[str, datetime | None]:
    """Return the name of the period at that time, and when the next one begins."""
    moment = at.astimezone(UTC)
    if per == "run":
        return "", None
    day = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    if per == "day":
        return f"{day:%Y-%m-%d}", day + timedelta(days=1)
    first = day.replace(day=1)
    return f"{first:%Y-%m}", (first + timedelta(days=32)).replace(day=1)


def parse_budget(text: str) -> BudgetState:
    """Read a budget as settings write it. Raises ValueError."""
    match = _WRITTEN_BUDGET.fullmatch(text.strip())
    if match is None:
        raise ValueError(
            f"{text[:80]!r} is no budget; write NAME = 20 cost a day, or NAME = 1000 tokens a "
            "month (or: a run)"
        )
    name, figure, unit, per = match.groups()
    limit: dict[str, float] = (
        {"cost_max": float(figure)} if unit == "cost" else {"tokens_max": int(float(figure))}
    )
    try:
        return msgspec.convert({"name": name, "per": per, **limit}, BudgetState)
    except msgspec.ValidationError as error:
        raise ValueError(f"the budget {name[:80]!r} cannot be used: {error}") from None


def update_budgets(
    budgets: dict[str, BudgetState], states: Iterable[BudgetState]
) -> dict[str, BudgetState]:
    """Return the budgets of a run after an event, at most as many as a run may have."""
    return dict(list({**budgets, **{state.name: state for state in states}}.items())[:BUDGETS_MAX])


def describe_budget(state: BudgetState) -> str:
    """Say what is spent of which limit, and until when."""
    unit, spent, limit = state.spent_limit
    until = f", until {state.until:%Y-%m-%d %H:%M} UTC" if state.until is not None else ""
    runs = "" if state.per == "run" else " in all its runs"
    return f"{spent:g} of {limit:g} {unit}{runs}{until}"
