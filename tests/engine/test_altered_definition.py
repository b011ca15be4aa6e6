"""A definition altered behind Handrail's back decides nothing, and every run still ends."""

import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from tests.engine.engines import (
    ANA,
    ROLE,
    chain,
    manual_engine,
    node,
    refusal_code,
    register_worker,
    run_async,
)

from handrail.engine.audit.verification import verify
from handrail.engine.engine import Engine
from handrail.kernel.definition.model import Settings
from handrail.kernel.stop.rules import StopRule
from handrail.store.urls import open_maintenance_store
from handrail.testing.clock import ManualClock

pytestmark = pytest.mark.requirement("L16")

ASKS = {**chain(node("a"), node("ok", "approval"), node("b")), "name": "asks"}
UNASKED = {**chain(node("a"), node("b")), "name": "asks"}
PAUSE = Settings().pause_deadline


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'work.db'}"


def alter(url: str, text: str | None) -> None:
    """Take the approval away, make the definition unreadable, or remove it."""
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as db:
        if text is None:
            db.execute("DELETE FROM workflow_versions")
        else:
            db.execute("UPDATE workflow_versions SET definition = ?", (text,))
            db.execute("UPDATE workflows SET definition = ?", (text,))


ALTERATIONS = [
    pytest.param(msgspec.json.encode(UNASKED).decode(), id="without its approval"),
    pytest.param("{}", id="unusable"),
    pytest.param(None, id="removed"),
]


async def begin(url: str, clock: ManualClock) -> str:
    async with manual_engine(url, clock) as engine:
        await engine.define(ASKS, by="ana")
        return (await engine.start("asks", bead_id="b1", filed_by="ola")).id


@pytest.mark.parametrize("text", ALTERATIONS)
def test_an_altered_definition_stops_agents_and_a_person_closes_the_run(
    url: str, clock: ManualClock, text: str | None
):
    run_id = run_async(begin(url, clock))
    alter(url, text)

    async def play() -> None:
        async with manual_engine(url, clock) as engine:
            worker = await register_worker(engine, ROLE)
            assert await worker.claim() is None
            run = await engine.runs.state(run_id)
            assert run.status == "paused"
            for attempt in (
                engine.run(run_id).resume(by=ANA, reason="go on"),
                engine.run(run_id).move("b", by=ANA, reason="skip"),
            ):
                assert await refusal_code(attempt) == "definition_changed"
            await engine.run_queries.details(run_id)
            await engine.run_queries.why(run_id)
            closed = await engine.run(run_id).close(by=ANA, reason="it was altered")
            assert closed.terminal_status == "closed_by_human"

    run_async(play())


@pytest.mark.parametrize("text", ALTERATIONS)
def test_a_run_of_an_altered_definition_ends_by_itself(
    url: str, clock: ManualClock, text: str | None
):
    run_id = run_async(begin(url, clock))
    alter(url, text)

    async def play() -> None:
        async with manual_engine(url, clock) as engine:
            await engine.tick()
            clock.advance(days=8)
            await engine.tick()
            run = await engine.runs.state(run_id)
            assert run.status == "paused"
            assert run.pause_deadline == clock.now() + timedelta(seconds=PAUSE)
            clock.advance(PAUSE)
            await engine.tick()
            run = await engine.runs.state(run_id)
            assert run.stop is not None
            assert run.stop.rule is StopRule.PAUSE_DEADLINE

    run_async(play())


def test_a_restored_definition_goes_on(url: str, clock: ManualClock):
    run_id = run_async(begin(url, clock))
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as db:
        ((before,),) = db.execute("SELECT definition FROM workflow_versions").fetchall()
    alter(url, "{}")

    async def hold() -> None:
        async with manual_engine(url, clock) as engine:
            code = await refusal_code(engine.run(run_id).resume(by=ANA, reason="go on"))
            assert code == "definition_changed"

    async def go_on() -> None:
        async with manual_engine(url, clock) as engine:
            await engine.run(run_id).resume(by=ANA, reason="restored")
            worker = await register_worker(engine, ROLE)
            run = await worker.work()
            assert list(run.pending_approvals)

    run_async(hold())
    alter(url, before)
    run_async(go_on())
    with closing(open_maintenance_store(url, read_only=True)) as store:
        assert verify(store).unaltered


def test_nothing_begins_under_an_altered_definition(url: str, clock: ManualClock):
    run_async(begin(url, clock))
    alter(url, msgspec.json.encode(UNASKED).decode())

    async def play(engine: Engine) -> None:
        assert await refusal_code(engine.start("asks")) == "definition_changed"
        await engine.define({**ASKS, "metadata": {"again": True}}, by="ana")
        await engine.start("asks")

    async def opened() -> None:
        async with manual_engine(url, clock) as engine:
            await play(engine)

    run_async(opened())
