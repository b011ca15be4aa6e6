"""Time: a wall clock that jumps, engines that are away, and what that does to clocks of runs."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

import pytest
from tests.engine.engines import (
    ANA,
    DONE,
    abandon_engine,
    chain,
    node,
    register_worker,
    run_async,
    start_run,
)

from handrail.engine import opening
from handrail.engine.engine import Engine
from handrail.engine.environment import steady_clock
from handrail.engine.settings import EngineSettings
from handrail.kernel.run.events import ClocksPushed, TimedOut
from handrail.kernel.stop.rules import StopRule
from handrail.store.rows import parse_iso
from handrail.testing.clock import NOON

DAY = 86_400.0
HOUR = 3_600.0
ASKS = chain(node("sign", "approval", deadline="24h"))
WORKS = chain(node("work", timeout="1h"))


class Machine:
    """A wall clock that anybody may set, and one that only counts."""

    def __init__(self) -> None:
        self.offset, self.ran = 0.0, 0.0

    def wall(self) -> datetime:
        return NOON + timedelta(seconds=self.offset + self.ran)

    def monotonic(self) -> float:
        return 1_000 + self.ran

    def passes(self, seconds: float) -> None:
        self.ran += seconds

    def jumps(self, seconds: float) -> None:
        """Somebody, or something, sets the wall clock."""
        self.offset += seconds


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()

    def steady(not_before: datetime | None = None):
        return steady_clock(not_before, wall=made.wall, monotonic=made.monotonic)

    monkeypatch.setattr(opening, "steady_clock", steady)
    return made


@asynccontextmanager
async def alive(url: str, *, dies: bool = False) -> AsyncIterator[Engine]:
    """An engine with a clock of its own; `dies` says that nobody closes it."""
    entered = opening.open(url, background=False, settings=EngineSettings())
    engine = await entered.__aenter__()
    try:
        yield engine
    finally:
        if dies:
            await abandon_engine(engine)
        else:
            await entered.__aexit__(None, None, None)


async def awake(engine: Engine, machine: Machine, seconds: float, step: float = 600) -> None:
    """Time passes, and the engine looks up now and then."""
    while seconds > 0:
        machine.passes(min(step, seconds))
        seconds -= step
        await engine.tick()


async def ordered(engine: Engine, run_id: str) -> None:
    """Numbers and times of a run both go forward, in its events and its transitions."""
    events = [(seq, event.at) async for seq, event in engine.runs.events(run_id, follow=False)]
    assert [seq for seq, _ in events] == list(range(1, len(events) + 1))
    times = [at for _, at in events]
    assert times == sorted(times)
    shown = [row.timestamp for _, row in engine.store.runs.list_transitions(run_id)]
    assert shown == sorted(shown)


# The clock itself


@pytest.mark.parametrize("jump", [DAY, -DAY])
def test_a_jump_of_the_wall_is_not_seen(jump: float):
    machine = Machine()
    clock = steady_clock(None, machine.wall, machine.monotonic)
    assert clock() == NOON
    machine.jumps(jump)
    assert clock() == NOON
    machine.passes(5)
    assert clock() == NOON + timedelta(seconds=5)


def test_a_clock_begins_no_earlier_than_what_is_recorded():
    machine = Machine()
    recorded = NOON + timedelta(hours=3)
    clock = steady_clock(recorded, machine.wall, machine.monotonic)
    assert clock() == recorded
    machine.passes(1)
    assert clock() == recorded + timedelta(seconds=1)


def test_a_clock_begins_with_the_wall_if_that_is_later():
    machine = Machine()
    machine.jumps(DAY)
    clock = steady_clock(NOON, machine.wall, machine.monotonic)
    assert clock() == NOON + timedelta(days=1)


# While the engine runs


@pytest.mark.parametrize("jump", [DAY, -DAY])
def test_a_jump_while_the_engine_runs_fires_nothing_and_puts_nothing_out_of_order(
    file_url: str, machine: Machine, jump: float
):
    async def play() -> None:
        async with alive(file_url) as engine:
            run = await start_run(engine, ASKS)
            (question,) = await run.questions(0)
            machine.jumps(jump)
            await awake(engine, machine, 23.9 * HOUR)
            assert not (await run.state()).has_ended, "not early"
            await awake(engine, machine, 0.2 * HOUR)
            ended = await run.state()
            assert ended.stop is not None
            assert ended.stop.rule is StopRule.HUMAN_DEADLINE
            assert ended.ended_at is not None
            assert ended.ended_at >= question.deadline
            before = ended.seq
            machine.jumps(-jump)
            await awake(engine, machine, 2 * DAY, step=HOUR)
            assert (await run.state()).seq == before, "once"
            await ordered(engine, run.id)

    run_async(play())


@pytest.mark.parametrize("jump", [DAY, -DAY])
def test_a_jump_while_the_engine_runs_costs_no_agent_its_work(
    file_url: str, machine: Machine, jump: float
):
    async def play() -> None:
        async with alive(file_url) as engine:
            run = await start_run(engine, WORKS)
            agent = await register_worker(engine)
            dispatch = await agent.get()
            machine.jumps(jump)
            await engine.tick()
            ended = await agent.report(dispatch)
            assert ended.terminal_status == "done_success"
            await ordered(engine, run.id)

    run_async(play())


# Across a restart


@pytest.mark.parametrize("dies", [True, False], ids=["killed", "closed"])
def test_a_wall_that_went_back_while_nobody_was_there(file_url: str, machine: Machine, dies: bool):
    """Time goes on from what is recorded; the deadline is neither early nor twice."""

    async def play() -> None:
        async with alive(file_url, dies=dies) as engine:
            run_id = (await start_run(engine, ASKS)).id
            await awake(engine, machine, 10 * HOUR)
        machine.jumps(-DAY)
        async with alive(file_url) as engine:
            run = engine.run(run_id)
            await awake(engine, machine, 13.9 * HOUR)
            assert not (await run.state()).has_ended, "not early"
            await awake(engine, machine, 0.3 * HOUR)
            assert (await run.state()).has_ended, "and not a day late"
            assert not [e for e in await engine.runs.history(run_id) if isinstance(e, ClocksPushed)]
            await ordered(engine, run_id)

    run_async(play())


@pytest.mark.parametrize("dies", [True, False], ids=["killed", "closed"])
def test_a_wall_that_went_forward_while_nobody_was_there(
    file_url: str, machine: Machine, dies: bool
):
    """It looks like an outage: whoever is asked still has all of the time that was left."""

    async def play() -> None:
        async with alive(file_url, dies=dies) as engine:
            run_id = (await start_run(engine, ASKS)).id
            await awake(engine, machine, 10 * HOUR)
        machine.jumps(2 * DAY)
        async with alive(file_url) as engine:
            run = engine.run(run_id)
            await engine.tick()
            await awake(engine, machine, 13.9 * HOUR)
            assert not (await run.state()).has_ended, "not early because of the jump"
            machine.jumps(-2 * DAY)
            await awake(engine, machine, 0.3 * HOUR)
            assert (await run.state()).has_ended
            await ordered(engine, run_id)

    run_async(play())


def test_a_jump_there_and_back_over_two_restarts(file_url: str, machine: Machine):
    async def play() -> None:
        async with alive(file_url, dies=True) as engine:
            run_id = (await start_run(engine, ASKS)).id
        machine.jumps(DAY)
        async with alive(file_url, dies=True) as engine:
            await awake(engine, machine, HOUR)
        machine.jumps(-DAY)
        async with alive(file_url) as engine:
            run = engine.run(run_id)
            await awake(engine, machine, 22.9 * HOUR)
            assert not (await run.state()).has_ended
            await awake(engine, machine, 0.3 * HOUR)
            assert (await run.state()).has_ended
            pushed = [e for e in await engine.runs.history(run_id) if isinstance(e, ClocksPushed)]
            assert sum(event.seconds for event in pushed) == pytest.approx(DAY, abs=60)
            await ordered(engine, run_id)

    run_async(play())


# Outages


@pytest.mark.parametrize("dies", [True, False], ids=["killed", "closed"])
def test_clocks_stand_still_while_nobody_is_alive_and_only_then(
    file_url: str, machine: Machine, dies: bool
):
    """An engine that has nothing to write is alive all the same."""

    async def play() -> None:
        async with alive(file_url, dies=dies) as engine:
            run_id = (await start_run(engine, ASKS)).id
            deadline = (await engine.runs.state(run_id)).pending_approvals.popitem()[1].deadline
            await awake(engine, machine, 10 * HOUR)
        machine.passes(5 * HOUR)
        async with alive(file_url) as engine:
            await awake(engine, machine, 23.9 * HOUR - 10 * HOUR)
            run = await engine.runs.state(run_id)
            assert not run.has_ended
            (pushed,) = [
                e for e in await engine.runs.history(run_id) if isinstance(e, ClocksPushed)
            ]
            assert pushed.seconds == pytest.approx(5 * HOUR, abs=15)
            (question,) = run.pending_approvals.values()
            assert question.deadline == deadline + timedelta(seconds=pushed.seconds)
            (row,) = engine.store.approvals.list(execution_id=run_id)
            assert parse_iso(row.deadline) == question.deadline, "and everybody is shown that"
            await awake(engine, machine, 0.3 * HOUR)
            assert (await engine.runs.state(run_id)).has_ended

    run_async(play())


def test_restarts_one_after_the_other_push_a_clock_once_for_each(file_url: str, machine: Machine):
    async def play() -> None:
        async with alive(file_url, dies=True) as engine:
            run_id = (await start_run(engine, ASKS)).id
        for _ in range(3):
            machine.passes(2 * HOUR)
            async with alive(file_url, dies=True):
                pass
        async with alive(file_url) as engine:
            await awake(engine, machine, 23.9 * HOUR)
            assert not (await engine.runs.state(run_id)).has_ended
            await awake(engine, machine, 0.3 * HOUR)
            assert (await engine.runs.state(run_id)).has_ended
            pushed = [e for e in await engine.runs.history(run_id) if isinstance(e, ClocksPushed)]
            assert sum(event.seconds for event in pushed) == pytest.approx(6 * HOUR, abs=60)
            await ordered(engine, run_id)

    run_async(play())


def test_an_answer_after_an_outage_longer_than_the_deadline_is_taken(
    file_url: str, machine: Machine
):
    async def play() -> None:
        async with alive(file_url, dies=True) as engine:
            run_id = (await start_run(engine, ASKS)).id
        machine.passes(3 * DAY)
        async with alive(file_url) as engine:
            (question,) = await engine.run(run_id).questions(0)
            ended = await engine.approvals.answer(
                question.id, by=ANA, decision="approve", digest=question.digest
            )
            assert ended.terminal_status == "done_success"
            await ordered(engine, run_id)

    run_async(play())


def test_an_agent_outside_keeps_its_work_through_an_outage(file_url: str, machine: Machine):
    """It could not be heard meanwhile; its own clock stood still too, and fires once."""

    async def play() -> None:
        async with alive(file_url, dies=True) as engine:
            run_id = (await start_run(engine, WORKS)).id
            dispatch = await (await register_worker(engine, name="outside")).get()
        machine.passes(2 * HOUR)
        async with alive(file_url) as engine:
            await engine.tick()
            state = await engine.runs.state(run_id)
            token = state.find_position(dispatch.fence)
            assert token is not None, "it is still at work"
            assert token.agent == "outside"
            ended = await engine.dispatches.report(run_id, dispatch.fence, "outside", DONE)
            assert not [e for e in await engine.runs.history(run_id) if isinstance(e, TimedOut)]
            assert ended.run.seq > state.seq

    run_async(play())


def test_a_timeout_of_work_fires_once_whatever_the_wall_does(file_url: str, machine: Machine):
    async def play() -> None:
        async with alive(file_url) as engine:
            run = await start_run(engine, WORKS)
            agent = await register_worker(engine)
            await agent.get()
            for hour in range(8):
                machine.jumps(DAY if hour % 2 else -DAY)
                for _ in range(4):
                    machine.passes(HOUR / 4.5)
                    await agent.beat()
                    await engine.tick()
            events = await engine.runs.history(run.id)
            fired = [event for event in events if isinstance(event, TimedOut)]
            assert [event.clock for event in fired] == ["work"]
            first = next(event for event in events if event.__class__.__name__ == "Claimed")
            assert HOUR <= (fired[0].at - first.at).total_seconds() < 1.3 * HOUR
            await ordered(engine, run.id)

    run_async(play())
