"""The ASGI application: every call of the API around one engine, and its middleware."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import cache
from typing import Any, cast

from litestar import Litestar
from litestar.types import ASGIApp, LifeSpanReceive, LifeSpanSend

from handrail.api.calls import OPERATIONS
from handrail.engine.agent_logging import AgentLogger, watch_agents
from handrail.engine.engine import Engine
from handrail.engine.event_logging import ChannelLogger, RunLogger
from handrail.server import problems, web_app
from handrail.server.audit_verifier import AuditVerifier
from handrail.server.authentication import AuthenticationMiddleware, CredentialCache
from handrail.server.binding import BoundHandler
from handrail.server.idempotency import IdempotencyMiddleware, IdempotentResponses
from handrail.server.long_polls import LongPolls
from handrail.server.outer_middleware import OuterMiddleware
from handrail.server.prometheus import ServerMetrics
from handrail.server.routes import (
    agents,
    answer_links,
    approvals,
    audit,
    beads,
    bugs,
    channels,
    definitions,
    dispatches,
    events,
    files,
    guarded_runs,
    health,
    locks,
    memory,
    metrics,
    openapi,
    replay,
    runs,
    sessions,
    tokens,
    webhooks,
)
from handrail.server.routes import (
    settings as setting_routes,
)
from handrail.server.routes import (
    web_app as web_app_routes,
)
from handrail.server.settings import ServerSettings
from handrail.server.webhook_sender import WebhookSender

ROUTE_MODULES = (
    agents,
    answer_links,
    approvals,
    audit,
    beads,
    bugs,
    channels,
    definitions,
    dispatches,
    events,
    files,
    guarded_runs,
    health,
    locks,
    memory,
    metrics,
    openapi,
    replay,
    runs,
    sessions,
    setting_routes,
    tokens,
    web_app_routes,
    webhooks,
)
HANDLERS: tuple[BoundHandler[Any], ...] = tuple(
    cast("BoundHandler[Any]", item)
    for module in ROUTE_MODULES
    for item in cast("dict[str, object]", vars(module)).values()
    if isinstance(item, BoundHandler)
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
        self.audit_verifier = AuditVerifier(engine)
        self.metrics = ServerMetrics(engine, self.long_polls)
        self.webhook_sender = WebhookSender(engine, self.settings)
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
        exception_handlers={Exception: problems.handle_exception},
        request_max_body_size=body_bytes_max,
        openapi_config=None,
        logging_config=None,
    )
