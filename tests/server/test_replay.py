"""Recorded runs under other rules, and proposed limits, over the API."""

import pytest
from tests.engine.engines import team
from tests.server.harness import PLAIN, ServerHarness, expect_json, expect_problem

from handrail.engine.services import replays
from handrail.kernel.result import Outcome, Result

LOOP = {**team({"a": ["a"]}, terminator="a"), "id": "loop"}


async def looped(harness: ServerHarness) -> str:
    """A run that its rules have stopped."""
    await harness.define(LOOP)
    harness.works(Result(outcome=Outcome.HANDOFF, to="a", reason="again"), "a")
    run_id = (await harness.file("loop"))["execution_id"]
    await harness.quiet()
    return run_id


@pytest.mark.requirement("S16")
async def test_a_viewer_sees_what_other_rules_would_have_done(harness: ServerHarness):
    run_id = await looped(harness)
    body = {"ids": [run_id, run_id], "rules": {"max_handoffs": 1}}
    found = expect_json(await harness.viewer.post("/executions/replay", json=body))
    assert found["rules"] == {"max_handoffs": 1}
    (item,) = found["items"]
    assert (item["execution_id"], item["verdict"]) == (run_id, "sooner")
    assert item["recorded"]["stop"]["rule"] == "repeated_pattern"
    assert item["replayed"]["stop"]["rule"] == "max_handoffs"
    assert (item["replayed"]["step"], item["saved"]["steps"]) == (2, 1)
    assert found["summary"]["verdicts"] == {"sooner": 1}


async def test_nothing_is_changed_by_a_replay(harness: ServerHarness):
    run_id = await looped(harness)
    before = expect_json(await harness.viewer.get(f"/executions/{run_id}"))
    expect_json(
        await harness.viewer.post("/executions/replay", json={"ids": [run_id], "rules": "yolo"})
    )
    assert expect_json(await harness.viewer.get(f"/executions/{run_id}")) == before


async def test_wrong_rules_name_every_place(harness: ServerHarness):
    rules = {"max_edg": 1, "max_steps": "many"}
    answer = await harness.viewer.post("/executions/replay", json={"ids": ["x"], "rules": rules})
    found = expect_problem(answer, 422, "invalid_rules")
    assert {one["path"] for one in found["errors"]} == {
        "stop_rules.max_edg",
        "stop_rules.max_steps",
    }
    answer = await harness.viewer.post("/executions/replay", json={"ids": ["x"], "rules": "fast"})
    assert expect_problem(answer, 422, "invalid_rules")["errors"][0]["path"] == "profile"


async def test_runs_that_cannot_be_replayed_are_named(
    harness: ServerHarness, monkeypatch: pytest.MonkeyPatch
):
    body = {"ids": ["none"], "rules": "yolo"}
    answer = await harness.viewer.post("/executions/replay", json=body)
    assert expect_problem(answer, 422, "unknown_run")["errors"][0]["path"] == "ids"
    for ids in ([], ["x"] * (replays.REPLAYED_RUNS_MAX + 1)):
        answer = await harness.viewer.post("/executions/replay", json={"ids": ids, "rules": "yolo"})
        expect_problem(answer, 422, "bad_body")
    run_id = await looped(harness)
    monkeypatch.setattr(replays, "REPLAYED_EVENTS_MAX", 3)
    answer = await harness.viewer.post(
        "/executions/replay", json={"ids": [run_id], "rules": "yolo"}
    )
    expect_problem(answer, 422, "too_many_events")
    assert expect_json(await harness.viewer.get("/workflows/loop/tune"))["runs"] == 0


async def test_events_that_are_in_an_archive_cannot_be_replayed(
    harness: ServerHarness, monkeypatch: pytest.MonkeyPatch
):
    def gone(*_: object) -> None:
        raise replays.EventsGoneError("run 'x': only 0 events are stored")

    run_id = await looped(harness)
    monkeypatch.setattr(replays, "read_events", gone)
    answer = await harness.viewer.post(
        "/executions/replay", json={"ids": [run_id], "rules": "yolo"}
    )
    expect_problem(answer, 422, "events_gone")
    assert expect_json(await harness.viewer.get("/workflows/loop/tune"))["runs"] == 0


@pytest.mark.requirement("S16")
async def test_limits_are_proposed_from_ended_runs(harness: ServerHarness):
    await looped(harness)
    await harness.define(PLAIN)
    found = expect_json(await harness.viewer.get("/workflows/loop/tune"))
    assert (found["workflow_id"], found["runs"], found["aborted"]) == ("loop", 1, 1)
    assert found["told"].startswith("the history is too small: 1 ended run,")
    assert expect_json(await harness.viewer.get("/workflows/plain/tune"))["runs"] == 0


async def test_what_cannot_be_tuned_is_told(harness: ServerHarness):
    expect_problem(await harness.viewer.get("/workflows/none/tune"), 404, "unknown_definition")
    await harness.define(LOOP)
    for query in ({"share": 2}, {"runs": 0}, {"runs": 10_000}):
        answer = await harness.viewer.get("/workflows/loop/tune", params=query)
        expect_problem(answer, 422, "bad_parameter")


async def test_only_people_replay(harness: ServerHarness):
    body = {"ids": ["x"], "rules": "yolo"}
    expect_problem(await harness.agent.post("/executions/replay", json=body), 403, "forbidden")
    expect_problem(await harness.reporter.get("/workflows/loop/tune"), 403, "forbidden")
    expect_problem(await harness.nobody.post("/executions/replay", json=body), 401, "no_token")
