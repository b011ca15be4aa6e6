"""Budgets that runs share: in one process, in several on one database, and on a server."""

import logging
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.client.live_server import Server

import handrail
from handrail import Budget, BudgetSpent, Client, Guard, ModelCall
from handrail.client.errors import AccessDeniedError, InvalidRequestError, NotFoundError
from handrail.engine.audit.doctor import check_database
from handrail.guard.adapter import watching
from handrail.kernel.run.events import Reported, Started, Warned
from handrail.store.urls import open_maintenance_store
from handrail.testing.clock import ManualClock

CALL = ModelCall(model="m", input_tokens=1_000_000)
PRICES = {"m": (1.0, 1.0)}


def call(run: handrail.GuardedRun, cost: float) -> Any:
    return run.result("a", usage={"cost": cost, "tokens": 10})


def test_runs_of_one_day_spend_the_same_budget_and_none_begins_once_it_is_spent() -> None:
    clock = ManualClock()
    guard = Guard(budgets=[Budget("support", per="day", cost=20)], clock=clock.now)
    with guard.run("first") as run:
        call(run, 12)
    with pytest.raises(BudgetSpent) as caught, guard.run("second") as run:
        call(run, 5)
        call(run, 4)
        pytest.fail("no call begins once the budget is spent")
    stop = caught.value.stop
    assert (stop.rule, stop.limit, stop.seen) == ("budget", 20, 21)
    assert run.report().terminal_status == "aborted_constraint"
    assert "'support' is spent: 21 of 20 cost in all its runs, until" in stop.reason
    with pytest.raises(BudgetSpent), guard.run("third") as run:
        pytest.fail("no run begins once the budget is spent")
    clock.advance(24 * 3600)
    with guard.run("tomorrow") as run:
        call(run, 19)


def test_a_run_warns_once_at_eighty_percent() -> None:
    budget = Budget("support", per="month", tokens=100)
    with Guard(budgets=[budget]).run("r") as run:
        for _ in range(9):
            call(run, 0)
    warned = [e for e in run.events if isinstance(e, Warned)]
    assert [(e.code, e.subject, e.step) for e in warned] == [("budget_80", "support", 8)]
    assert "80 of 100 tokens" in warned[0].message


def test_a_key_makes_a_budget_of_its_own() -> None:
    ana, ben = (Budget("user", per="day", tokens=20, key=key) for key in ("ana", "ben"))
    with pytest.raises(BudgetSpent) as caught, Guard(budgets=[ana]).run("r") as run:
        call(run, 0)
        call(run, 0)
    assert "'user:ana'" in caught.value.stop.reason
    with Guard(budgets=[ben]).run("r") as run:
        call(run, 0)


def test_a_budget_of_each_run_begins_anew_with_each() -> None:
    guard = Guard(budgets=[Budget("each", per="run", tokens=25)])
    for _ in range(2):
        with guard.run("r") as run:
            call(run, 0)
            call(run, 0)
    with pytest.raises(BudgetSpent) as caught, guard.run("r") as run:
        for _ in range(3):
            call(run, 0)
    assert "30 of 25 tokens" in caught.value.stop.reason
    assert "all its runs" not in caught.value.stop.reason


def test_an_answer_that_is_the_last_is_not_lost_although_it_spends_the_budget() -> None:
    guard = Guard(budgets=[Budget("support", per="day", cost=1)], prices=PRICES)
    with watching(guard, "r") as watch:
        watch.activate("a")
        watch.begin_step()
        watch.record_answer("done", 0, CALL)
    assert watch.run.report().terminal_status == "done_success"
    with pytest.raises(BudgetSpent), watching(guard, "r"):
        pytest.fail("no run begins once the budget is spent")


def test_the_state_of_the_budget_stands_in_the_events() -> None:
    with Guard(budgets=[Budget("b", per="day", cost=9)]).run("r") as run:
        call(run, 2)
        call(run, 3)
    spent = [
        [(s.name, s.cost, s.cost_max) for s in event.budgets]
        for event in run.events
        if isinstance(event, Started | Reported)
    ]
    assert spent == [[("b", 0, 9)], [("b", 2, 9)], [("b", 5, 9)]]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"per": "day"}, "has no limit"),
        ({"per": "week", "cost": 1}, "per"),
        ({"per": "day", "cost": -1}, "cost"),
        ({"per": "day", "tokens": 1, "warn_at": 2}, "warn_at"),
    ],
)
def test_a_budget_that_cannot_be_used_is_refused(fields: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Budget("b", **fields)


def test_two_budgets_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="'b' stands twice"):
        Guard(budgets=[Budget("b", per="day", tokens=1), Budget("b", per="month", tokens=1)])


