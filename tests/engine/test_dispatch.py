"""Who gets what to do: roles, order, capacity, leases, fences, clocks."""

import asyncio
from typing import Any

import pytest
from tests.engine.engines import (
    ANA,
    COMMIT,
    DONE,
    FAILED,
    ROLE,
    advance_with_ticks,
    chain,
    check_stored,
    edge,
    events_of,
    manual_engine,
    node,
    refusal_code,
    register_worker,
    run_async,
    start_run,
    team,
    wait_until_async,
    wait_until_idle,
    workflow,
)

from handrail.engine.dispatch.dispatch import Dispatch
from handrail.kernel.definition.model import Settings
from handrail.kernel.result import Outcome, Result
from handrail.kernel.run.events import Asked, Claimed, Lost, Offered, Reported, TimedOut
from handrail.store.rows import NOTES_MAX
from handrail.testing.clock import ManualClock

pytest_plugins = ["tests.fixtures_postgres"]

ONE = chain(node("a"))
TWO = chain(node("a"), node("b", role="qa-engineer"))
BOTH = workflow(
    *(node("start", "start"), node("fork", "decision", parallel=True), node("a"), node("b")),
    *(node("join", "merge", wait="any"), node("end", "end")),
    edges=[
        *(edge("start", "fork"), edge("fork", "a"), edge("fork", "b")),
        *(edge("a", "join"), edge("b", "join"), edge("join", "end")),
    ],
)


# Matching


