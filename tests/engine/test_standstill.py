"""A process that stands still hears nobody: stopped, its machine paused, its event loop blocked.
Agents that sent their heartbeats all the time keep their work."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from tests.engine.engines import (
    DONE,
    Worker,
    chain,
    events_of,
    manual_engine,
    node,
    refusal_code,
    register_worker,
    run_async,
    start_run,
)

from handrail.engine import environment
from handrail.engine.dispatch.dispatch import Dispatch
from handrail.engine.engine import Engine
from handrail.engine.maintenance import loop
from handrail.engine.services.runs import RunHandle
from handrail.kernel.run.events import ClocksPushed
from handrail.testing.clock import ManualClock

pytest_plugins = ["tests.fixtures_postgres"]

LEASE_SECONDS = 30.0
Freeze = Callable[[float], None]
Scene = tuple[Engine, RunHandle, Worker, Dispatch, Freeze]


@asynccontextmanager
async def frozen_at_work(
    url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Scene]:
    """An engine whose process can be frozen, and an agent at work."""
    stopwatch = [1_000.0]
    monkeypatch.setattr(environment, "monotonic", lambda: stopwatch[0])

    def freeze(seconds: float) -> None:
        stopwatch[0] += seconds
        clock.advance(seconds)

    async with manual_engine(url, clock, lease=LEASE_SECONDS) as engine:
        awake = asyncio.create_task(engine.maintenance.stay_awake())
        await asyncio.sleep(0)
        run = await start_run(engine, chain(node("a", timeout="40s")))
        worker = await register_worker(engine)
        dispatch = await worker.get()
        yield engine, run, worker, dispatch, freeze
        awake.cancel()


@pytest.mark.parametrize("seconds", [2, 31, 60, 3_600])
def test_a_result_that_comes_first_after_a_standstill_counts(
    shared_url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, seconds: float
):
    async def play():
        async with frozen_at_work(shared_url, clock, monkeypatch) as scene:
            engine, run, worker, dispatch, freeze = scene
            freeze(seconds)
            assert (await worker.report(dispatch, DONE)).has_ended
            is_outage = seconds > engine.maintenance.heartbeat_seconds
            assert bool(await events_of(engine, run.id, ClocksPushed)) == is_outage

    run_async(play())


@pytest.mark.parametrize("seconds", [31, 60, 3_600])
def test_after_a_standstill_an_agent_has_a_lease_to_be_heard(
    shared_url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, seconds: float
):
    async def play():
        async with frozen_at_work(shared_url, clock, monkeypatch) as scene:
            engine, _, worker, dispatch, freeze = scene
            freeze(seconds)
            await engine.maintenance.record_standstill()
            await engine.tick()
            await worker.beat()
            clock.advance(LEASE_SECONDS - 1)
            await engine.tick()
            assert (await worker.report(dispatch, DONE)).has_ended

    run_async(play())


def test_an_agent_that_stays_silent_after_a_standstill_loses_its_work(
    shared_url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    async def play():
        async with frozen_at_work(shared_url, clock, monkeypatch) as scene:
            engine, _, worker, dispatch, freeze = scene
            freeze(60)
            await engine.maintenance.record_standstill()
            clock.advance(LEASE_SECONDS + 1)
            await engine.tick()
            assert await refusal_code(worker.report(dispatch, DONE)) == "late"

    run_async(play())


def test_time_that_passes_while_the_process_is_awake_is_no_standstill(
    shared_url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    async def play():
        monkeypatch.setattr(loop, "AWAKE_INTERVAL_SECONDS", 0)
        async with frozen_at_work(shared_url, clock, monkeypatch) as scene:
            engine, _, worker, dispatch, freeze = scene
            for _ in range(80):
                freeze(0.5)
                await asyncio.sleep(0.001)  # the engine notes that it is awake
            await engine.tick()
            assert await refusal_code(worker.report(dispatch, DONE)) == "late"

    run_async(play())
