"""Overrides: who may, with a reason, and what becomes of the run."""

import pytest
from tests.engine.engines import chain, node, team
from tests.server.harness import (
    ASKS,
    CEO,
    OPERATOR,
    OTHER_OPERATOR,
    PLAIN,
    ServerHarness,
    expect_json,
    expect_problem,
    list_all,
)

TWO = chain(node("a"), node("b"), id="two")


async def _run(harness: ServerHarness, document: dict = TWO) -> str:
    await harness.define(document)
    return f"/executions/{(await harness.file(document['id']))['execution_id']}"


async def _acts(harness: ServerHarness, path: str) -> list[tuple[str, str, str]]:
    report = expect_json(await harness.viewer.get(f"{path}/report"))
    return [(act["act"], act["by"], act["reason"]) for act in report["acts"]]


@pytest.mark.requirement("L7.2", "L7.4", "L16")
async def test_the_ceo_moves_a_run_to_any_node(harness: ServerHarness):
    path = await _run(harness)
    body = {"action": "move", "node": "b", "reason": "a is done"}
    run = expect_json(await harness.ceo.post(f"{path}/override", json=body))
    assert (run["current_node_id"], run["status"]) == ("b", "running")
    assert await _acts(harness, path) == [("move", CEO, "a is done")]


@pytest.mark.requirement("L7.3", "L7.4")
async def test_the_ceo_closes_a_run_and_its_bead(harness: ServerHarness):
    path = await _run(harness)
    body = {"action": "close", "reason": "not needed"}
    run = expect_json(await harness.ceo.post(f"{path}/override", json=body))
    assert (run["status"], run["terminal_status"]) == ("ended", "closed_by_human")
    assert (run["stop"]["rule"], run["stop"]["reason"]) == ("closed", "not needed")
    assert expect_json(await harness.viewer.get(f"/beads/{run['bead_id']}"))["status"] == "closed"
    for action in ("close", "pause", "resume"):
        again = {"action": action, "reason": "once more"}
        expect_problem(await harness.ceo.post(f"{path}/override", json=again), 409, "ended")


@pytest.mark.requirement("L7.6")
async def test_the_ceo_pauses_a_run_and_lets_it_go_on(harness: ServerHarness):
    path = await _run(harness)
    pause = {"action": "pause", "reason": "freeze"}
    resume = {"action": "resume", "reason": "thaw"}
    expect_problem(await harness.ceo.post(f"{path}/override", json=resume), 409, "not_paused")
    assert expect_json(await harness.ceo.post(f"{path}/override", json=pause))["status"] == "paused"
    expect_problem(await harness.ceo.post(f"{path}/override", json=pause), 409, "paused")
    (waiting, *_) = expect_json(await harness.viewer.get(f"{path}/why"))["waiting"]
    assert waiting["code"] == "paused"
    assert (
        expect_json(await harness.ceo.post(f"{path}/override", json=resume))["status"] == "running"
    )
    assert await _acts(harness, path) == [("pause", CEO, "freeze"), ("resume", CEO, "thaw")]


@pytest.mark.requirement("L7.5")
async def test_the_ceo_takes_a_run_to_another_version_where_it_stands(harness: ServerHarness):
    path = await _run(harness)
    await harness.define(chain(node("a"), node("c"), id="two"))
    body = {"action": "migrate", "version": 2, "reason": "b is gone"}
    run = expect_json(await harness.ceo.post(f"{path}/override", json=body))
    assert (run["workflow_version"], run["current_node_id"]) == (2, "a")


@pytest.mark.requirement("L7.5")
async def test_a_migration_names_a_node_where_the_current_one_is_gone(harness: ServerHarness):
    path = await _run(harness)
    await harness.define(chain(node("x"), node("y"), id="two"))
    body = {"action": "migrate", "version": 2, "reason": "a is gone"}
    found = expect_problem(
        await harness.ceo.post(f"{path}/override", json=body), 422, "unknown_place"
    )
    assert [one["path"] for one in found["errors"]] == ["node"]
    assert expect_json(await harness.viewer.get(path))["workflow_version"] == 1
    run = expect_json(await harness.ceo.post(f"{path}/override", json={**body, "node": "y"}))
    assert (run["workflow_version"], run["current_node_id"]) == (2, "y")


@pytest.mark.requirement("L7.4")
async def test_an_override_that_lacks_something_changes_nothing(harness: ServerHarness):
    path = await _run(harness)
    before = expect_json(await harness.viewer.get(path))
    for body, place in [
        ({"action": "close"}, "$"),
        ({"action": "close", "reason": ""}, "$.reason"),
        ({"action": "close", "reason": " \n"}, "$.reason"),
        ({"action": "close", "reason": 5}, "$.reason"),
        ({"action": "explode", "reason": "why not"}, "$.action"),
        ({"reason": "why not"}, "$"),
        ({"action": "move", "reason": "why not"}, "node"),
        ({"action": "move", "node": "none", "reason": "why not"}, "node"),
        ({"action": "migrate", "reason": "why not"}, "version"),
        ({"action": "migrate", "version": 9, "reason": "why not"}, "version"),
        ({"action": "migrate", "version": 0, "reason": "why not"}, "$.version"),
        ({"action": "migrate", "version": 10**20, "reason": "why not"}, "$.version"),
    ]:
        answer = await harness.ceo.post(f"{path}/override", json=body)
        assert answer.status_code == 422, answer.text
        assert [one["path"] for one in answer.json()["errors"]] == [place]
    assert expect_json(await harness.viewer.get(path)) == before


