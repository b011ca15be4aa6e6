"""After a crash, an outage, beside another engine: on from what is on disk, and nothing twice."""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.engine.engines import (
    ANA,
    DONE,
    ROLE,
    abandon_engine,
    advance_with_ticks,
    chain,
    check_stored,
    engine_to_abandon,
    event_names,
    events_of,
    manual_engine,
    node,
    refusal_code,
    register_worker,
    run_async,
    start_run,
    wait_until_async,
    wait_until_idle,
)

from handrail.engine import opening
from handrail.engine.commit import committer
from handrail.engine.dispatch.dispatch import Dispatch
from handrail.engine.settings import EngineSettings
from handrail.kernel.definition.model import Settings
from handrail.kernel.result import Result
from handrail.kernel.run import commands as c
from handrail.kernel.run.events import (
    Answered,
    ClocksPushed,
    Ended,
    Lost,
    Offered,
    Reported,
    TimedOut,
)
from handrail.store.rows import LoadedRun, iso
from handrail.testing.clock import ManualClock

pytest_plugins = ["tests.fixtures_postgres"]

ASKS = chain(node("a"), node("ok", "approval"))
THREE = chain(node("a"), node("b", role="qa-engineer"), node("c"))


@pytest.mark.requirement("L4.6", "L4.5", "K1")
def test_after_a_crash_a_run_goes_on_and_nothing_reported_is_done_again(
    shared_url: str, clock: ManualClock
):
    worked: list[tuple[str, int]] = []

    async def code(dispatch: Dispatch) -> Result:
        worked.append((dispatch.node, dispatch.attempt))
        if dispatch.node == "c" and dispatch.attempt == 1:
            await asyncio.Event().wait()
        return DONE

    async def play():
        engine = await engine_to_abandon(shared_url, clock)
        run = await start_run(engine, THREE)
        engine.add_agent(code, ROLE, "qa-engineer")
        await wait_until_async(lambda: ("c", 1) in worked)
        before = await engine.runs.history(run.id)
        await abandon_engine(engine)
        async with manual_engine(shared_url, clock) as engine:
            assert (await engine.runs.history(run.id))[: len(before)] == before
            engine.add_agent(code, ROLE, "qa-engineer")
            await advance_with_ticks(
                engine, clock, 70
            )  # PostgreSQL cannot know that the other one is dead
            assert (await engine.run(run.id).result(60)).terminal_status == "done_success"
            assert worked == [("a", 1), ("b", 1), ("c", 1), ("c", 2)]
            assert len(await events_of(engine, run.id, Lost)) == 1
            await check_stored(engine, run.id)

    run_async(play())


@pytest.mark.requirement("K1")
def test_what_was_on_offer_is_the_same_dispatch_after_a_crash(shared_url: str, clock: ManualClock):
    async def play():
        engine = await engine_to_abandon(shared_url, clock)
        run = await start_run(engine, ASKS)
        (offered,) = engine.store.dispatches.list(run.id)
        await abandon_engine(engine)
        async with manual_engine(shared_url, clock) as engine:
            dispatch = await (await register_worker(engine)).get()
            assert (dispatch.fence, dispatch.attempt) == (offered.fence, 1)
            assert len(await events_of(engine, run.id, Offered)) == 1

    run_async(play())


def test_what_an_agent_outside_has_in_hand_outlives_the_engine(shared_url: str, clock: ManualClock):
    async def play():
        engine = await engine_to_abandon(shared_url, clock)
        run = await start_run(engine, ASKS)
        agent = await register_worker(engine)
        dispatch = await agent.get()
        await abandon_engine(engine)
        clock.advance(600)  # nobody was there to hear its heartbeats
        async with manual_engine(shared_url, clock) as engine:
            await engine.tick()
            agent.engine = engine
            assert await agent.beat()
            after = await agent.report(dispatch)
            assert (after.id, len(after.pending_approvals)) == (run.id, 1)
            assert await events_of(engine, run.id, Lost) == []

    run_async(play())


