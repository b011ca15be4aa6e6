"""A real server, and agents that speak MCP to it, over both transports."""

from collections.abc import Iterator
from functools import partial

import pytest
from tests.client.live_server import Server
from tests.client.protocol_servers import admin_client, server, start_listener
from tests.mcp.mcp_clients import Connected, over_http, over_stdio

__all__ = ["admin_client", "server"]


@pytest.fixture(params=["stdio", "http"])
def connected(request: pytest.FixtureRequest, server: Server) -> Iterator[list[Connected]]:
    """The ways in which an agent connects: by its own process, or over HTTP; the last of them as
    clients do that know the protocol before 2026 only."""
    if request.param == "stdio":
        yield [partial(over_stdio, server)]
        return
    with start_listener(server, "mcp", "--http") as address:
        yield [partial(over_http, address, mode=mode) for mode in ("auto", "legacy")]
