"""Serve an ASGI application beside the server, until a signal, with the bounds that the server has
for its clients.

`AuthRateLimit` limits clients that send invalid credentials, so that the A2A and MCP front ends do
not forward them to the server: there all clients of a front end share one address, so that the
invalid credentials of one would slow down the others. Here each client has its own, lower limit. A
client that was admitted before is not slowed down by others at its address, and of other tokens a
few a second are tried all the same, so that strangers lock nobody out.
"""

import asyncio
import signal
import socket
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Literal

import msgspec
import uvicorn

from handrail.cli.command import InputError
from handrail.client.bearer import read_bearer_token
from handrail.server.access import digest_secret
from handrail.server.http_protocol import BoundedHTTPProtocol
from handrail.server.outer_middleware import RecentCallers, TokenBuckets
from handrail.server.process import ClosingServer

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

INVALID_CREDENTIALS_PER_SECOND = 1.0
TRIALS_PER_SECOND = 5.0
"""Tokens that the server is asked about although others at their address were not valid."""
RETRY_SECONDS = 5
STATUS_UNAUTHORIZED, STATUS_TOO_MANY_REQUESTS, STATUS_BAD_REQUEST = 401, 429, 400
REFUSAL_DETAIL = (
    "too many requests from your address had no valid token; correct it, and retry later"
)


class AuthRateLimit:
    def __init__(self, app: App) -> None:
        self.app = app
        self.failures, self.admitted = TokenBuckets(INVALID_CREDENTIALS_PER_SECOND), RecentCallers()
        self.trials = TokenBuckets(TRIALS_PER_SECOND)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        address = scope["client"][0] if scope["client"] else ""
        token = read_bearer_token(scope["headers"])
        credential_digest = digest_secret(token) if token else ""
        if not self._may_pass(address, credential_digest):
            await _refuse(send)
            return

        async def send_and_record(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._record_status(address, credential_digest, message["status"])
            await send(message)

        await self.app(scope, receive, send_and_record)

    def _may_pass(self, address: str, credential_digest: str) -> bool:
        now = time.monotonic()
        if credential_digest in self.admitted or not self.failures.wait(address, now):
            return True
        if not credential_digest or self.trials.wait("", now):
            return False
        self.trials.take("", now)
        return True

    def _record_status(self, address: str, credential_digest: str, status: int) -> None:
        is_unproven = status == STATUS_TOO_MANY_REQUESTS and credential_digest not in self.admitted
        if (
            status == STATUS_UNAUTHORIZED or is_unproven
        ):  # the server limits this front end for invalid credentials
            self.failures.take(address, time.monotonic())
            self.admitted.discard(credential_digest)
        elif credential_digest and status < STATUS_BAD_REQUEST:
            self.admitted.add(credential_digest)


async def _refuse(send: Send) -> None:
    await send(
        {
            "type": "http.response.start",
            "status": STATUS_TOO_MANY_REQUESTS,
            "headers": [
                (b"content-type", b"application/problem+json"),
                (b"retry-after", b"%d" % RETRY_SECONDS),
            ],
        }
    )
    problem = {"type": "about:blank", "status": STATUS_TOO_MANY_REQUESTS, "detail": REFUSAL_DETAIL}
    await send({"type": "http.response.body", "body": msgspec.json.encode(problem)})


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
        super().__init__(
            uvicorn.Config(
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
        )
        self._ready = ready

    async def listen(self) -> None:
        """Listen until SIGTERM or SIGINT."""
        loop = asyncio.get_running_loop()
        for signum in SIGNALS:
            loop.add_signal_handler(signum, self._stop)
        try:
            await self._serve()
        except SystemExit as error:  # uvicorn cannot listen
            raise InputError(
                f"port {self.config.port} on {self.config.host} cannot be opened; use "
                "another --port"
            ) from error
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