def test_an_engine_that_closes_in_good_order_gives_its_work_back(
    shared_url: str, clock: ManualClock
):
    async def play():
        begun = asyncio.Event()

        async def sleep(dispatch: Dispatch) -> Result:
            begun.set()
            await asyncio.Event().wait()
            return DONE

        async with manual_engine(shared_url, clock) as engine:
            run = await start_run(engine, ASKS)
            engine.add_agent(sleep, ROLE)
            await begun.wait()
        async with manual_engine(shared_url, clock) as engine:
            assert engine.store.agents.list() == []
            assert (await (await register_worker(engine)).get()).attempt == 2
            assert len(await events_of(engine, run.id, Lost)) == 1

    run_async(play())


@pytest.mark.requirement("K15", "L4.6")
def test_a_question_survives_a_crash_and_an_old_answer_does_not_fit_a_new_one(
    shared_url: str, clock: ManualClock
):
    async def play():
        engine = await engine_to_abandon(shared_url, clock)
        run = await start_run(engine, ASKS)
        await (await register_worker(engine)).work()
        (question,) = await run.questions(60)
        await abandon_engine(engine)
        async with manual_engine(shared_url, clock) as engine:
            run = engine.run(run.id)
            (same,) = await run.questions(60)
            assert same == question
            await engine.runs.command(run.id, c.Patch(by=ANA, patch={"amount": 7}))
            (new,) = await run.questions(60)
            assert (new.deadline, new.digest != question.digest) == (question.deadline, True)
            old = run.answer(question.id, "ok", by="bob", digest=question.digest)
            assert await refusal_code(old)
            stale = run.answer(new.id, "ok", by="bob", digest=question.digest)
            assert await refusal_code(stale)
            assert (await run.answer(new.id, "ok", by="bob", digest=new.digest)).has_ended
            statuses = {a.id: a.status for a in engine.store.approvals.list()}
            assert statuses == {question.id: "void", new.id: "answered"}
            assert len(await events_of(engine, run.id, Answered)) == 1

    run_async(play())


# Outages


@pytest.mark.requirement("K15", "K17")
def test_clocks_are_pushed_by_the_length_of_an_outage_before_they_fire(
    shared_url: str, clock: ManualClock
):
    async def play():
        patient = Settings(role_grace=86_400)
        engine = await engine_to_abandon(shared_url, clock, kernel=patient)
        run = await start_run(engine, chain(node("a", queue_timeout=600)))
        await advance_with_ticks(engine, clock, 150)
        await abandon_engine(engine)
        clock.advance(3_600)
        async with manual_engine(shared_url, clock, kernel=patient) as engine:
            await engine.tick()
            (pushed,) = await events_of(engine, run.id, ClocksPushed)
            assert 3_600 <= pushed.seconds <= 3_610
            await advance_with_ticks(engine, clock, 440)
            assert await events_of(engine, run.id, TimedOut) == []
            await advance_with_ticks(engine, clock, 30)
            assert len(await events_of(engine, run.id, TimedOut)) == 1
            assert len(await events_of(engine, run.id, ClocksPushed)) == 1

    run_async(play())


def test_time_in_which_an_engine_had_nothing_to_do_is_no_outage(
    shared_url: str, clock: ManualClock
):
    async def play():
        async with manual_engine(shared_url, clock) as engine:
            run = await start_run(engine, chain(node("ok", "approval")))
            await advance_with_ticks(engine, clock, 6 * 86_400, step=3_600)
        for _ in range(2):  # closed in good order, and not
            engine = await engine_to_abandon(shared_url, clock)
            assert engine.committer.outages == []
            await advance_with_ticks(engine, clock, 3_600, step=600)
            await abandon_engine(engine)
        clock.advance(3_600)
        async with manual_engine(shared_url, clock) as engine:
            ((began, ended),) = engine.committer.outages
            assert 3_600 <= (ended - began).total_seconds() <= 4_200
            await engine.runs.command(run.id, c.Tick())
            (pushed,) = await events_of(engine, run.id, ClocksPushed)
            assert pushed.seconds == (ended - began).total_seconds()

    run_async(play())


# Two engines


