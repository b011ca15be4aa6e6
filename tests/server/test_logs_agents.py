"""The log of agents: every change of a state, once, as the table of states has it (T12)."""

import json
from itertools import pairwise
from typing import Any

import pytest
from tests.engine.engines import chain, manual_engine, node
from tests.server.captured_log import CapturedLog, capture_log
from tests.server.harness import PLAIN, WORKER, ServerHarness
from tests.server.http_agents import register_agent

from handrail.engine.engine import Engine
from handrail.engine.event_logging import AgentLogger, refresh_agents
from handrail.kernel.agent_lifecycle import LOG_NAMES, TRANSITIONS
from handrail.kernel.result import Outcome, Result
from handrail.testing.clock import ManualClock

pytest_plugins = ["tests.fixtures_postgres"]
SLOW = chain(node("fix", timeout="1m"), id="slow")
CAME = ("OFFLINE", "IDLE", "agent starts")
ASSIGNED = ("IDLE", "QUEUED", "assigned")
GRANTED = ("QUEUED", "ACTIVE", "turn granted")
REPORTED = ("ACTIVE", "IDLE", "result")
CRASHED = ("ACTIVE", "OFFLINE", "agent crashes")
STOPPED = ("IDLE", "OFFLINE", "agent stops")
POSSIBLE = {
    (old.value, new.value, LOG_NAMES[trigger]) for (old, trigger), new in TRANSITIONS.items()
}


def moves(log: CapturedLog, agent: str) -> list[tuple[str, str, str]]:
    """What is told of an agent; each a legal move from where the last one led."""
    found = [
        (line["from"], line["to"], line["trigger"])
        for line in log.of("state_transition")
        if line["agentId"] == agent
    ]
    assert set(found) <= POSSIBLE
    assert all(left[1] == right[0] for left, right in pairwise(found))
    return found


@pytest.mark.requirement("T12")
async def test_a_transition_is_one_line_of_json_with_exactly_the_fields_of_the_specification(
    harness: ServerHarness,
):
    with capture_log() as log:
        await register_agent(harness, "pm", WORKER)
    line = next(line for line in log.text.splitlines() if "state_transition" in line)
    assert list(json.loads(line).items()) == [
        ("timestamp", "2026-01-01T12:00:00.000000Z"),
        ("event", "state_transition"),
        ("agentId", "pm"),
        ("from", "OFFLINE"),
        ("to", "IDLE"),
        ("trigger", "agent starts"),
        ("channel", None),
    ]


@pytest.mark.requirement("T12")
async def test_a_claim_and_its_result_take_an_agent_to_active_and_back(harness: ServerHarness):
    await harness.define(PLAIN)
    with capture_log("info") as log:
        agent = await register_agent(harness, "coder-7", WORKER)
        await harness.file("plain")
        await agent.work()
        await agent.beat()
    assert moves(log, "coder-7") == [CAME, ASSIGNED, GRANTED, REPORTED]


@pytest.mark.requirement("T12")
async def test_with_several_dispatches_an_agent_is_active_until_the_last_is_over(
    harness: ServerHarness,
):
    await harness.define(PLAIN)
    with capture_log() as log:
        agent = await register_agent(harness, "coder-7", WORKER, capacity=2)
        await harness.file("plain")
        await harness.file("plain")
        first = await agent.claim(holding=[])
        second = await agent.claim(holding=[first["id"]])
        await agent.report(first)
        await agent.report(second)
    assert moves(log, "coder-7") == [CAME, ASSIGNED, GRANTED, REPORTED]


@pytest.mark.requirement("T12", "T4")
async def test_an_agent_that_loses_its_lease_has_crashed_and_comes_back_idle(
    harness: ServerHarness,
):
    await harness.define(PLAIN)
    with capture_log() as log:
        agent = await register_agent(harness, "coder-7", WORKER)
        await harness.file("plain")
        await agent.claim()
        harness.clock.advance(minutes=2)
        await harness.engine.tick()
        await refresh_agents(harness.engine, harness.served.agent_logging)
        await agent.beat()
    assert moves(log, "coder-7") == [CAME, ASSIGNED, GRANTED, CRASHED, CAME]
    (lost,) = log.of("lost")
    assert lost["agent"] == "coder-7"


@pytest.mark.requirement("T12")
async def test_an_agent_without_work_that_falls_silent_is_offline(harness: ServerHarness):
    with capture_log() as log:
        agent = await register_agent(harness, "coder-7", WORKER)
        harness.clock.advance(minutes=2)
        for _ in range(2):
            await refresh_agents(harness.engine, harness.served.agent_logging)
        await agent.beat()
    assert moves(log, "coder-7") == [CAME, STOPPED, CAME]


