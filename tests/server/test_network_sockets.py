"""Over real connections: who goes away is noticed, and who does not read is waited for."""

import asyncio
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.client.live_server import Server
from tests.engine.engines import PATIENCE, chain, node
from tests.patience import wait_until_async
from tests.server.harness import PLAIN, WORKER

from handrail.kernel.result import Outcome, Result
from handrail.server.routes import event_streams
from handrail.server.settings import ServerSettings

STEPS, SIZE = 150, 100_000
LONG = chain(node("fix", multi_dispatch=True, max_attempts=STEPS), id="long")
SAID = Result(outcome=Outcome.CONTINUE, text="x" * SIZE)
IN_FLIGHT_MAX = 8_000_000
"""More than the system keeps for a connection, and far less than all events together."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(f"sqlite:///{tmp_path / 'work.db'}") as running:
        yield running


def sent(
    server: Server, token: str, what: str, body: Any = None, *, room: int = 0
) -> socket.socket:
    """A connection on which that was asked; with `room` for so many bytes that are not read."""
    line = socket.socket()
    if room:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
    line.settimeout(PATIENCE)
    line.connect(("127.0.0.1", server.port))
    again(line, token, what, body)
    return line


def again(line: socket.socket, token: str, what: str, body: Any = None) -> None:
    text = json.dumps(body) if body is not None else ""
    head = f"{what} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n"
    line.sendall(f"{head}content-length: {len(text)}\r\n\r\n{text}".encode())


def heard(line: socket.socket, text: str) -> None:
    """Until that has come."""
    told = b""
    while text.encode() not in told:
        more = line.recv(65_536)
        assert more, f"closed after {told!r}"
        told += more


def waiting(server: Server, count: int) -> None:
    """Until so many requests wait at the server."""

    assert server._served is not None
    served = server._served
    server.do(wait_until_async(lambda: served.long_polls.count == count))


def connected(server: Server, count: int) -> None:
    """Until so many connections are open."""

    assert server._uvicorn is not None
    connections = server._uvicorn.server_state.connections
    server.do(wait_until_async(lambda: len(connections) == count))


def define(server: Server, document: dict[str, Any]) -> str:
    """The run of a bead of that definition."""

    async def begin() -> str:
        defined = await server.engine.define(document)
        return (await server.engine.start(defined.id)).id

    return server.do(begin())


def test_whoever_comes_when_the_house_is_full_is_told_so(tmp_path: Path) -> None:
    settings = ServerSettings(drain=0, connections_max=2)
    with Server(f"sqlite:///{tmp_path / 'work.db'}", settings=settings) as server:
        token = server.token("viewer")
        with sent(server, token, "GET /healthz") as one, sent(server, token, "GET /healthz") as two:
            heard(one, "200 OK")
            heard(two, "200 OK")
            with sent(server, token, "GET /healthz") as third:
                heard(third, '"detail":"try again soon"}')
            again(one, token, "GET /healthz")
            heard(one, "200 OK")
        connected(server, 0)
        with sent(server, token, "GET /healthz") as fourth:
            heard(fourth, "200 OK")


def test_a_claim_whose_connection_is_closed_gives_its_place_back(server: Server) -> None:
    token = server.token("agent", "coder-7")
    server.do(server.engine.agents.register("coder-7", (WORKER,)))
    body = {"agent_id": "coder-7", "wait": 60}
    with sent(server, token, "POST /api/v1/dispatches/claim", body):
        waiting(server, 1)
    waiting(server, 0)
    run = define(server, PLAIN)
    body = {"agent_id": "coder-7", "wait": 0}
    with sent(server, token, "POST /api/v1/dispatches/claim", body) as line:
        heard(line, run)


def test_a_stream_whose_connection_is_closed_gives_its_place_back(server: Server) -> None:
    token, run = server.token("viewer"), define(server, PLAIN)
    with sent(server, token, f"GET /api/v1/executions/{run}/events") as line:
        heard(line, "event: started")
        waiting(server, 1)
    waiting(server, 0)


def test_a_stream_ends_well_when_the_server_does(server: Server) -> None:
    token, run = server.token("viewer"), define(server, PLAIN)
    with sent(server, token, f"GET /api/v1/executions/{run}/events") as line:
        heard(line, "event: started")
        server.stop()
        told = b""
        while more := line.recv(65_536):
            told += more
    assert told.endswith(b"retry: 1000\n\n\r\n0\r\n\r\n")


def test_an_answer_that_nobody_takes_does_not_outlive_the_server(server: Server) -> None:
    """uvicorn would wait for a while, and then leave the connection as it is."""
    bead = server.do(server.engine.beads.create(title="a bug"))
    server.do(server.engine.beads.put_file(bead.id, "big", bytes(IN_FLIGHT_MAX)))
    token, path = server.token("viewer"), f"GET /api/v1/beads/{bead.id}/files/big"
    with sent(server, token, path, room=4_096) as line:
        heard(line, "200 OK")
        assert server._uvicorn is not None
        (connection,) = server._uvicorn.server_state.connections
        ours = connection.transport.get_extra_info("socket")  # pyright: ignore
        server.stop()
        assert ours.fileno() == -1, "closed"


def test_a_reader_that_does_not_read_costs_the_server_nothing(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    handed = 0
    within = event_streams._send_chunk

    async def counted(send: Any, body: bytes, *, more: bool = True) -> None:
        nonlocal handed
        await within(send, body, more=more)
        handed += len(body)

    monkeypatch.setattr(event_streams, "_send_chunk", counted)
    token, run = server.token("viewer"), define(server, LONG)
    path = f"GET /api/v1/executions/{run}/events"
    with sent(server, token, path, room=4_096):
        waiting(server, 1)

        async def work() -> None:
            server.engine.add_agent(lambda dispatch: SAID, WORKER, name="talker")
            async with asyncio.timeout(PATIENCE):
                while (await server.engine.runs.state(run)).status != "waiting":
                    await asyncio.sleep(0.01)

        server.do(work())
        assert STEPS * SIZE > 1.5 * IN_FLIGHT_MAX
        assert handed < IN_FLIGHT_MAX
    waiting(server, 0)


@pytest.mark.requirement("T4")
def test_a_line_that_an_agent_held_open_and_lost_makes_its_last_sign_of_life_an_old_one(
    server: Server,
):
    token = server.token("agent", "ada")
    server.do(server.engine.agents.register("ada", [WORKER]))
    line = sent(server, token, "POST /api/v1/agents/ada/heartbeat", {"wait": 30})
    waiting(server, 1)
    before = server.do(server.engine.agents.get("ada")).last_seen
    line.close()
    waiting(server, 0)
    after = server.do(server.engine.agents.get("ada")).last_seen
    assert after < before, "it is found silent after two heartbeats, not after a lease"
