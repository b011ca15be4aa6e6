"""What the engine says it did is on disk, once, whoever asked and how often."""

import asyncio
import json
from typing import Any

import pytest
from tests.engine.engines import (
    ANA,
    DONE,
    FAILED,
    ROLE,
    abandon_engine,
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
    wait_until_idle,
)

from handrail.engine.engine import Engine, InvalidDefinitionError, RefusedError
from handrail.kernel.result import Outcome, Result
from handrail.kernel.run import commands as c
from handrail.kernel.run.events import Ended, Migrated, Moved, Paused, Reported, Resumed
from handrail.testing.clock import ManualClock

pytest_plugins = ["tests.fixtures_postgres"]

ASKS = chain(node("a"), node("ok", "approval"))
TWO = chain(node("a"), node("b", role="qa-engineer"))


@pytest.mark.requirement("L4.1", "L4.2", "L4.3", "L4.4", "L5.6", "L8.2", "L10.7", "L10.8")
def test_a_run_goes_from_start_to_end_and_every_table_has_it(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            run = await start_run(engine, ASKS, title="a bug", context={"k": 1}, bead_id="b1")
            engine.add_agent(lambda d: DONE, ROLE, name="coder")
            (question,) = await run.questions(60)
            store = engine.store
            assert store.runs.get_active_id("b1") == run.id
            bead = store.beads.get("b1")
            assert bead is not None
            assert (bead.status, bead.title, bead.execution_id) == ("waiting", "a bug", run.id)
            assert [(a.status, a.type) for a in store.approvals.list()] == [("open", "approval")]
            ended = await run.answer(question.id, "ok", by=ANA)
            assert ended.terminal_status == "done_success"
            assert store.runs.get_active_id("b1") is None
            bead = store.beads.get("b1")
            assert bead is not None
            assert (bead.status, bead.error) == ("closed", None)
            assert json.loads(bead.context)["k"] == 1
            (approval,) = store.approvals.list()
            assert (approval.status, approval.decision) == ("answered", "approve")
            assert (approval.answered_by, approval.answer) == ("ana", "ok")
            passed = [
                (t.from_node_id, t.to_node_id) for _, t in store.runs.list_transitions(run.id)
            ]
            assert passed == [("", "start"), ("start", "a"), ("a", "ok"), ("ok", "end")]
            (row,) = store.runs.list_by_id(bead_id="b1")
            assert (row.status, row.terminal_status) == ("ended", "done_success")
            assert store.dispatches.list(run.id) == []
            await check_stored(engine, run.id)
            assert event_names(await engine.runs.history(run.id)) == [
                *("Started", "Moved", "Offered", "Claimed", "Reported", "Moved"),
                *("Asked", "Answered", "Moved", "Ended"),
            ]

    run_async(play())


@pytest.mark.requirement("H3.4")
def test_a_run_that_is_stopped_marks_its_bead_with_the_reason(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            run = await start_run(engine, ASKS, bead_id="b1")
            engine.add_agent(lambda d: DONE, ROLE)
            await run.questions(60)
            clock.advance(days=8)
            await engine.tick()
            assert (await run.result(60)).terminal_status == "aborted_stuck"
            bead = engine.store.beads.get("b1")
            assert bead is not None
            assert bead.status == "error"
            assert "human_deadline" in (bead.error or "")
            assert [a.status for a in engine.store.approvals.list()] == ["expired"]

    run_async(play())


@pytest.mark.requirement("L4.6")
def test_accepted_means_durable(shared_url: str, clock: ManualClock):
    async def play():
        engine = await engine_to_abandon(shared_url, clock)
        await engine.define(ASKS)
        run = await engine.start("w", title="kept", key="k")
        await abandon_engine(engine)
        async with manual_engine(shared_url, clock) as engine:
            stored = await engine.runs.state(run.id)
            assert (stored.title, stored.seq) == ("kept", 3)
            assert [d.place for d in engine.store.dispatches.list(run.id)] == ["a"]
            assert (await engine.start("w", title="kept", key="k")).id == run.id
            await check_stored(engine, run.id)

    run_async(play())


# Idempotency


@pytest.mark.requirement("L8.7")
def test_the_same_start_under_one_key_is_one_run(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            await engine.define(ASKS)
            first = await engine.start("w", title="t", key="k", filed_by="ola")
            again = await engine.start("w", title="t", key="k", filed_by="ola")
            assert again.id == first.id
            other = engine.start("w", title="another", key="k", filed_by="ola")
            assert await refusal_code(other) == "key_reused"
            assert await refusal_code(
                engine.start("w", title="t", key="k", filed_by="ola", paths=("x",))
            )
            theirs = await engine.start("w", title="t", key="k", filed_by="bob")
            assert theirs.id != first.id
            assert len(engine.store.runs.list_by_id()) == 2

    run_async(play())


@pytest.mark.requirement("L8.7")
def test_the_same_start_twice_at_the_same_moment_is_one_run(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            await engine.define(ASKS)
            starts = [engine.start("w", title="t", key="k") for _ in range(20)]
            assert len({run.id for run in await asyncio.gather(*starts)}) == 1
            assert len(engine.store.runs.list_by_id()) == 1

    run_async(play())


@pytest.mark.requirement("L8.7")
def test_the_same_answer_under_one_key_is_one_answer(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            run = await start_run(engine, chain(node("ok", "approval"), node("a")))
            (question,) = await run.questions(60)
            both = [engine.approvals.answer(question.id, "ok", by=ANA, key="k") for _ in range(2)]
            one, two = await asyncio.gather(*both)
            assert one.seq == two.seq
            later = await engine.approvals.answer(question.id, "ok", by=ANA, key="k")
            assert later.seq == one.seq
            another = engine.approvals.answer(question.id, "no, blue", by=ANA, key="k")
            assert await refusal_code(another) == "key_reused"
            await run.close(by=ANA, reason="enough")
            assert (await engine.approvals.answer(question.id, "ok", by=ANA, key="k")).has_ended
            assert event_names(await engine.runs.history(run.id)).count("Answered") == 1

    run_async(play())


@pytest.mark.requirement("L8.7")
def test_the_same_command_without_a_key_changes_nothing_the_second_time(
    url: str, clock: ManualClock
):
    async def play():
        async with manual_engine(url, clock) as engine:
            run = await start_run(engine, ASKS)
            agent = await register_worker(engine)
            dispatch = await agent.get()
            assert (await agent.get()).id == dispatch.id
            after = await agent.report(dispatch)
            assert await refusal_code(agent.report(dispatch)) == "late"
            (question,) = await run.questions(60)
            ended = await run.answer(question.id, "ok", by=ANA)
            assert await refusal_code(run.answer(question.id, "ok", by=ANA)) == "ended"
            assert await refusal_code(run.close(by=ANA, reason="x")) == "ended"
            assert after.seq < ended.seq == (await run.state()).seq
            await check_stored(engine, run.id)

    run_async(play())


# Side by side


@pytest.mark.requirement("L8.6", "L8.7")
def test_commands_to_one_run_from_many_tasks_at_once_are_taken_one_after_the_other(
    url: str, clock: ManualClock
):
    async def play():
        async with manual_engine(url, clock) as engine:
            run = await start_run(engine, ASKS)
            patches = [c.Patch(by=ANA, patch={f"k{i}": i}) for i in range(50)]
            await asyncio.gather(*(engine.runs.command(run.id, patch) for patch in patches))
            closes = [run.close(by=ANA, reason=f"{i}") for i in range(10)]
            done = await asyncio.gather(*closes, return_exceptions=True)
            assert sum(isinstance(one, RefusedError) for one in done) == 9
            state = await run.state()
            assert {state.context[f"k{i}"] for i in range(50)} == set(range(50))
            assert len(await events_of(engine, run.id, Ended)) == 1
            await check_stored(engine, run.id)

    run_async(play())


@pytest.mark.requirement("L8.6", "L12.1", "H1.5")
def test_two_hundred_runs_at_once_end_each_for_itself(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            await engine.define(TWO)

            async def code(dispatch: Any) -> Result:
                await asyncio.sleep(0)
                failing = dispatch.bead.title == "bad"
                return FAILED if failing else Result(outcome=Outcome.SUCCESS, text=dispatch.bead.id)

            engine.add_agent(code, ROLE)
            engine.add_agent(
                lambda d: Result(text=d.history[0].text, outcome=Outcome.SUCCESS), "qa-engineer"
            )
            titles = ["bad" if i % 10 == 0 else "good" for i in range(200)]
            runs = await asyncio.gather(*(engine.start("w", title=title) for title in titles))
            for run, title in zip(runs, titles, strict=True):
                if title == "bad":
                    assert len(await run.questions(60)) == 1
                    continue
                ended = await run.result(60)
                assert ended.terminal_status == "done_success"
                history = await engine.runs.history(run.id)
                texts = [e.result.text for e in history if isinstance(e, Reported)]
                assert texts == [ended.bead_id] * 2
            await wait_until_idle(engine)
            for run in runs:
                await check_stored(engine, run.id)

    run_async(play())


def test_a_bead_has_one_active_run(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            run = await start_run(engine, ASKS, bead_id="b1")
            assert await refusal_code(engine.start("w", bead_id="b1")) == "bead_busy"
            await run.close(by=ANA, reason="enough")
            again = await engine.start("w", bead_id="b1")
            assert engine.store.runs.get_active_id("b1") == again.id

    run_async(play())


# Definitions and overrides


@pytest.mark.requirement("L7.5", "L8.1")
def test_a_changed_definition_is_a_new_version_and_runs_keep_theirs(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            assert (await engine.define(ASKS)).version == 1
            assert (await engine.define(ASKS)).version == 1
            old = await engine.start("w")
            assert (await engine.define(TWO)).version == 2
            new = await engine.start("w")
            assert [(await run.state()).version for run in (old, new)] == [1, 2]
            with pytest.raises(InvalidDefinitionError) as found:
                await engine.define({"name": "w", "kind": "workflow", "nodes": [], "edges": []})
            assert found.value.problems

    run_async(play())


@pytest.mark.requirement("L16", "L7.2", "L7.3", "L7.4", "L7.6")
def test_overrides_carry_person_and_reason_in_the_events(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            run = await start_run(engine, ASKS)
            await run.pause(by=ANA, reason="lunch")
            await run.resume(by=ANA, reason="back")
            await run.move("ok", by=ANA, reason="skip it")
            await engine.define(TWO)
            to = c.Migrate(by=ANA, definition_id="w", version=2, step_id="b", reason="newer")
            assert (await engine.runs.command(run.id, to)).version == 2
            await run.close(by=ANA, reason="enough")
            events = await engine.runs.history(run.id)
            acts = [e for e in events if isinstance(e, Paused | Resumed | Migrated | Ended)]
            acts += [e for e in events if isinstance(e, Moved) and e.renews]
            assert {(type(e).__name__, e.by) for e in acts} == {
                (name, "ana") for name in ("Paused", "Resumed", "Moved", "Migrated", "Ended")
            }
            reasons = [getattr(e, "reason", "") or e.stop.reason for e in acts]  # pyright: ignore[reportAttributeAccessIssue]
            assert reasons == ["lunch", "back", "newer", "enough", "skip it", "newer"]
            moved = [
                (t.to_node_id, t.actor, t.reason)
                for _, t in engine.store.runs.list_transitions(run.id)
            ]
            assert ("ok", "ana", "skip it") in moved
            assert ("b", "ana", "newer") in moved
            await check_stored(engine, run.id)

    run_async(play())


def test_a_run_can_migrate_to_another_definition_of_the_same_version(
    shared_url: str, clock: ManualClock
):
    async def play():
        engine = await engine_to_abandon(shared_url, clock)
        run = await start_run(engine, ASKS)
        await engine.define({**TWO, "name": "other"})
        to = c.Migrate(by=ANA, definition_id="other", version=1, step_id="b", reason="better")
        await engine.runs.command(run.id, to)
        (row,) = engine.store.runs.list_by_id()
        assert (row.workflow_id, row.workflow_version) == ("other", 1)
        nowhere = c.Migrate(by=ANA, definition_id="none", version=7, step_id="b", reason="x")
        assert await refusal_code(engine.runs.command(run.id, nowhere)) == "unknown_definition"
        await abandon_engine(engine)
        async with manual_engine(shared_url, clock) as engine:
            engine.add_agent(lambda d: DONE, "qa-engineer")
            assert (await run_of(engine, run.id).result(60)).terminal_status == "done_success"

    run_async(play())


def run_of(engine: Engine, run_id: str):
    return engine.run(run_id)


def test_more_definitions_than_are_kept_in_memory(
    url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("handrail.engine.commit.plan_cache.CACHED_PLANS_MAX", 2)

    async def play():
        async with manual_engine(url, clock) as engine:
            engine.add_agent(lambda d: DONE, ROLE)
            for i in range(6):
                await engine.define({**chain(node("a"), node("ok", "approval")), "name": f"w{i}"})
            runs = await asyncio.gather(*(engine.start(f"w{i % 6}") for i in range(12)))
            for run in runs:
                (question,) = await run.questions(60)
                await run.answer(question.id, "ok", by=ANA)
            assert engine.failure is None
            assert {(await run.result(60)).terminal_status for run in runs} == {"done_success"}

    run_async(play())


@pytest.mark.requirement("L7.6")
def test_a_pause_offers_nothing_new_and_keeps_a_result_in_hand(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            run = await start_run(engine, TWO)
            agent, qa = await register_worker(engine), await register_worker(engine, "qa-engineer")
            dispatch = await agent.get()
            await run.pause(by=ANA, reason="lunch")
            kept = await agent.report(dispatch)
            assert kept.status == "paused"
            assert await qa.claim() is None
            await run.resume(by=ANA, reason="back")
            assert (await qa.work()).terminal_status == "done_success"

    run_async(play())


def test_an_offer_in_a_pause_waits_and_holds_up_nobody(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            paused = await start_run(engine, ASKS)
            await paused.pause(by=ANA, reason="lunch")
            other = await start_run(engine, ASKS)
            worked: list[str] = []

            def code(dispatch: Any) -> Result:
                worked.append(dispatch.run.id)
                return DONE

            engine.add_agent(code, ROLE, capacity=1)
            await other.questions(60)
            await engine.tick()
            assert worked == [other.id]
            await paused.resume(by=ANA, reason="back")
            assert len(await paused.questions(60)) == 1

    run_async(play())


def test_a_pause_at_the_moment_of_a_claim_leaves_the_work_in_hand(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            run = await start_run(engine, ASKS)
            await engine.add_agent(lambda d: DONE, ROLE)
            await run.pause(by=ANA, reason="lunch")  # in one commit with the claim
            await wait_until_idle(engine)
            last = event_names(await engine.runs.history(run.id))[-4:]
            assert last == ["Claimed", "Paused", "Reported", "Moved"]
            await run.resume(by=ANA, reason="back")
            assert len(await run.questions(60)) == 1

    run_async(play())


def test_whoever_is_told_of_the_end_is_told_once_and_at_once(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            run = await start_run(engine, ASKS)
            waiting = [asyncio.create_task(run.result(60)) for _ in range(5)]
            follow = asyncio.create_task(_all(run.events()))
            await asyncio.sleep(0)
            ended = await run.close(by=ANA, reason="enough")
            assert [one.seq for one in await asyncio.gather(*waiting)] == [ended.seq] * 5
            assert [seq for seq, _ in await follow] == list(range(1, ended.seq + 1))
            assert [seq for seq, _ in await _all(run.events(2, follow=False))] == [3, 4]
            with pytest.raises(TimeoutError):
                await (await engine.start("w")).result(0.01)

    run_async(play())


async def _all(events: Any) -> list[Any]:
    return [event async for event in events]
