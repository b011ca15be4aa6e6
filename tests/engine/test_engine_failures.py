"""When something goes wrong: nobody is left waiting, and nobody else suffers."""

import asyncio
import threading
from typing import Any

import pytest
from tests.engine.engines import (
    ANA,
    DONE,
    PATIENCE,
    ROLE,
    chain,
    check_stored,
    manual_engine,
    node,
    refusal_code,
    run_async,
    start_run,
)
from tests.patience import wait_until_async

from handrail.engine.commit import committer, run_change
from handrail.kernel.run import commands as c
from handrail.store.rows import StoreError
from handrail.store.store import Store
from handrail.testing.clock import ManualClock

pytest_plugins = ["tests.fixtures_postgres"]

ASKS = chain(node("a"), node("ok", "approval"))
TWO = chain(node("a"), node("b", role="qa-engineer"))


def test_what_was_not_answered_has_not_happened(file_url: str, clock: ManualClock):
    async def play(monkeypatch: pytest.MonkeyPatch):
        async with manual_engine(file_url, clock) as engine:
            run = await start_run(engine, ASKS)
            commit = engine.store.commit

            def full(*_: object):
                raise StoreError("the disk is full")

            monkeypatch.setattr(engine.store, "commit", full)
            with pytest.raises(StoreError, match="disk is full"):
                await run.close(by=ANA, reason="enough")
            with pytest.raises(StoreError, match="disk is full"):
                await engine.start("w")
            monkeypatch.setattr(engine.store, "commit", commit)
            assert not (await run.state()).has_ended
            assert len(engine.store.runs.list_by_id()) == 1
            assert (await run.close(by=ANA, reason="enough")).has_ended
            await check_stored(engine, run.id)

    with pytest.MonkeyPatch.context() as patch:
        run_async(play(patch))


@pytest.mark.requirement("L8.6")
def test_one_poisonous_run_stops_nobody_else(
    url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    async def play():
        async with manual_engine(url, clock) as engine:
            bad, good = await start_run(engine, ASKS), await start_run(engine, ASKS)
            real = run_change.decide_and_apply

            def step(plan: Any, run: Any, command: Any, now: Any):
                if run is not None and run.id == bad.id:
                    raise ZeroDivisionError("a bug in the kernel")
                return real(plan, run, command, now)

            monkeypatch.setattr(run_change, "decide_and_apply", step)
            with pytest.raises(ZeroDivisionError):
                await bad.close(by=ANA, reason="x")
            engine.add_agent(lambda d: DONE, ROLE)
            (question,) = await good.questions(60)
            await engine.tick()
            clock.advance(days=2)  # clocks of both are due
            await engine.tick()
            assert (await good.answer(question.id, "ok", by=ANA)).has_ended
            monkeypatch.setattr(run_change, "decide_and_apply", real)
            clock.advance(1)
            await engine.tick()
            assert engine.failure is None
            assert (await bad.state()).seq > 3
            await check_stored(engine, bad.id)

    run_async(play())


def test_a_command_to_a_run_that_does_not_exist_is_refused(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            assert (
                await refusal_code(engine.run("nobody").close(by=ANA, reason="x")) == "unknown_run"
            )
            assert await refusal_code(engine.runs.state("nobody")) == "unknown_run"
            assert await refusal_code(engine.start("nothing")) == "unknown_definition"
            assert (
                await refusal_code(engine.approvals.answer("nobody.q1", "ok", by=ANA))
                == "unknown_run"
            )

    run_async(play())


def test_more_commands_than_the_engine_holds_are_refused_and_the_rest_goes_on(
    url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    async def play():
        async with manual_engine(url, clock) as engine:
            run = await start_run(engine, ASKS)
            monkeypatch.setattr(committer, "QUEUED_COMMANDS_MAX", 5)
            patches = [
                engine.runs.command(run.id, c.Patch(by=ANA, patch={"k": i})) for i in range(9)
            ]
            done = await asyncio.gather(*patches, return_exceptions=True)
            assert sum(isinstance(one, committer.EngineBusyError) for one in done) == 4
            assert (await run.close(by=ANA, reason="x")).has_ended

    run_async(play())


def test_an_engine_that_is_full_still_takes_the_results_of_its_agents(
    file_url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    async def play():
        async with manual_engine(file_url, clock) as engine:
            await engine.define(ASKS)
            monkeypatch.setattr(committer, "QUEUED_COMMANDS_MAX", 1)
            engine.add_agent(lambda d: None, ROLE)  # what is malformed goes in twice
            run = await engine.start("w")
            (question,) = await run.questions(60)
            assert question.kind == "escalation"
            assert engine.failure is None

    run_async(play())


def _raises(*_: object):
    raise RuntimeError("nobody expected this")


@pytest.mark.parametrize("where", ["commit", "runs.load", "dispatches.reserve"])
def test_a_loop_that_fails_makes_the_engine_fail_loudly(
    file_url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, where: str
):
    async def play():
        with pytest.raises(RuntimeError, match="nobody expected"):
            async with manual_engine(file_url, clock) as engine:
                run = await start_run(engine, ASKS)
                waits = [asyncio.create_task(one) for one in (run.result(), run.questions())]
                await asyncio.sleep(0)
                subject, _, name = where.rpartition(".")
                owner = getattr(engine.store, subject) if subject else engine.store
                monkeypatch.setattr(owner, name, _raises)
                engine.add_agent(lambda d: DONE, ROLE)
                with pytest.raises(StoreError, match="failed"):
                    # in hand when it fails: told, not left waiting
                    await engine.run("another").close(by=ANA, reason="x")
                for wait in waits:
                    with pytest.raises(StoreError, match="the engine has failed: nobody expected"):
                        await wait
                assert isinstance(await engine.wait_closed(), RuntimeError)
                for late in (engine.start("w"), engine.tick()):
                    with pytest.raises(StoreError, match="the engine has failed"):
                        await late

    run_async(play())


def test_a_database_that_is_away_is_asked_again_but_not_all_the_time(
    file_url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    async def play():
        async with manual_engine(file_url, clock) as engine:
            run = await start_run(engine, ASKS)
            asked: list[object] = []
            reserve = engine.store.dispatches.reserve

            def away(*values: object):
                asked.append(values)
                raise StoreError("away")

            monkeypatch.setattr(engine.store.dispatches, "reserve", away)
            engine.add_agent(lambda d: DONE, ROLE)
            await wait_until_async(lambda: asked)
            await asyncio.sleep(0.3)
            assert len(asked) < 30
            monkeypatch.setattr(engine.store.dispatches, "reserve", reserve)
            assert len(await run.questions(60)) == 1

    run_async(play())


def test_a_connection_that_is_made_while_the_engine_closes_is_closed_too(
    postgres_url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    made: list[Store] = []
    asked, closes = threading.Event(), threading.Event()

    async def play():
        async with manual_engine(postgres_url, clock) as engine:
            reader, close = engine.store.open_reader, engine._access.close_threads

            def late() -> Store:
                asked.set()
                assert closes.wait(PATIENCE)
                made.append(reader())
                return made[0]

            def closing() -> None:
                closes.set()
                close()

            monkeypatch.setattr(engine.store, "open_reader", late)
            monkeypatch.setattr(engine._access, "close_threads", closing)
            asking = asyncio.create_task(engine.locks.list())
            await asyncio.to_thread(asked.wait, PATIENCE)
            asking.cancel()  # its thread goes on

    run_async(play())
    with pytest.raises(StoreError, match="closed"):
        made[0].locks.list(after="", limit=1)
