"""A server process: opens the engine, listens, drains on a signal, and returns an exit code.

A server whose engine fails exits, so that its supervisor restarts it: half a server is useless. On
SIGTERM or SIGINT the server says so at /readyz, still takes requests for a moment, ends those that
wait, and closes the engine; a second signal ends it at once.
"""

import asyncio
import ipaddress
import logging
import resource
import signal
import socket
from collections.abc import Awaitable, Callable

import uvicorn

from handrail.engine.engine import Engine
from handrail.engine.log_events import log_event
from handrail.engine.opening import open as open_engine
from handrail.engine.settings import EngineSettings
from handrail.server.app import ServerApp
from handrail.server.http_protocol import BoundedHTTPProtocol
from handrail.server.logs import capture_logs
from handrail.server.settings import ServerSettings

log = logging.getLogger("handrail.server")

CLOSE_SECONDS_MAX = 10
"""How long open responses may take, once the server no longer listens."""
BACKLOG_CONNECTIONS = 2_048
OTHER_FILES_MAX = 200
"""Open files other than connections: the database, sockets, files of agents."""
IDLE_SECONDS_MAX = 75
"""A connection may be idle for longer than a request may wait."""


class CannotServeError(Exception):
    """The server cannot start; one line says what is wrong, and what to do."""


class _EngineFailedError(Exception):
    """The engine failed; the log says why."""


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


async def serve(
    database: str,
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
    engine_settings: EngineSettings | None = None,
    settings: ServerSettings | None = None,
    ready: Callable[[Engine, str], Awaitable[bool]] | None = None,
) -> int:
    """Serve until a signal; return the exit code. `ready` is called with the URL once the server
    listens, and returns whether to go on."""
    server_settings = settings or ServerSettings()
    _raise_file_limit(server_settings.connections_max)
    with capture_logs(server_settings.log_level, server_settings.log_format):
        try:
            await _serve_database(database, host, port, engine_settings, server_settings, ready)
            code = 0
        except _EngineFailedError:
            code = 1
        log_event(log, "server_ended", reason="the engine failed" if code else "")
        return code


def _raise_file_limit(connections: int) -> None:
    """Raise the limit of open files: a connection is one, and the default limit is low."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files_wanted = connections + OTHER_FILES_MAX
    files_max = files_wanted if hard == resource.RLIM_INFINITY else min(files_wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < files_max:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files_max, hard))


async def _serve_database(
    database: str,
    host: str,
    port: int,
    engine_settings: EngineSettings | None,
    settings: ServerSettings,
    ready: Callable[[Engine, str], Awaitable[bool]] | None,
) -> None:
    async with open_engine(database, settings=engine_settings) as engine:
        if not is_loopback(host) and not await engine.credentials.has_tokens():
            raise CannotServeError(
                f"refusing to listen on {host}: no API token exists; "
                "run `handrail token create --role admin`"
            )
        server_app = ServerApp(engine, settings)
        server = _EngineServer(server_app, host, port)
        signal_task = asyncio.create_task(_drain_on_signal(server, server_app))
        engine_task = asyncio.create_task(_exit_with_engine(server, server_app))
        try:
            await server.listen(ready)
        finally:
            for task in (signal_task, engine_task):
                task.cancel()
            await asyncio.gather(signal_task, engine_task, return_exceptions=True)
        if engine.failure is not None:
            raise _EngineFailedError


def uvicorn_config(server_app: ServerApp, host: str, port: int) -> uvicorn.Config:
    """Return uvicorn's configuration, with bounds on connections."""
    return uvicorn.Config(
        server_app.asgi,
        host=host,
        port=port,
        http=BoundedHTTPProtocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=BACKLOG_CONNECTIONS,
        limit_concurrency=server_app.settings.connections_max,
        timeout_keep_alive=IDLE_SECONDS_MAX,
        timeout_graceful_shutdown=CLOSE_SECONDS_MAX,
    )


class ClosingServer(uvicorn.Server):
    """A uvicorn server that closes every connection: uvicorn would leave those open that came
    while it was closing, or whose client did not read the response."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        for connection in list(self.server_state.connections):
            connection.transport.abort()  # pyright: ignore[reportAttributeAccessIssue] - ours have one


class _EngineServer(ClosingServer):
    def __init__(self, server_app: ServerApp, host: str, port: int) -> None:
        super().__init__(uvicorn_config(server_app, host, port))
        self.server_app = server_app

    async def listen(self, ready: Callable[[Engine, str], Awaitable[bool]] | None) -> None:
        serving = asyncio.create_task(self._serve())
        while not self.started and not serving.done():
            await asyncio.sleep(0.01)
        try:
            if self.started:
                log_event(log, "server_started", url=self.url, engine_id=self.server_app.engine.id)
            if (
                self.started
                and ready is not None
                and not await ready(self.server_app.engine, self.url)
            ):
                self.should_exit = True
        except BaseException:
            self.should_exit = True
            raise
        finally:
            await serving
            if self.force_exit:  # then uvicorn does not shut the application down
                await self.lifespan.shutdown()

    async def _serve(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super()._serve(sockets)
        except SystemExit as error:  # raised by uvicorn when it cannot listen
            message = f"port {self.config.port} on {self.config.host} cannot be opened"
            raise CannotServeError(
                f"{message}; is another server running? use another --port"
            ) from error

    @property
    def url(self) -> str:
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def _drain_on_signal(server: _EngineServer, server_app: ServerApp) -> None:
    loop = asyncio.get_running_loop()
    signalled = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signalled.set)
    try:
        await signalled.wait()
        log_event(log, "server_draining", seconds=server_app.settings.drain)
        server_app.long_polls.draining.set()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, _force_exit, server)
        await asyncio.sleep(server_app.settings.drain)
        server.should_exit = True
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


def _force_exit(server: _EngineServer) -> None:
    server.should_exit = server.force_exit = True


async def _exit_with_engine(server: _EngineServer, server_app: ServerApp) -> None:
    if (await server_app.engine.wait_closed()) is not None:
        server_app.long_polls.draining.set()
        server.should_exit = True
