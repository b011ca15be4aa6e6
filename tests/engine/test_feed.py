"""The feed and the audit: everything in the order of commits, nothing missed, nothing twice."""

import asyncio
from contextlib import closing
from pathlib import Path

import pytest
from tests.engine.engines import (
    ANA,
    COMMIT,
    ROLE,
    chain,
    manual_engine,
    node,
    refusal_code,
    register_worker,
    run_async,
)

from handrail.engine.engine import Engine
from handrail.engine.maintenance.retention import archive
from handrail.engine.queries.event_feed import FeedEvent
from handrail.store.record import is_record_stream
from handrail.store.urls import open_maintenance_store
from handrail.testing.clock import ManualClock

pytest_plugins = ["tests.fixtures_postgres"]

ONE = chain(node("a"))
ASKS = chain(node("a"), node("ok", "approval"))


async def read(engine: Engine, after: str = "", limit: int = 3) -> list[FeedEvent]:
    """To the end, in small pages."""
    found: list[FeedEvent] = []
    while page := await engine.feed.read(after, limit):
        found += page
        after = page[-1][0]
    return found


def without_rows(found: list[FeedEvent]) -> list[FeedEvent]:
    """What followers hear: what was put on record of rows is for the audit trail alone."""
    return [one for one in found if not is_record_stream(one[1].get("stream", ""))]


async def work(engine: Engine, runs: int = 3) -> list[str]:
    await engine.define(ASKS)
    agent = await register_worker(engine, ROLE, "engineering-manager")
    begun = await asyncio.gather(*(engine.start("w", filed_by="ola") for _ in range(runs)))
    for _ in begun:
        await agent.work()
    await engine.approvals.answer(f"{begun[0].id}.q1", "ok", by=ANA)
    return [run.id for run in begun]


