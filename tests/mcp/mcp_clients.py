"""Clients of the official SDK, against `handrail mcp` as a process of its own."""

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import httpx2
import msgspec
from mcp.client.streamable_http import streamable_http_client
from mcp.types import TextContent
from tests.client.live_server import Server
from tests.client.protocol_servers import environment

from handrail.mcp.tools import TOOLS
from mcp import Client, StdioServerParameters

PATIENCE = 120.0
ROLE = "backend-engineer"
Connected = Callable[[str], AbstractAsyncContextManager["Agent"]]
"""An agent with that token."""


class Agent:
    """A client as a model would use it: tools by name, text back."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def do(self, tool: str, **arguments: Any) -> str:
        """What the tool says; it has to go well."""
        text, wrong = await self.tries(tool, **arguments)
        assert not wrong, text
        return text

    async def refused(self, tool: str, **arguments: Any) -> str:
        """What the tool says; it has to go wrong."""
        text, wrong = await self.tries(tool, **arguments)
        assert wrong, text
        return text

    async def tries(self, tool: str, **arguments: Any) -> tuple[str, bool]:
        result = await self.client.call_tool(tool, arguments)
        (content,) = result.content
        assert isinstance(content, TextContent)
        if result.is_error:
            assert result.structured_content is None
        else:
            output = msgspec.convert(result.structured_content, TOOLS[tool].output_type)
            assert output.text == content.text
        return content.text, bool(result.is_error)

    async def claimed(self) -> str:
        """Asks for work until there is some."""
        for _ in range(10):
            said = await self.do("claim", wait=20)
            if not said.startswith("There is nothing"):
                return said
        raise AssertionError("there is no work")


@asynccontextmanager
async def over_stdio(server: Server, token: str) -> AsyncIterator[Agent]:
    command = StdioServerParameters(
        command=sys.executable, args=["-m", "handrail", "mcp"], env=environment(server, token)
    )
    async with Client(command, read_timeout_seconds=PATIENCE) as client:
        yield Agent(client)


@asynccontextmanager
async def over_http(address: str, token: str, mode: str = "auto") -> AsyncIterator[Agent]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=PATIENCE, trust_env=False) as http,
        Client(
            streamable_http_client(address, http_client=http),
            mode=mode,
            read_timeout_seconds=PATIENCE,
        ) as client,
    ):
        yield Agent(client)
