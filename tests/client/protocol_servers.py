"""What tests of the doors beside the server's (A2A, MCP) share: a real server with two definitions,
and a door here, or as a process of its own."""

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Literal

import pytest
import uvicorn
from tests.client.conftest import FIX, ONE, server
from tests.client.live_server import Server
from tests.patience import PATIENCE

import handrail
from handrail.client.clients import SyncClient
from handrail.server.http_protocol import BoundedHTTPProtocol
from handrail.server.process import ClosingServer

__all__ = ["server"]


@pytest.fixture
def admin_client(server: Server) -> Iterator[SyncClient]:
    """A person who may do anything."""
    with handrail.Client(server.url, server.token("admin", "ana")) as client:
        client.definitions.create(ONE)
        client.definitions.create(FIX)
        yield client


def environment(server: Server, token: str = "") -> dict[str, str]:
    given = {**os.environ, "HANDRAIL_SERVER": server.url, "HANDRAIL_TOKEN": token}
    return {name: value for name, value in given.items() if value}


@contextmanager
def start_listener(server: Server, *command: str) -> Iterator[str]:
    """`handrail COMMAND` on a port of its own: what it says that its address is."""
    process = subprocess.Popen(
        [sys.executable, "-m", "handrail", *command, "--port", "0"],
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
        process.wait(5 * PATIENCE)
        if process.stdout is not None:
            process.stdout.close()
    assert process.returncode == 0, "it ends in good order"


@asynccontextmanager
async def serve_app(
    app: Any, port: int, lifespan: Literal["on", "off"] = "off"
) -> AsyncIterator[str]:
    """An application on loopback, on the loop of the test: its address."""
    config = uvicorn.Config(
        app,
        host="127.0.0.1",
        port=port,
        http=BoundedHTTPProtocol,
        ws="none",
        lifespan=lifespan,
        log_config=None,
        timeout_graceful_shutdown=1,
    )
    listener = ClosingServer(config)
    task = asyncio.create_task(listener._serve())
    try:
        while not listener.started and not task.done():
            await asyncio.sleep(0.01)
        yield f"http://127.0.0.1:{port}"
    finally:
        listener.should_exit = True
        await task
