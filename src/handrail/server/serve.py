"""A server process: opens the engine, listens, drains when it is told to end, and says how it went.

A server whose engine fails ends itself: half a server helps nobody, and whoever runs it starts it
again. When told to end (SIGTERM, SIGINT) it says so at /readyz, still takes requests for a moment,
lets those that wait go, and closes the engine; a second signal ends it at once.
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
from handrail.engine.opening import open as open_engine
from handrail.engine.settings import EngineSettings
from handrail.engine.vocabulary import tell
from handrail.server.app import Served
from handrail.server.connection import Connection
from handrail.server.logs import written
from handrail.server.settings import ServerSettings

log = logging.getLogger("handrail.server")

CLOSE_SECONDS = 10
"""How long answers that are under way may take, once the server no longer listens."""
BACKLOG = 2_048
FILES_BESIDE = 200
"""Open files that are no connections: the database, sockets, what agents read."""
IDLE_SECONDS = 75
"""How long a connection may be idle: longer than a request may wait."""


class CannotServe(Exception):  # noqa: N818 - an answer, not a mistake of the program
    """One line: what is wrong, and what to do."""


class _EngineFailed(Exception):  # noqa: N818 - as above
    """Why stands in the log."""


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
    """Until it is told to end; the exit code. `ready` is called once it listens, with its URL, and
    says whether to go on."""
    wanted = settings or ServerSettings()
    _allow_files(wanted.connections_max)
    with written(wanted.log_level, wanted.log_format):
        try:
            await _served(database, host, port, engine_settings, wanted, ready)
            code = 0
        except _EngineFailed:
            code = 1
        tell(log, "server_ended", reason="the engine failed" if code else "")
        return code


def _allow_files(connections: int) -> None:
    """A connection is an open file, of which the system allows few unless it is asked for more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + FILES_BESIDE
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


async def _served(
    database: str,
    host: str,
    port: int,
    engine_settings: EngineSettings | None,
    settings: ServerSettings,
    ready: Callable[[Engine, str], Awaitable[bool]] | None,
) -> None:
    async with open_engine(database, settings=engine_settings) as engine:
        if not is_loopback(host) and not await engine.has_tokens():
            told = f"nobody has a token, so {host} is not listened on: anybody could come"
            raise CannotServe(f"{told}; make one with `handrail token create --role admin`")
        served = Served(engine, settings)
        server = _Server(served, host, port)
        ending = asyncio.create_task(_end_on_signal(server, served))
        watching = asyncio.create_task(_end_with_engine(server, served))
        try:
            await server.listen(ready)
        finally:
            for task in (ending, watching):
                task.cancel()
            await asyncio.gather(ending, watching, return_exceptions=True)
        if engine.failure is not None:
            raise _EngineFailed


def listening(served: Served, host: str, port: int) -> uvicorn.Config:
    """How it listens: with bounds for whoever comes."""
    return uvicorn.Config(
        served.asgi,
        host=host,
        port=port,
        http=Connection,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=BACKLOG,
        limit_concurrency=served.settings.connections_max,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=CLOSE_SECONDS,
    )


class Listener(uvicorn.Server):
    """uvicorn's, and it leaves no connection behind: one that came while it was closing, or whose
    answer nobody took, uvicorn would leave open."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        for one in list(self.server_state.connections):
            one.transport.abort()  # pyright: ignore[reportAttributeAccessIssue] - ours have one


class _Server(Listener):
    def __init__(self, served: Served, host: str, port: int) -> None:
        super().__init__(listening(served, host, port))
        self.served = served

    async def listen(self, ready: Callable[[Engine, str], Awaitable[bool]] | None) -> None:
        serving = asyncio.create_task(self._serve())
        while not self.started and not serving.done():
            await asyncio.sleep(0.01)
        try:
            if self.started:
                tell(log, "server_started", url=self.url, engine_id=self.served.engine.id)
            if self.started and ready is not None and not await ready(self.served.engine, self.url):
                self.should_exit = True
        except BaseException:
            self.should_exit = True
            raise
        finally:
            await serving
            if self.force_exit:  # uvicorn leaves the application as it is then
                await self.lifespan.shutdown()

    async def _serve(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super()._serve(sockets)
        except SystemExit as error:  # uvicorn's way to say that it cannot listen
            told = f"port {self.config.port} on {self.config.host} cannot be listened on"
            raise CannotServe(f"{told}; is another server there? take another --port") from error

    @property
    def url(self) -> str:
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def _end_on_signal(server: _Server, served: Served) -> None:
    loop = asyncio.get_running_loop()
    told = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
    try:
        await told.wait()
        tell(log, "server_draining", seconds=served.settings.drain)
        served.waits.draining.set()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, _at_once, server)
        await asyncio.sleep(served.settings.drain)
        server.should_exit = True
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


def _at_once(server: _Server) -> None:
    server.should_exit = server.force_exit = True


async def _end_with_engine(server: _Server, served: Served) -> None:
    failure = await served.engine.over()
    if failure is not None:
        served.waits.draining.set()
        server.should_exit = True
