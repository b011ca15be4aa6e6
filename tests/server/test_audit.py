"""Who did what, and whether the record is unaltered."""

import asyncio
import sqlite3
from contextlib import closing
from threading import Event
from typing import Any

import pytest
from tests.engine.engines import chain, node
from tests.server.harness import ASKS, PLAIN, ServerHarness, expect_json, expect_problem, list_all

from handrail.engine.audit.verification import verify
from handrail.engine.queries import event_feed
from handrail.server.long_polls import LongPolls
from handrail.server.routes import audit
from handrail.testing.clock import ManualClock
from handrail.views.audit import Verification
from handrail.views.event_view import is_human_act_or_end

pytest_plugins = ["tests.fixtures_postgres"]


@pytest.fixture(params=["sqlite", "postgres"])
def any_harness(request: pytest.FixtureRequest, tmp_path: Any, clock: ManualClock) -> ServerHarness:
    url = f"sqlite:///{tmp_path / 'work.db'}"
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_url")
    return ServerHarness(url, clock)


async def busy(harness: ServerHarness) -> dict[str, Any]:
    """A run that was answered, one that was closed, one that goes on."""
    await harness.define(ASKS, PLAIN, chain(node("check", role="qa-engineer"), id="checks"))
    harness.works()
    answered = await harness.asked()
    body = {"decision": "approve", "text": "well done"}
    expect_json(await harness.ceo.post(f"/approvals/{answered['id']}/answer", json=body))
    closed = await harness.file("checks")
    close = {"action": "close", "reason": "not needed"}
    expect_json(
        await harness.ceo.post(f"/executions/{closed['execution_id']}/override", json=close)
    )
    await harness.file("checks")
    await harness.quiet()
    return {"answered": answered["execution_id"], "closed": closed["execution_id"]}


@pytest.mark.requirement("L16")
async def test_the_audit_has_everything_in_the_order_of_commits_the_last_first(
    any_harness: ServerHarness,
):
    await busy(any_harness)
    found = await list_all(any_harness.viewer, "/audit", limit=7)
    order = [one["commit"] for one in found]
    assert order == sorted(order, reverse=True)
    by_run: dict[str, list[int]] = {}
    for one in reversed(found):
        if "execution_id" in one:  # not what was put on record of rows
            by_run.setdefault(one["execution_id"], []).append(one["seq"])
    for run_id, numbers in by_run.items():
        events = await any_harness.engine.runs.history(run_id)
        assert numbers == list(range(1, len(events) + 1))
    assert len(by_run) == 3
    for one in found:
        assert {"seq", "type", "at", "actor", "commit"} <= set(one)
        assert {"execution_id", "stream"} & set(one)
    made = [one["about"] for one in found if one["type"] == "token_created"]
    assert "ana (ceo)" in made


async def test_an_event_of_the_audit_is_the_event_of_the_history(harness: ServerHarness):
    runs = await busy(harness)
    found = await list_all(harness.viewer, "/audit", execution_id=runs["answered"], limit=3)
    shown = await harness.engine.run_queries.events(runs["answered"], 0, 500)
    assert [{k: v for k, v in one.items() if k != "commit"} for one in reversed(found)] == shown
    everything = await list_all(harness.viewer, "/audit")
    assert [one for one in everything if one.get("execution_id") == runs["answered"]] == found


@pytest.mark.requirement("L16")
async def test_what_somebody_did_can_be_asked_for(any_harness: ServerHarness):
    runs = await busy(any_harness)
    found = await list_all(any_harness.viewer, "/audit", actor="ana", limit=1)
    acts = [(one["type"], one["execution_id"]) for one in found if "execution_id" in one]
    answered = runs["answered"]
    assert {one["type"] for one in found if "stream" in one} == {"definition_stored"}
    assert acts == [("ended", runs["closed"]), ("moved", answered), ("answered", answered)]
    assert found[2]["text"] == "well done"
    filed = await list_all(any_harness.viewer, "/audit", actor="olga")
    assert {one["type"] for one in filed} == {"started"}
    both = {"actor": "ana", "execution_id": runs["closed"]}
    assert [one["type"] for one in await list_all(any_harness.viewer, "/audit", **both)] == [
        "ended"
    ]


async def test_people_asks_for_what_people_did_and_how_runs_ended(harness: ServerHarness):
    runs = await busy(harness)
    everything = await list_all(harness.viewer, "/audit")
    expected = [one for one in everything if is_human_act_or_end(one)]
    assert await list_all(harness.viewer, "/audit", people=True, limit=2) == expected
    assert 4 < len(expected) < len(everything)
    of_one = [one for one in expected if one.get("execution_id") == runs["answered"]]
    query = {"people": True, "execution_id": runs["answered"]}
    assert await list_all(harness.viewer, "/audit", **query) == of_one