def test_a_record_that_is_away_stops_no_program(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL + 1)
    record = f"sqlite:///{tmp_path}/none/work.db"
    guard = Guard(budgets=[Budget("b", per="day", tokens=15)], record=record)
    with pytest.raises(BudgetSpent), guard.run("r") as run:
        call(run, 0)
        call(run, 0)


SPENDER = """
import sys
from handrail import Budget, BudgetSpent, Guard

guard = Guard(budgets=[Budget("b", per="day", cost=30)], record=sys.argv[1])
calls = 0
try:
    while True:
        with guard.run("r") as run:
            for _ in range(3):
                calls += 1
                run.result("a", usage={"cost": 1})
except BudgetSpent:
    print(calls)
"""


def test_two_processes_on_one_database_spend_at_most_one_call_each_too_much(
    tmp_path: Path,
) -> None:
    record = f"sqlite:///{tmp_path}/work.db"
    command = [sys.executable, "-c", SPENDER, record]
    spenders = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    calls = [int(spender.communicate()[0]) for spender in spenders]
    assert 30 <= sum(calls) <= 32
    with handrail.open(record) as opened:
        (budget,) = opened.do(opened.engine.budgets.list()).items
    assert budget.spent.cost == sum(calls)
    assert (budget.name, budget.per, budget.limit.cost) == ("b", "day", 30)
    assert budget.until is not None
    assert budget.until > datetime.now(UTC)


def test_a_run_that_a_budget_ended_is_on_record_and_can_be_judged_again(tmp_path: Path) -> None:
    record = f"sqlite:///{tmp_path}/work.db"
    guard = Guard(budgets=[Budget("b", per="day", cost=3)], record=record)
    for cost in (1, 2):
        with pytest.raises(BudgetSpent) if cost > 1 else nullcontext(), guard.run("r") as run:
            run.handoff("a", "b")
            run.result("b", usage={"cost": cost})
    with pytest.raises(BudgetSpent), guard.run("r") as run:
        pass
    with handrail.open(record) as opened:
        items = opened.do(opened.engine.run_queries.list()).items
        views = [opened.do(opened.engine.run_queries.view(item.id)) for item in items]
        replays = opened.do(opened.engine.replays.replay([item.id for item in items], {})).items
    assert sorted(view.stop.rule for view in views if view.stop) == [
        "budget",
        "budget",
        "terminated",
    ]
    assert {replayed.verdict for replayed in replays} == {"same"}
    with closing(open_maintenance_store(record)) as store:
        assert not list(check_database(store))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(f"sqlite:///{tmp_path_factory.mktemp('server') / 'work.db'}") as running:
        yield running


def test_programs_on_one_server_share_a_budget_and_an_admins_limit_wins(server: Server) -> None:
    def guard() -> Guard:
        budget = Budget("shared", per="day", cost=100)
        token = server.token("operator", "program")
        return Guard(budgets=[budget], record=server.url, token=token)

    with guard().run("r") as run:
        call(run, 2)
    with Client(server.url, server.token("admin", "root")) as client:
        listed = client.budgets.list().items
        assert [(b.name, b.spent.cost, b.limit.cost, b.updated_by) for b in listed] == [
            ("shared", 2, 100, "")
        ]
        assert client.budgets.put("shared", per="day", cost=3, warn_at=0.5).updated_by == "root"
        with pytest.raises(BudgetSpent) as caught, guard().run("r") as run:
            call(run, 1)
        assert (caught.value.stop.limit, caught.value.stop.seen) == (3, 3)
        client.budgets.delete("shared")
        assert not client.budgets.list().items
        with pytest.raises(NotFoundError):
            client.budgets.delete("shared")
        with guard().run("r") as run:
            call(run, 1)


def test_only_an_admin_sets_budgets_and_a_budget_has_a_limit(server: Server) -> None:
    with (
        Client(server.url, server.token("ceo", "ann")) as client,
        pytest.raises(AccessDeniedError),
    ):
        client.budgets.put("b", per="day", cost=1)
    with Client(server.url, server.token("admin", "root")) as client:
        with pytest.raises(InvalidRequestError, match="no limit"):
            client.budgets.put("b", per="day")
        keyed = client.budgets.put("user:ana", per="month", tokens=5)
        assert (keyed.name, keyed.limit.tokens, keyed.limit.cost) == ("user:ana", 5, None)