@pytest.mark.requirement("T12")
async def test_disabled_and_enabled_are_told_also_in_the_midst_of_work(harness: ServerHarness):
    await harness.define(PLAIN)
    with capture_log() as log:
        agent = await register_agent(harness, "coder-7", WORKER)
        await harness.file("plain")
        await agent.claim()
        await harness.ceo.patch("/agents/coder-7", json={"enabled": False})
        await harness.engine.tick()
        await harness.ceo.patch("/agents/coder-7", json={"enabled": True})
    assert moves(log, "coder-7") == [
        *(CAME, ASSIGNED, GRANTED),
        ("ACTIVE", "OFFLINE", "disabled"),
        ("OFFLINE", "IDLE", "enabled"),
    ]


@pytest.mark.requirement("T12")
async def test_a_new_stay_ends_the_one_before(harness: ServerHarness):
    await harness.define(PLAIN)
    with capture_log() as log:
        agent = await register_agent(harness, "coder-7", WORKER)
        await harness.file("plain")
        await agent.claim()
        await agent.register(WORKER)
        await harness.engine.tick()
        await agent.work()
        await harness.ceo.delete("/agents/coder-7")
    assert moves(log, "coder-7") == [
        *(CAME, ASSIGNED, GRANTED, CRASHED),
        *(CAME, ASSIGNED, GRANTED, REPORTED, STOPPED),
    ]


@pytest.mark.requirement("T12")
async def test_work_that_is_handed_back_timed_out_or_cancelled_leaves_its_agent_idle(
    harness: ServerHarness,
):
    await harness.define(SLOW, PLAIN)
    with capture_log() as log:
        agent = await register_agent(harness, "coder-7", WORKER)
        await harness.file("plain")
        dispatch = await agent.claim()
        body = {"fence": dispatch["fence"], "reason": "not mine"}
        await agent.http.post(f"/dispatches/{dispatch['id']}/release", json=body)
        execution = (await agent.claim())["execution_id"]
        close = {"action": "close", "reason": "not needed"}
        await harness.ceo.post(f"/executions/{execution}/override", json=close)
        await harness.file("slow")
        await agent.claim()
        for _ in range(7):
            harness.clock.advance(10)
            await agent.beat()
        await harness.engine.tick()
    assert moves(log, "coder-7") == [
        *(CAME, ASSIGNED, GRANTED, ("ACTIVE", "IDLE", "TURN_COMPLETE")),
        *(ASSIGNED, GRANTED, ("ACTIVE", "IDLE", "removed from channel")),
        *(ASSIGNED, GRANTED, ("ACTIVE", "QUEUED", "timeout")),
        ("QUEUED", "IDLE", "removed from channel"),
    ]


@pytest.mark.requirement("T12")
async def test_functions_come_and_go_with_their_engine(tmp_path: Any, clock: ManualClock):
    with capture_log() as log:
        async with manual_engine(f"sqlite:///{tmp_path / 'w.db'}", clock) as engine:
            engine.listeners.add(AgentLogger(engine.settings.lease))
            engine.add_agent(
                lambda _: Result(outcome=Outcome.SUCCESS), WORKER, name="f", capacity=1
            )
            name = f"f@{engine.id[-8:]}"
    assert moves(log, name) == [CAME, STOPPED]


async def test_of_two_servers_each_tells_what_it_heard_and_nothing_is_told_twice(
    postgres_url: str, clock: ManualClock
):
    async with manual_engine(postgres_url, clock) as one, manual_engine(postgres_url, clock) as two:
        lines = {engine.id: AgentLogger(engine.settings.lease) for engine in (one, two)}
        for engine in (one, two):
            engine.listeners.add(lines[engine.id])

        async def looks() -> None:
            for engine in (one, two):
                await refresh_agents(engine, lines[engine.id])

        with capture_log() as log:
            await one.define(PLAIN)
            await one.agents.register("coder-7", [WORKER])
            await looks()
            await two.start("plain")
            dispatch = await claimed(two)
            await looks()
            await one.dispatches.report_result(dispatch, "coder-7", fence(dispatch), success())
            await looks()
            await two.start("plain")
            await claimed(one)
            await silence(clock, one, two)
            await looks()
            await two.agents.heartbeat("coder-7")
            await looks()
            await silence(clock, one, two)
            await looks()
    work = [ASSIGNED, GRANTED]
    assert moves(log, "coder-7") == [CAME, *work, REPORTED, *work, CRASHED, CAME, STOPPED]


async def claimed(engine: Engine) -> str:
    dispatch = await engine.claims.claim("coder-7")
    assert dispatch is not None, "there is something to do"
    return f"{dispatch.run.id}.d{dispatch.fence}"


def fence(dispatch: str) -> int:
    return int(dispatch.rpartition(".d")[2])


def success() -> Result:
    return Result(outcome=Outcome.SUCCESS)


async def silence(clock: ManualClock, *engines: Engine) -> None:
    """Two minutes in which the engines live and nobody else does."""
    for _ in range(12):
        clock.advance(10)
        for engine in engines:
            await engine.tick()
