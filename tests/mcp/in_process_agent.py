"""Agents at a server whose clock is the test's, by the SDK's own client, all in one process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from tests.mcp.mcp_clients import Agent
from tests.server.harness import ADDRESS, ServerHarness

import handrail
from handrail.mcp.agent_session import AgentSession
from handrail.mcp.server import make_server
from handrail.server.access import issue_credential
from mcp import Client

BEAT = 0.01
"""Seconds between heartbeats: what passes at the server is the test's business."""


class ManualTime:
    """Seconds, by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def open_agent_session(
    harness: ServerHarness, name: str = "coder-1", *, clock: ManualTime | None = None, **token: Any
) -> AsyncIterator[tuple[Agent, AgentSession]]:
    """An agent of that name, and its seat. `token`: what its token says beside."""
    now = harness.clock.now()
    secret, row = issue_credential("token", name=name, role="agent", by="test", now=now, **token)
    await harness.engine.credentials.add(row)
    transport = httpx.ASGITransport(app=harness.served.asgi)  # pyright: ignore[reportArgumentType]
    async with handrail.Client(ADDRESS, secret, transport=transport) as client:
        seat = AgentSession(client, name, heartbeat_seconds=BEAT, clock=clock or ManualTime())

        async def seat_of(_: object) -> AgentSession:
            return seat

        try:
            async with Client(make_server(seat_of)) as spoken:
                yield Agent(spoken), seat
        finally:
            await seat.end()
