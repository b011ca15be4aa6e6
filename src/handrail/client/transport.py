"""The only module that uses httpx: sends requests, reads responses, holds streams open.

It is imported when the first client is opened. Every class comes twice, with and without an event
loop; all decisions are made elsewhere, once.
"""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx

from handrail.client.retry import RawResponse, SendRequest, ServerAddresses, TransportFailure

CONNECT_SECONDS = 5.0
CONNECTIONS_MAX = 1_000
IDLE_CONNECTIONS_MAX = 100
IDLE_SECONDS = 4.0
"""Shorter than servers keep idle connections, so that none is used while it closes."""
PROXY_BYPASS = ("all://127.0.0.1", "all://localhost", "all://[::1]")
"""This machine is never reached through a proxy, whatever the environment says."""
STATUS_OK = 200


def client_options(servers: ServerAddresses) -> dict[str, Any]:
    """Return the options of both httpx clients."""
    return {
        # Reading the system's certificates takes longer than a call on this machine.
        "verify": any(address.startswith("https:") for address in servers.addresses),
        "mounts": dict.fromkeys(PROXY_BYPASS),
        "limits": httpx.Limits(
            max_connections=CONNECTIONS_MAX,
            max_keepalive_connections=IDLE_CONNECTIONS_MAX,
            keepalive_expiry=IDLE_SECONDS,
        ),
    }


class AsyncTransport:
    def __init__(
        self,
        servers: ServerAddresses,
        timeout: float,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.http = httpx.AsyncClient(**client_options(servers), transport=transport)
        self.timeout = timeout

    async def send(self, request: SendRequest) -> RawResponse | TransportFailure:
        try:
            response = await self.http.send(
                _build_httpx_request(self.http, request, self.timeout, request.wait_seconds)
            )
        except httpx.RequestError as error:
            return _to_failure(error)
        return _to_raw_response(response, response.content)

    def open_stream(self, silence_seconds: float) -> "AsyncByteStream":
        return AsyncByteStream(self, silence_seconds)

    async def close(self) -> None:
        await self.http.aclose()


class AsyncByteStream:
    """A byte stream from the server; reopened as often as needed, one at a time."""

    def __init__(self, transport: AsyncTransport, silence_seconds: float) -> None:
        self.transport, self.silence_seconds = transport, silence_seconds
        self._response: httpx.Response | None = None
        self._chunks: AsyncIterator[bytes] | None = None

    async def open(self, request: SendRequest) -> RawResponse | TransportFailure:
        await self.close()
        http = self.transport.http
        try:
            response = await http.send(
                _build_httpx_request(http, request, self.transport.timeout, self.silence_seconds),
                stream=True,
            )
            self._response, self._chunks = response, response.aiter_bytes()
            body = b"" if response.status_code == STATUS_OK else await response.aread()
        except httpx.RequestError as error:
            return _to_failure(error)
        return _to_raw_response(response, body)

    async def read(self) -> bytes | TransportFailure:
        assert self._chunks is not None, "opened"
        try:
            return await anext(self._chunks, b"")
        except httpx.RequestError as error:
            return _to_failure(error)

    async def close(self) -> None:
        if self._response is not None:
            await self._response.aclose()


class SyncTransport:
    def __init__(self, servers: ServerAddresses, timeout: float) -> None:
        self.http, self.timeout = httpx.Client(**client_options(servers)), timeout

    def send(self, request: SendRequest) -> RawResponse | TransportFailure:
        try:
            response = self.http.send(
                _build_httpx_request(self.http, request, self.timeout, request.wait_seconds)
            )
        except httpx.RequestError as error:
            return _to_failure(error)
        return _to_raw_response(response, response.content)

    def open_stream(self, silence_seconds: float) -> "SyncByteStream":
        return SyncByteStream(self, silence_seconds)

    def close(self) -> None:
        self.http.close()


class SyncByteStream:
    """Like `AsyncByteStream`."""

    def __init__(self, transport: SyncTransport, silence_seconds: float) -> None:
        self.transport, self.silence_seconds = transport, silence_seconds
        self._response: httpx.Response | None = None
        self._chunks: Iterator[bytes] | None = None

    def open(self, request: SendRequest) -> RawResponse | TransportFailure:
        self.close()
        http = self.transport.http
        try:
            response = http.send(
                _build_httpx_request(http, request, self.transport.timeout, self.silence_seconds),
                stream=True,
            )
            self._response, self._chunks = response, response.iter_bytes()
            body = b"" if response.status_code == STATUS_OK else response.read()
        except httpx.RequestError as error:
            return _to_failure(error)
        return _to_raw_response(response, body)

    def read(self) -> bytes | TransportFailure:
        assert self._chunks is not None, "opened"
        try:
            return next(self._chunks, b"")
        except httpx.RequestError as error:
            return _to_failure(error)

    def close(self) -> None:
        if self._response is not None:
            self._response.close()


def _build_httpx_request(
    http: httpx.AsyncClient | httpx.Client, request: SendRequest, timeout: float, wait: float
) -> httpx.Request:
    """`wait`: seconds that the server may be silent beyond the timeout."""
    return http.build_request(
        request.method,
        request.url,
        params=dict(request.query) or None,
        headers=dict(request.headers),
        content=request.body,
        timeout=httpx.Timeout(timeout, connect=min(timeout, CONNECT_SECONDS), read=timeout + wait),
    )


def _to_raw_response(response: httpx.Response, body: bytes) -> RawResponse:
    return RawResponse(
        response.status_code, {k.lower(): v for k, v in response.headers.items()}, body
    )


def _to_failure(error: httpx.RequestError) -> TransportFailure:
    if isinstance(error, httpx.TimeoutException):
        return TransportFailure("it takes too long to answer")
    return TransportFailure(str(error) or type(error).__name__)