@pytest.mark.requirement("L3.2", "L9.1", "L9.2")
def test_work_goes_only_to_agents_with_the_role(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            run = await start_run(engine, TWO)
            coder, qa = (
                await register_worker(engine),
                await register_worker(engine, "qa-engineer", "ceo"),
            )
            assert await qa.claim() is None
            await coder.work()
            assert await coder.claim() is None
            dispatch = await qa.get()
            assert (dispatch.run.id, dispatch.node, dispatch.role) == (run.id, "b", "qa-engineer")
            await qa.report(dispatch)
            agents = [(e.step_id, e.agent) for e in await events_of(engine, run.id, Claimed)]
            assert agents == [("a", coder.name), ("b", qa.name)]

    run_async(play())


@pytest.mark.requirement("L9.2")
def test_the_first_in_the_queue_is_the_most_urgent_then_the_oldest(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            await engine.define(ONE)
            runs: dict[str, str] = {}
            for title, priority in [("old", 0), ("young", 0), ("urgent", 5), ("later", -1)]:
                runs[(await engine.start("w", title=title, priority=priority)).id] = title
                clock.advance(1)
            agent = await register_worker(engine)
            order = [(await agent.work()).id for _ in runs]
            assert [runs[run_id] for run_id in order] == ["urgent", "old", "young", "later"]

    run_async(play())


def test_who_has_waited_is_served_before_who_comes(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            await engine.define(ONE)
            served: list[str] = []
            gates: dict[str, asyncio.Event] = {}

            async def code(dispatch: Dispatch) -> Result:
                served.append(dispatch.bead.title)
                await gates.setdefault(dispatch.bead.title, asyncio.Event()).wait()
                return DONE

            engine.add_agent(code, ROLE, capacity=1)
            for title in "abc":
                await engine.start("w", title=title)
                clock.advance(1)
            await wait_until_async(lambda: served == ["a"])
            gates["a"].set()
            await engine.start("w", title="d", priority=-1)
            await wait_until_async(lambda: served == ["a", "b"])
            for gate in "bcd":
                gates.setdefault(gate, asyncio.Event()).set()
            await wait_until_async(lambda: served == ["a", "b", "c", "d"])

    run_async(play())


def test_an_agent_is_given_as_much_as_it_has_room_for_and_never_more(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            await engine.define(BOTH)
            now: dict[str, int] = {"big": 0, "small": 0}
            most, full = dict(now), asyncio.Event()

            def agent(name: str):
                async def code(dispatch: Dispatch) -> Result:
                    now[name] += 1
                    most[name] = max(most[name], now[name])
                    if now == {"big": 3, "small": 1}:
                        full.set()
                    try:
                        await full.wait()
                        await asyncio.sleep(0)
                    finally:  # stopped, if its sibling came first
                        now[name] -= 1
                    return DONE

                return code

            engine.add_agent(agent("big"), ROLE, "qa-engineer", name="big", capacity=3)
            engine.add_agent(agent("small"), ROLE, name="small", capacity=1)
            runs = await asyncio.gather(*(engine.start("w") for _ in range(20)))
            for run in runs:
                assert (await run.result(60)).terminal_status == "done_success"
            assert most == {"big": 3, "small": 1}
            await wait_until_idle(engine)
            assert sorted(seat.free_capacity for seat in engine.matcher.free_slots(ROLE)) == [1, 3]

    run_async(play())


@pytest.mark.requirement("L9.4")
def test_approval_nodes_are_dispatched_to_nobody(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            run = await start_run(engine, chain(node("ok", "approval"), node("a")))
            boss = await register_worker(engine, "ceo", ROLE)
            assert await boss.claim() is None
            (question,) = await run.questions(60)
            await run.answer(question.id, "ok", by=ANA)
            assert (await boss.get()).node == "a"
            assert {e.step_id for e in await events_of(engine, run.id, Offered)} == {"a"}

    run_async(play())


@pytest.mark.requirement("L3.3", "L9.5")
def test_nobody_verifies_what_they_committed_and_nobody_waits_for_them(
    url: str, clock: ManualClock
):
    document = chain(node("commit", **COMMIT), node("v", role="qa-engineer", kind="verification"))

    async def play():
        async with manual_engine(url, clock) as engine:
            await engine.define(document)
            await engine.define({**chain(node("t", role="qa-engineer")), "name": "other"})
            engine.add_agent(lambda d: DONE, "engineering-manager", "qa-engineer", capacity=1)
            run = await engine.start("w")
            await wait_until_async(
                lambda: [d.place for d in engine.store.dispatches.list(run.id)] == ["v"]
            )
            await engine.tick()
            other = await engine.start("other")
            assert (await other.result(60)).terminal_status == "done_success"
            (waiting,) = await engine.run_queries.waits(run.id)
            assert waiting.code == "own_commit"
            engine.add_agent(lambda d: DONE, "qa-engineer", name="fresh eyes", capacity=1)
            while not (
                await run.state()
            ).has_ended:  # PostgreSQL holds back for 5 s what was refused
                await engine.tick()
                await asyncio.sleep(0.01)
            assert (await run.result()).terminal_status == "done_success"

    run_async(play())


@pytest.mark.requirement("L9.6", "R2.1", "R2.2", "R2.4")
def test_an_agent_is_given_everything_that_was_said(url: str, clock: ManualClock):
    long = "word " * 5_000

    async def play():
        async with manual_engine(url, clock) as engine:
            document = chain(node("a"), node("ok", "approval", revise_to="a"), node("b"))
            wanted = {"title": "t", "description": "d" * 9_000, "context": {"k": 1}}
            run = await start_run(engine, document, **wanted)
            agent = await register_worker(engine)
            first = await agent.get()
            assert (first.attempt, first.max_attempts, first.history) == (1, 3, ())
            await agent.report(first, FAILED)
            second = await agent.get()
            assert (second.attempt, [s.outcome for s in second.history]) == (2, ["failure"])
            await agent.report(second, Result(outcome=Outcome.SUCCESS, text=long, data={"x": 2}))
            (question,) = await run.questions(60)
            await run.answer(question.id, "use euros", by=ANA)
            again = await agent.get()
            assert [act.reason for act in again.people] == ["use euros"]
            await agent.report(again, DONE)
            (question,) = await run.questions(60)
            await run.answer(question.id, "ok", by=ANA)
            last = await agent.get()
            assert last.node == "b"
            assert [step.text for step in last.history] == ["", long, "done"]
            assert (last.bead.title, last.bead.description) == ("t", "d" * 9_000)
            assert (last.bead.context["k"], last.bead.context["x"]) == (1, 2)
            assert 0 < last.remaining < first.remaining

    run_async(play())


@pytest.mark.requirement("L2.1", "L2.2", "L2.3", "L9.3")
def test_who_asks_for_more_turns_is_dispatched_again(url: str, clock: ManualClock):
    document = chain(node("a", multi_dispatch=True, kind="investigation", max_attempts=5))

    async def play():
        async with manual_engine(url, clock) as engine:
            run = await start_run(engine, document)
            agent = await register_worker(engine)
            after = await agent.work(Result(outcome=Outcome.CONTINUE, text="more"))
            assert after.context["redispatch_requested"] is True
            assert after.context["last_run_at"]
            dispatch = await agent.get()
            assert dispatch.attempt == 2
            assert not (await run.state()).context["redispatch_requested"]
            assert (await agent.report(dispatch)).terminal_status == "done_success"

    run_async(play())


# Fences, leases, sessions


@pytest.mark.requirement("K1", "K2", "K21")
def test_the_late_result_of_a_lost_dispatch_changes_nothing_and_is_kept_as_a_note(
    url: str, clock: ManualClock
):
    async def play():
        async with manual_engine(url, clock) as engine:
            run = await start_run(engine, ONE)
            slow, quick = await register_worker(engine), await register_worker(engine)
            late = await slow.get()
            await advance_with_ticks(engine, clock, 30)
            assert await quick.beat()
            await advance_with_ticks(engine, clock, 40)
            (lost,) = await events_of(engine, run.id, Lost)
            assert (lost.fence, lost.agent) == (late.fence, slow.name)
            again = await quick.get()
            assert (again.attempt, again.fence > late.fence) == (2, True)
            before = await run.state()
            assert await refusal_code(slow.report(late)) == "late"
            assert await refusal_code(slow.report(again)) == "foreign"
            assert await run.state() == before
            notes, count = engine.store.runs.list_notes(run.id)
            assert [(note.actor, note.code) for note in notes] == [
                (slow.name, "late"),
                (slow.name, "foreign"),
            ]
            assert count == 2
            assert "done" in notes[0].body
            assert (await quick.report(again)).terminal_status == "done_success"
            assert await refusal_code(slow.report(late)) == "ended"

    run_async(play())


@pytest.mark.requirement("K21")
def test_notes_are_capped_and_then_only_counted(file_url: str, clock: ManualClock):
    async def play():
        async with manual_engine(file_url, clock) as engine:
            run = await start_run(engine, ONE)
            agent = await register_worker(engine)
            dispatch = await agent.get()
            seq = (await agent.report(dispatch)).seq
            for _ in range(NOTES_MAX + 5):
                assert await refusal_code(agent.report(dispatch)) == "ended"
            notes, count = engine.store.runs.list_notes(run.id)
            assert (len(notes), count) == (NOTES_MAX, NOTES_MAX + 5)
            assert (await run.state()).seq == seq

    run_async(play())


@pytest.mark.requirement("K17")
def test_heartbeats_keep_what_was_claimed(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            run = await start_run(engine, ONE)
            agent = await register_worker(engine)
            dispatch = await agent.get()
            for _ in range(20):
                await advance_with_ticks(engine, clock, 50)
                assert await agent.beat()
            assert await events_of(engine, run.id, Lost) == []
            assert (await agent.report(dispatch)).terminal_status == "done_success"

    run_async(play())


def test_a_session_that_is_replaced_loses_its_claims(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            run = await start_run(engine, ONE)
            old = await register_worker(engine, name="ada")
            await old.get()
            new = await register_worker(engine, name="ada")
            await engine.tick()
            assert len(await events_of(engine, run.id, Lost)) == 1
            assert (await new.get()).attempt == 2

    run_async(play())


@pytest.mark.requirement("K1", "L2.4", "L6.2", "L6.3")
def test_a_worker_that_dies_each_time_uses_up_the_attempts(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            run = await start_run(engine, ONE)
            for _ in range(3):
                await (await register_worker(engine, name="ada")).get()
                await engine.agents.register("ada", (ROLE,))
                await engine.tick()
            (question,) = await run.questions(60)
            assert question.kind == "escalation"
            assert [e.attempt for e in await events_of(engine, run.id, Offered)] == [1, 2, 3]

    run_async(play())


# Clocks


@pytest.mark.requirement("K17")
def test_work_that_nobody_takes_escalates_after_its_queue_clock(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            run = await start_run(engine, chain(node("a", queue_timeout=600)))
            agent = await register_worker(engine)
            for _ in range(11):
                await advance_with_ticks(engine, clock, 50)
                await agent.beat()
            assert (await run.state()).pending_approvals == {}
            await advance_with_ticks(engine, clock, 60)
            assert [e.clock for e in await events_of(engine, run.id, TimedOut)] == ["queue"]
            assert len(await events_of(engine, run.id, Asked)) == 1
            assert await agent.claim() is None

    run_async(play())


@pytest.mark.requirement("K17", "L8.5")
def test_work_past_its_timeout_escalates_and_the_function_is_stopped(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            stopped = asyncio.Event()

            async def sleep(dispatch: Dispatch) -> Result:
                try:
                    await asyncio.Event().wait()
                finally:
                    stopped.set()
                return DONE

            run = await start_run(engine, chain(node("a", timeout=300)))
            engine.add_agent(sleep, ROLE)
            await wait_until_async(lambda: engine.local_executor.active_count == 1)
            await advance_with_ticks(engine, clock, 290)
            assert not stopped.is_set()
            await advance_with_ticks(engine, clock, 20)
            await stopped.wait()
            assert [e.clock for e in await events_of(engine, run.id, TimedOut)] == ["work"]
            assert len(await run.questions(60)) == 1
            await wait_until_idle(engine)

    run_async(play())


@pytest.mark.requirement("L3.6", "K17")
def test_a_role_that_nobody_alive_has_escalates_after_the_grace_time(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock, kernel=Settings(role_grace=30)) as engine:
            await register_worker(engine, "qa-engineer")
            run = await start_run(engine, ONE)
            await advance_with_ticks(engine, clock, 20)
            assert (await run.state()).pending_approvals == {}
            await advance_with_ticks(engine, clock, 20)
            assert [e.clock for e in await events_of(engine, run.id, TimedOut)] == ["role"]
            (question,) = await run.questions(60)
            assert question.kind == "escalation"

    run_async(play())


# Stopping work


@pytest.mark.requirement("H5.5", "H1.1", "L7.3")
@pytest.mark.parametrize("how", ["terminate", "close", "sibling"])
def test_work_in_hand_is_stopped_when_it_counts_no_more(how: str, url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            stopped: list[str] = []

            async def sleep(dispatch: Dispatch) -> Result:
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    stopped.append(dispatch.node or dispatch.agent)
                    raise
                return DONE

            if how == "terminate":
                run = await start_run(engine, team({"t": []}, terminator="t"))
                engine.add_agent(sleep, "t")
            else:
                roles = (ROLE, "qa-engineer")
                run = await start_run(engine, {**BOTH, "nodes": [*_with_roles(BOTH, *roles)]})
                engine.add_agent(sleep, ROLE)
            await wait_until_async(lambda: engine.local_executor.active_count == 1)
            if how == "sibling":
                await (await register_worker(engine, "qa-engineer")).work()
            else:
                await run.close(by=ANA, reason="enough")
            assert (await run.result(60)).has_ended
            await wait_until_async(lambda: not engine.local_executor.active_count)
            assert stopped == ["t" if how == "terminate" else "a"]
            assert await events_of(engine, run.id, Reported) == [] or how == "sibling"
            await check_stored(engine, run.id)

    run_async(play())


def _with_roles(document: dict[str, Any], a: str, b: str) -> list[dict[str, Any]]:
    roles = {"a": a, "b": b}
    return [
        {**n, **({"role": roles[n["id"]]} if n["id"] in roles else {})} for n in document["nodes"]
    ]
