"""The API without a socket, for commands that open the database directly.

It uses the application of the server, so a command behaves the same either way. The transport puts
the caller into the scope of each request, where `AuthenticationMiddleware` looks first. A server
makes the scopes of its requests itself and never sets a caller; and this module returns a transport
for an HTTP client, not an application, so that it cannot be served.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from litestar.types import ASGIApp, Message

from handrail.engine.engine import Engine
from handrail.server.access import SCOPE_LOCAL_CALLER, Caller
from handrail.server.app import ServerApp
from handrail.server.settings import ServerSettings

LOCAL_URL = "http://local"
"""A placeholder: no connection is made."""
CHUNKS_MAX = 100


@asynccontextmanager
async def open_local_transport(
    engine: Engine, caller: Caller, settings: ServerSettings | None = None
) -> AsyncGenerator[httpx.AsyncBaseTransport]:
    """Open a transport for an HTTP client: `caller` makes every request, to this engine."""
    server_app = ServerApp(engine, settings)
    async with server_app.lifespan():
        try:
            yield _LocalTransport(server_app.asgi, caller)
        finally:
            server_app.long_polls.draining.set()


class _LocalTransport(httpx.AsyncBaseTransport):
    def __init__(self, app: ASGIApp, caller: Caller) -> None:
        self.app, self.caller = app, caller

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": request.method,
            "scheme": request.url.scheme,
            "path": request.url.path,
            "raw_path": request.url.raw_path.partition(b"?")[0],
            "query_string": request.url.query,
            "root_path": "",
            "headers": [(name.lower(), value) for name, value in request.headers.raw],
            "server": (request.url.host, request.url.port),
            "client": None,
            SCOPE_LOCAL_CALLER: self.caller,
        }
        exchange = _Exchange(await request.aread())
        exchange.start(self.app, scope)
        try:
            status, headers = await exchange.started
        except BaseException:
            await exchange.aclose()
            raise
        return httpx.Response(status, headers=headers, stream=exchange, request=request)


class _Exchange(httpx.AsyncByteStream):
    """One request and its response in chunks: an event stream has no end to wait for."""

    def __init__(self, body: bytes) -> None:
        self._body: bytes | None = body
        self._chunks: asyncio.Queue[bytes] = asyncio.Queue(CHUNKS_MAX)
        self._disconnected = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.started: asyncio.Future[tuple[int, list[tuple[bytes, bytes]]]] = (
            asyncio.get_running_loop().create_future()
        )

    def start(self, app: ASGIApp, scope: Any) -> None:  # noqa: ANN401 - a Scope, made by hand
        self._task = asyncio.create_task(self._run_app(app, scope))

    async def _run_app(self, app: ASGIApp, scope: Any) -> None:  # noqa: ANN401 - as above
        try:
            await app(scope, self._receive, self._send)
        except Exception as error:
            if self.started.done():
                await self._chunks.put(b"")
                raise
            self.started.set_exception(httpx.ReadError(str(error)))

    async def _receive(self) -> Any:  # noqa: ANN401 - a message
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._disconnected.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started.set_result((message["status"], list(message["headers"])))
        elif message["type"] == "http.response.body":
            if message["body"]:
                await self._chunks.put(message["body"])
            if not message.get("more_body"):
                await self._chunks.put(b"")

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while chunk := await self._chunks.get():
            yield chunk

    async def aclose(self) -> None:
        self._disconnected.set()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
