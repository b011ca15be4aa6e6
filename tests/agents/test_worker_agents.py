"""The same agents in a `handrail.Worker`, against a real server: one code path for both."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.agents import model_stub as stubs
from tests.agents.agent_runs import FIX
from tests.agents.helpdesk_replies import HELPDESK, MODEL, Says, by_tool
from tests.agents.model_stub import TOKENS, ModelReply, Stub
from tests.client.live_server import Server

import handrail
from handrail.agents.dispatch_input import AgentFunction
from handrail.agents.http import http_agent
from handrail.agents.model import ModelLimits, model_agent
from handrail.agents.program import program_agent
from handrail.engine.settings import EngineSettings
from handrail.teams import load_builtin

PATIENCE = 60.0
LIMITS = ModelLimits(seconds=20, retries=0)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    url = f"sqlite:///{tmp_path / 'work.db'}"
    with Server(url, engine=EngineSettings(pulse=0.05)) as server:
        yield server


async def worked(
    server: Server, agent: AgentFunction, roles: tuple[str, ...], document: dict[str, Any]
) -> Any:
    """A run of the document, worked by that agent alone, in a worker."""
    worker = handrail.Worker(server.url, server.token("agent", "worker-1"), heartbeat=0.1)
    worker.add(agent, *roles)
    working = asyncio.create_task(worker.run())
    client = handrail.Client(server.url, server.token("operator", "ola"))
    try:
        async with client as admin_client:
            await admin_client.definitions.create(document)
            name = document.get("id") or document["name"]
            bead = await admin_client.beads.create("VPN drops every hour", workflow_id=name)
            assert bead.execution_id is not None
            return await admin_client.result(bead.execution_id, timeout=PATIENCE)
    finally:
        worker.stop()
        await working


def models(server: Server, says: Says, monkeypatch: pytest.MonkeyPatch) -> Any:
    async def play() -> Any:
        async with Stub(says) as stub:
            monkeypatch.setenv("OPENAI_BASE_URL", stub.url)
            document = {**load_builtin("helpdesk"), "id": "own", "name": "own"}
            return await worked(server, model_agent(MODEL, limits=LIMITS), HELPDESK, document)

    return asyncio.run(play())


def test_a_team_of_models_works_in_a_worker(server: Server, monkeypatch: pytest.MonkeyPatch):
    run = models(server, by_tool, monkeypatch)
    assert run.terminal_status == "done_success"
    assert len(run.handoff_sequence) == 11
    assert run.usage.tokens == 12 * TOKENS


def test_what_a_model_used_in_vain_is_counted_in_a_worker(
    server: Server, monkeypatch: pytest.MonkeyPatch
):
    run = models(server, lambda asked: stubs.refuse("no"), monkeypatch)
    assert run.stop.rule == "protocol"
    assert f"the model '{MODEL}' of 'orchestrator' refused to answer" in run.stop.reason
    assert run.usage.tokens == 3 * TOKENS


def test_a_model_that_is_away_loses_attempts_in_a_worker(
    server: Server, monkeypatch: pytest.MonkeyPatch
):
    run = models(server, lambda asked: stubs.fail(503), monkeypatch)
    assert (run.stop.rule, run.usage.tokens) == ("agent_lost", 0)
    assert "is not available (503: no); try again later" in run.stop.reason


def test_a_program_works_in_a_worker(server: Server, tmp_path: Path):
    script = "import json, sys; print(json.load(sys.stdin)['bead']['title'])"
    agent = program_agent(sys.executable, "-c", script, folder=tmp_path)
    run = asyncio.run(worked(server, agent, ("backend-engineer",), FIX))
    assert run.terminal_status == "done_success"


def test_a_service_works_in_a_worker(server: Server):
    async def play() -> Any:
        async with Stub(lambda asked: ModelReply(b'{"outcome": "success"}')) as stub:
            return await worked(server, http_agent(stub.url), ("backend-engineer",), FIX)

    assert asyncio.run(play()).terminal_status == "done_success"
