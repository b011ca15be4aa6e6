"""A visit: what is asked is done, nothing else happens, whoever else is at work."""

import asyncio
from typing import Any

import pytest
from tests.engine.engines import (
    ANA,
    DONE,
    ROLE,
    advance_with_ticks,
    chain,
    check_stored,
    events_of,
    manual_engine,
    node,
    refusal_code,
    register_worker,
    run_async,
    start_run,
)

from handrail.engine import opening
from handrail.engine.settings import EngineSettings
from handrail.kernel.run.events import Claimed, ClocksPushed, Lost
from handrail.store.rows import iso
from handrail.testing.clock import ManualClock

pytest_plugins = ["tests.fixtures_postgres"]

ASKS = chain(node("a"), node("ok", "approval"))
DAY = 86_400


def visiting(url: str, clock: ManualClock, **settings: Any) -> opening.EngineContext:
    wanted = EngineSettings(**settings)
    return opening.open(url, clock=clock.now, visit=True, settings=wanted)


def test_a_visit_beside_an_engine_is_heard_by_it(shared_url: str, clock: ManualClock):
    async def play():
        async with manual_engine(shared_url, clock) as engine:
            await engine.define(ASKS)
            async with visiting(shared_url, clock) as guest:
                run = await guest.start("w", title="from outside")
                assert (await guest.run_queries.list()).items[0].title == "from outside"
            await engine.tick()
            await (await register_worker(engine)).work()
            (question,) = await engine.run(run.id).questions(60)
            async with visiting(shared_url, clock) as guest:
                answered = await guest.approvals.answer(question.id, "ok", by=ANA)
                assert answered.terminal_status == "done_success"
            assert (await engine.run(run.id).result(60)).terminal_status == "done_success"
            await check_stored(engine, run.id)

    run_async(play())


def test_a_look_leaves_no_trace(shared_url: str, clock: ManualClock):
    async def play():
        async with manual_engine(shared_url, clock) as engine:
            run = await start_run(engine, ASKS)
            agent = await register_worker(engine, name="ada")
            await agent.get()
        with_clocks = {"lease": 60.0, "pulse": 0.001}
        before = await trace(shared_url, clock)
        clock.advance(30 * DAY)  # every clock has run out, and every lease
        async with visiting(shared_url, clock, **with_clocks) as guest:
            (item,) = (await guest.run_queries.list()).items
            assert (item.id, item.status) == (run.id, "running")
            view = await guest.run_queries.view(run.id)
            assert view.status == "running"
            assert (await guest.agents.get("ada")).state == "OFFLINE"
            assert [waiting.code for waiting in await guest.run_queries.waits(run.id)] == [
                "claimed"
            ]
            await guest.statistics.by_definition()
            await asyncio.sleep(0.02)  # many pulses of an engine that had one
        assert await trace(shared_url, clock) == before

    run_async(play())


async def trace(url: str, clock: ManualClock) -> list[Any]:
    async with visiting(url, clock) as guest:
        store = guest.store
        return [
            store.journal.get_last_commit(),
            store.engines.list(),
            store.engines.list_outages("1970-01-01T00:00:00.000000Z"),
            store.engines.get_last_alive(),
            store.agents.list(),
            store.dispatches.list_claimed(),
        ]


def test_a_word_to_a_sleeping_database_costs_no_run_its_time(shared_url: str, clock: ManualClock):
    """Nobody was alive for a day. A visitor answers one question; neither that run nor any other
    loses the day, though the commit is a sign of life."""

    async def play():
        async with manual_engine(shared_url, clock) as engine:
            asked, other = [await start_run(engine, ASKS) for _ in range(2)]
            agent = await register_worker(engine, name="ada", capacity=2)
            await agent.work()
            await agent.work()
            (question,) = await other.questions(60)
        clock.advance(8 * DAY)  # the deadline was in seven
        async with visiting(shared_url, clock) as guest:
            run = await guest.approvals.answer(f"{asked.id}.q1", "ok", by=ANA)
            assert run.terminal_status == "done_success"
            (pushed,) = await events_of(guest, asked.id, ClocksPushed)
            assert pushed.seconds == 8 * DAY
        clock.advance(DAY)
        async with manual_engine(shared_url, clock) as engine:
            await engine.tick()
            (kept,) = (await engine.runs.state(other.id)).pending_approvals.values()
            assert (kept.deadline - question.deadline).total_seconds() == 9 * DAY

    run_async(play())


def test_a_visitor_gives_nobody_work_and_takes_none_away(shared_url: str, clock: ManualClock):
    async def play():
        async with manual_engine(shared_url, clock) as engine:
            await engine.define(chain(node("a"), node("b", role="qa-engineer")))
            first = await engine.start("w")
            ada = await register_worker(engine, name="ada")
            await ada.get()
            async with visiting(shared_url, clock) as guest:
                second = await guest.start("w")
                assert await events_of(guest, second.id, Claimed) == []
            await advance_with_ticks(engine, clock, 40)
            assert await ada.beat()
            assert await events_of(engine, first.id, Lost) == []

    run_async(play())


@pytest.mark.parametrize("first", ["guest", "engine"])
def test_a_visitor_is_no_engine_to_others(file_url: str, clock: ManualClock, first: str):
    """An engine that opens while somebody visits is alone, and clears up after the dead."""

    async def play():
        async with manual_engine(file_url, clock) as engine:
            await engine.define(ASKS)
        async with visiting(file_url, clock) as guest:
            guest.store.engines.heartbeat("dead", iso(clock.now()))
            if first == "guest":
                await guest.start("w")
            async with manual_engine(file_url, clock) as engine:
                assert "dead" not in engine.store.engines.list()
                engine.add_agent(lambda d: DONE, ROLE)
                run = await guest.start("w")
                await engine.tick()
                (question,) = await engine.run(run.id).questions(60)
                assert question.step_id == "ok"

    run_async(play())


def test_whoever_waits_on_a_visit_hears_of_the_end(shared_url: str, clock: ManualClock):
    async def play():
        async with (
            manual_engine(shared_url, clock) as engine,
            visiting(shared_url, clock, pulse=0.01) as guest,
        ):
            await engine.define(chain(node("a")))
            run = await guest.start("w")
            waiting = asyncio.create_task(run.result())
            following = asyncio.create_task(_names(run.events()))
            await engine.tick()
            await (await register_worker(engine)).work()
            assert (await waiting).terminal_status == "done_success"
            assert (await following)[-1] == "Ended"

    run_async(play())


async def _names(events: Any) -> list[str]:
    return [type(event).__name__ async for _, event in events]


def test_a_visit_to_an_empty_database_finds_it_empty(url: str, clock: ManualClock):
    async def play():
        async with visiting(url, clock) as guest:
            assert (await guest.run_queries.list()).items == ()
            assert (await guest.beads.list()).items == ()
            assert await guest.agents.list() == []
            assert await guest.feed.read() == []
            assert await refusal_code(guest.runs.state("nobody")) == "unknown_run"

    run_async(play())
