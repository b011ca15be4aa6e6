"""Clients of the official SDK, against `handrail mcp` as a process of its own."""

import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any

import httpx2
from mcp.client.streamable_http import streamable_http_client
from tests.client.serving import Server

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
        return content.text, bool(result.is_error)

    async def claimed(self) -> str:
        """Asks for work until there is some."""
        for _ in range(10):
            said = await self.do("claim", wait=20)
            if not said.startswith("There is nothing"):
                return said
        raise AssertionError("there is no work")


def environment(server: Server, token: str = "") -> dict[str, str]:
    given = {**os.environ, "HANDRAIL_SERVER": server.url, "HANDRAIL_TOKEN": token}
    return {name: value for name, value in given.items() if value}


@asynccontextmanager
async def over_stdio(server: Server, token: str) -> AsyncIterator[Agent]:
    command = StdioServerParameters(
        command=sys.executable, args=["-m", "handrail", "mcp"], env=environment(server, token)
    )
    async with Client(command, read_timeout_seconds=PATIENCE) as client:
        yield Agent(client)


@contextmanager
def listening(server: Server, *options: str) -> Iterator[str]:
    """`handrail mcp --http`: its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "handrail", "mcp", "--http", "--port", "0", *options],
        env={**environment(server), "HANDRAIL_TOKEN": ""},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        found = re.search(r"http://\S+", process.stdout.readline())
        assert found, "it says where it is"
        yield found.group()
    finally:
        process.terminate()
        process.wait(PATIENCE)
        if process.stdout is not None:
            process.stdout.close()
    assert process.returncode == 0, "it ends in good order"


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
