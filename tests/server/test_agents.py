"""Agents over HTTP: who may register as what, who is there, and one heartbeat for everything."""

from typing import Any

import pytest
from tests.server.harness import PLAIN, WORKER, ServerHarness, expect_json, expect_problem, list_all
from tests.server.http_agents import register_agent, register_limited_agent


async def test_an_agent_registers_and_everybody_can_see_it(harness: ServerHarness) -> None:
    agent = await register_agent(harness, "coder-7")
    view = await agent.register(WORKER, capacity=3)
    assert view["id"] == "coder-7"
    assert view["roles"] == [WORKER]
    assert view["capacity"] == 3
    assert view["enabled"] is True
    assert view["state"] == "IDLE"
    assert view["channels"] == {}
    assert view["current_work"] == []
    assert expect_json(await harness.viewer.get("/agents"))["items"] == [view]
    assert expect_json(await harness.viewer.get("/agents/coder-7")) == view
    expect_problem(await harness.viewer.get("/agents/nobody"), 404, "unknown_agent")


async def test_agents_come_in_pages(harness: ServerHarness) -> None:
    names = [f"coder-{n}" for n in range(1, 6)]
    for name in reversed(names):
        await register_agent(harness, name, WORKER)
    assert [one["id"] for one in await list_all(harness.viewer, "/agents", limit=2)] == names


@pytest.mark.requirement("L3.2")
async def test_a_token_limits_the_roles_that_its_agent_may_have(harness: ServerHarness) -> None:
    agent = await register_limited_agent(harness, "coder-8", WORKER, "web-designer")
    refused = await agent.http.post("/agents", json={"id": "coder-8", "roles": [WORKER, "qa"]})
    assert "qa" in expect_problem(refused, 403, "forbidden_role")["detail"]
    expect_problem(await harness.viewer.get("/agents/coder-8"), 404, "unknown_agent")
    assert (await agent.register("web-designer"))["roles"] == ["web-designer"]


async def test_no_agent_is_ever_the_ceo(harness: ServerHarness) -> None:
    agent = await register_agent(harness, "coder-9")
    refused = await agent.http.post("/agents", json={"id": "coder-9", "roles": [WORKER, "ceo"]})
    expect_problem(refused, 403, "forbidden_role")
    assert expect_json(await harness.viewer.get("/agents"))["items"] == []


async def test_nobody_registers_looks_or_beats_for_another_agent(harness: ServerHarness) -> None:
    await register_agent(harness, "victim", WORKER)
    mallory = await register_agent(harness, "mallory", WORKER)
    body = {"id": "victim", "roles": ["qa-engineer"]}
    expect_problem(await mallory.http.post("/agents", json=body), 403, "foreign_agent")
    expect_problem(await mallory.http.get("/agents/victim"), 403, "foreign_agent")
    expect_problem(await mallory.http.post("/agents/victim/heartbeat"), 403, "foreign_agent")
    expect_problem(await mallory.http.delete("/agents/victim"), 403, "foreign_agent")
    expect_problem(
        await mallory.http.patch("/agents/victim", json={"enabled": False}), 403, "forbidden"
    )
    for person in (harness.viewer, harness.operator, harness.ceo, harness.admin):
        expect_problem(await person.post("/agents", json=body), 403, "forbidden")
    assert expect_json(await harness.viewer.get("/agents/victim"))["roles"] == [WORKER]


@pytest.mark.parametrize(
    "body",
    [
        {"id": "coder-1"},
        {"id": "coder-1", "roles": []},
        {"id": "coder-1", "roles": [""]},
        {"id": "coder-1", "roles": "backend-engineer"},
        {"id": "coder-1", "roles": [WORKER], "capacity": 0},
        {"id": "coder-1", "roles": [WORKER], "capacity": "1"},
    ],
)
async def test_a_registration_that_cannot_be_read_is_refused(
    harness: ServerHarness, body: object
) -> None:
    answer = await harness.agent.post("/agents", json=body)
    assert answer.status_code == 422, answer.text
    assert expect_json(await harness.viewer.get("/agents"))["items"] == []


