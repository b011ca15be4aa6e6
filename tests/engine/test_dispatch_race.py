"""A free seat asks the database for work just while a commit is on its way there: whatever the
order in which the two arrive, the work is found. Nothing here happens by a clock: what is missed
stays missed."""

import asyncio
from collections.abc import Sequence
from threading import Event

import pytest
from tests.engine.engines import DONE, ROLE, chain, manual_engine, node, run_async, start_run

from handrail.engine.commit.run_change import RunChange
from handrail.store.rows import CommitRow, DispatchRow, StreamWrite
from handrail.testing.clock import ManualClock

pytest_plugins = ["tests.fixtures_postgres"]
ONE = chain(node("a"))

CommitResult = tuple[CommitRow | None, list[bool]]


def test_what_lands_while_a_seat_asks_is_found(
    postgres_url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    """The answer is of before the commit, and arrives after it."""
    coming, may_come, landed = Event(), Event(), Event()

    async def play():
        async with manual_engine(postgres_url, clock) as engine:
            commit, reserve, heard = (
                engine.store.commit,
                engine.store.dispatches.reserve,
                engine._notifier.run_changed,
            )

            def late_commit(writes: Sequence[StreamWrite], at: str) -> CommitResult:
                coming.set()
                may_come.wait()
                return commit(writes, at)

            def early_reserve(role: str, limit: int) -> list[DispatchRow]:
                found = reserve(role, limit)
                may_come.set()
                landed.wait()
                return found

            def hear(change: RunChange) -> None:
                heard(change)
                landed.set()

            monkeypatch.setattr(engine.store, "commit", late_commit)
            monkeypatch.setattr(engine.store.dispatches, "reserve", early_reserve)
            monkeypatch.setattr(engine._notifier, "run_changed", hear)
            run = asyncio.create_task(start_run(engine, ONE))
            await asyncio.to_thread(coming.wait)
            await engine.add_agent(lambda d: DONE, ROLE)
            assert (await (await run).result()).terminal_status == "done_success"

    run_async(play())


def test_what_a_seat_finds_before_its_commit_has_landed_is_found_again(
    postgres_url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    """On disk, and reserved, but this engine does not know yet that it was committed."""
    written, seen = Event(), Event()

    async def play():
        async with manual_engine(postgres_url, clock) as engine:
            commit, reserve = engine.store.commit, engine.store.dispatches.reserve
            loop = asyncio.get_running_loop()

            def slow_commit(writes: Sequence[StreamWrite], at: str) -> CommitResult:
                done = commit(writes, at)
                written.set()
                seen.wait()
                return done

            def in_turns(count: int) -> None:
                """Once the keeper has had the answer in hand for a while."""
                if count:
                    loop.call_soon(in_turns, count - 1)
                else:
                    seen.set()

            def eager_reserve(role: str, limit: int) -> list[DispatchRow]:
                found = reserve(role, limit)
                loop.call_soon_threadsafe(in_turns, 100)
                return found

            monkeypatch.setattr(engine.store, "commit", slow_commit)
            monkeypatch.setattr(engine.store.dispatches, "reserve", eager_reserve)
            run = asyncio.create_task(start_run(engine, ONE))
            await asyncio.to_thread(written.wait)
            await engine.add_agent(lambda d: DONE, ROLE)
            assert (await (await run).result()).terminal_status == "done_success"

    run_async(play())
