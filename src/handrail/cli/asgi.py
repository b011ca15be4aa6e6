"""Serve an ASGI application beside the server, until a signal, with the bounds that the server has
for its clients.
"""

import asyncio
import signal
import socket
from collections.abc import Callable
from typing import Literal

import uvicorn

from handrail.cli.auth_limit import App, AuthRateLimit
from handrail.cli.command import InputError
from handrail.server.http_protocol import BoundedHTTPProtocol
from handrail.server.process import ClosingServer

CONNECTIONS_MAX = 1_000
CLOSE_SECONDS = 3
SIGNALS = (signal.SIGTERM, signal.SIGINT)


class AsgiServer(ClosingServer):
    """`ready` is called with the address, before the first response."""

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
            AuthRateLimit(app),
            host=host,
            port=port,
            http=BoundedHTTPProtocol,
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
        """Listen until SIGTERM or SIGINT."""
        loop = asyncio.get_running_loop()
        for signum in SIGNALS:
            loop.add_signal_handler(signum, self._stop)
        try:
            await self._serve()
        except SystemExit as error:  # uvicorn cannot listen
            message = f"port {self.config.port} on {self.config.host} cannot be listened on"
            raise InputError(f"{message}; take another --port") from error
        finally:
            for signum in SIGNALS:
                loop.remove_signal_handler(signum)

    def _stop(self) -> None:
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            self._ready(f"http://{f'[{host}]' if ':' in host else host}:{port}")
