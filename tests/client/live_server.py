"""A real server on loopback, in a thread of the test; it can be stopped, started and asked."""

import asyncio
import atexit
import socket
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from handrail.engine.engine import Engine
from handrail.engine.environment import Clock
from handrail.engine.opening import open as open_engine
from handrail.engine.settings import EngineSettings
from handrail.server.access import issue_credential
from handrail.server.app import ServerApp
from handrail.server.process import ClosingServer, uvicorn_config
from handrail.server.settings import ServerSettings

T = TypeVar("T")
PATIENCE = 60.0


_kept: deque[socket.socket] = deque()
_KEPT_MAX = 64


def free_port() -> int:
    """A port where nobody listens, kept bound: no other process is given it before a server of ours
    listens there, nor while that is started again. A server may have it: SO_REUSEADDR lets it."""
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    one.bind(("127.0.0.1", 0))
    _kept.append(one)
    if len(_kept) > _KEPT_MAX:
        _kept.popleft().close()
    return one.getsockname()[1]


@atexit.register
def _let_go() -> None:
    while _kept:
        _kept.popleft().close()


class Server:
    """One address, one database; the server behind it comes and goes."""

    def __init__(
        self,
        database: str,
        *,
        engine: EngineSettings | None = None,
        settings: ServerSettings | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.database, self.clock = database, clock
        self.engine_settings = engine or EngineSettings()
        self.settings = settings or ServerSettings(drain=0)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._uvicorn: ClosingServer | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._engine: Engine | None = None
        self._served: ServerApp | None = None

    def __enter__(self) -> "Server":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, before: Callable[[], object] | None = None) -> None:
        """`before`: what is done with the engine before anybody can reach the server."""
        self._before = before
        up = threading.Event()
        wrong: list[BaseException] = []

        def run() -> None:
            try:
                asyncio.run(self._serve(up))
            except BaseException as error:
                wrong.append(error)
            finally:
                up.set()

        self._thread = threading.Thread(target=run, name="server", daemon=True)
        self._thread.start()
        assert up.wait(PATIENCE), "the server starts"
        if wrong:
            raise wrong[0]

    async def _serve(self, up: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        opened = open_engine(self.database, settings=self.engine_settings, clock=self.clock)
        async with opened as engine:
            self._engine = engine
            self._served = ServerApp(engine, self.settings)
            config = uvicorn_config(self._served, "127.0.0.1", self.port)
            config.timeout_graceful_shutdown = 1
            if self._before is not None:
                await asyncio.to_thread(self._before)
            self._uvicorn = ClosingServer(config)
            serving = asyncio.create_task(self._uvicorn.serve())
            while not self._uvicorn.started and not serving.done():
                await asyncio.sleep(0.01)
            up.set()
            await serving

    def stop(self) -> None:
        """As after SIGTERM: those that wait are let go, then it ends."""
        if self._thread is None or self._loop is None or self._uvicorn is None:
            return
        assert self._served is not None
        self._loop.call_soon_threadsafe(self._served.long_polls.draining.set)
        self._uvicorn.should_exit = True
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "the server stops"
        self._thread = None

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """A coroutine of the engine, on its own loop."""
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)

    def file(self, definition: str) -> str:
        """A run of that definition, begun on the engine itself."""
        return self.do(self.engine.start(definition)).id

    @property
    def engine(self) -> Engine:
        assert self._engine is not None
        return self._engine

    def token(self, role: Any, name: str = "test") -> str:
        """A token of that role, for a person or an agent of that name."""
        secret, row = issue_credential(
            "token", name=name, role=role, by="test", now=self.engine.clock()
        )
        self.do(self.engine.credentials.add(row))
        return secret
