"""Overrides: who may, with a reason, and what becomes of the run."""

import pytest
from tests.engine.at_work import chain, node, team
from tests.server.house import (
    ASKS,
    CEO,
    OPERATOR,
    OTHER_OPERATOR,
    PLAIN,
    House,
    pages,
    problem,
    told,
)

TWO = chain(node("a"), node("b"), id="two")


async def _run(house: House, document: dict = TWO) -> str:
    await house.define(document)
    return f"/executions/{(await house.file(document['id']))['execution_id']}"


async def _acts(house: House, path: str) -> list[tuple[str, str, str]]:
    report = told(await house.viewer.get(f"{path}/report"))
    return [(act["act"], act["by"], act["reason"]) for act in report["acts"]]


@pytest.mark.requirement("L7.2", "L7.4", "L16")
async def test_the_ceo_moves_a_run_to_any_node(house: House):
    path = await _run(house)
    body = {"action": "move", "node": "b", "reason": "a is done"}
    run = told(await house.ceo.post(f"{path}/override", json=body))
    assert (run["current_node_id"], run["status"]) == ("b", "running")
    assert await _acts(house, path) == [("move", CEO, "a is done")]


@pytest.mark.requirement("L7.3", "L7.4")
async def test_the_ceo_closes_a_run_and_its_bead(house: House):
    path = await _run(house)
    body = {"action": "close", "reason": "not needed"}
    run = told(await house.ceo.post(f"{path}/override", json=body))
    assert (run["status"], run["terminal_status"]) == ("ended", "closed_by_human")
    assert (run["stop"]["rule"], run["stop"]["reason"]) == ("closed", "not needed")
    assert told(await house.viewer.get(f"/beads/{run['bead_id']}"))["status"] == "closed"
    for action in ("close", "pause", "resume"):
        again = {"action": action, "reason": "once more"}
        problem(await house.ceo.post(f"{path}/override", json=again), 409, "ended")


@pytest.mark.requirement("L7.6")
async def test_the_ceo_pauses_a_run_and_lets_it_go_on(house: House):
    path = await _run(house)
    pause = {"action": "pause", "reason": "freeze"}
    resume = {"action": "resume", "reason": "thaw"}
    problem(await house.ceo.post(f"{path}/override", json=resume), 409, "not_paused")
    assert told(await house.ceo.post(f"{path}/override", json=pause))["status"] == "paused"
    problem(await house.ceo.post(f"{path}/override", json=pause), 409, "paused")
    (waiting, *_) = told(await house.viewer.get(f"{path}/why"))["waiting"]
    assert waiting["code"] == "paused"
    assert told(await house.ceo.post(f"{path}/override", json=resume))["status"] == "running"
    assert await _acts(house, path) == [("pause", CEO, "freeze"), ("resume", CEO, "thaw")]


@pytest.mark.requirement("L7.5")
async def test_the_ceo_takes_a_run_to_another_version_where_it_stands(house: House):
    path = await _run(house)
    await house.define(chain(node("a"), node("c"), id="two"))
    body = {"action": "migrate", "version": 2, "reason": "b is gone"}
    run = told(await house.ceo.post(f"{path}/override", json=body))
    assert (run["workflow_version"], run["current_node_id"]) == (2, "a")


@pytest.mark.requirement("L7.5")
async def test_a_migration_names_a_node_where_the_current_one_is_gone(house: House):
    path = await _run(house)
    await house.define(chain(node("x"), node("y"), id="two"))
    body = {"action": "migrate", "version": 2, "reason": "a is gone"}
    found = problem(await house.ceo.post(f"{path}/override", json=body), 422, "unknown_place")
    assert [one["path"] for one in found["errors"]] == ["node"]
    assert told(await house.viewer.get(path))["workflow_version"] == 1
    run = told(await house.ceo.post(f"{path}/override", json={**body, "node": "y"}))
    assert (run["workflow_version"], run["current_node_id"]) == (2, "y")


@pytest.mark.requirement("L7.4")
async def test_an_override_that_lacks_something_changes_nothing(house: House):
    path = await _run(house)
    before = told(await house.viewer.get(path))
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
        answer = await house.ceo.post(f"{path}/override", json=body)
        assert answer.status_code == 422, answer.text
        assert [one["path"] for one in answer.json()["errors"]] == [place]
    assert told(await house.viewer.get(path)) == before


