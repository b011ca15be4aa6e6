"""Handrail inside somebody's program: with an event loop or without, with agents of any kind."""

import asyncio
import contextlib
import functools
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.engine.engines import (
    ANA,
    DONE,
    ROLE,
    chain,
    events_of,
    manual_engine,
    node,
    run_async,
    start_run,
    wait_until_async,
    wait_until_idle,
)

from handrail.engine import opening
from handrail.engine.dispatch.dispatch import Dispatch
from handrail.engine.engine import RefusedError
from handrail.kernel.result import Evidence, Outcome, Result, Usage
from handrail.kernel.run.events import Faulted, Lost, Reported
from handrail.store.rows import StoreError
from handrail.testing.clock import ManualClock

pytest_plugins = ["tests.fixtures_postgres"]

FIX = {
    "name": "fix",
    "kind": "workflow",
    "nodes": [
        {"id": "start", "type": "start"},
        {"id": "fix", "type": "task", "role": "backend-engineer"},
        {"id": "sign", "type": "approval", "role": "ceo"},
        {"id": "end", "type": "end"},
    ],
    "edges": [
        {"from_node_id": "start", "to_node_id": "fix"},
        {"from_node_id": "fix", "to_node_id": "sign"},
        {"from_node_id": "sign", "to_node_id": "end"},
    ],
}


# As in the README


def test_embedded_in_a_program_with_an_event_loop(url: str):
    async def main():
        async with opening.open(url) as engine:

            @engine.agent("backend-engineer")
            async def fix(dispatch: Dispatch) -> Result:
                return Result(outcome=Outcome.SUCCESS, text=f"fixed {dispatch.bead.title}")

            defined = await engine.define(FIX, by="ana")
            assert defined.bound.dispatches == 3
            run = await engine.start("fix", title="500 on /invoices", filed_by="ola")
            seen = [type(event).__name__ async for _, event in run.events(follow=False)]
            assert seen[0] == "Started"
            (question,) = await run.questions(60)
            await run.answer(question.id, "lgtm", by="ana")
            ended = await run.result(60)
            assert ended.terminal_status == "done_success"
            report = await run.report()
            assert report.terminal_status == "done_success"

    run_async(main())


def test_embedded_in_a_program_without_an_event_loop(url: str):
    with opening.open(url) as engine:

        @engine.agent("backend-engineer")
        def fix(dispatch: Dispatch) -> Result:
            assert threading.current_thread() is not threading.main_thread()
            return Result(outcome=Outcome.SUCCESS, text=f"fixed {dispatch.bead.title}")

        engine.define(FIX)
        run = engine.start("fix", title="500 on /invoices")
        (question,) = run.questions(60)
        assert question.kind == "approval"
        assert not run.state().has_ended
        with pytest.raises(TimeoutError):
            run.result(0.01)
        with pytest.raises(RefusedError, match="neither a clear approval"):
            run.answer(question.id, "hm", by="ana")
        assert run.answer(question.id, "ok", by="ana").has_ended
        assert run.result(60).terminal_status == "done_success"
        names = [type(event).__name__ for _, event in run.events()]
        assert (names[0], names[-1]) == ("Started", "Ended")
        assert [seq for seq, _ in run.events(after=len(names) - 1)] == [len(names)]
        assert run.report().terminal_status == "done_success"
        same = engine.run(run.id)
        assert same.state() == run.state()
        with pytest.raises(RefusedError, match="there is no definition"):
            engine.start("nothing")
        (row,) = engine.engine.store.runs.list_by_id()
        assert row.id == run.id
    with pytest.raises(StoreError, match="closed"):
        run.state()
    with pytest.raises(StoreError, match="closed"):
        engine.start("fix")


def test_events_are_followed_while_they_happen_without_a_loop(file_url: str):
    with opening.open(file_url) as engine:
        gate = threading.Event()

        @engine.agent("backend-engineer")
        def fix(dispatch: Dispatch) -> Result:
            assert gate.wait(60)
            return DONE

        engine.define(FIX)
        run = engine.start("fix")
        names: list[str] = []
        for _, event in run.events():
            names.append(type(event).__name__)
            if names[-1] == "Claimed":
                gate.set()
            if names[-1] == "Asked":
                (question,) = run.questions()
                run.answer(question.id, "ok", by="ana")
        assert names[-1] == "Ended"


