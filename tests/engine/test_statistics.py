"""Figures per definition: counted when somebody asks, once, from the events of ended runs."""

from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from tests.engine.engines import ANA, FAILED, chain, manual_engine, node, register_worker, run_async

from handrail.engine.engine import Engine
from handrail.engine.maintenance.retention import archive
from handrail.engine.queries import statistics as figuring
from handrail.kernel.result import Outcome, Result, Usage
from handrail.store.urls import open_maintenance_store
from handrail.testing.clock import ManualClock
from handrail.views.statistics import DefinitionStatistics

pytest_plugins = ["tests.fixtures_postgres"]

TWO = chain(node("a", max_attempts=3), node("b"))


async def ended(engine: Engine, clock: ManualClock, *, seconds: float, failures: int = 0) -> str:
    """A run that took so long and failed so often."""
    run = await engine.start("w")
    agent = await register_worker(engine, name="ada")
    used = Result(outcome=Outcome.SUCCESS, usage=Usage(tokens=10, cost=0.25))
    for _ in range(failures):
        await agent.work(FAILED)
    if failures == 3:
        await run.answer(f"{run.id}.q1", decision="approve", by=ANA)
    else:
        await agent.work(used)
    clock.advance(seconds)
    await agent.work(used)
    return run.id


async def of_w(engine: Engine, since: datetime | None = None) -> DefinitionStatistics:
    (found,) = await engine.statistics.by_definition("w", since)
    return found


@pytest.mark.requirement("L14.1", "L14.2", "L14.3", "L14.4", "L14.5")
def test_figures_are_those_of_the_runs_that_ended(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            await engine.define(TWO)
            assert await engine.statistics.by_definition() == []
            for seconds, failures in ((10, 0), (20, 1), (40, 3)):
                await ended(engine, clock, seconds=seconds, failures=failures)
            going = await engine.start("w")
            found = await of_w(engine)
            assert (found.runs, found.success_rate) == (3, 1.0)
            assert found.escalation_rate == pytest.approx(1 / 3)
            time = found.time_to_resolution
            assert (time.p50, time.mean) == (20, pytest.approx(70 / 3))
            assert (time.p90, time.p99) == (pytest.approx(36), pytest.approx(39.6))
            assert found.retries == {"a": {"0": 1, "1": 1, "2": 1}, "b": {"0": 3}}
            assert found.dispatch_cycles == {"a": 2.0, "b": 1.0}
            assert (found.usage.tokens, found.usage.cost) == (50, pytest.approx(1.25))
            await going.close(by=ANA, reason="enough")
            found = await of_w(engine)
            assert (found.runs, found.success_rate) == (4, 0.75)

    run_async(play())


def test_figures_are_by_definition_and_since_a_moment(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            await engine.define(TWO)
            await engine.define({**TWO, "name": "v"})
            await ended(engine, clock, seconds=10)
            clock.advance(100)
            since = clock.now()
            await (await engine.start("v")).close(by=ANA, reason="enough")
            await ended(engine, clock, seconds=30)
            assert [one.workflow_id for one in await engine.statistics.by_definition()] == [
                "v",
                "w",
            ]
            assert (await of_w(engine)).time_to_resolution.p50 == 20
            late = await of_w(engine, since=since)
            assert (late.runs, late.time_to_resolution.p50) == (1, 30)
            assert (
                await engine.statistics.by_definition("w", since=since + timedelta(hours=1)) == []
            )
            assert await engine.statistics.by_definition("nothing") == []

    run_async(play())


def test_a_run_is_counted_once_and_only_by_who_asks(
    url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    for name in ("PAGE_RUNS", "WRITE_BATCH_RUNS"):
        monkeypatch.setattr(figuring, name, 2)

    async def play():
        async with manual_engine(url, clock) as engine:
            await engine.define(TWO)
            for n in range(5):
                await ended(engine, clock, seconds=n)
            read: list[str] = []
            count = figuring._count_run  # pyright: ignore[reportPrivateUsage]
            monkeypatch.setattr(
                figuring,
                "_count_run",
                lambda store, run: (read.append(run.id), count(store, run))[1],
            )
            assert (await of_w(engine)).runs == 5
            assert len(set(read)) == len(read) == 5
            assert (await of_w(engine)).runs == 5
            assert len(read) == 5
            last = await ended(engine, clock, seconds=1)
            assert (await of_w(engine)).runs == 6
            assert read[5:] == [last]

    run_async(play())


def test_what_ended_long_before_it_was_seen_is_counted_by_whoever_opens(
    shared_url: str, clock: ManualClock
):
    async def play():
        async with manual_engine(shared_url, clock) as engine:
            await engine.define(TWO)
            await ended(engine, clock, seconds=1)
            assert (await of_w(engine)).runs == 1
        async with manual_engine(shared_url, clock) as engine:
            clock.advance(10_000)
            await ended(engine, clock, seconds=1)
            assert (await of_w(engine)).runs == 2

    run_async(play())


def test_figures_outlive_the_runs(file_url: str, clock: ManualClock):
    file = Path(file_url.removeprefix("sqlite:///")).with_name("old.jsonl")

    async def play():
        async with manual_engine(file_url, clock) as engine:
            await engine.define(TWO)
            await ended(engine, clock, seconds=5, failures=1)
            before = await of_w(engine)
            clock.advance(60)
            with closing(open_maintenance_store(file_url)) as records:
                assert archive(records, file, by="root", now=clock.now()).runs == 1
            assert (await engine.run_queries.list()).items == ()
            assert await of_w(engine) == before

    run_async(play())
