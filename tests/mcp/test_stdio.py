"""`handrail mcp` over stdio: the end of the process is the end of the agent."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.client.live_server import Server
from tests.client.protocol_servers import environment
from tests.mcp.mcp_clients import PATIENCE, ROLE, over_stdio
from tests.patience import wait_until

from handrail.client.clients import SyncClient

HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}
GARBAGE = (
    b"hello",
    b"",
    b"\xff\xfe",
    b"[]",
    b'{"a":' * 50_000,
    b'"' + b"x" * 3_000_000 + b'"',
    b'{"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": 5}}',
    b'{"jsonrpc": "2.0", "id": 8, "method": "tools/call", "params": {"arguments": 1}}',
)


class Piped:
    """A process that is spoken to line by line, by somebody who also writes nonsense."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.process, self.calls = process, 100

    def write(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def asks(self, method: str, **params: Any) -> dict[str, Any]:
        self.calls += 1
        body = {"jsonrpc": "2.0", "id": self.calls, "method": method, "params": params}
        self.write(json.dumps(body).encode())
        assert self.process.stdout is not None
        for line in self.process.stdout:
            said = json.loads(line)
            if said.get("id") == self.calls:
                return said["result"]
        raise AssertionError("it has ended")

    def does(self, tool: str, **arguments: Any) -> str:
        return self.asks("tools/call", name=tool, arguments=arguments)["content"][0]["text"]


@contextmanager
def piped(server: Server, token: str) -> Iterator[Piped]:
    command = [sys.executable, "-m", "handrail", "mcp"]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, env=environment(server, token), stdin=pipe, stdout=pipe
    ) as process:
        try:
            yield Piped(process)
        finally:
            process.kill()


def test_an_agent_that_goes_away_gives_its_work_back(server: Server, admin_client: SyncClient):
    filed = admin_client.beads.create("a bug", workflow_id="one")

    async def play() -> None:
        async with over_stdio(server, server.token("agent", "ada")) as agent:
            await agent.do("register", roles=[ROLE])
            await agent.claimed()
            assert len(admin_client.agents.get("ada").current_work) == 1

    asyncio.run(play())
    wait_until(lambda: not admin_client.agents.get("ada").current_work)
    lost = admin_client.runs.list_steps(filed.execution_id or "").items[0]
    assert (lost.agent, lost.outcome) == ("ada", "lost")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_though_its_input_is_open_and_its_work_is_given_back(
    server: Server, admin_client: SyncClient, number: signal.Signals
):
    filed = admin_client.beads.create("a bug", workflow_id="one")
    with piped(server, server.token("agent", "ada")) as agent:
        agent.asks("initialize", **HELLO)
        for line in GARBAGE:
            agent.write(line)
        assert "You are 'ada'" in agent.does("register", roles=[ROLE])
        assert "# Dispatch" in agent.does("claim", wait=20)
        assert admin_client.agents.get("ada").current_work
        agent.process.send_signal(number)
        assert agent.process.wait(PATIENCE) == -number
        assert admin_client.agents.get("ada").current_work == ()
    lost = admin_client.runs.list_steps(filed.execution_id or "").items[0]
    assert (lost.agent, lost.outcome) == ("ada", "lost")
