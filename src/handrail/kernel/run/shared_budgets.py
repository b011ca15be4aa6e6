"""Budgets that a definition names: what is known of them comes with each command.

The sums are kept outside of the run, by the engine, and other runs spend them, too. So a decision
is given them as they stand (`decide(..., budgets)`), and adds what its own results use. The run
records them where it begins, and where a budget becomes spent or a person makes it larger: a run is
recomputed from its own events (K41). Once a budget is spent nothing is offered, and what is on
offer is not claimed: the run ends (K42). A record leaves the measure as it is, and comes at most
once for each time that a budget passes its limit; a run ends at the next offer or claim after that.
The warning comes once in a stretch. Where no budget is named, nothing is done.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime

from msgspec.structs import replace

from handrail.kernel.run.events import BUDGET_NEARLY_SPENT, BUDGETS_CHANGED, Warned, warning_key
from handrail.kernel.run.state import CLAIMED, OFFERED, Run
from handrail.kernel.stop.budgets import BudgetState, describe_budget
from handrail.kernel.stop.ledger import Ledger


def add_usage(
    states: Iterable[BudgetState], before: Ledger | None, after: Ledger
) -> tuple[BudgetState, ...]:
    """Return the budgets with what a decision has used; one of each run is the run's own."""
    tokens = after.tokens - (0 if before is None else before.tokens)
    cost = after.cost - (0 if before is None else before.cost)
    return tuple(
        replace(state, tokens=after.tokens, cost=after.cost)
        if state.per == "run"
        else replace(state, tokens=state.tokens + tokens, cost=state.cost + cost)
        for state in states
    )


def budget_changes(run: Run, states: tuple[BudgetState, ...], at: datetime) -> Iterator[Warned]:
    """Yield the records of budgets of which the run decides otherwise than by what it knew, and the
    warning of each that is nearly spent.
    """
    recorded = run.ledger.budgets
    for state in states:
        about = f"'{state.name}': {describe_budget(state)}"
        if state.name not in recorded or recorded[state.name].is_spent != state.is_spent:
            yield Warned(
                at=at, code=BUDGETS_CHANGED, message=about, subject=state.name, budgets=(state,)
            )
        warning = Warned(
            at=at,
            code=BUDGET_NEARLY_SPENT,
            message=f"the budget {about} is nearly spent",
            subject=state.name,
        )
        if state.is_nearly_spent and warning_key(warning) not in run.ledger.warned:
            yield warning


def waits_without_budget(run: Run) -> bool:
    """Whether a run that only waits for agents has a budget that is spent."""
    phases = {position.phase for position in run.positions.values()}
    return (
        run.paused_at is None
        and OFFERED in phases
        and CLAIMED not in phases
        and any(state.is_spent for state in run.ledger.budgets.values())
    )
