"""The application: every call of the API around one engine, and what stands before them."""

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

from handrail.engine.agent_lines import AgentLines, watch
from handrail.engine.channel_lines import ChannelLines
from handrail.engine.engine import Engine
from handrail.engine.run_lines import RunLines
from handrail.server import page, problems
from handrail.server.access import API, TABLE
from handrail.server.authenticate import Authenticate, Credentials
from handrail.server.bodies import Strict
from handrail.server.courier import Courier
from handrail.server.gate import Gate
from handrail.server.idempotency import Answers, Idempotent
from handrail.server.prometheus import Meters
from handrail.server.settings import ServerSettings
from handrail.server.verifying import Verifying
from handrail.server.waits import Waits

AT_ROOT = ("health", "metrics", "page")
UNDER_API = (
    "agents",
    "answer_links",
    "approvals",
    "audit",
    "beads",
    "bugs",
    "channels",
    "dispatches",
    "document",
    "events",
    "executions",
    "files",
    "guarded_runs",
    "locks",
    "memory",
    "replay",
    "sessions",
    "settings",
    "tokens",
    "webhooks",
    "workflows",
)
"""Modules of `routes`."""
GIVEN = ("engine", "waits", "credentials", "settings", "meters", "verifying", "courier", "built")
"""What a handler may ask for, of its server."""
DESCRIPTION = """\
Handrail runs teams of AI agents and people so that every run ends, with a reason.

Send a token as `Authorization: Bearer TOKEN`. Every POST takes an `Idempotency-Key`: the same key
and body again returns the first answer. Errors are RFC 9457 problem documents.
"""


class Served:
    """An engine, served. `asgi` is for a server; `waits` says how it ends."""

    def __init__(self, engine: Engine, settings: ServerSettings | None = None) -> None:
        self.engine, self.settings = engine, settings or ServerSettings()
        self.waits = Waits(self.settings)
        self.credentials = Credentials(engine)
        self.answers = Answers(engine)
        self.verifying = Verifying(engine)
        self.meters = Meters(engine, self.waits)
        self.courier = Courier(engine, self.settings)
        self.agent_lines = AgentLines(engine.settings.lease)
        self.built = page.read()
        with warnings.catch_warnings():
            # Litestar 3 will want a mark of its own on every argument; this is Litestar 2, pinned.
            warnings.simplefilter("ignore", LitestarDeprecationWarning)
            self.litestar = application(lambda: self)
        self.asgi: ASGIApp = Gate(self.litestar, self.settings, self.meters.answered)
        for listener in (RunLines(), self.agent_lines, ChannelLines(), self.meters):
            engine.listeners.add(listener)

    @asynccontextmanager
    async def lifespan(self, _: Litestar) -> AsyncGenerator[None]:
        going = [
            asyncio.create_task(self.answers.go_on()),
            asyncio.create_task(self.courier.go_on()),
            asyncio.create_task(watch(self.engine, self.agent_lines)),
        ]
        try:
            yield
        finally:
            for task in going:
                task.cancel()
            await asyncio.gather(*going, self.verifying.close(), return_exceptions=True)
            await self.answers.write()
            await self.courier.close()


def application(whose: Callable[[], Served]) -> Litestar:
    """Every call, about whichever server `whose` says when it comes."""
    app = Litestar(
        route_handlers=[*_handlers(AT_ROOT), _Here(API, route_handlers=_handlers(UNDER_API))],
        dependencies={
            **{name: Provide(_giving(whose, name), sync_to_thread=False) for name in GIVEN},
            "caller": Provide(_caller, sync_to_thread=False),
        },
        middleware=[
            DefineMiddleware(Authenticate, credentials=lambda: whose().credentials),
            DefineMiddleware(Idempotent, answers=lambda: whose().answers),
        ],
        exception_handlers={Exception: problems.answer},
        dto=Strict,
        return_dto=None,
        request_max_body_size=whose().settings.body_bytes_max,
        lifespan=[lambda app: whose().lifespan(app)],
        openapi_config=_openapi(),
        logging_config=None,
    )
    _all_known(app)
    _one_by_one(app)
    return app


def _handlers(names: Sequence[str]) -> list[HTTPRouteHandler]:
    modules = [importlib.import_module(f"handrail.server.routes.{name}") for name in names]
    handlers: list[HTTPRouteHandler] = [one for module in modules for one in module.HANDLERS]
    for handler in handlers:
        _ = handler.parsed_fn_signature  # read once in a process, and kept with the handler
    return handlers


def _giving(whose: Callable[[], Served], name: str) -> Any:  # noqa: ANN401 - a function that Litestar calls
    def give() -> Any:  # noqa: ANN401 - whatever it is
        return getattr(whose(), name)

    return give


def _caller(request: Any) -> Any:  # noqa: ANN401 - a Caller, which `Authenticate` put there
    return request.user


def _all_known(app: Litestar) -> None:
    """Every call has its line in the access table."""
    routes = {
        (str(method), route.path_format)
        for route in app.routes
        for method in getattr(route, "methods", ())
        if method not in ("OPTIONS", "HEAD")
    }
    assert routes <= set(TABLE), sorted(routes - set(TABLE))


class _Here(Router):
    """Made for this application alone: Litestar would copy it first, with all that hangs on it."""

    def __deepcopy__(self, _: object) -> Self:
        return self


class _Nowhere(Router):
    """For Litestar's own pages about the API: they would answer for paths that are not there."""

    def register(self, value: Any) -> list[Any]:  # noqa: ANN401 - as Litestar's
        return []


def _one_by_one(app: Litestar) -> None:
    """Litestar makes a task for each thing a handler is given, to give them side by side. Ours are
    there already: one after the other takes a seventh of the server's time off a request."""
    for route in app.routes:
        for _, model in getattr(route, "route_handler_map", {}).values():
            batches = model.dependency_batches
            model.dependency_batches = [{one} for batch in batches for one in batch]


def _openapi() -> OpenAPIConfig:
    return OpenAPIConfig(
        title="Handrail",
        version="1",
        description=DESCRIPTION,
        openapi_router=_Nowhere("/", route_handlers=[]),
        components=Components(
            security_schemes={"token": SecurityScheme(type="http", scheme="bearer")}
        ),
        security=[{"token": []}],
        use_handler_docstrings=True,
    )
