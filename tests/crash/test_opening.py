"""The edges of an engine's life: what is begun while it closes, and who is taken for dead while two
open at the same time."""

import asyncio
import threading
from pathlib import Path

import pytest
from tests.crash.load import _task, _workflow
from tests.patience import wait_until_async

from handrail.engine import opening
from handrail.engine.engine import Engine
from handrail.kernel.result import Outcome, Result
from handrail.store.rows import DispatchRow, StoreError
from handrail.store.sqlite.connection import SqliteDatabase
from handrail.store.sqlite.store import SqliteStore

SECONDS = 60
ONE = _workflow("one", [_task("work", "left", 2)], "start>work", "work>end")
DONE = Result(outcome=Outcome.SUCCESS)


async def _waiting(engine: Engine, runs: int) -> None:
    """So many runs, of which an agent with room for two takes two."""
    await engine.define(ONE)
    for number in range(runs):
        await engine.start("one", title=str(number))


@pytest.mark.parametrize("asynchronous", [True, False], ids=["on the loop", "on threads"])
def test_an_engine_that_closes_begins_nothing_new(tmp_path: Path, asynchronous: bool):
    begun: list[int] = []
    stop = threading.Event()

    async def waits(dispatch: object) -> Result:
        begun.append(1)
        await asyncio.sleep(SECONDS)
        return DONE

    def blocks(dispatch: object) -> Result:
        begun.append(1)
        stop.wait(SECONDS)
        return DONE

    async def play() -> None:
        async with asyncio.timeout(SECONDS), opening.open(f"sqlite:///{tmp_path}/a.db") as engine:
            engine.add_agent(waits if asynchronous else blocks, "left", capacity=2)
            await _waiting(engine, 10)
            await wait_until_async(lambda: len(begun) >= 2)

    asyncio.run(play())
    stop.set()
    assert len(begun) == 2
    store = SqliteStore(f"{tmp_path}/a.db")
    rows = [row for run in store.runs.list_by_id() for row in store.dispatches.list(run.id)]
    store.close()
    assert len(rows) == 10
    assert sum(row.agent is not None for row in rows) == 2, "nobody else lost an attempt"


def test_an_engine_closes_although_its_database_is_away(tmp_path: Path):
    def away(role: str, limit: int) -> list[DispatchRow]:
        raise StoreError("the database is away; start it")

    async def play() -> None:
        async with asyncio.timeout(SECONDS), opening.open(f"sqlite:///{tmp_path}/a.db") as engine:
            engine.add_agent(lambda dispatch: DONE, "left")
            engine.store.dispatches.reserve = away
            engine.matcher.recheck_all()
            engine.committer.wake()
            await asyncio.sleep(0.01)

    asyncio.run(play())


def test_two_engines_that_open_at_the_same_time_both_live(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The first finds itself alone; before it has forgotten the dead, the second is there."""
    url = f"sqlite:///{tmp_path}/a.db"
    ready, over = threading.Event(), threading.Event()

    async def second() -> None:
        async with opening.open(url, background=False) as engine:
            engine.add_agent(lambda dispatch: DONE, "left", name="second")
            ready.set()
            await asyncio.to_thread(over.wait, SECONDS)

    thread = threading.Thread(target=lambda: asyncio.run(second()))
    first_asked = SqliteDatabase.find_dead_engines

    def left_behind(store: SqliteDatabase) -> list[str] | None:
        if thread.ident is not None:
            return first_asked(store)
        found = first_asked(store)
        thread.start()
        ready.wait(1)  # it may have to wait for us, which is just as well
        return found

    monkeypatch.setattr(SqliteDatabase, "find_dead_engines", left_behind)

    async def first() -> list[str]:
        async with opening.open(url, background=False) as engine:
            await asyncio.to_thread(ready.wait, SECONDS)
            return [agent.id for agent in engine.store.agents.list()]

    try:
        agents = asyncio.run(first())
    finally:
        over.set()
        thread.join()
    assert [name for name in agents if name.startswith("second@")], "it is alive, and not known"
