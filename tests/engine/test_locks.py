"""The commit lock through the engine: one commit at a time per repository, and nobody forgotten."""

import asyncio
from datetime import timedelta

import pytest
from tests.engine.engines import (
    ANA,
    COMMIT,
    DONE,
    FAILED,
    Worker,
    abandon_engine,
    advance_with_ticks,
    chain,
    check_stored,
    engine_to_abandon,
    events_of,
    manual_engine,
    node,
    refusal_code,
    register_worker,
    run_async,
    start_run,
    wait_until_idle,
)

from handrail.engine.commit.lock_change import LOCK_STREAM_PREFIX, LockChange
from handrail.engine.dispatch.dispatch import Dispatch
from handrail.engine.engine import Engine
from handrail.kernel import lock as locks
from handrail.kernel.definition.model import Settings
from handrail.kernel.result import Result
from handrail.kernel.run.events import Lost, Offered, Reported, RunEvent
from handrail.testing.clock import ManualClock

pytest_plugins = ["tests.fixtures_postgres"]

MANAGER = "engineering-manager"
COMMITS = chain(node("commit", repository="web", **COMMIT))
PATIENT = Settings(role_grace=86_400)


def lock_of(engine: Engine, repository: str = "web") -> locks.CommitLock:
    rows = engine.store.locks.load([repository])
    lock = LockChange(LOCK_STREAM_PREFIX + repository, rows.get(repository)).lock
    assert locks.check_invariants(lock) == ()
    return lock


def holder(engine: Engine) -> str | None:
    held = lock_of(engine).holder
    return held.request.run if held is not None else None


async def committing(engine: Engine, count: int) -> tuple[list[str], Worker]:
    await engine.define(COMMITS)
    runs = [(await engine.start("w")).id for _ in range(count)]
    await engine.tick()
    return runs, await register_worker(engine, MANAGER)


@pytest.mark.requirement("L12.2", "L12.3", "L12.4")
def test_commits_are_offered_one_at_a_time_in_the_order_in_which_they_asked(
    url: str, clock: ManualClock
):
    async def play():
        async with manual_engine(url, clock) as engine:
            runs, agent = await committing(engine, 4)
            for position, run_id in enumerate(runs):
                await engine.tick()
                assert holder(engine) == run_id
                assert len(lock_of(engine).queue) == 3 - position
                dispatch = await agent.get()
                assert (dispatch.run.id, dispatch.lock) == (run_id, position + 1)
                assert await engine.claims.claim(agent.name, holding=[dispatch.id]) is None
                if position < 3:
                    (waiting,) = await engine.run_queries.waits(runs[-1])
                    assert waiting.code == "lock"
                    assert run_id in waiting.message
                await agent.report(dispatch)
            await engine.tick()
            assert holder(engine) is None
            assert engine.store.messages.list(10) == []
            for run_id in runs:
                await check_stored(engine, run_id)

    run_async(play())


@pytest.mark.requirement("L12.2", "L12.6")
def test_commits_never_overlap_whoever_makes_them(url: str, clock: ManualClock):
    document = chain(node("a"), node("x", **COMMIT), node("y", **COMMIT))

    async def play():
        async with manual_engine(url, clock) as engine:
            at_once: list[str] = []
            fences: list[int] = []

            async def commit(dispatch: Dispatch) -> Result:
                at_once.append(dispatch.run.id)
                assert dispatch.lock is not None
                fences.append(dispatch.lock)
                await asyncio.sleep(0.001)
                assert at_once == [dispatch.run.id]
                at_once.clear()
                return FAILED if dispatch.attempt == 1 and dispatch.node == "x" else DONE

            engine.add_agent(lambda d: DONE, "backend-engineer")
            engine.add_agent(commit, MANAGER)
            await engine.define(document)
            runs = await asyncio.gather(*(engine.start("w") for _ in range(8)))
            for run in runs:
                assert (await run.result(60)).terminal_status == "done_success"
            assert fences == sorted(set(fences))
            assert len(fences) == 3 * 8
            await wait_until_idle(engine)
            assert lock_of(engine, "").holder is None or lock_of(engine).holder is None
            assert engine.store.messages.list(10) == []

    run_async(play())


