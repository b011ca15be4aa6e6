"""The HTTP library, and nothing else that knows it: requests out, replies in, streams held open.

It is imported when the first client is opened. Everything comes twice, with and without an event
loop; what is decided about it is decided elsewhere, once.
"""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx

from handrail.client.talk import Broken, Reply, Send, Servers

CONNECT_SECONDS = 5.0
CONNECTIONS_MAX = 1_000
IDLE_CONNECTIONS_MAX = 100
IDLE_SECONDS = 4.0
"""Less than servers keep an idle connection, so that none is used as it closes."""
DIRECT = ("all://127.0.0.1", "all://localhost", "all://[::1]")
"""This machine: never by way of a proxy, whatever the environment says."""
OPENED = 200


def options(servers: Servers) -> dict[str, Any]:
    """How both clients of the library are made."""
    return {
        # Reading the system's certificates takes longer than a call on this machine.
        "verify": any(address.startswith("https:") for address in servers.addresses),
        "mounts": dict.fromkeys(DIRECT),
        "limits": httpx.Limits(
            max_connections=CONNECTIONS_MAX,
            max_keepalive_connections=IDLE_CONNECTIONS_MAX,
            keepalive_expiry=IDLE_SECONDS,
        ),
    }


class AsyncWire:
    def __init__(
        self, servers: Servers, timeout: float, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self.http = httpx.AsyncClient(**options(servers), transport=transport)
        self.timeout = timeout

    async def send(self, send: Send) -> Reply | Broken:
        try:
            answer = await self.http.send(_request(self.http, send, self.timeout, send.wait))
        except httpx.RequestError as error:
            return _broken(error)
        return _reply(answer, answer.content)

    def pipe(self, silence: float) -> "AsyncPipe":
        return AsyncPipe(self, silence)

    async def close(self) -> None:
        await self.http.aclose()


class AsyncPipe:
    """A stream of the server; opened as often as it takes, one at a time."""

    def __init__(self, wire: AsyncWire, silence: float) -> None:
        self.wire, self.silence = wire, silence
        self._answer: httpx.Response | None = None
        self._chunks: AsyncIterator[bytes] | None = None

    async def open(self, send: Send) -> Reply | Broken:
        await self.close()
        http = self.wire.http
        try:
            answer = await http.send(
                _request(http, send, self.wire.timeout, self.silence), stream=True
            )
            self._answer, self._chunks = answer, answer.aiter_bytes()
            body = b"" if answer.status_code == OPENED else await answer.aread()
        except httpx.RequestError as error:
            return _broken(error)
        return _reply(answer, body)

    async def read(self) -> bytes | Broken:
        assert self._chunks is not None, "opened"
        try:
            return await anext(self._chunks, b"")
        except httpx.RequestError as error:
            return _broken(error)

    async def close(self) -> None:
        if self._answer is not None:
            await self._answer.aclose()


class SyncWire:
    def __init__(self, servers: Servers, timeout: float) -> None:
        self.http, self.timeout = httpx.Client(**options(servers)), timeout

    def send(self, send: Send) -> Reply | Broken:
        try:
            answer = self.http.send(_request(self.http, send, self.timeout, send.wait))
        except httpx.RequestError as error:
            return _broken(error)
        return _reply(answer, answer.content)

    def pipe(self, silence: float) -> "SyncPipe":
        return SyncPipe(self, silence)

    def close(self) -> None:
        self.http.close()


class SyncPipe:
    """As `AsyncPipe`."""

    def __init__(self, wire: SyncWire, silence: float) -> None:
        self.wire, self.silence = wire, silence
        self._answer: httpx.Response | None = None
        self._chunks: Iterator[bytes] | None = None

    def open(self, send: Send) -> Reply | Broken:
        self.close()
        http = self.wire.http
        try:
            answer = http.send(_request(http, send, self.wire.timeout, self.silence), stream=True)
            self._answer, self._chunks = answer, answer.iter_bytes()
            body = b"" if answer.status_code == OPENED else answer.read()
        except httpx.RequestError as error:
            return _broken(error)
        return _reply(answer, body)

    def read(self) -> bytes | Broken:
        assert self._chunks is not None, "opened"
        try:
            return next(self._chunks, b"")
        except httpx.RequestError as error:
            return _broken(error)

    def close(self) -> None:
        if self._answer is not None:
            self._answer.close()


def _request(
    http: httpx.AsyncClient | httpx.Client, send: Send, timeout: float, wait: float
) -> httpx.Request:
    """`wait`: how much longer than usual the other side may be silent."""
    connect = min(timeout, CONNECT_SECONDS)
    return http.build_request(
        send.method,
        send.url,
        params=dict(send.query) or None,
        headers=dict(send.headers),
        content=send.body,
        timeout=httpx.Timeout(timeout, connect=connect, read=timeout + wait),
    )


def _reply(answer: httpx.Response, body: bytes) -> Reply:
    return Reply(answer.status_code, {k.lower(): v for k, v in answer.headers.items()}, body)


def _broken(error: httpx.RequestError) -> Broken:
    if isinstance(error, httpx.TimeoutException):
        return Broken("it takes too long to answer")
    return Broken(str(error) or type(error).__name__)