@pytest.mark.requirement("L7.2")
async def test_a_team_s_run_is_moved_to_an_agent(harness: ServerHarness):
    path = await _run(harness, team({"a": ["b"], "b": ["a"]}, terminator="a", id="pair"))
    body = {"action": "move", "node": "b", "reason": "b knows"}
    assert (
        expect_json(await harness.ceo.post(f"{path}/override", json=body))["current_node_id"] == "b"
    )
    body = {"action": "move", "node": "c", "reason": "c knows"}
    expect_problem(await harness.ceo.post(f"{path}/override", json=body), 422, "unknown_place")


@pytest.mark.requirement("L8.7")
async def test_a_migration_that_is_asked_for_again_is_the_same_wherever_the_run_is(
    harness: ServerHarness,
):
    path = await _run(harness)
    await harness.define(chain(node("a"), node("c"), id="two"))
    body = {"action": "migrate", "version": 2, "reason": "b is gone"}
    headers = {"Idempotency-Key": "k1"}
    expect_json(await harness.ceo.post(f"{path}/override", json=body, headers=headers))
    harness.works()
    await harness.quiet()
    again = ServerHarness(harness.url, harness.clock)  # which knows nothing of the answer
    async with again.opened():
        run = expect_json(await again.ceo.post(f"{path}/override", json=body, headers=headers))
    assert (run["status"], run["workflow_version"]) == ("ended", 2)


# Who may


async def test_an_operator_closes_what_it_filed_and_does_nothing_else(harness: ServerHarness):
    path = await _run(harness)
    for body in (
        {"action": "move", "node": "b"},
        {"action": "pause"},
        {"action": "resume"},
        {"action": "migrate", "version": 1},
    ):
        answer = await harness.operator.post(f"{path}/override", json={**body, "reason": "mine"})
        expect_problem(answer, 403, "not_allowed")
    body = {"action": "close", "reason": "filed by mistake"}
    run = expect_json(await harness.operator.post(f"{path}/override", json=body))
    assert run["terminal_status"] == "closed_by_human"
    assert await _acts(harness, path) == [("close", OPERATOR, "filed by mistake")]


async def test_an_operator_does_not_close_what_somebody_else_filed(harness: ServerHarness):
    path = await _run(harness)
    body = {"action": "close", "reason": "I do not like it"}
    answer = await harness.other_operator.post(f"{path}/override", json=body)
    expect_problem(answer, 403, "not_allowed")
    assert expect_json(await harness.viewer.get(path))["status"] == "running"


async def test_whose_bead_it_is_does_not_change_when_somebody_else_runs_it_again(
    harness: ServerHarness,
):
    await harness.define(PLAIN, ASKS)
    bead = await harness.file("plain")
    harness.works()
    await harness.quiet()
    body = {"workflow_id": "asks", "from_node": "look"}
    answer = await harness.other_operator.post(f"/beads/{bead['id']}/executions", json=body)
    override = f"/executions/{expect_json(answer, 201)['id']}/override"
    close = {"action": "close", "reason": "enough"}
    expect_problem(await harness.other_operator.post(override, json=close), 403, "not_allowed")
    assert expect_json(await harness.operator.post(override, json=close))["status"] == "ended"


async def test_whoever_only_looks_overrides_nothing(harness: ServerHarness):
    path = await _run(harness)
    body = {"action": "close", "reason": "why not"}
    for client in (harness.viewer, harness.agent, harness.reporter):
        expect_problem(await client.post(f"{path}/override", json=body), 403, "forbidden")
    expect_problem(await harness.nobody.post(f"{path}/override", json=body), 401, "no_token")


@pytest.mark.requirement("L16")
async def test_a_forged_override_changes_nothing_and_is_kept_as_evidence(harness: ServerHarness):
    path = await _run(harness)
    for field in ("by", "actor", "filed_by"):
        body = {"action": "close", "reason": "I am the boss", field: CEO}
        answer = await harness.other_operator.post(f"{path}/override", json=body)
        expect_problem(answer, 403, "forged_author")
    run = expect_json(await harness.viewer.get(path))
    assert run["status"] == "running"
    assert await harness.notes(run["id"]) == [(OTHER_OPERATOR, "forged_author")] * 3
    events = await list_all(harness.viewer, f"/beads/{run['bead_id']}/history")
    assert [event["type"] for event in events] == ["started", "moved", "offered"]
