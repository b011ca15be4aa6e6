"""`handrail a2a`, here or as a process of its own, and whoever works on what is filed there."""

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

import uvicorn
from tests.client.serving import Server
from tests.patience import PATIENCE

import handrail
from handrail.client.clients import SyncClient
from handrail.engine.dispatch import DispatchView
from handrail.server.connection import Connection
from handrail.server.serve import Listener

T = TypeVar("T")
ROLE = "backend-engineer"


def go(work: Coroutine[Any, Any, T]) -> T:
    """To its end, and not for ever."""

    async def bounded() -> T:
        async with asyncio.timeout(5 * PATIENCE):
            return await work

    return asyncio.run(bounded())


@asynccontextmanager
async def serving(app: Any, port: int) -> AsyncIterator[str]:
    """An application on loopback, on the loop of the test: its address."""
    config = uvicorn.Config(
        app,
        host="127.0.0.1",
        port=port,
        http=Connection,
        ws="none",
        lifespan="off",
        log_config=None,
        timeout_graceful_shutdown=1,
    )
    listener = Listener(config)
    task = asyncio.create_task(listener._serve())
    try:
        while not listener.started and not task.done():
            await asyncio.sleep(0.01)
        yield f"http://127.0.0.1:{port}"
    finally:
        listener.should_exit = True
        await task


@contextmanager
def listening(server: Server, *options: str) -> Iterator[str]:
    """`handrail a2a`: its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "handrail", "a2a", "--port", "0", *options],
        env={**os.environ, "HANDRAIL_SERVER": server.url, "HANDRAIL_TOKEN": ""},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        found = re.search(r"(http://\S+)/DEFINITION", process.stdout.readline())
        assert found, "it says where it is"
        yield found.group(1)
    finally:
        process.terminate()
        process.wait(PATIENCE)
        if process.stdout is not None:
            process.stdout.close()
    assert process.returncode == 0, "it ends in good order"


class Colleague:
    """An agent of Handrail's, who does what the test says."""

    def __init__(self, client: SyncClient, name: str) -> None:
        self.client, self.name = client, name

    def given(self) -> DispatchView:
        """Asks for work until there is some."""
        for _ in range(10):
            found = self.client.claim(self.name, wait=PATIENCE / 2)
            if isinstance(found, DispatchView):
                return found
        raise AssertionError("there is no work")

    def does(self, outcome: str, **result: Any) -> DispatchView:
        """Takes the next dispatch, and answers it."""
        given = self.given()
        self.client.report_result(given.id, given.fence, {"outcome": outcome, **result})
        return given


@contextmanager
def colleague(server: Server, name: str = "coder-1") -> Iterator[Colleague]:
    with handrail.Client(server.url, server.token("agent", name)) as client:
        client.register_agent(name, [ROLE])
        yield Colleague(client, name)
