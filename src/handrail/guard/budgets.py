"""Budgets under guard: money and tokens that all runs of a program may spend in a day or a month.

    support = Budget("support", per="day", cost=20)
    guard = Guard(budgets=[support], record="sqlite:///work.db")

What a step has used is added to the sum before the next call begins, and the run ends when the sum
has reached the limit. The sum is kept where runs are recorded, so that several processes share it;
without a record it is kept in the `Budget` itself, for this process. If the record cannot be
reached, the process goes on with what it knows, and logs that.
"""

import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec.structs import replace

from handrail.kernel.decision import prepare_types
from handrail.kernel.result import Usage
from handrail.kernel.run.events import BUDGET_NEARLY_SPENT, Warned
from handrail.kernel.stop.budgets import (
    BUDGETS_MAX,
    WARN_AT_DEFAULT,
    BudgetPeriod,
    BudgetState,
    describe_budget,
    period_at,
)

if TYPE_CHECKING:
    from handrail.client.clients import Client

log = logging.getLogger("handrail.guard")
prepare_types(BudgetState)

PERIODS_KEPT = 2
"""Periods that a budget without a record remembers: this one, and that of a clock just behind."""


class Budget:
    """A limit that runs share: `per` run, day or month, in money (`cost`), in tokens, or both.

    With a `key`, such as a user's id, it is a budget of its own: `NAME:KEY`.
    """

    def __init__(
        self,
        name: str,
        *,
        per: BudgetPeriod,
        cost: float | None = None,
        tokens: int | None = None,
        key: str | None = None,
        warn_at: float = WARN_AT_DEFAULT,
    ) -> None:
        """Raise ValueError, naming the field, if the budget cannot be used."""
        if cost is None and tokens is None:
            raise ValueError(f"the budget '{name}' has no limit; say cost=, or tokens=, or both")
        fields: dict[str, Any] = {
            "name": f"{name}:{key}" if key else name,
            "per": per,
            "cost_max": cost,
            "tokens_max": tokens,
            "warn_at": warn_at,
        }
        try:
            self.limits = msgspec.convert(fields, BudgetState)
        except msgspec.ValidationError as error:
            raise ValueError(f"the budget '{name}' cannot be used: {error}") from None
        self._sums: dict[str, tuple[float, int]] = {}
        self._lock = Lock()

    def spend(self, cost: float, tokens: int, at: datetime) -> BudgetState:
        """Add to the sum of this process, and return it."""
        period, until = period_at(self.limits.per, at)
        with self._lock:
            before_cost, before_tokens = self._sums.get(period, (0.0, 0))
            sums = before_cost + cost, before_tokens + tokens
            self._sums[period] = sums
            while len(self._sums) > PERIODS_KEPT:
                del self._sums[min(self._sums)]
        return replace(self.limits, cost=sums[0], tokens=sums[1], until=until)


class SpendingPlace(Protocol):
    """Where sums are kept that processes share, with the limits in force."""

    def spend(self, limits: BudgetState, cost: float, tokens: int, at: datetime) -> BudgetState: ...


class ServerSpending:
    """Sums that a server keeps."""

    def __init__(self, open_client: "Callable[[], Client]") -> None:
        self._open_client = open_client

    def spend(self, limits: BudgetState, cost: float, tokens: int, at: datetime) -> BudgetState:
        with self._open_client() as client:
            return client.budgets.spend(limits.name, limits, cost=cost, tokens=tokens)


class GuardBudgets:
    """The budgets of a guard, and the place where their sums are kept, opened when first used."""

    def __init__(
        self, budgets: Sequence[Budget], open_place: Callable[[], SpendingPlace | None]
    ) -> None:
        names = [budget.limits.name for budget in budgets]
        twice = next((name for name in names if names.count(name) > 1), "")
        if twice:
            raise ValueError(f"the budget '{twice}' stands twice; give one of them a key")
        if len(names) > BUDGETS_MAX:
            raise ValueError(f"there are {len(names)} budgets; a guard has at most {BUDGETS_MAX}")
        self.budgets = tuple(budgets)
        limits = [budget.limits for budget in budgets if budget.limits.cost_max is not None]
        self.money_budget = f"the budget '{limits[0].name}'" if limits else ""
        """What to call a budget in money, if there is one."""
        self._open_place, self._lock = open_place, Lock()
        self._place: SpendingPlace | None = None
        self._is_open = False

    def spend(self, budget: Budget, cost: float, tokens: int, at: datetime) -> BudgetState:
        """Add to the budget's sum, and return it with the limits in force."""
        own = budget.spend(cost, tokens, at)
        try:
            with self._lock:
                if not self._is_open:
                    self._place, self._is_open = self._open_place(), True
            place = self._place
            return own if place is None else place.spend(budget.limits, cost, tokens, at)
        except Exception as error:
            log.error(
                "the budget '%s' is counted in this process alone: %s", budget.limits.name, error
            )
            return own


class RunBudgets:
    """The budgets of one run."""

    def __init__(self, guard_budgets: GuardBudgets, at: datetime) -> None:
        self._guard = guard_budgets
        self._per_run = {
            budget.limits.name: budget.limits
            for budget in guard_budgets.budgets
            if budget.limits.per == "run"
        }
        self._warned: set[str] = set()
        self.at = at
        """When the run began."""
        self.states: tuple[BudgetState, ...] = ()
        """The budgets as they stood last."""
        self.spend(Usage(), at)

    def spend(self, usage: Usage, at: datetime) -> tuple[BudgetState, ...]:
        """Add what a step has used to every budget, and return them as they stand."""
        if self._guard.budgets:
            self.states = tuple(self._spend(budget, usage, at) for budget in self._guard.budgets)
        return self.states

    def _spend(self, budget: Budget, usage: Usage, at: datetime) -> BudgetState:
        name = budget.limits.name
        before = self._per_run.get(name)
        if before is None:
            return self._guard.spend(budget, usage.cost, usage.tokens, at)
        cost, tokens = before.cost + usage.cost, before.tokens + usage.tokens
        self._per_run[name] = state = replace(before, cost=cost, tokens=tokens)
        return state

    def warnings(self, at: datetime, step: int) -> list[Warned]:
        """Return what the run warns of, once for each budget that is nearly spent."""
        near = [s for s in self.states if s.is_nearly_spent and s.name not in self._warned]
        self._warned.update(state.name for state in near)
        return [
            Warned(
                at=at,
                code=BUDGET_NEARLY_SPENT,
                message=f"the budget '{state.name}' is nearly spent: {describe_budget(state)}",
                step=step,
                subject=state.name,
            )
            for state in near
        ]