@pytest.mark.requirement("L8.6")
def test_a_clock_fires_once_even_if_two_engines_look(shared_url: str, clock: ManualClock):
    async def play():
        async with manual_engine(shared_url, clock) as one, manual_engine(shared_url, clock) as two:
            await one.define(chain(node("ok", "approval")))
            runs = [await one.start("w") for _ in range(20)]
            for run in runs:
                await two.runs.command(run.id, c.Patch(by=ANA, patch={"k": 1}))
            clock.advance(days=8)
            await asyncio.gather(one.tick(), two.tick())
            for run in runs:
                assert len(await events_of(one, run.id, Ended)) == 1
                await check_stored(two, run.id)

    run_async(play())


@pytest.mark.requirement("L8.6", "L12.1")
def test_two_engines_hand_a_run_to_and_fro(shared_url: str, clock: ManualClock):
    """Each has the agents for half of the steps, and learns of the other's work at its pulse."""

    async def play():
        async with manual_engine(shared_url, clock) as one, manual_engine(shared_url, clock) as two:
            document = chain(*(node(f"n{i}", role=(ROLE, "qa-engineer")[i % 2]) for i in range(6)))
            await one.define(document)
            one.local_agents.add(lambda d: DONE, ROLE)
            two.local_agents.add(lambda d: DONE, "qa-engineer")
            runs = [await (one, two)[i % 2].start("w") for i in range(10)]
            for _ in range(8):
                for engine in (one, two):
                    await wait_until_idle(engine)
            for run in runs:
                assert (await run.state()).terminal_status == "done_success"
                await check_stored(one, run.id)
                assert len(await events_of(one, run.id, Reported)) == 6

    run_async(play())


def test_who_asks_one_engine_is_not_refused_for_what_it_has_not_heard_of_yet(
    shared_url: str, clock: ManualClock
):
    async def play():
        async with manual_engine(shared_url, clock) as one, manual_engine(shared_url, clock) as two:
            run = await start_run(one, chain(node("a"), node("b"), node("ok", "approval")))
            assert run.id in one.committer.cached_runs
            agent = await register_worker(two)
            await agent.work()
            dispatch = await agent.get()
            agent.engine = one
            after = await agent.report(dispatch)  # claimed at one engine, reported at another
            (question,) = after.pending_approvals.values()
            ended = await two.approvals.answer(question.id, "ok", by=ANA)
            assert ended.terminal_status == "done_success"

    run_async(play())


@pytest.mark.parametrize("in_memory", [False, True])
def test_who_waits_at_one_engine_hears_of_an_end_at_another(
    shared_url: str, clock: ManualClock, in_memory: bool
):
    async def play():
        async with (
            manual_engine(shared_url, clock, pulse=0.05) as one,
            manual_engine(shared_url, clock) as two,
        ):
            run = await start_run(one if in_memory else two, ASKS)
            assert (run.id in one.committer.cached_runs) == in_memory
            waiting = asyncio.create_task(one.run(run.id).result())
            following = asyncio.create_task(_names(one.run(run.id).events()))
            await asyncio.sleep(0.01)
            await two.run(run.id).close(by=ANA, reason="enough")
            assert (await waiting).terminal_status == "closed_by_human"
            assert (await following)[-1] == "Ended"

    run_async(play())


def test_a_crowd_that_waits_for_a_run_costs_no_look_at_every_pulse(
    shared_url: str, clock: ManualClock
):
    async def play():
        often = opening.open(shared_url, clock=clock.now, settings=EngineSettings(pulse=0.01))
        async with often as one, manual_engine(shared_url, clock) as two:
            run = await start_run(two, ASKS)
            beats, looks, load = asyncio.Semaphore(0), [], one.store.runs.load
            beat = one.maintenance.run_once

            async def counted() -> None:
                await beat()
                beats.release()

            def looked(ids: Sequence[str]) -> dict[str, LoadedRun]:
                looks.append(ids)
                return load(ids)

            one.maintenance.run_once, one.store.runs.load = counted, looked
            crowd = [asyncio.create_task(one.run(run.id).result()) for _ in range(50)]
            for _ in range(20):
                await beats.acquire()
            assert 50 <= len(looks) <= 60, "everybody looked once, and then waited to be told"
            await two.run(run.id).close(by=ANA, reason="enough")
            for ended in await asyncio.gather(*crowd):
                assert ended.terminal_status == "closed_by_human"
            assert len(looks) <= 80

    run_async(play())


