"""A door beside the server's: an application that listens until it is told to end, with the bounds
that a server has for whoever comes."""

import asyncio
import signal
import socket
from collections.abc import Callable
from typing import Literal

import uvicorn

from handrail.cli.database import InputError
from handrail.cli.turnstile import App, Turnstile
from handrail.server.connection import Connection
from handrail.server.serve import Listener

CONNECTIONS_MAX = 1_000
CLOSE_SECONDS = 3
SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Listening(Listener):
    """`ready` is told the address, before anybody is answered."""

    def __init__(
        self,
        app: App,
        host: str,
        port: int,
        ready: Callable[[str], None],
        *,
        lifespan: Literal["on", "off"] = "off",
    ) -> None:
        config = uvicorn.Config(
            Turnstile(app),
            host=host,
            port=port,
            http=Connection,
            ws="none",
            lifespan=lifespan,
            log_config=None,
            access_log=False,
            server_header=False,
            limit_concurrency=CONNECTIONS_MAX,
            timeout_graceful_shutdown=CLOSE_SECONDS,
        )
        super().__init__(config)
        self._ready = ready

    async def listen(self) -> None:
        """Until SIGTERM or SIGINT."""
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self._end)
        try:
            await self._serve()
        except SystemExit as error:  # uvicorn's way to say that it cannot listen
            told = f"port {self.config.port} on {self.config.host} cannot be listened on"
            raise InputError(f"{told}; take another --port") from error
        finally:
            for number in SIGNALS:
                loop.remove_signal_handler(number)

    def _end(self) -> None:
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            name, number = self.servers[0].sockets[0].getsockname()[:2]
            self._ready(f"http://{f'[{name}]' if ':' in name else name}:{number}")
