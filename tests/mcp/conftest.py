"""A real server, and agents that speak MCP to it, over both transports."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.client.conftest import FIX, ONE
from tests.client.serving import Server
from tests.mcp.speaking import Connected, listening, over_http, over_stdio

import handrail
from handrail.client.clients import SyncClient
from handrail.engine.settings import EngineSettings


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    url = f"sqlite:///{tmp_path / 'work.db'}"
    with Server(url, engine=EngineSettings(pulse=0.05)) as server:
        yield server


@pytest.fixture
def office(server: Server) -> Iterator[SyncClient]:
    """A person who may do anything."""
    with handrail.Client(server.url, server.token("admin", "ana")) as client:
        client.create_workflow(ONE)
        client.create_workflow(FIX)
        yield client


@pytest.fixture(params=["stdio", "http"])
def connected(request: pytest.FixtureRequest, server: Server) -> Iterator[list[Connected]]:
    """The ways in which an agent connects: by its own process, or over HTTP; the last of them as
    clients do that know the protocol before 2026 only."""
    if request.param == "stdio":
        yield [partial(over_stdio, server)]
        return
    with listening(server) as address:
        yield [partial(over_http, address, mode=mode) for mode in ("auto", "legacy")]