async def _names(events: object) -> list[str]:
    return event_names([event async for _, event in events])  # pyright: ignore[reportGeneralTypeIssues]


def test_commands_of_two_engines_to_one_run_are_all_taken(
    shared_url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(committer, "WRITE_CONFLICTS_MAX", 100)

    async def play():
        async with manual_engine(shared_url, clock) as one, manual_engine(shared_url, clock) as two:
            run = await start_run(one, ASKS)
            patches = [c.Patch(by=ANA, patch={f"k{i}": i}) for i in range(40)]
            both = [
                (one, two)[i % 2].runs.command(run.id, patch) for i, patch in enumerate(patches)
            ]
            await asyncio.gather(*both)
            assert {f"k{i}" for i in range(40)} <= set((await run.state()).context)
            await check_stored(two, run.id)

    run_async(play())


@pytest.mark.requirement("L8.6")
def test_what_was_decided_on_an_old_copy_is_decided_again(shared_url: str, clock: ManualClock):
    """Also where the numbers of events would not collide."""

    async def play():
        async with manual_engine(shared_url, clock) as one, manual_engine(shared_url, clock) as two:
            run = await start_run(one, ASKS)
            before = await two.runs.command(run.id, c.Patch(by=ANA, patch={"k": 1}))
            moved = await run.move("ok", by=ANA, reason="two events")
            assert moved.seq == before.seq + 2
            assert moved.context["k"] == 1
            await check_stored(two, run.id)

    run_async(play())


def test_the_functions_of_an_engine_that_died_are_lost_by_silence(
    shared_url: str, clock: ManualClock
):
    async def play():
        begun = asyncio.Event()

        async def sleep(dispatch: Dispatch) -> Result:
            begun.set()
            await asyncio.Event().wait()
            return DONE

        async with manual_engine(shared_url, clock) as alive:
            dead = await engine_to_abandon(shared_url, clock)
            run = await start_run(dead, ASKS)
            dead.local_agents.add(sleep, ROLE)
            await begun.wait()
            await abandon_engine(dead)
            await advance_with_ticks(alive, clock, 50)
            assert await events_of(alive, run.id, Lost) == []
            await advance_with_ticks(alive, clock, 20)
            assert len(await events_of(alive, run.id, Lost)) == 1
            assert (await (await register_worker(alive)).get()).attempt == 2

    run_async(play())


CHILD = """
import asyncio, sys
from handrail.engine import opening
from handrail.kernel.result import Outcome, Result

async def main(url, role, count):
    async with opening.open(url) as engine:
        engine.add_agent(lambda d: Result(outcome=Outcome.SUCCESS), role)
        print("ready", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        runs = [await engine.start("w") for _ in range(int(count))]
        for run in runs:
            print((await run.result(60)).terminal_status, flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.requirement("L8.6", "L12.1")
def test_two_processes_share_the_work(file_url: str):
    from handrail.engine import opening

    async def child(role: str) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        command = (sys.executable, "-c", CHILD, file_url, role, "10")
        process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
        return process

    async def play():
        async with opening.open(file_url) as engine:
            await engine.define(THREE)
            children = [await child(role) for role in (ROLE, "qa-engineer")]
            for process in children:
                assert process.stdin is not None
                process.stdin.write(b"go\n")
            for process in children:
                assert process.stdout is not None
                lines = [await process.stdout.readline() for _ in range(10)]
                assert lines == [b"done_success\n"] * 10
            for process in children:
                await process.communicate(b"go\n")
                assert process.returncode == 0
            rows = engine.store.runs.list_by_id()
            assert len(rows) == 20
            for row in rows:
                await check_stored(engine, row.id)

    run_async(play())


def test_a_file_shows_who_was_alive(tmp_path: Path, clock: ManualClock):
    async def play():
        url = f"sqlite:///{tmp_path / 'work.db'}"
        async with manual_engine(url, clock) as engine:
            assert engine.store.engines.list() == {engine.id: iso(clock.now())}
            async with manual_engine(url, clock) as other:
                assert set(other.store.engines.list()) == {engine.id, other.id}
            assert other.id not in engine.store.engines.list()

    run_async(play())
