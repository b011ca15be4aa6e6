"""The ASGI application: every call of the API around one engine, and its middleware."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import cache
from typing import Any, cast

from litestar import Litestar
from litestar.types import ASGIApp, LifeSpanReceive, LifeSpanSend

from handrail.api.calls import OPERATIONS
from handrail.engine.engine import Engine
from handrail.engine.event_logging import AgentLogger, ChannelLogger, RunLogger, watch_agents
from handrail.server.access import AuthenticationMiddleware, CredentialCache
from handrail.server.binding import BoundHandler, forward
from handrail.server.idempotency import IdempotencyMiddleware, IdempotentResponses
from handrail.server.long_polls import LongPolls
from handrail.server.outer_middleware import OuterMiddleware
from handrail.server.problems import handle_exception
from handrail.server.prometheus import ServerMetrics
from handrail.server.routes import (
    admin,
    agents,
    approvals,
    audit,
    beads,
    budgets,
    channels,
    definitions,
    event_streams,
    healing,
    runs,
    web_app,
    webhooks,
)
from handrail.server.settings import ServerSettings

ROUTE_MODULES = (
    admin,
    agents,
    approvals,
    audit,
    beads,
    budgets,
    channels,
    definitions,
    event_streams,
    healing,
    runs,
    web_app,
    webhooks,
)
ENGINE_METHODS = {
    "approvals.get": "approvals.get",
    "approvals.list": "approvals.list",
    "audit.list": "audit.trail",
    "beads.get": "beads.get",
    "beads.list": "beads.list",
    "beads.list_files": "beads.files",
    "budgets.list": "budgets.list",
    "bugs.list": "bugs.list",
    "channels.list": "channels.list",
    "definitions.get": "definitions.get",
    "definitions.list": "definitions.list",
    "definitions.list_versions": "definitions.versions",
    "definitions.tune": "replays.tune",
    "locks.list": "locks.list",
    "memories.get": "memory.get",
    "runs.explain": "run_queries.why",
    "runs.get_details": "run_queries.details",
    "runs.list_notes": "run_queries.notes",
    "runs.list_steps": "run_queries.steps",
    "runs.list_transitions": "run_queries.transitions",
}
"""Operations that are a method of the engine and nothing more."""
HANDLERS: tuple[BoundHandler[Any], ...] = (
    *(
        cast("BoundHandler[Any]", item)
        for module in ROUTE_MODULES
        for item in cast("dict[str, object]", vars(module)).values()
        if isinstance(item, BoundHandler)
    ),
    *(
        forward(operation, ENGINE_METHODS[operation.name])
        for operation in OPERATIONS
        if operation.name in ENGINE_METHODS
    ),
)
if unserved := {*OPERATIONS} ^ {item.operation for item in HANDLERS if item.operation}:
    raise RuntimeError(f"not served, or unknown: {', '.join(map(str, unserved))}")


class ServerApp:
    """The HTTP application around one engine. `asgi` is the ASGI app; setting
    `long_polls.draining` begins a graceful shutdown."""

    def __init__(self, engine: Engine, settings: ServerSettings | None = None) -> None:
        self.engine, self.settings = engine, settings or ServerSettings()
        self.long_polls = LongPolls(self.settings)
        self.credentials = CredentialCache(engine)
        self.idempotent_responses = IdempotentResponses(engine)
        self.audit_verifier = audit.AuditVerifier(engine)
        self.metrics = ServerMetrics(engine, lambda: self.long_polls.count)
        self.webhook_sender = webhooks.WebhookSender(engine, self.settings)
        self.agent_logging = AgentLogger(engine.settings.lease)
        self.web_app_files = web_app.load_web_app()
        self.litestar = routing_app(self.settings.body_bytes_max)
        self.asgi: ASGIApp = OuterMiddleware(self.litestar, self)
        for listener in (RunLogger(), self.agent_logging, ChannelLogger(), self.metrics):
            engine.listeners.add(listener)

    async def run_lifespan(self, receive: LifeSpanReceive, send: LifeSpanSend) -> None:
        """Run the background tasks from ASGI's startup to its shutdown."""
        await receive()
        async with self.lifespan():
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        tasks = [
            asyncio.create_task(self.idempotent_responses.run()),
            asyncio.create_task(self.webhook_sender.run()),
            asyncio.create_task(watch_agents(self.engine, self.agent_logging)),
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, self.audit_verifier.close(), return_exceptions=True)
            await self.idempotent_responses.flush()
            await self.webhook_sender.close()


@cache  # one for all servers of a process: each puts itself into the scope of its requests
def routing_app(body_bytes_max: int) -> Litestar:
    """Return the application that finds the handler of a request, behind the middleware."""
    return Litestar(
        route_handlers=[item.route_handler() for item in HANDLERS],
        middleware=[AuthenticationMiddleware, IdempotencyMiddleware],
        exception_handlers={Exception: handle_exception},
        request_max_body_size=body_bytes_max,
        openapi_config=None,
        logging_config=None,
    )
