"""`handrail a2a`, as a process of its own, and whoever works on what is filed there."""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from tests.client.live_server import Server
from tests.client.protocol_servers import start_listener
from tests.patience import PATIENCE

import handrail
from handrail.client.clients import SyncClient
from handrail.views.dispatches import DispatchView

T = TypeVar("T")
ROLE = "backend-engineer"


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """To its end, and not for ever."""

    async def bounded() -> T:
        async with asyncio.timeout(5 * PATIENCE):
            return await work

    return asyncio.run(bounded())


@contextmanager
def start_a2a_server(server: Server) -> Iterator[str]:
    """`handrail a2a`, as a process of its own: its address."""
    with start_listener(server, "a2a") as address:
        yield address.removesuffix("/DEFINITION")


class HandrailWorker:
    """An agent of Handrail's, who does what the test says."""

    def __init__(self, client: SyncClient, name: str) -> None:
        self.client, self.name = client, name

    def given(self) -> DispatchView:
        """Asks for work until there is some."""
        for _ in range(10):
            found = self.client.dispatches.claim(self.name, wait=PATIENCE / 2)
            if isinstance(found, DispatchView):
                return found
        raise AssertionError("there is no work")

    def does(self, outcome: str, **result: Any) -> DispatchView:
        """Takes the next dispatch, and answers it."""
        given = self.given()
        self.client.dispatches.report(given.id, given.fence, {"outcome": outcome, **result})
        return given


@contextmanager
def open_worker(server: Server, name: str = "coder-1") -> Iterator[HandrailWorker]:
    with handrail.Client(server.url, server.token("agent", name)) as client:
        client.agents.register(name, [ROLE])
        yield HandrailWorker(client, name)
