"""A call that a limit does not allow is refused before it is made."""

import asyncio
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from tests.guard.test_budgets import check_database, open_maintenance_store

import handrail
from handrail import Budget, BudgetSpent, Guard, LimitReached, StopRules
from handrail.guard import plain


class Work:
    """A team that asks a model and calls a tool, as often as it may."""

    def __init__(self, tokens: int = 10, rounds: int = 9) -> None:
        self.tokens, self.rounds = tokens, rounds
        self.asked = self.looked = 0

    def run(self, guard: Guard) -> None:
        @plain.tool
        def look(place: int) -> str:
            self.looked += 1
            return f"found {place}"

        @plain.agent("seeker")
        def seek() -> None:
            for place in range(self.rounds):
                plain.nudge()
                self.asked += 1
                plain.used(tokens=self.tokens, text=f"look in {place}")
                look(place)

        plain.guarded(seek, guard)()


def test_no_model_and_no_tool_is_called_once_the_budget_is_reached() -> None:
    work = Work()
    with pytest.raises(BudgetSpent, match="30 of 30 tokens"):
        work.run(Guard(StopRules(max_tokens=30)))
    assert (work.asked, work.looked) == (3, 2)


def test_an_answer_that_reaches_the_limit_and_is_the_last_is_kept() -> None:
    guard = Guard(StopRules(max_tokens=30))

    def work() -> str:
        plain.used(tokens=30, text="done")
        return "done"

    assert plain.guarded(work, guard)() == "done"
    assert guard.last is not None
    assert guard.last.stop is not None
    assert guard.last.stop.rule == "completed"


def test_a_tool_is_not_called_more_often_than_its_limit_though_its_calls_are_at_once() -> None:
    calls: list[int] = []

    @plain.tool
    async def pay(amount: int) -> str:
        calls.append(amount)
        await asyncio.sleep(0)  # lets the other calls begin
        return f"paid {amount}"

    async def work() -> None:
        await asyncio.gather(*(pay(amount) for amount in range(5)))

    with pytest.raises(LimitReached) as caught:
        asyncio.run(plain.guarded(work, Guard(StopRules(tool_limits={"pay": 3})))())
    assert calls == [0, 1, 2]
    stop = caught.value.stop
    assert (stop.rule, stop.limit, stop.seen) == ("tool_limit", 3, 4)


def test_a_dry_run_refuses_nothing_and_says_what_it_would_have_refused() -> None:
    work, guard = Work(rounds=4), Guard(StopRules(max_tokens=30), dry_run=True)
    work.run(guard)
    assert (work.asked, work.looked) == (4, 4)
    assert guard.last is not None
    assert [(would.rung, would.rule) for would in guard.last.would_have] == [("stop", "budget")]


def test_what_another_run_has_spent_meanwhile_refuses_the_next_call() -> None:
    budget = Budget("b", per="day", tokens=30)
    guard, other = Guard(budgets=[budget]), Guard(budgets=[budget])

    def work() -> None:
        plain.used(tokens=10, text="first")
        plain.nudge()
        with other.run("other") as run:
            run.result("a", usage={"tokens": 15})
        plain.nudge()  # 25 of 30
        with pytest.raises(BudgetSpent), other.run("other") as run:
            run.result("a", usage={"tokens": 5})
        plain.nudge()
        raise AssertionError("another call was made")

    with pytest.raises(BudgetSpent, match="30 of 30 tokens in all its runs"):
        plain.guarded(work, guard)()


def test_refused_runs_are_judged_the_same_again(tmp_path: Path) -> None:
    record = f"sqlite:///{tmp_path}/work.db"
    for rules in (StopRules(max_tokens=30), StopRules(tool_limits={"look": 2})):
        with pytest.raises((BudgetSpent, LimitReached)):
            Work().run(Guard(rules, record=record))
    with handrail.open(record) as opened:
        items = opened.do(opened.engine.run_queries.list()).items
        replays = opened.do(opened.engine.replays.replay([item.id for item in items], {})).items
    assert [replayed.verdict for replayed in replays] == ["same", "same"]
    with closing(open_maintenance_store(record)) as store:
        assert not list(check_database(store))


SPENDER = """
import sys
from handrail import Budget, BudgetSpent, Guard
from handrail.guard import plain

calls = 0

def work():
    global calls
    for number in range(3):
        plain.nudge()
        calls += 1
        plain.used(tokens=1, text=f"{number}")

team = plain.guarded(work, Guard(budgets=[Budget("b", per="day", tokens=30)], record=sys.argv[1]))
try:
    while True:
        team()
except BudgetSpent:
    print(calls)
"""


def test_two_processes_with_an_adapter_overspend_by_at_most_one_call_each(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SPENDER, f"sqlite:///{tmp_path}/work.db"]
    spenders = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    calls = [int(spender.communicate()[0]) for spender in spenders]
    assert 30 <= sum(calls) <= 31