def test_an_async_agent_that_waits_for_its_own_engine_is_told_not_to(file_url: str):
    with opening.open(file_url) as engine:

        @engine.agent("backend-engineer")
        async def fix(dispatch: Dispatch) -> Result:
            engine.start("fix")
            return DONE

        engine.define(FIX)
        (question,) = engine.start("fix").questions(60)
        assert "would never return" in question.text


def test_a_program_that_raises_leaves_the_database_in_order(file_url: str, clock: ManualClock):
    run_id = ""
    with pytest.raises(ZeroDivisionError), opening.open(file_url) as engine:
        engine.define(FIX)
        run_id = engine.start("fix").id
        raise ZeroDivisionError
    with opening.open(file_url) as engine:
        assert engine.run(run_id).state().status == "running"


def test_an_engine_that_cannot_be_opened_says_why_in_one_line(tmp_path: Any):
    for url in (f"sqlite:///{tmp_path}/no/such/folder.db", "mysql://x", f"sqlite:///{tmp_path}"):
        with pytest.raises(StoreError) as failed, opening.open(url):
            pass
        assert "\n" not in str(failed.value)


# Agents of any kind


class Callable_:  # noqa: N801 - an object that can be called
    async def __call__(self, dispatch: Dispatch) -> Result:
        return DONE


async def _adds(text: str, dispatch: Dispatch) -> Result:
    return Result(outcome=Outcome.SUCCESS, text=text)


@pytest.mark.parametrize(
    "agent",
    [
        lambda dispatch: DONE,
        lambda dispatch: {"outcome": "success", "text": "as a wire has it"},
        Callable_(),
        functools.partial(_adds, "x"),
    ],
)
def test_whatever_can_be_called_works(agent: Callable[[Dispatch], object], clock: ManualClock):
    async def play():
        async with manual_engine("sqlite://", clock) as engine:
            run = await start_run(engine, chain(node("a")))
            engine.add_agent(agent, ROLE)
            assert (await run.result(60)).terminal_status == "done_success"

    run_async(play())


async def _cancels_itself(dispatch: Dispatch) -> Result:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)
    return DONE


async def _raises_cancelled(dispatch: Dispatch) -> Result:
    raise asyncio.CancelledError


async def _exits(dispatch: Dispatch) -> Result:
    raise SystemExit(3)


def _exits_too(dispatch: Dispatch) -> Result:
    raise SystemExit(3)


def _forgets_to_await(dispatch: Dispatch) -> object:
    return _adds("x", dispatch)


class UntoldError(Exception):
    def __str__(self) -> str:
        raise ValueError


def _raises_something_untold(dispatch: Dispatch) -> Result:
    raise UntoldError


def _returns(value: object) -> Callable[[Dispatch], object]:
    return lambda dispatch: value


def _with(**data: Any) -> Callable[[Dispatch], object]:
    return _returns(Result(outcome=Outcome.SUCCESS, data=data))


LOOP: dict[str, Any] = {}
LOOP["self"] = LOOP
NAN = float("nan")