async def test_one_heartbeat_says_which_of_all_dispatches_are_over(harness: ServerHarness) -> None:
    await harness.define(PLAIN)
    agent = await register_agent(harness, "coder-7", WORKER, capacity=3)
    beads = [await harness.file("plain") for _ in range(2)]
    held = [await agent.claim() for _ in beads]
    ids = [one["id"] for one in held]
    told_both = await agent.beat(holding=ids)
    nowhere: dict[str, Any] = {"channels": {}}
    assert told_both == {"state": "ACTIVE", "ended": [], "held": ids, **nowhere}
    body = {"action": "close", "reason": "no longer wanted"}
    closed = held[0]["execution_id"]
    expect_json(await harness.ceo.post(f"/executions/{closed}/override", json=body))
    after = await agent.beat(holding=ids)
    assert after == {"state": "ACTIVE", "ended": [ids[0]], "held": ids[1:], **nowhere}
    assert (await agent.beat())["held"] == ids[1:]
    expect_json(await agent.report(held[1]))
    assert await agent.beat(holding=ids) == {"state": "IDLE", "ended": ids, "held": [], **nowhere}


async def test_a_heartbeat_needs_no_body_and_an_agent_that_is_registered(
    harness: ServerHarness,
) -> None:
    agent = await register_agent(harness, "coder-7")
    refused = expect_problem(await agent.http.post("/agents/coder-7/heartbeat"), 409, "no_session")
    assert "register" in refused["detail"]
    await agent.register(WORKER)
    assert expect_json(await agent.http.post("/agents/coder-7/heartbeat"))["state"] == "IDLE"


@pytest.mark.requirement("T1")
async def test_every_call_of_an_agent_is_a_heartbeat_and_brings_it_back(
    harness: ServerHarness,
) -> None:
    agent = await register_agent(harness, "coder-7", WORKER)
    harness.clock.advance(seconds=61)
    await harness.engine.tick()
    assert expect_json(await harness.viewer.get("/agents/coder-7"))["state"] == "OFFLINE"
    expect_json(await agent.http.get("/me"))
    view = expect_json(await harness.viewer.get("/agents/coder-7"))
    assert view["state"] == "IDLE"
    assert view["last_seen"].startswith(harness.clock.now().isoformat()[:19])


async def test_work_is_kept_by_any_call_of_its_agent(harness: ServerHarness) -> None:
    await harness.define(PLAIN)
    agent = await register_agent(harness, "coder-7", WORKER)
    await harness.file("plain")
    dispatch = await agent.claim()
    for _ in range(5):
        harness.clock.advance(seconds=40)
        expect_json(await agent.http.get("/me"))
        await harness.engine.tick()
    assert expect_json(await agent.report(dispatch))["accepted"] is True


async def test_an_agent_that_is_disabled_is_given_nothing_until_it_is_enabled(
    harness: ServerHarness,
) -> None:
    await harness.define(PLAIN)
    agent = await register_agent(harness, "coder-7", WORKER)
    await harness.file("plain")
    dispatch = await agent.claim()
    view = expect_json(await harness.ceo.patch("/agents/coder-7", json={"enabled": False}))
    assert (view["enabled"], view["state"]) == (False, "OFFLINE")
    await harness.engine.tick()
    expect_problem(await agent.report(dispatch), 409, "late")
    expect_problem(await agent.claims(), 409, "agent_disabled")
    expect_problem(
        await harness.operator.patch("/agents/coder-7", json={"enabled": True}), 403, "forbidden"
    )
    expect_json(await harness.ceo.patch("/agents/coder-7", json={"enabled": True}))
    assert (await agent.claim())["attempt"] == 2


async def test_an_agent_that_is_removed_is_gone_until_it_registers_again(
    harness: ServerHarness,
) -> None:
    agent = await register_agent(harness, "coder-7", WORKER)
    assert (await agent.http.delete("/agents/coder-7")).status_code == 204
    expect_problem(await harness.viewer.get("/agents/coder-7"), 404, "unknown_agent")
    expect_problem(await harness.ceo.delete("/agents/coder-7"), 404, "unknown_agent")
    expect_problem(await agent.claims(), 409, "no_session")
    await agent.register(WORKER)
    assert (await harness.ceo.delete("/agents/coder-7")).status_code == 204


async def test_registering_again_under_the_same_key_loses_nothing(harness: ServerHarness) -> None:
    await harness.define(PLAIN)
    agent = await register_agent(harness, "coder-7")
    body = {"id": "coder-7", "roles": [WORKER]}
    key = {"Idempotency-Key": "one"}
    first = expect_json(await agent.http.post("/agents", json=body, headers=key), 201)
    await harness.file("plain")
    dispatch = await agent.claim()
    assert expect_json(await agent.http.post("/agents", json=body, headers=key), 201) == first
    await harness.engine.tick()
    assert expect_json(await agent.report(dispatch))["accepted"] is True
