"""`handrail budgets`: a database and a server list the same."""

import json

import pytest
from tests.cli.command_targets import CommandTargets

from handrail.kernel.stop.budgets import BudgetState

pytest_plugins = ["tests.cli.fixtures_command_targets"]


@pytest.fixture
def spent(targets: CommandTargets) -> None:
    """A budget of a day of which something is spent, and one of each run."""
    budgets = targets.served.engine.budgets
    support = BudgetState(name="support", per="day", cost_max=20, tokens_max=1_000_000)
    targets.served.do(budgets.spend(support, 1.5, 1_200))
    targets.served.do(budgets.put(BudgetState(name="each", per="run", cost_max=2), by="root"))


@pytest.mark.usefixtures("spent")
def test_budgets_are_listed_with_what_is_spent_and_until_when(targets: CommandTargets) -> None:
    listed = targets.same("budgets")
    assert listed.code == 0
    each, support = listed.out.splitlines()[1:]
    assert each.split() == ["each", "run", "each", "run", "2"]
    assert support.split()[:7] == ["support", "day", "1.5,", "1,200", "tokens", "20,", "1,000,000"]
    assert support.rstrip().endswith("00:00 UTC")
    items = json.loads(targets.same("budgets", "--json").out)["items"]
    assert [item["name"] for item in items] == ["each", "support"]
    assert items[1]["spent"] == {"cost": 1.5, "tokens": 1_200}


def test_without_budgets_nothing_is_listed(targets: CommandTargets) -> None:
    assert targets.same("budgets", "--json").code == 0
