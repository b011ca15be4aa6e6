"""The ASGI application: every call of the API around one engine, and its middleware."""

import asyncio
import importlib
import warnings
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Self

from litestar import Litestar, Router
from litestar.di import Provide
from litestar.exceptions.base_exceptions import LitestarDeprecationWarning
from litestar.handlers import HTTPRouteHandler
from litestar.middleware import DefineMiddleware
from litestar.openapi import OpenAPIConfig
from litestar.openapi.spec import Components, SecurityScheme
from litestar.types import ASGIApp

from handrail.engine.agent_logging import AgentLogger, watch_agents
from handrail.engine.engine import Engine
from handrail.engine.event_logging import ChannelLogger, RunLogger
from handrail.server import problems, web_app
from handrail.server.access import ACCESS_TABLE, API_PREFIX
from handrail.server.audit_verifier import AuditVerifier
from handrail.server.authentication import AuthenticationMiddleware, CredentialCache
from handrail.server.idempotency import IdempotencyMiddleware, IdempotentResponses
from handrail.server.long_polls import LongPolls
from handrail.server.outer_middleware import OuterMiddleware
from handrail.server.prometheus import ServerMetrics
from handrail.server.request_body import StrictDTO
from handrail.server.settings import ServerSettings
from handrail.server.webhook_sender import WebhookSender

ROOT_ROUTE_MODULES = ("health", "metrics", "web_app")
API_ROUTE_MODULES = (
    "agents",
    "answer_links",
    "approvals",
    "audit",
    "beads",
    "bugs",
    "channels",
    "definitions",
    "dispatches",
    "events",
    "files",
    "guarded_runs",
    "locks",
    "memory",
    "openapi",
    "replay",
    "runs",
    "sessions",
    "settings",
    "tokens",
    "webhooks",
)
DEPENDENCIES = (
    "engine",
    "long_polls",
    "credentials",
    "settings",
    "metrics",
    "audit_verifier",
    "webhook_sender",
    "web_app_files",
)
"""Attributes of `ServerApp` that handlers may take as arguments."""
DESCRIPTION = """\
Handrail runs teams of AI agents and people so that every run ends, with a reason.

Send a token as `Authorization: Bearer TOKEN`. Every POST takes an `Idempotency-Key`: the same key
and body again returns the first answer. Errors are RFC 9457 problem documents.
"""


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
        with warnings.catch_warnings():
            # Litestar 3 will require a marker on every argument; Litestar 2 is pinned.
            warnings.simplefilter("ignore", LitestarDeprecationWarning)
            self.litestar = application(lambda: self)
        self.asgi: ASGIApp = OuterMiddleware(
            self.litestar, self.settings, self.metrics.record_response
        )
        for listener in (RunLogger(), self.agent_logging, ChannelLogger(), self.metrics):
            engine.listeners.add(listener)

    @asynccontextmanager
    async def lifespan(self, _: Litestar) -> AsyncGenerator[None]:
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


def application(get_server_app: Callable[[], ServerApp]) -> Litestar:
    """Build the Litestar app; each request uses the `ServerApp` that `get_server_app` returns."""
    app = Litestar(
        route_handlers=[
            *_load_handlers(ROOT_ROUTE_MODULES),
            _UncopiedRouter(API_PREFIX, route_handlers=_load_handlers(API_ROUTE_MODULES)),
        ],
        dependencies={
            **{
                name: Provide(_provide(get_server_app, name), sync_to_thread=False)
                for name in DEPENDENCIES
            },
            "caller": Provide(_provide_caller, sync_to_thread=False),
        },
        middleware=[
            DefineMiddleware(
                AuthenticationMiddleware, credentials=lambda: get_server_app().credentials
            ),
            DefineMiddleware(
                IdempotencyMiddleware, responses=lambda: get_server_app().idempotent_responses
            ),
        ],
        exception_handlers={Exception: problems.handle_exception},
        dto=StrictDTO,
        return_dto=None,
        request_max_body_size=get_server_app().settings.body_bytes_max,
        lifespan=[lambda app: get_server_app().lifespan(app)],
        openapi_config=_openapi_config(),
        logging_config=None,
    )
    _check_access_table(app)
    _resolve_dependencies_in_turn(app)
    return app


def _load_handlers(names: Sequence[str]) -> list[HTTPRouteHandler]:
    modules = [importlib.import_module(f"handrail.server.routes.{name}") for name in names]
    handlers: list[HTTPRouteHandler] = [item for module in modules for item in module.HANDLERS]
    for handler in handlers:
        _ = handler.parsed_fn_signature  # parsed once per process, and cached by the handler
    return handlers


def _provide(get_server_app: Callable[[], ServerApp], name: str) -> Any:  # noqa: ANN401 - a function that Litestar calls
    def provide() -> Any:  # noqa: ANN401 - any of DEPENDENCIES
        return getattr(get_server_app(), name)

    return provide


def _provide_caller(request: Any) -> Any:  # noqa: ANN401 - a Caller, set by the middleware
    return request.user


def _check_access_table(app: Litestar) -> None:
    """Check that every call is in the access table."""
    routes = {
        (str(method), route.path_format)
        for route in app.routes
        for method in getattr(route, "methods", ())
        if method not in ("OPTIONS", "HEAD")
    }
    assert routes <= set(ACCESS_TABLE), sorted(routes - set(ACCESS_TABLE))


class _UncopiedRouter(Router):
    """A router used by one application only: Litestar need not deep-copy it and its handlers."""

    def __deepcopy__(self, _: object) -> Self:
        return self


class _EmptyRouter(Router):
    """Drops Litestar's own API pages: they would answer for paths that do not exist."""

    def register(self, value: Any) -> list[Any]:  # noqa: ANN401 - as Litestar's
        return []


def _resolve_dependencies_in_turn(app: Litestar) -> None:
    """Make Litestar provide dependencies one after the other. It would make a task for each, to
    run them concurrently; ours need no waiting, and this saves a seventh of a request's time."""
    for route in app.routes:
        for _, model in getattr(route, "route_handler_map", {}).values():
            batches = model.dependency_batches
            model.dependency_batches = [{dependency} for batch in batches for dependency in batch]


def _openapi_config() -> OpenAPIConfig:
    return OpenAPIConfig(
        title="Handrail",
        version="1",
        description=DESCRIPTION,
        openapi_router=_EmptyRouter("/", route_handlers=[]),
        components=Components(
            security_schemes={"token": SecurityScheme(type="http", scheme="bearer")}
        ),
        security=[{"token": []}],
        use_handler_docstrings=True,
    )
