"""Budgets that runs share: limits in money and tokens of a day, a month or each run."""

from typing import Annotated

import msgspec
from msgspec import Meta

from handrail.api.operation import ADMIN, OPERATOR, VIEWER, C_co, CallGroup, operation
from handrail.api.shared import AuthoredBody, PageQuery
from handrail.kernel.decision import Value
from handrail.kernel.stop.budgets import (
    WARN_AT_DEFAULT,
    BudgetName,
    BudgetPeriod,
    BudgetState,
    Cost,
    Tokens,
)
from handrail.views.budgets import BudgetView
from handrail.views.view_types import Page

# pyright: reportReturnType=false
# A declaration has no body.


class BudgetLimits(AuthoredBody, kw_only=True):
    """At least one limit. `key`: a budget of its own under this name, such as that of a user; its
    name is then `NAME:KEY`."""

    per: BudgetPeriod
    budget_key: Annotated[str, Meta(max_length=100)] = msgspec.field(default="", name="key")
    cost: Cost | None = None
    tokens: Tokens | None = None
    warn_at: Annotated[float, Meta(ge=0, le=1)] = WARN_AT_DEFAULT


class Spending(Value):
    """What a guarded run has spent, and the limits that its program sets."""

    limits: BudgetState
    cost: Cost = 0.0
    tokens: Tokens = 0


class BudgetCalls(CallGroup[C_co], subject="budgets"):
    """Money and tokens that runs share."""

    @operation("GET", "/budgets", query=PageQuery, access=VIEWER)
    def list(self, *, limit: int | None = None, cursor: str = "") -> Page[BudgetView]:
        """List every budget with its limits, what is spent of it and when its next period
        begins."""

    @operation("PUT", "/budgets/{name}", body=BudgetLimits, access=ADMIN)
    def put(
        self,
        name: BudgetName,
        *,
        per: BudgetPeriod,
        budget_key: str = "",
        cost: float | None = None,
        tokens: int | None = None,
        warn_at: float = WARN_AT_DEFAULT,
    ) -> BudgetView:
        """Set a budget. These limits win over those that a guarded program sets. The budget of a
        key is named `NAME:KEY`."""

    @operation("DELETE", "/budgets/{name}", access=ADMIN, problems=(404,))
    def delete(self, name: str) -> None:
        """Delete a budget. What was spent of it in this period is still known if it is set
        again."""

    @operation("POST", "/budgets/{name}/spending", body=Spending, access=OPERATOR)
    def spend(
        self, name: BudgetName, limits: BudgetState, *, cost: float = 0.0, tokens: int = 0
    ) -> BudgetState:
        """Add what a guarded run has spent, and get the sum with the limits in force."""
