"""Agents that wait (K31), over HTTP."""

from typing import Any

import pytest
from tests.engine.engines import chain, node
from tests.server.harness import PLAIN, WORKER, ServerHarness, expect_json, expect_problem
from tests.server.http_agents import HUB, register_agent

POLLS = chain(node("poll", max_waits=2, waits_within="1m"), id="polls")
POLLING_HUB = {**HUB, "stop_rules": {"max_waits": 1, "wait_deadline": 60}}
WAIT: dict[str, Any] = {"outcome": "waiting", "for": "CI", "retry_after": 20}


async def test_an_agent_waits_and_claims_the_next_dispatch_after_the_time(
    harness: ServerHarness,
) -> None:
    await harness.define(POLLS)
    agent = await register_agent(harness, "poller", WORKER)
    bead = await harness.file("polls")
    first = await agent.claim()
    assert first["wait"] is None
    assert "waiting" in first["allowed"]["outcomes"]
    receipt = expect_json(await agent.report(first, **WAIT))
    assert receipt["accepted"] is True
    assert receipt["execution"]["waits"]["count"] == 1
    assert receipt["execution"]["status"] == "running"
    assert (await agent.claims()).status_code == 204
    harness.clock.advance(20)
    await harness.engine.tick()
    second = await agent.claim()
    assert (second["key"], second["attempt"]) == (first["key"], 1)
    assert second["wait"]["count"] == 1
    assert second["wait"]["since"] < second["wait"]["deadline"]
    expect_json(await agent.report(second))
    view = expect_json(await harness.viewer.get(f"/executions/{bead['execution_id']}"))
    assert view["terminal_status"] == "done_success"
    assert view["waits"] == {"count": 1, "since": None, "deadline": None}


@pytest.mark.parametrize(
    "change",
    [{"for": ""}, {"for": "x" * 201}, {"retry_after": 0}, {"retry_after": 3601}, {"for": None}],
)
async def test_a_wait_that_lacks_something_is_422_and_the_dispatch_stays_open(
    harness: ServerHarness, change: dict[str, Any]
) -> None:
    await harness.define(POLLS)
    agent = await register_agent(harness, "poller", WORKER)
    await harness.file("polls")
    dispatch = await agent.claim()
    assert (await agent.report(dispatch, **{**WAIT, **change})).status_code == 422
    assert (await agent.report(dispatch, "waiting", **{"for": "CI"})).status_code == 422
    expect_json(await agent.report(dispatch))


async def test_where_nobody_may_wait_a_wait_is_422(harness: ServerHarness) -> None:
    await harness.define(PLAIN)
    await harness.define(HUB)
    for workflow, role in (("plain", WORKER), ("hub", "orchestrator")):
        agent = await register_agent(harness, f"{role}-1", role)
        await harness.file(workflow)
        dispatch = await agent.claim()
        expect_problem(await agent.report(dispatch, **WAIT), 422, "no_waits")


async def test_a_team_that_has_waited_often_enough_is_refused_another_wait(
    harness: ServerHarness,
) -> None:
    await harness.define(POLLING_HUB)
    agent = await register_agent(harness, "orchestrator-1", "orchestrator")
    await harness.file("hub")
    assert (await agent.work(**WAIT))["accepted"] is True
    harness.clock.advance(20)
    await harness.engine.tick()
    dispatch = await agent.claim()
    assert "waiting" not in dispatch["allowed"]["outcomes"]
    refused = expect_json(await agent.report(dispatch, **WAIT))
    assert refused["accepted"] is False
    assert "waited 1 times" in refused["reason"]
