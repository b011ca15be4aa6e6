"""Agents outside of the engine's process: they are there, claim, keep alive, report, hand back."""

import asyncio
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from tests.engine.engines import (
    ANA,
    COMMIT,
    DONE,
    ROLE,
    advance_with_ticks,
    chain,
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
)

from handrail.engine.engine import Engine
from handrail.kernel.result import Outcome, Result
from handrail.kernel.run.events import Claimed, Lost, Offered
from handrail.kernel.run.state import dispatch_id
from handrail.store.rows import iso
from handrail.testing.clock import ManualClock

pytest_plugins = ["tests.fixtures_postgres"]

ONE = chain(node("a"))
TWO = chain(node("a"), node("b"))
TEAM = team({"p": ["q"], "q": ["p"]}, terminator="p")


def beat_at(engine: Engine, agent: str) -> str | None:
    row = engine.store.agents.get(agent)
    return row.beat_at if row is not None else None


async def begun(engine: Engine, count: int) -> list[str]:
    """The dispatches of so many runs, in order."""
    await engine.define(ONE)
    runs = [await engine.start("w") for _ in range(count)]
    return [dispatch_id(run.id, 1) for run in runs]


# Who is there


def test_an_agent_is_idle_active_and_offline_in_turn(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            (first,) = await begun(engine, 1)
            view = await engine.agents.register("ada", [ROLE, "qa-engineer", ROLE], 2)
            assert (view.roles, view.capacity, view.in_process) == ((ROLE, "qa-engineer"), 2, False)
            assert (view.state, view.enabled, view.current_work) == ("IDLE", True, ())
            assert (view.channels, view.last_seen) == ({}, clock.now())
            await engine.claims.claim("ada")
            view = await engine.agents.get("ada")
            assert (view.state, view.current_work) == ("ACTIVE", (first,))
            assert await engine.agents.list() == [view]
            clock.advance(60)
            assert (await engine.agents.get("ada")).state == "ACTIVE"
            clock.advance(1)
            assert (await engine.agents.get("ada")).state == "OFFLINE"
            assert await engine.agents.note_activity("ada")
            assert (await engine.agents.get("ada")).state == "ACTIVE"

    run_async(play())


def test_a_function_is_listed_and_is_nobody_from_outside(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            await engine.add_agent(lambda d: DONE, ROLE, name="fix", capacity=7)
            (view,) = await engine.agents.list()
            assert (view.in_process, view.capacity, view.state) == (True, 7, "IDLE")
            assert await refusal_code(engine.agents.register(view.id, [ROLE])) == "agent_taken"
            assert await refusal_code(engine.claims.claim(view.id)) == "unknown_agent"
            assert await refusal_code(engine.agents.remove(view.id)) == "agent_taken"
            assert not await engine.agents.heartbeat(view.id)
            assert await engine.agents.list() == [view]

    run_async(play())


def test_what_is_no_agent_is_refused(file_url: str, clock: ManualClock):
    async def play():
        async with manual_engine(file_url, clock) as engine:
            for name in ("", "a\nb", "x" * 201):
                assert await refusal_code(engine.agents.register(name, [ROLE])) == "bad_agent"
            for roles in ([], [""], ["a\0"], ["x" * 300], ["r"] * 101):
                assert await refusal_code(engine.agents.register("ada", roles)) == "no_roles"
            for capacity in (0, -1, 10_001):
                assert (
                    await refusal_code(engine.agents.register("ada", [ROLE], capacity))
                    == "bad_capacity"
                )
            assert await refusal_code(engine.claims.claim("ada")) == "unknown_agent"
            assert await refusal_code(engine.agents.get("ada")) == "unknown_agent"
            assert await refusal_code(engine.agents.enable("ada", enabled=True)) == "unknown_agent"
            assert await refusal_code(engine.agents.remove("ada")) == "unknown_agent"
            assert not await engine.agents.note_activity("ada")
            assert await engine.agents.list() == []

    run_async(play())


def test_a_repeat_under_the_same_key_is_the_same_stay(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            await begun(engine, 1)
            await engine.agents.register("ada", [ROLE], key="boot-1")
            dispatch = await engine.claims.claim("ada")
            assert dispatch is not None
            await engine.agents.register("ada", [ROLE, "qa-engineer"], 3, key="boot-1")
            await engine.tick()
            assert await events_of(engine, dispatch.run.id, Lost) == []
            assert (await engine.agents.get("ada")).capacity == 3
            await engine.agents.register("ada", [ROLE], key="boot-2")
            await engine.tick()
            assert len(await events_of(engine, dispatch.run.id, Lost)) == 1

    run_async(play())


def test_who_is_disabled_loses_its_work_and_gets_none_until_enabled(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            await begun(engine, 1)
            ada = await register_worker(engine, name="ada")
            dispatch = await ada.get()
            view = await engine.agents.enable("ada", enabled=False)
            assert (view.enabled, view.state) == (False, "OFFLINE")
            assert await refusal_code(ada.claim()) == "agent_disabled"
            assert await ada.beat()
            await engine.tick()
            assert len(await events_of(engine, dispatch.run.id, Lost)) == 1
            await engine.agents.register("ada", [ROLE])
            assert await refusal_code(ada.claim()) == "agent_disabled"
            assert (await engine.agents.enable("ada", enabled=True)).state == "IDLE"
            assert (await ada.get()).attempt == 2
            await engine.agents.remove("ada")
            assert await refusal_code(ada.claim()) == "unknown_agent"
            await engine.tick()
            assert len(await events_of(engine, dispatch.run.id, Lost)) == 2

    run_async(play())


def test_calls_are_signs_of_life_that_are_written_now_and_then(
    url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    async def play():
        async with manual_engine(url, clock) as engine:
            await engine.agents.register("ada", [ROLE])
            written: list[str] = []
            beat = engine.store.agents.heartbeat
            monkeypatch.setattr(
                engine.store.agents,
                "heartbeat",
                lambda *told: (written.append(told[1]), beat(*told))[1],
            )
            for _ in range(10):  # in 9 seconds, of which every fifth is a third of a heartbeat
                assert all(
                    await asyncio.gather(*(engine.agents.note_activity("ada") for _ in range(5)))
                )
                clock.advance(1)
            assert len(written) == 2
            assert await engine.agents.heartbeat("ada")
            assert len(written) == 3
            assert (await engine.agents.get("ada")).last_seen == clock.now()

    run_async(play())


def test_a_stay_that_was_replaced_elsewhere_is_noticed(shared_url: str, clock: ManualClock):
    async def play():
        async with manual_engine(shared_url, clock) as one, manual_engine(shared_url, clock) as two:
            await one.agents.register("ada", [ROLE])
            assert await one.agents.note_activity("ada")
            await two.agents.register("ada", ["qa-engineer"])
            clock.advance(20)
            assert await one.agents.note_activity(
                "ada"
            )  # the old session is over; the agent is there
            assert (await one.agents.get("ada")).last_seen == clock.now()
            await two.agents.remove("ada")
            clock.advance(20)
            assert not await one.agents.note_activity("ada")

    run_async(play())


# Claims


def test_an_agent_at_its_capacity_is_given_again_what_it_may_not_know_of(
    url: str, clock: ManualClock
):
    async def play():
        async with manual_engine(url, clock) as engine:
            first, second, third = await begun(engine, 3)
            await engine.agents.register("ada", [ROLE], 2)

            async def claim(holding: list[str] | None = None) -> str | None:
                dispatch = await engine.claims.claim("ada", holding=holding)
                return dispatch.id if dispatch is not None else None

            assert await claim() == first
            clock.advance(1)
            assert await claim([first]) == second
            assert await claim() == first
            assert await claim([first]) == second
            assert await claim([second]) == first
            assert await claim([first, second]) is None
            run_id = first.partition(".")[0]
            assert len(await events_of(engine, run_id, Claimed)) == 1
            await engine.dispatches.report(run_id, 1, "ada", DONE)
            assert await claim([]) == second  # before there is anything new
            assert await claim([second]) == third

    run_async(play())


def test_claims_at_once_never_bring_more_than_the_capacity(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            await begun(engine, 8)
            await engine.agents.register("ada", [ROLE], 3)
            found = await asyncio.gather(
                *(engine.claims.claim("ada", holding=["x"]) for _ in range(10))
            )
            ids = {dispatch.id for dispatch in found if dispatch is not None}
            assert len(ids) <= 3
            while len(ids) < 3:
                dispatch = await engine.claims.claim("ada", holding=sorted(ids))
                assert dispatch is not None
                ids.add(dispatch.id)
            held = (await engine.agents.get("ada")).current_work
            assert set(held) == ids
            assert await engine.claims.claim("ada", holding=sorted(ids)) is None

    run_async(play())


def test_those_who_wait_are_served_as_work_comes_within_the_capacity(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            await engine.define(ONE)
            await engine.agents.register("ada", [ROLE], 2)
            waiting = [asyncio.create_task(engine.claims.claim("ada", 60, [])) for _ in range(2)]
            await wait_until_async(lambda: len(list(engine.matcher.free_slots(ROLE))) == 2)
            assert await engine.claims.claim("ada", 60, []) is None  # two are on their way already
            runs = await asyncio.gather(*(engine.start("w") for _ in range(4)))
            found = await asyncio.gather(*waiting)
            assert {d.run.id for d in found if d is not None} <= {run.id for run in runs}
            assert len({d.id for d in found if d is not None}) == 2
            assert len((await engine.agents.get("ada")).current_work) == 2

    run_async(play())


def test_a_look_at_what_is_held_that_has_grown_old_is_taken_again(
    url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    async def play():
        async with manual_engine(url, clock) as engine:
            await engine.define(ONE)
            await engine.agents.register("ada", [ROLE])
            waiting = asyncio.create_task(engine.claims.claim("ada", 60, []))
            await wait_until_async(lambda: len(list(engine.matcher.free_slots(ROLE))) == 1)
            looked, go_on = asyncio.Event(), asyncio.Event()
            io = engine._access.call

            async def slow(function: Any, *values: object) -> Any:
                found = await io(function, *values)
                if function == engine.store.dispatches.list_claimed:
                    looked.set()
                    await go_on.wait()
                return found

            monkeypatch.setattr(engine._access, "call", slow)
            second = asyncio.create_task(engine.claims.claim("ada", 0, ["other"]))
            await looked.wait()  # it has seen that nothing is held
            for _ in range(2):
                await engine.start("w")
            given = await waiting
            go_on.set()
            again = await second
            assert given is not None
            assert again is not None
            assert again.id == given.id

    run_async(play())


def test_a_claim_that_nobody_waits_for_any_more_leaves_no_seat(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            await engine.define(ONE)
            await engine.agents.register("ada", [ROLE])
            waiting = asyncio.create_task(engine.claims.claim("ada", 60))
            await wait_until_async(lambda: len(list(engine.matcher.free_slots(ROLE))) == 1)
            waiting.cancel()
            await asyncio.wait((waiting,))
            assert list(engine.matcher.free_slots(ROLE)) == []
            run = await engine.start("w")
            await wait_until_idle(engine)
            assert await events_of(engine, run.id, Claimed) == []
            dispatch = await engine.claims.claim("ada", holding=[])
            assert dispatch is not None
            assert dispatch.run.id == run.id

    run_async(play())


def test_who_waits_for_work_is_alive_all_the_while(file_url: str, clock: ManualClock):
    async def play():
        async with manual_engine(file_url, clock, heartbeat=0.02) as engine:
            await engine.define(ONE)
            await engine.agents.register("ada", [ROLE])
            waiting = asyncio.create_task(engine.claims.claim("ada", 60))
            await wait_until_async(lambda: len(list(engine.matcher.free_slots(ROLE))) == 1)
            for _ in range(4):
                clock.advance(30)
                await wait_until_async(lambda: beat_at(engine, "ada") == iso(clock.now()))
                await engine.tick()
            await engine.start("w")
            dispatch = await waiting
            assert dispatch is not None
            await engine.tick()
            assert await events_of(engine, dispatch.run.id, Lost) == []

    run_async(play())


def test_a_dispatch_is_given_again_by_another_engine(shared_url: str, clock: ManualClock):
    async def play():
        async with manual_engine(shared_url, clock) as one:
            (first,) = await begun(one, 1)
            await one.agents.register("ada", [ROLE])
            given = await one.claims.claim("ada")
            assert given is not None
            async with manual_engine(shared_url, clock) as two:
                again = await two.claims.claim("ada", holding=[])
                assert again is not None
                assert (again.id, again.position) == (first, given.position)
                taken = await two.dispatches.report_result(first, "ada", 1, DONE)
                assert taken.run.terminal_status == "done_success"

    run_async(play())


# The dispatch


def test_a_dispatch_is_shown_in_full(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            wanted = {"title": "t", "description": "d", "context": {"k": 1}}
            run = await start_run(engine, TWO, **wanted)
            await engine.agents.register("ada", [ROLE])
            await engine.dispatches.report(run.id, (await claimed(engine)).fence, "ada", DONE)
            dispatch = await claimed(engine)
            view = await engine.dispatches.view(dispatch)
            assert (view.id, view.execution_id) == (f"{run.id}.d2", run.id)
            assert msgspec.to_builtins(view)["kind"] == "step"
            assert (view.node, view.agent, view.definition) == ("b", None, "w")
            assert (view.attempt, view.max_attempts, view.fence, view.role) == (1, 3, 2, ROLE)
            assert (view.bead.title, view.bead.context["k"]) == ("t", 1)
            assert [step.text for step in view.history] == ["done"]
            assert view.allowed.outcomes == ("success", "failure", "ask")
            assert (view.lock, view.last_refusal, view.task) == (None, None, None)
            assert view.lease_expires_at is not None
            assert (view.lease_expires_at - clock.now()).total_seconds() == 60
            assert view.remaining == dispatch.remaining > 0
            again = await engine.dispatches.get(view.id)
            assert await engine.dispatches.view(again) == view

    run_async(play())


async def claimed(engine: Engine):
    dispatch = await engine.claims.claim("ada", holding=[])
    assert dispatch is not None
    return dispatch


@pytest.mark.requirement("L12.2")
def test_a_commit_is_shown_with_its_lock(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            await start_run(engine, chain(node("c", repository="web", **COMMIT)))
            await engine.agents.register("ada", ["engineering-manager"])
            await engine.tick()
            lock = (await engine.dispatches.view(await claimed(engine))).lock
            assert lock is not None
            assert (lock.repository, lock.fence) == ("web", 1)
            assert lock.expires_at is not None
            assert (lock.expires_at - clock.now()).total_seconds() == 300

    run_async(play())


def test_only_an_open_dispatch_is_found(file_url: str, clock: ManualClock):
    async def play():
        async with manual_engine(file_url, clock) as engine:
            (first,) = await begun(engine, 1)
            await engine.agents.register("ada", [ROLE])
            assert (await claimed(engine)).id == first
            await engine.dispatches.report_result(first, "ada", 1, DONE)
            wrong = [
                first,
                f"{first}9",
                "nobody.d1",
                "x",
                "",
                ".d1",
                "a.d-1",
                "a.d1²",
                "a.d" + "9" * 99,
            ]
            for name in wrong:
                assert await refusal_code(engine.dispatches.get(name)) == "unknown_dispatch"

    run_async(play())


# Keeping it alive


def test_a_heartbeat_keeps_what_was_claimed(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            (first,) = await begun(engine, 1)
            await engine.agents.register("ada", [ROLE])
            await claimed(engine)
            for _ in range(4):
                await advance_with_ticks(engine, clock, 50)
                beat = await engine.dispatches.heartbeat(first, "ada", 1)
                assert (beat.may_continue, beat.code) == (True, "")
                assert beat.lease_expires_at is not None
                assert (beat.lease_expires_at - clock.now()).total_seconds() == 60
            run_id = first.partition(".")[0]
            assert await events_of(engine, run_id, Lost) == []
            await advance_with_ticks(engine, clock, 70)
            beat = await engine.dispatches.heartbeat(first, "ada", 1)
            assert (beat.may_continue, beat.code) == (False, "late")
            assert "lost" in beat.message

    run_async(play())


def test_a_heartbeat_says_when_to_stop(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            first, second = await begun(engine, 2)
            for name in ("ada", "bob"):
                await engine.agents.register(name, [ROLE])
            await claimed(engine)
            codes = {("bob", 1): "foreign", ("ada", 2): "late", ("nobody", 1): "foreign"}
            for (name, fence), code in codes.items():
                beat = await engine.dispatches.heartbeat(first, name, fence)
                assert (beat.may_continue, beat.code) == (False, code)
            assert (await engine.dispatches.heartbeat(second, "ada", 1)).code == "late"  # on offer
            await engine.agents.register("ada", [ROLE])
            assert (await engine.dispatches.heartbeat(first, "ada", 1)).code == "foreign"
            await engine.run(first.partition(".")[0]).close(by=ANA, reason="enough")
            beat = await engine.dispatches.heartbeat(first, "ada", 1)
            assert (beat.may_continue, beat.code) == (False, "ended")

    run_async(play())


# Results


@pytest.mark.requirement("K21")
def test_a_foreign_late_or_doubled_result_changes_nothing_and_is_kept(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            (first,) = await begun(engine, 1)
            run_id = first.partition(".")[0]
            for name in ("ada", "bob"):
                await engine.agents.register(name, [ROLE])
            unclaimed = engine.dispatches.report_result(first, "ada", 1, DONE)
            assert await refusal_code(unclaimed) == "not_claimed"
            await claimed(engine)
            before = await engine.runs.state(run_id)
            assert (
                await refusal_code(engine.dispatches.report_result(first, "bob", 1, DONE))
                == "foreign"
            )
            assert (
                await refusal_code(engine.dispatches.report_result(first, "ada", 7, DONE))
                == "wrong_fence"
            )
            assert await engine.runs.state(run_id) == before
            taken = await engine.dispatches.report_result(first, "ada", 1, DONE)
            assert (taken.accepted, taken.reason) == (True, "")
            assert (
                await refusal_code(engine.dispatches.report_result(first, "ada", 1, DONE))
                == "ended"
            )
            notes, counted = engine.store.runs.list_notes(run_id)
            codes = ["not_claimed", "foreign", "wrong_fence", "ended"]
            assert ([note.code for note in notes], counted) == (codes, 4)

    run_async(play())


@pytest.mark.requirement("H5.4", "H6.1")
def test_a_refused_move_is_told_at_once_and_with_the_next_turn(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            run = await start_run(engine, TEAM)
            await engine.agents.register("ada", ["p", "q"])
            wrong = Result(outcome=Outcome.HANDOFF, to="nobody", reason="x")
            for n in (1, 2, 3):
                dispatch = await claimed(engine)
                taken = await engine.dispatches.report_result(dispatch.id, "ada", n, wrong)
                assert not taken.accepted
                if n < 3:
                    assert "nobody" in taken.reason
                    assert (await claimed(engine)).last_refusal == taken.reason
            assert taken.run.id == run.id
            assert taken.run.stop is not None
            assert taken.reason == taken.run.stop.reason

    run_async(play())


def test_a_result_after_a_refused_one_is_accepted(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            await start_run(engine, TEAM)
            await engine.agents.register("ada", ["p", "q"])
            wrong = Result(outcome=Outcome.HANDOFF, to="nobody", reason="x")
            right = replace(wrong, to="q")
            assert not (
                await engine.dispatches.report_result((await claimed(engine)).id, "ada", 1, wrong)
            ).accepted
            assert (
                await engine.dispatches.report_result((await claimed(engine)).id, "ada", 2, right)
            ).accepted

    run_async(play())


# Handing back


def test_what_is_handed_back_is_offered_to_somebody_else(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            (first,) = await begun(engine, 1)
            for name in ("ada", "bob"):
                await engine.agents.register(name, [ROLE])
            assert await refusal_code(engine.dispatches.hand_back(first, "ada", 1, "")) == "late"
            await claimed(engine)
            assert await refusal_code(engine.dispatches.hand_back(first, "bob", 1, "")) == "foreign"
            assert await refusal_code(engine.dispatches.hand_back(first, "ada", 2, "")) == "late"
            run = await engine.dispatches.hand_back(first, "ada", 1, "shutting down")
            (lost,) = await events_of(engine, run.id, Lost)
            assert "shutting down" in lost.reason
            assert [e.attempt for e in await events_of(engine, run.id, Offered)] == [1, 2]
            again = await engine.claims.claim("bob")
            assert again is not None
            assert again.id == dispatch_id(run.id, 2)
            assert await refusal_code(engine.dispatches.hand_back(first, "ada", 1, "")) == "late"

    run_async(play())


# Functions


def test_a_function_can_be_added_while_the_database_is_busy(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            await engine.define(ONE)

            @engine.agent(ROLE)
            def fix(dispatch: object) -> Result:
                return DONE

            run = await engine.start("w")
            assert (await run.result(60)).terminal_status == "done_success"
            assert fix is not None

    run_async(play())
