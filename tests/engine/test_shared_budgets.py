"""Budgets in definitions and settings: no dispatch is made or given once one of them is spent."""

from pathlib import Path
from typing import Any

import pytest
from tests.engine.engines import (
    DONE,
    abandon_engine,
    chain,
    engine_to_abandon,
    manual_engine,
    node,
    register_worker,
    run_async,
    start_run,
)

from handrail.engine.engine import Engine
from handrail.engine.errors import InvalidDefinitionError
from handrail.kernel.result import Outcome, Result, Usage
from handrail.kernel.stop.budgets import BudgetState
from handrail.testing.clock import ManualClock

pytest_plugins = ["tests.fixtures_postgres"]

TWO_STEPS = chain(node("a"), node("b"), stop_rules={"budgets": ["support"]})
SETTINGS = ("support = 10 cost a day",)
COSTS_6 = Result(outcome=Outcome.SUCCESS, text="done", usage=Usage(cost=6, tokens=100))


async def spent(engine: Engine) -> float:
    (budget,) = (await engine.budgets.list()).items
    assert budget.spent.cost is not None
    return budget.spent.cost


def stop_of(run: Any) -> tuple[str, str | None]:
    assert run.stop is not None
    return run.stop.rule.value, run.stop.reason


def test_a_budget_that_nobody_has_set_is_an_error_of_the_definition() -> None:
    async def work() -> None:
        async with manual_engine("sqlite:///:memory:", ManualClock()) as engine:
            with pytest.raises(InvalidDefinitionError) as caught:
                await engine.define(TWO_STEPS)
            (problem,) = caught.value.problems
            assert (problem.code, problem.path) == ("unknown_budget", "stop_rules.budgets[0]")
            await engine.budgets.put(BudgetState(name="support", per="day", cost_max=1), by="ann")
            await engine.define(TWO_STEPS)

    run_async(work())


def test_runs_of_one_day_share_the_budget_and_the_next_one_does_not_begin(
    shared_url: str,
) -> None:
    async def work() -> None:
        clock = ManualClock()
        async with manual_engine(shared_url, clock, budgets=SETTINGS) as engine:
            worker = await register_worker(engine)
            first = await start_run(engine, TWO_STEPS)
            run = await worker.work(COSTS_6)
            assert not run.has_ended
            assert await spent(engine) == 6
            run = await worker.work(COSTS_6)  # the last of the run, and the call in it
            assert run.terminal_status == "done_success"
            assert await spent(engine) == 12
            assert first.id == run.id
            second = await start_run(engine, TWO_STEPS)
            run = await engine.runs.state(second.id)
            rule, reason = stop_of(run)
            assert rule == "budget"
            assert reason is not None
            assert "the budget 'support' is spent: 12 of 10 cost" in reason
            assert await worker.claim() is None
            clock.advance(days=1)
            await start_run(engine, TWO_STEPS)
            assert await worker.claim() is not None

    run_async(work())


def test_a_dispatch_that_waits_is_not_given_once_others_have_spent_the_budget() -> None:
    async def work() -> None:
        async with manual_engine("sqlite:///:memory:", ManualClock(), budgets=SETTINGS) as engine:
            waiting = await start_run(engine, TWO_STEPS)
            support = BudgetState(name="support", per="day", cost_max=10)
            await engine.budgets.spend(support, 10, 0)  # a guarded program
            worker = await register_worker(engine)
            assert await worker.claim() is None
            run = await engine.runs.state(waiting.id)
            assert stop_of(run)[0] == "budget"

    run_async(work())


def test_a_persons_limit_wins_over_the_settings() -> None:
    async def work() -> None:
        async with manual_engine("sqlite:///:memory:", ManualClock(), budgets=SETTINGS) as engine:
            await engine.budgets.put(BudgetState(name="support", per="day", cost_max=100), by="ann")
            await engine.budgets.set_from_settings(SETTINGS)
            worker = await register_worker(engine)
            await start_run(engine, TWO_STEPS)
            costs_9 = Result(outcome=Outcome.SUCCESS, usage=Usage(cost=9, tokens=1))
            await worker.work(costs_9)
            run = await worker.work(costs_9)
            assert run.terminal_status == "done_success"
            assert await spent(engine) == 18

    run_async(work())


def test_two_engines_on_one_database_overspend_by_at_most_one_call_each(shared_url: str) -> None:
    async def work() -> None:
        clock = ManualClock()
        async with manual_engine(shared_url, clock, budgets=SETTINGS) as engine:
            other = await engine_to_abandon(shared_url, clock, budgets=SETTINGS)
            workers = [
                await register_worker(each, name=f"w{n}") for n, each in enumerate((engine, other))
            ]
            for each in (engine, other):
                await start_run(each, TWO_STEPS)
            held = [(worker, await worker.get()) for worker in workers]
            runs = [await worker.report(dispatch, COSTS_6) for worker, dispatch in held]
            assert await spent(engine) == 12
            assert [await worker.claim() for worker in workers] == [None, None]
            ended = [(await engine.runs.state(run.id)).terminal_status for run in runs]
            assert ended == ["aborted_constraint"] * 2
            await abandon_engine(other)

    run_async(work())


def test_what_was_spent_long_ago_is_forgotten(tmp_path: Path) -> None:
    async def work() -> None:
        clock = ManualClock()
        async with manual_engine(
            f"sqlite:///{tmp_path}/work.db", clock, budgets=SETTINGS
        ) as engine:
            worker = await register_worker(engine)
            await start_run(engine, TWO_STEPS)
            await worker.work(COSTS_6)
            day = f"{clock.now():%Y-%m-%d}"
            clock.advance(days=40)
            await engine.tick()
            assert engine.store.budgets.get_spending("support", day) is not None
            clock.advance(days=30)
            await engine.tick()
            assert engine.store.budgets.get_spending("support", day) is None

    run_async(work())


def test_a_run_without_budgets_spends_none() -> None:
    async def work() -> None:
        async with manual_engine("sqlite:///:memory:", ManualClock(), budgets=SETTINGS) as engine:
            worker = await register_worker(engine)
            await start_run(engine, chain(node("a")))
            await worker.work(COSTS_6)
            assert await spent(engine) == 0
            assert DONE.usage == Usage()

    run_async(work())
