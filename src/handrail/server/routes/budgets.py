"""Budgets that runs share."""

from msgspec.structs import replace

from handrail.api.budgets import BudgetCalls, BudgetLimits, Spending
from handrail.engine.engine import Engine
from handrail.engine.errors import refuse
from handrail.kernel.decision import prepare_types
from handrail.kernel.stop.budgets import BudgetState
from handrail.server.access import Caller
from handrail.server.binding import serves
from handrail.views.budgets import BudgetView

prepare_types(BudgetState, Spending, BudgetLimits)


@serves(BudgetCalls.put)
async def put_budget(engine: Engine, caller: Caller, name: str, data: BudgetLimits) -> BudgetView:
    if data.cost is None and data.tokens is None:
        refuse("unusable", f"the budget '{name}' has no limit", "set cost, or tokens, or both")
    limits = BudgetState(
        name=f"{name}:{data.budget_key}" if data.budget_key else name,
        per=data.per,
        cost_max=data.cost,
        tokens_max=data.tokens,
        warn_at=data.warn_at,
    )
    return await engine.budgets.put(limits, by=caller.name)


@serves(BudgetCalls.delete)
async def delete_budget(engine: Engine, caller: Caller, name: str) -> None:
    await engine.budgets.delete(name, by=caller.name)


@serves(BudgetCalls.spend)
async def spend_budget(engine: Engine, name: str, data: Spending) -> BudgetState:
    return await engine.budgets.spend(replace(data.limits, name=name), data.cost, data.tokens)