@pytest.mark.requirement("K1", "H6.1")
@pytest.mark.parametrize(
    ("agent", "told"),
    [
        (_returns(None), "NoneType"),
        (_returns(7), "int"),
        (_returns([1]), "list"),
        (_returns("text that says neither"), "neither success nor failure"),
        (_returns({"outcome": "perhaps"}), "cannot be encoded"),
        (_returns({"outcome": "success", "text": 7}), "cannot be encoded"),
        (_returns(Result()), "neither success nor failure"),
        (_returns(Result(outcome=Outcome.CONTINUE)), "takes one dispatch"),
        (_returns(Result(outcome=Outcome.SUCCESS, usage=Usage(cost=NAN))), "cannot be encoded"),
        (_returns(Result(outcome=Outcome.SUCCESS, usage=Usage(tokens=-1))), "cannot be encoded"),
        (_returns(Result(outcome=Outcome.SUCCESS, text="x" * 11_000_000)), "larger than"),
        (_returns(Result(outcome=Outcome.SUCCESS, text="\ud800")), "cannot be encoded"),
        (_returns(Result(outcome=Outcome.SUCCESS, evidence=Evidence(score=NAN))), ""),
        (_with(x=object()), "cannot be encoded"),
        (_with(x=NAN), "cannot be encoded"),
        (_with(x="\udfff"), "cannot be encoded"),
        (_with(loop=LOOP), "cannot be encoded"),
        (
            _with(deep=functools.reduce(lambda inner, _: [inner], range(500), 0)),
            "cannot be encoded",
        ),
        (_forgets_to_await, "coroutine"),
        (_cancels_itself, "cancelled itself"),
        (_raises_cancelled, "cancelled itself"),
        (_exits, "SystemExit: 3"),
        (_exits_too, "SystemExit: 3"),
        (_raises_something_untold, "UntoldError"),
    ],
)
def test_what_is_no_result_costs_the_attempt_and_never_the_engine(
    agent: Callable[[Dispatch], object], told: str, clock: ManualClock
):
    async def play():
        async with manual_engine("sqlite://", clock) as engine:
            run = await start_run(engine, chain(node("a", max_attempts=2)))
            engine.add_agent(agent, ROLE, capacity=1)
            if told == "":  # a score of NaN is on the wire no score
                assert (await run.result(60)).has_ended
                return
            (question,) = await run.questions(60)
            assert question.kind == "escalation"
            events = await engine.runs.history(run.id)
            faults = [e.message for e in events if isinstance(e, Faulted)]
            faults += [e.reason for e in events if isinstance(e, Lost)]
            assert len(faults) == 2
            assert all(told in fault for fault in faults), faults
            assert engine.failure is None
            await wait_until_idle(engine)
            assert [seat.free_capacity for seat in engine.matcher.free_slots(ROLE)] == [1]

    run_async(play())


@pytest.mark.requirement("K21", "H5.5")
def test_a_function_on_a_thread_that_comes_back_too_late_changes_nothing(clock: ManualClock):
    gate, back = threading.Event(), threading.Event()

    def slow(dispatch: Dispatch) -> Result:
        assert gate.wait(60)
        back.set()
        return DONE

    async def play():
        async with manual_engine("sqlite://", clock) as engine:
            run = await start_run(engine, chain(node("a")))
            engine.add_agent(slow, ROLE)
            await wait_until_async(lambda: engine.local_executor.active_count == 1)
            ended = await run.close(by=ANA, reason="enough")
            gate.set()
            await wait_until_async(back.is_set)
            await wait_until_idle(engine)
            assert (await run.state()).seq == ended.seq

    run_async(play())


@pytest.mark.requirement("K21")
def test_a_function_that_does_not_stop_when_told_leaves_a_note(clock: ManualClock):
    async def play():
        async with manual_engine("sqlite://", clock) as engine:
            begun = asyncio.Event()

            async def stubborn(dispatch: Dispatch) -> Result:
                begun.set()
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.Event().wait()
                return DONE

            run = await start_run(engine, chain(node("a")))
            engine.add_agent(stubborn, ROLE)
            await begun.wait()
            await run.close(by=ANA, reason="enough")
            await wait_until_idle(engine)
            assert await events_of(engine, run.id, Reported) == []
            notes, count = engine.store.runs.list_notes(run.id)
            assert ([note.code for note in notes], count) == (["ended"], 1)

    run_async(play())


def test_a_function_that_never_stops_does_not_keep_an_engine_from_closing(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("handrail.engine.dispatch.local_agents.STOP_SECONDS", 0.05)
    gate = asyncio.Event()

    async def never(dispatch: Dispatch) -> Result:
        while not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:
                continue
        return DONE

    async def play():
        async with manual_engine("sqlite://", clock) as engine:
            await start_run(engine, chain(node("a")))
            engine.add_agent(never, ROLE)
            await wait_until_async(lambda: engine.local_executor.active_count == 1)
        gate.set()
        await wait_until_async(lambda: not engine.local_executor.active_count)

    run_async(play())


@pytest.mark.requirement("S6")
def test_only_trusted_functions_measure(clock: ManualClock):
    claimed = Result(outcome=Outcome.SUCCESS, evidence=Evidence(ticket_state="x", measured=True))

    async def play():
        for trusted in (False, True):
            async with manual_engine("sqlite://", clock) as engine:
                run = await start_run(engine, chain(node("a")))
                engine.add_agent(lambda d: claimed, ROLE, trusted=trusted)
                await run.result(60)
                (reported,) = await events_of(engine, run.id, Reported)
                assert reported.result.evidence.measured is trusted

    run_async(play())
