"""The only server is stopped for longer than a lease, as by SIGSTOP or a paused machine, while
agents send their heartbeats all the time."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest
from tests.failover.cluster import SECONDS, Server

from handrail import Client
from handrail.client.clients import SyncClient
from handrail.client.errors import ConflictError
from handrail.views.dispatches import DispatchView

LEASE_SECONDS, BEAT_SECONDS = 2.0, 0.5
SETTINGS = {
    "HANDRAIL_LEASE": f"{LEASE_SECONDS}s",
    "HANDRAIL_HEARTBEAT": f"{BEAT_SECONDS}s",
    "HANDRAIL_PULSE": "0.05s",
}
WORK = {
    "name": "w",
    "kind": "workflow",
    "nodes": [
        {"id": "start", "type": "start"},
        {"id": "a", "type": "task", "role": "backend-engineer"},
        {"id": "end", "type": "end"},
    ],
    "edges": [
        {"from_node_id": "start", "to_node_id": "a"},
        {"from_node_id": "a", "to_node_id": "end"},
    ],
}


@contextmanager
def beating(client: SyncClient, agent: str) -> Iterator[None]:
    """An agent that sends heartbeats, answered or not."""
    done = Event()

    def beat() -> None:
        while not done.wait(BEAT_SECONDS):
            client.agents.heartbeat(agent)

    thread = Thread(target=beat)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(SECONDS)


@pytest.mark.heavy
def test_an_agent_keeps_its_work_while_the_server_stands_still(tmp_path: Path):
    database = f"sqlite:///{tmp_path}/work.db"
    server = Server(database, tmp_path, "server", SETTINGS)
    try:
        address = server.address()
        command = [sys.executable, "-m", "handrail", "token", "create", "--role", "admin"]
        token = subprocess.run(
            [*command, "--database", database], capture_output=True, text=True, check=True
        ).stdout.strip()
        with (
            Client(address, token, patience=SECONDS) as admin,
            Client(address, admin.tokens.create("agent", agent="ada").token) as agent,
            Client(address, admin.tokens.create("agent", agent="ada").token) as beats,
        ):
            admin.definitions.create(WORK)
            agent.agents.register("ada", ["backend-engineer"])
            with beating(beats, "ada"):
                for factor in (1.5, 3, 0.8):
                    admin.beads.create(title="t", workflow_id="w")
                    dispatch = agent.dispatches.claim("ada", wait=5)
                    assert isinstance(dispatch, DispatchView)
                    server.process.send_signal(signal.SIGSTOP)
                    Event().wait(factor * LEASE_SECONDS)
                    server.process.send_signal(signal.SIGCONT)
                    try:
                        agent.dispatches.report(dispatch.id, dispatch.fence, {"outcome": "success"})
                    except ConflictError as late:
                        pytest.fail(f"after {factor} leases: {late}")
        assert "stood_still" in server.log.read_text()
    finally:
        server.close()