@pytest.mark.requirement("L12.2")
def test_each_repository_has_a_lock_of_its_own(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            await engine.define(COMMITS)
            await engine.define({**chain(node("c", repository="api", **COMMIT)), "name": "api"})
            runs = [await engine.start("w"), await engine.start("api")]
            await engine.tick()
            agents = [await register_worker(engine, MANAGER) for _ in runs]
            assert {(await agent.get()).run.id for agent in agents} == {run.id for run in runs}

    run_async(play())


@pytest.mark.requirement("L12.5")
def test_a_lock_whose_holder_is_silent_for_five_minutes_goes_to_the_next(
    url: str, clock: ManualClock
):
    async def play():
        settings = {"lease": 86_400.0, "kernel": PATIENT}
        async with manual_engine(url, clock, **settings) as engine:
            (first, second), agent = await committing(engine, 2)
            late = await agent.get()
            # The lease is long, so only the lock's own clock can tell that it is silent.
            await advance_with_ticks(engine, clock, 290)
            assert holder(engine) == first
            await advance_with_ticks(engine, clock, 170)
            assert holder(engine) == second
            assert [e.fence for e in await events_of(engine, first, Lost)] == [late.fence]
            other = await register_worker(engine, MANAGER)
            dispatch = await other.get()
            assert (dispatch.run.id, dispatch.lock) == (second, 2)
            assert await refusal_code(agent.report(late)) == "late"
            await other.report(dispatch)
            await engine.tick()
            assert holder(engine) == first  # it has asked again, for its next attempt
            again = await other.get()
            assert (again.attempt, again.lock) == (2, 3)

    run_async(play())


@pytest.mark.requirement("L12.5")
def test_heartbeats_and_waiting_for_an_agent_keep_the_lock(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock, kernel=PATIENT) as engine:
            (first, _), agent = await committing(engine, 2)
            await advance_with_ticks(engine, clock, 1_000)  # on offer, and nobody takes it
            assert holder(engine) == first
            await agent.beat()
            dispatch = await agent.get()
            assert dispatch.lock == 1
            for _ in range(20):
                await advance_with_ticks(engine, clock, 50)
                await agent.beat()
            assert holder(engine) == first
            assert (await agent.report(dispatch)).terminal_status == "done_success"

    run_async(play())


def test_an_outage_costs_nobody_the_lock(shared_url: str, clock: ManualClock):
    async def play():
        engine = await engine_to_abandon(shared_url, clock, kernel=PATIENT)
        (first, _), agent = await committing(engine, 2)
        dispatch = await agent.get()
        await abandon_engine(engine)
        clock.advance(3_600)
        async with manual_engine(shared_url, clock, kernel=PATIENT) as engine:
            agent.engine = engine
            await agent.beat()
            await advance_with_ticks(engine, clock, 30)
            assert holder(engine) == first
            assert (await agent.report(dispatch)).terminal_status == "done_success"
            await engine.tick()
            assert lock_of(engine).fence == 2

    run_async(play())


@pytest.mark.requirement("L12.4", "L12.3")
@pytest.mark.parametrize("act", ["close", "move", "pause"])
def test_a_grant_to_a_run_that_no_longer_wants_it_is_passed_on(
    act: str, url: str, clock: ManualClock
):
    async def play():
        async with manual_engine(url, clock) as engine:
            document = chain(node("commit", repository="web", **COMMIT), node("b"))
            await engine.define(document)
            first, second, third = [await engine.start("w") for _ in range(3)]
            await engine.tick()
            agent = await register_worker(engine, MANAGER)
            dispatch = await agent.get()
            if act == "close":
                await second.close(by=ANA, reason="enough")
            elif act == "move":
                await second.move("b", by=ANA, reason="skip it")
            else:
                await second.pause(by=ANA, reason="lunch")
            await agent.report(dispatch)
            await engine.tick()
            assert holder(engine) == third.id
            assert (await agent.get()).run.id == third.id
            assert engine.store.messages.list(10) == []
            if act == "pause":
                await second.resume(by=ANA, reason="back")
                await engine.tick()
                assert [r.run for r in lock_of(engine).queue] == [second.id]
            assert await events_of(engine, first.id, Reported)

    run_async(play())


@pytest.mark.requirement("L12.4", "L7.2")
@pytest.mark.parametrize("act", ["close", "move", "timeout"])
def test_a_holder_that_is_taken_away_gives_the_lock_back(act: str, url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            runs, agent = await committing(engine, 2)
            late = await agent.get()
            run = engine.run(runs[0])
            if act == "close":
                await run.close(by=ANA, reason="enough")
            elif act == "move":
                await run.move("commit", by=ANA, reason="again")
            else:
                for _ in range(40):
                    await advance_with_ticks(engine, clock, 50)
                    await agent.beat()
            await engine.tick()
            assert holder(engine) == runs[1]
            assert await refusal_code(agent.report(late)) in ("late", "ended")
            assert (await agent.get()).run.id == runs[1]

    run_async(play())


@pytest.mark.requirement("L12.1", "L4.6")
def test_messages_that_a_crash_left_are_delivered_by_whoever_comes(
    shared_url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    async def play():
        engine = await engine_to_abandon(shared_url, clock)
        monkeypatch.setattr(engine.committer, "deliver", lambda message: None)
        run = await start_run(engine, COMMITS)
        assert [m.target for m in engine.store.messages.list(10)] == ["lock:web"]
        await abandon_engine(engine)
        async with manual_engine(shared_url, clock) as engine:
            await engine.tick()
            agent = await register_worker(engine, MANAGER)
            assert (await agent.work()).terminal_status == "done_success"
            await engine.tick()
            assert holder(engine) is None
            assert engine.store.messages.list(10) == []
            assert len(await events_of(engine, run.id, Offered)) == 1

    run_async(play())


@pytest.mark.requirement("L12.1", "L12.2")
def test_two_engines_share_one_lock(shared_url: str, clock: ManualClock):
    async def play():
        async with manual_engine(shared_url, clock) as one, manual_engine(shared_url, clock) as two:
            await one.define(COMMITS)
            runs = [await (one, two)[i % 2].start("w") for i in range(12)]
            held: list[int] = []

            async def commit(dispatch: Dispatch) -> Result:
                held.append(dispatch.lock or 0)
                await asyncio.sleep(0.001)
                assert held[-1] == dispatch.lock, "nobody else began meanwhile"
                return DONE

            for engine in (one, two):
                engine.add_agent(commit, MANAGER)
            ended = 0
            while ended < 12:
                await asyncio.gather(one.tick(), two.tick())
                ended = sum([(await run.state()).has_ended for run in runs])
                await asyncio.sleep(0.001)
            assert held == sorted(set(held))
            assert len(held) == 12
            for run in runs:
                await check_stored(one, run.id)
            await asyncio.gather(one.tick(), two.tick())
            assert holder(one) is None

    run_async(play())


def test_the_history_of_a_lock_is_in_the_journal(file_url: str, clock: ManualClock):
    async def play():
        async with manual_engine(file_url, clock) as engine:
            (run_id,), agent = await committing(engine, 1)
            await agent.work()
            await engine.tick()
            bodies = "".join(entry.body for entry in engine.store.journal.read("lock:web"))
            for name in ("LockRequested", "LockGranted", "LockReleased"):
                assert bodies.count(f'"{name}"') == 1
            events: list[RunEvent] = await engine.runs.history(run_id)
            assert events[-1].at - events[0].at < timedelta(seconds=1)

    run_async(play())