def test_the_feed_is_every_event_of_every_run_in_order(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            assert await engine.feed.read() == []
            assert await engine.feed.position() == "1-0"
            runs = await work(engine)
            told = await read(engine)
            positions = [tuple(map(int, position.split("-"))) for position, _ in told]
            assert positions == sorted(set(positions))
            for run_id in runs:
                mine = [event for _, event in told if event["execution_id"] == run_id]
                assert mine == await engine.run_queries.events(run_id, limit=500)
            assert await engine.feed.read(await engine.feed.position()) == []

    run_async(play())


def test_whoever_goes_on_from_any_position_sees_the_rest(shared_url: str, clock: ManualClock):
    async def play():
        async with manual_engine(shared_url, clock) as one, manual_engine(shared_url, clock) as two:
            await work(one)
            whole = await read(one, limit=500)
            assert len(whole) > 20
            for n, (position, _) in enumerate(whole):
                engine, limit = ((one, 500), (two, 2))[n % 2]
                assert await read(engine, position, limit) == whole[n + 1 :]
            end = await two.feed.position()
            run = await two.start("w")
            later = await read(one, end)
            assert [event for _, event in later] == await two.run_queries.events(run.id)

    run_async(play())


def test_the_end_of_the_feed_is_where_the_next_commit_begins(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            await work(engine)
            end = await engine.feed.position()
            await asyncio.gather(*(engine.start("w") for _ in range(5)))
            told = await read(engine, end)
            assert [event["type"] for _, event in told].count("started") == 5
            assert told[0][0] == f"{end.partition('-')[0]}-1"

    run_async(play())


def test_locks_have_their_place_in_the_feed(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            await engine.define(chain(node("c", repository="web", **COMMIT)))
            await engine.start("w")
            await engine.tick()
            locks = [event for _, event in await read(engine) if "stream" in event]
            assert [event["type"] for event in locks] == ["LockRequested", "LockGranted"]
            assert {event["stream"] for event in locks} == {"lock:web"}
            assert [event["seq"] for event in locks] == [1, 2]

    run_async(play())


def test_a_position_that_nobody_gave_out_is_refused(file_url: str, clock: ManualClock):
    async def play():
        async with manual_engine(file_url, clock) as engine:
            for wrong in ("x", "1", "1-", "-1", "1-x", "1--1", "1-1-1", "9" * 99 + "-1", "١-١"):
                assert await refusal_code(engine.feed.read(wrong)) == "bad_cursor"
                assert await refusal_code(engine.feed.page(wrong)) == "bad_cursor"
            assert await engine.feed.read("99999-3") == []

    run_async(play())


# Being told


def test_whoever_follows_is_told_at_once(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            await engine.define(ONE)
            end = await engine.feed.position()
            assert not await engine.feed.wait(0.001, end)
            waiting = asyncio.create_task(engine.feed.wait(60, end))
            await asyncio.sleep(0)
            await engine.start("w")
            assert await waiting
            assert await engine.feed.wait(60, end)  # there is more already

    run_async(play())


def test_what_is_committed_between_looking_and_waiting_is_not_missed(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            await work(engine)
            after = (await read(engine))[-1][0]
            await engine.start("w")
            assert await engine.feed.wait(60, after)

    run_async(play())


def test_what_another_engine_commits_is_told_within_a_pulse(shared_url: str, clock: ManualClock):
    async def play():
        async with manual_engine(shared_url, clock) as one, manual_engine(shared_url, clock) as two:
            await one.define(ONE)
            await one.tick()
            end = await one.feed.position()
            waiting = asyncio.create_task(one.feed.wait(60, end))
            await asyncio.sleep(0.01)
            await two.start("w")
            assert not waiting.done()
            await one.tick()
            assert await waiting
            assert await read(one, end)

    run_async(play())


# The audit


def test_the_audit_backwards_is_the_feed(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            await work(engine, 4)
            whole = await read(engine, limit=500)
            for newest_first, limit in ((True, 4), (False, 4), (True, 500), (False, 500)):
                found: list[FeedEvent] = []
                cursor: str | None = ""
                while cursor is not None:
                    page = await engine.feed.page(cursor, limit, newest_first=newest_first)
                    assert len(page.items) <= limit
                    found += page.items
                    cursor = page.next_cursor
                assert without_rows(found) == (whole[::-1] if newest_first else whole)

    run_async(play())


@pytest.mark.requirement("L7.4")
def test_the_audit_of_people_has_their_acts_and_the_ends(
    url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("handrail.engine.queries.event_feed.SCANNED_ENTRIES_MAX", 3)

    async def play():
        async with manual_engine(url, clock) as engine:
            runs = await work(engine)
            await engine.run(runs[1]).close(by=ANA, reason="not now")
            for newest_first in (True, False):
                found: list[FeedEvent] = []
                cursor: str | None = ""
                while cursor is not None:
                    page = await engine.feed.page(cursor, 2, newest_first=newest_first, people=True)
                    found += page.items
                    cursor = page.next_cursor
                kinds = sorted(event["type"] for _, event in found)
                assert kinds == ["answered", "ended", "ended", *["moved"], *["started"] * 3]
                positions = [tuple(map(int, position.split("-"))) for position, _ in found]
                assert positions == sorted(positions, reverse=newest_first)
            closed = next(event for _, event in found if event.get("by") == "ana")
            assert closed["actor"] == "ana"

    run_async(play())


def test_what_was_archived_leaves_a_gap_that_is_passed_over(file_url: str, clock: ManualClock):
    file = Path(file_url.removeprefix("sqlite:///")).with_name("old.jsonl")

    async def play():
        async with manual_engine(file_url, clock) as engine:
            await engine.define(ONE)
            begun = await asyncio.gather(*(engine.start("w") for _ in range(6)))  # in one commit
            ids = [run.id for run in begun]
            for run_id in ids[:5]:
                await engine.run(run_id).close(by=ANA, reason="enough")
            whole = await read(engine)
            kept = [told for told in whole if told[1]["execution_id"] == ids[5]]
            clock.advance(60)
            with closing(open_maintenance_store(file_url)) as records:
                assert archive(records, file, by="root", now=clock.now()).runs == 5
            after = await read(engine, limit=2)
            assert [told for told in after if told[0] in dict(whole)] == kept
            gone = after[len(kept) :]
            assert [event["type"] for _, event in gone] == ["archived"] * 5
            assert {event["actor"] for _, event in gone} == {"root"}
            assert {event["execution_id"] for _, event in gone} == set(ids[:5])
            found: list[FeedEvent] = []
            cursor: str | None = ""
            while cursor is not None:
                page = await engine.feed.page(cursor, 2)
                found += page.items
                cursor = page.next_cursor
            assert without_rows(found) == after[::-1]

    run_async(play())
