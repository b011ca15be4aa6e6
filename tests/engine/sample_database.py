"""A database in which something of every kind has happened, made by the engine itself.

Runs: ended, revised and ended, closed by a person, expired, waiting, paused; claimed and on offer,
which began in one commit; two at a commit node, one of which has the lock and the other
waits for it; a late result as a note.
"""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

from tests.engine.engines import (
    ANA,
    PATIENCE,
    ROLE,
    Worker,
    chain,
    manual_engine,
    node,
    refusal_code,
    register_worker,
    start_run,
)

from handrail.engine.dispatch.dispatch import Dispatch
from handrail.kernel.result import Outcome, Result
from handrail.kernel.run import commands as c
from handrail.store.maintenance import MaintenanceStore
from handrail.store.urls import open_maintenance_store
from handrail.testing.clock import ManualClock

ASKS = {
    **chain(node("a"), node("ok", "approval", revise_to="a", deadline="1d")),
    "name": "asks",
}
WORKS = {**chain(node("a"), node("b")), "name": "works"}
COMMITS = {
    **chain(node("c", role="engineering-manager", kind="commit", repository="shop")),
    "name": "commits",
}


async def fill_database(url: str, clock: ManualClock) -> dict[str, str]:
    """Name -> id of every run."""
    runs: dict[str, str] = {}
    async with manual_engine(url, clock) as engine:
        coder = await register_worker(engine, ROLE, name="coder", capacity=100)

        async def get(who: Worker) -> Dispatch:
            dispatch = await engine.claims.claim(who.name, wait=PATIENCE)
            assert dispatch is not None, "there is something to do"
            return dispatch

        async def asked(name: str) -> str:
            runs[name] = (await start_run(engine, ASKS, title=name, bead_id=f"b-{name}")).id
            result = Result(outcome=Outcome.SUCCESS, text=f"é {name}", data={"n": 1.5})
            await coder.report(await get(coder), result)
            return f"{runs[name]}.q1"

        await asked("expired")
        clock.advance(days=2)
        await engine.tick()
        done = await asked("ended")
        await engine.approvals.answer(done, "ok", by=ANA)
        again = await asked("revised")
        await engine.approvals.answer(again, "not so", by=ANA, decision="revise")
        dispatch = await get(coder)
        await coder.report(dispatch)
        await refusal_code(coder.report(dispatch))  # a note
        await engine.approvals.answer(f"{runs['revised']}.q2", "yes", by=ANA)
        await asked("waiting")
        await asked("closed")
        await engine.runs.command(runs["closed"], c.Close(by=ANA, reason="not needed"))
        await asked("paused")
        await engine.runs.command(runs["paused"], c.Pause(by=ANA, reason="lunch"))
        await engine.define(WORKS)
        both = (engine.start("works", title=name) for name in ("claimed", "offered"))
        runs["claimed"], runs["offered"] = (run.id for run in await asyncio.gather(*both))
        await get(coder)
        manager = await register_worker(engine, "engineering-manager", name="manager", capacity=100)
        for name in ("holder", "queued"):
            runs[name] = (await start_run(engine, COMMITS, title=name)).id
            await engine.tick()
        await get(manager)
        clock.advance(1)
        await engine.tick()
    return runs


class SampleDatabase:
    """A copy to tamper with."""

    def __init__(self, path: Path, runs: dict[str, str]) -> None:
        self.path, self.runs = path, runs
        self.url = f"sqlite:///{path}"

    def sql(self, statement: str, *values: object) -> list[tuple]:
        """As whoever has the file can do it: no constraint holds."""
        with closing(sqlite3.connect(self.path, isolation_level=None)) as db:
            db.execute("PRAGMA ignore_check_constraints = ON")
            return db.execute(statement, values).fetchall()

    def records(self, *, read_only: bool = True) -> MaintenanceStore:
        return open_maintenance_store(self.url, read_only=read_only)

    def without_constraints(self, table: str) -> None:
        """The same rows in a table without keys, checks and unique indexes."""
        for statement in (
            f"CREATE TABLE loose AS SELECT * FROM {table}",
            f"DROP TABLE {table}",
            f"ALTER TABLE loose RENAME TO {table}",
        ):
            self.sql(statement)
