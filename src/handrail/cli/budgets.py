"""`handrail budgets`: what is spent of the budgets that runs share."""

from typing import TYPE_CHECKING, Annotated

import typer

from handrail.cli import output
from handrail.cli.arguments import AsJson, Database, Server
from handrail.cli.connection import open_client

if TYPE_CHECKING:
    from handrail.views.budgets import BudgetFigures, BudgetView


async def budgets(
    limit: Annotated[int, typer.Option(min=1, max=500, help="The most budgets to list.")] = 50,
    database: Database = "",
    server: Server = "",
    as_json: AsJson = False,
) -> None:
    """List budgets: what is spent of which limit, and until when."""
    async with open_client(database, server) as client:
        page = await client.budgets.list(limit=limit)
    output.show(
        page,
        output.TextTable(
            ("budget", "per", "spent", "limit", "until"),
            map(_budget_row, page.items),
            "there is no budget; a guarded program sets one, or PUT /api/v1/budgets/NAME",
        ),
        as_json=as_json,
    )


def _budget_row(budget: "BudgetView") -> tuple[str, ...]:
    until = "" if budget.until is None else f"{budget.until:%Y-%m-%d %H:%M} UTC"
    spent = "each run" if budget.per == "run" else _figures(budget.spent, budget.limit)
    return budget.name, budget.per, spent, _figures(budget.limit, budget.limit), until


def _figures(figures: "BudgetFigures", limit: "BudgetFigures") -> str:
    """Write the figures that have a limit."""
    parts = [f"{figures.cost:g}"] if limit.cost is not None and figures.cost is not None else []
    parts += [f"{figures.tokens:,} tokens"] if limit.tokens is not None else []
    return ", ".join(parts)
