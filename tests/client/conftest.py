"""A real server with a definition, and clients of both kinds."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.client.live_server import Server
from tests.kernel.driven_run import chain, node

from handrail import Client
from handrail.api.operation import CallGroup
from handrail.engine.settings import EngineSettings

FIX = chain(node("fix"), node("ok", "approval", revise_to="fix"), name="fix")
ONE = chain(node("fix"), name="one")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    url = f"sqlite:///{tmp_path / 'work.db'}"
    with Server(url, engine=EngineSettings(pulse=0.05)) as server:
        yield server


@pytest.fixture
def admin(server: Server) -> str:
    return server.token("admin", "ana")


class Awaited:
    """An `AsyncClient`, for a test that is written once for both kinds."""

    def __init__(self, client: Any, loop: asyncio.AbstractEventLoop) -> None:
        self.client, self.loop = client, loop

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.client, name)
        if isinstance(method, CallGroup):
            return Awaited(method, self.loop)

        def call(*args: Any, **kwargs: Any) -> Any:
            args = tuple(getattr(one, "awaited", one) for one in args)
            answer = method(*args, **kwargs)
            if inspect.isasyncgen(answer):
                return self._iterate(answer)
            return self.loop.run_until_complete(answer)

        call.awaited = method  # type: ignore[attr-defined]
        return call

    def _iterate(self, items: AsyncIterator[Any]) -> Iterator[Any]:
        end = object()

        async def following() -> Any:
            return await anext(items, end)

        while (one := self.loop.run_until_complete(following())) is not end:
            yield one


@pytest.fixture(params=["sync", "async"])
def client(request: pytest.FixtureRequest, server: Server, admin: str) -> Iterator[Any]:
    """A client of either kind, with an admin's token."""
    of = Client(server.url, admin)
    if request.param == "sync":
        with of as found:
            yield found
        return
    loop = asyncio.new_event_loop()
    yield Awaited(loop.run_until_complete(of.__aenter__()), loop)
    loop.run_until_complete(of.__aexit__(None, None, None))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


@pytest.fixture
def admin_client(server: Server, admin: str) -> Iterator[Any]:
    """A plain client for what a test needs beside its subject."""
    with Client(server.url, admin) as found:
        yield found