async def test_a_page_looks_through_so_much_and_no_more(
    harness: ServerHarness, monkeypatch: pytest.MonkeyPatch
):
    """A page of somebody who did little may be empty, and not the last."""
    runs = await busy(harness)
    monkeypatch.setattr(event_feed, "SCANNED_PAGES_MAX", 1)
    monkeypatch.setattr(event_feed, "PAGE_ITEMS_MAX", 2)
    page = expect_json(await harness.viewer.get("/audit", params={"actor": "ana"}))
    assert page["items"] == []
    assert page["next_cursor"] is not None
    found = await list_all(harness.viewer, "/audit", actor="ana")
    assert [one["type"] for one in found][:3] == ["ended", "moved", "answered"]
    query = {"actor": "ana", "execution_id": runs["answered"]}
    found = await list_all(harness.viewer, "/audit", **query)
    assert [one["type"] for one in found] == ["moved", "answered"]


async def test_what_cannot_be_asked_for_is_told(harness: ServerHarness):
    get = harness.viewer.get
    expect_problem(await get("/audit", params={"execution_id": "none"}), 404, "unknown_run")
    expect_problem(await get("/audit", params={"cursor": "x"}), 422, "bad_cursor")
    run = (await busy(harness))["closed"]
    both = {"execution_id": run, "cursor": "3-1"}
    expect_problem(await get("/audit", params=both), 422, "bad_cursor")
    expect_problem(await get("/audit/verify", params={"head": "not a hash"}), 422, "bad_parameter")


@pytest.mark.requirement("L16")
async def test_a_record_that_nobody_touched_is_unaltered(any_harness: ServerHarness):
    await busy(any_harness)
    found = expect_json(await any_harness.viewer.get("/audit/verify"))
    assert found["ok"] is True
    assert found["findings"] == []
    assert found["commits"] > 5
    assert found["entries"] >= found["commits"]
    kept = {"head": found["head"]}
    await any_harness.file("checks")
    later = expect_json(await any_harness.viewer.get("/audit/verify", params=kept))
    assert later["ok"] is True
    assert later["head"] != found["head"]
    other = {"head": "0" * 64}
    cut = expect_json(await any_harness.viewer.get("/audit/verify", params=other))
    assert (cut["ok"], cut["findings"][0]["code"]) == (False, "head_missing")


@pytest.mark.requirement("L16")
async def test_an_altered_record_is_told_with_its_place(harness: ServerHarness):
    runs = await busy(harness)
    with closing(sqlite3.connect(harness.url.removeprefix("sqlite:///"))) as db:
        changed = "UPDATE journal SET body = replace(body, 'well done', 'badly done')"
        db.execute(changed)
        db.commit()
    found = expect_json(await harness.viewer.get("/audit/verify"))
    assert found["ok"] is False
    altered = [one for one in found["findings"] if one["code"] == "entry_changed"]
    assert {one["stream"] for one in altered} == {runs["answered"]}


async def test_one_check_is_under_way_at_a_time_and_all_who_ask_hear_it(
    harness: ServerHarness, monkeypatch: pytest.MonkeyPatch
):
    begun, go_on, checks = asyncio.Event(), Event(), list[str | None]()
    loop = asyncio.get_running_loop()

    def slowly(store: Any, head: str | None = None, **more: Any) -> Verification:
        checks.append(head)
        loop.call_soon_threadsafe(begun.set)
        assert go_on.wait(60), "the test is over"
        return verify(store, head, **more)

    monkeypatch.setattr(audit, "verify", slowly)
    first = asyncio.create_task(harness.viewer.get("/audit/verify"))
    await begun.wait()
    second = asyncio.create_task(harness.ceo.get("/audit/verify"))
    other = asyncio.create_task(harness.ceo.get("/audit/verify", params={"head": "0" * 64}))
    while harness.served.long_polls.count < 3:
        await asyncio.sleep(0)
    assert checks == [None]
    expect_json(await harness.viewer.get("/beads"))  # the server goes on meanwhile
    go_on.set()
    assert expect_json(await first) == expect_json(await second)
    assert expect_json(await other)["ok"] is False
    assert checks == [None, "0" * 64]


async def test_a_check_ends_with_the_server(
    harness: ServerHarness, monkeypatch: pytest.MonkeyPatch
):
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()

    def endless(store: Any, head: str | None, on_progress: Any) -> Verification:
        while True:
            on_progress()
            loop.call_soon_threadsafe(begun.set)

    monkeypatch.setattr(audit, "verify", endless)
    asking = asyncio.create_task(harness.viewer.get("/audit/verify"))
    await begun.wait()
    waits: LongPolls = harness.served.long_polls
    waits.draining.set()
    expect_problem(await asking, 503, "draining")
    await harness.served.audit_verifier.close()


async def test_a_database_in_memory_cannot_be_verified_and_it_says_so(clock: ManualClock):
    async with ServerHarness("sqlite://", clock).opened() as harness:
        found = expect_problem(await harness.viewer.get("/audit/verify"), 409, "in_memory")
        assert "memory" in found["detail"]
        shown = expect_json(await harness.viewer.get("/audit"))["items"]
        assert {one["type"] for one in shown} == {"token_created"}