@pytest.mark.requirement("L7.2")
async def test_a_team_s_run_is_moved_to_an_agent(house: House):
    path = await _run(house, team({"a": ["b"], "b": ["a"]}, terminator="a", id="pair"))
    body = {"action": "move", "node": "b", "reason": "b knows"}
    assert told(await house.ceo.post(f"{path}/override", json=body))["current_node_id"] == "b"
    body = {"action": "move", "node": "c", "reason": "c knows"}
    problem(await house.ceo.post(f"{path}/override", json=body), 422, "unknown_place")


@pytest.mark.requirement("L8.7")
async def test_a_migration_that_is_asked_for_again_is_the_same_wherever_the_run_is(house: House):
    path = await _run(house)
    await house.define(chain(node("a"), node("c"), id="two"))
    body = {"action": "migrate", "version": 2, "reason": "b is gone"}
    headers = {"Idempotency-Key": "k1"}
    told(await house.ceo.post(f"{path}/override", json=body, headers=headers))
    house.works()
    await house.quiet()
    again = House(house.url, house.clock)  # which knows nothing of the answer
    async with again.opened():
        run = told(await again.ceo.post(f"{path}/override", json=body, headers=headers))
    assert (run["status"], run["workflow_version"]) == ("ended", 2)


# Who may


async def test_an_operator_closes_what_it_filed_and_does_nothing_else(house: House):
    path = await _run(house)
    for body in (
        {"action": "move", "node": "b"},
        {"action": "pause"},
        {"action": "resume"},
        {"action": "migrate", "version": 1},
    ):
        answer = await house.operator.post(f"{path}/override", json={**body, "reason": "mine"})
        problem(answer, 403, "not_allowed")
    body = {"action": "close", "reason": "filed by mistake"}
    run = told(await house.operator.post(f"{path}/override", json=body))
    assert run["terminal_status"] == "closed_by_human"
    assert await _acts(house, path) == [("close", OPERATOR, "filed by mistake")]


async def test_an_operator_does_not_close_what_somebody_else_filed(house: House):
    path = await _run(house)
    body = {"action": "close", "reason": "I do not like it"}
    answer = await house.other_operator.post(f"{path}/override", json=body)
    problem(answer, 403, "not_allowed")
    assert told(await house.viewer.get(path))["status"] == "running"


async def test_whose_bead_it_is_does_not_change_when_somebody_else_runs_it_again(house: House):
    await house.define(PLAIN, ASKS)
    bead = await house.file("plain")
    house.works()
    await house.quiet()
    body = {"workflow_id": "asks", "from_node": "look"}
    answer = await house.other_operator.post(f"/beads/{bead['id']}/executions", json=body)
    override = f"/executions/{told(answer, 201)['id']}/override"
    close = {"action": "close", "reason": "enough"}
    problem(await house.other_operator.post(override, json=close), 403, "not_allowed")
    assert told(await house.operator.post(override, json=close))["status"] == "ended"


async def test_whoever_only_looks_overrides_nothing(house: House):
    path = await _run(house)
    body = {"action": "close", "reason": "why not"}
    for client in (house.viewer, house.agent, house.reporter):
        problem(await client.post(f"{path}/override", json=body), 403, "forbidden")
    problem(await house.nobody.post(f"{path}/override", json=body), 401, "no_token")


@pytest.mark.requirement("L16")
async def test_a_forged_override_changes_nothing_and_is_kept_as_evidence(house: House):
    path = await _run(house)
    for field in ("by", "actor", "filed_by"):
        body = {"action": "close", "reason": "I am the boss", field: CEO}
        answer = await house.other_operator.post(f"{path}/override", json=body)
        problem(answer, 403, "forged_author")
    run = told(await house.viewer.get(path))
    assert run["status"] == "running"
    assert await house.notes(run["id"]) == [(OTHER_OPERATOR, "forged_author")] * 3
    events = await pages(house.viewer, f"/beads/{run['bead_id']}/history")
    assert [event["type"] for event in events] == ["started", "moved", "offered"]
