"""Call a remote A2A agent: read its card, then call by JSON-RPC, each call with bounds.

Rules
1. The card gives the agent's address. It has to be on the host that the card came from: another
   host is not called, and does not get the token.
2. Redirects are not followed. The error says where one leads; no token goes there.
3. Responses are not trusted: length and time are bounded while reading, they come uncompressed
   (compressed, a few bytes could be many), and what is not in the protocol's shape is refused.
"""

import asyncio
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

import httpx
import msgspec

from handrail.agents.a2a_types import (
    CARD_PATH,
    JSONRPC_BINDING,
    PROTOCOL_VERSION,
    VERSION_HEADER,
    A2AType,
    AgentCard,
    AgentInterface,
    JsonRpcResponse,
)

T = TypeVar("T")

STATUS_OK = 200
DETAIL_CHARS_MAX = 300
STATUS_TEXTS = {
    401: "wants a token that it knows",
    403: "does not let this token do it",
    404: "knows nothing of it",
}
"""The text for a status, where the response has none."""


class RemoteReplyError(Exception):
    """An unusable response, and what to do."""


class RemoteCallError(Exception):
    """The agent refuses a call, with one of the protocol's codes."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"says no ({code}): {_single_line(message)}")
        self.code = code


def card_address(url: str) -> str:
    """Return the card's address: the URL itself, or the well-known path below it."""
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
        raise ValueError(f"'{url}' is no address of an agent; give http://… or https://…")
    return url if url.endswith(".json") else url.rstrip("/") + CARD_PATH


class A2AClient:
    """Calls one agent during one dispatch. Entering the context reads its card."""

    def __init__(self, url: str, token: str, *, seconds: float, answer_bytes: int) -> None:
        self.url, self.seconds, self.answer_bytes = card_address(url), seconds, answer_bytes
        headers = {VERSION_HEADER: PROTOCOL_VERSION, "Accept-Encoding": "identity"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        self._http = httpx.AsyncClient(headers=headers, timeout=seconds, follow_redirects=False)
        self._interface = AgentInterface(url="")
        self._call_count = 0

    async def __aenter__(self) -> Self:
        try:
            self._interface = _select_interface(await self._fetch_card(), self.url)
        except BaseException:
            await self._http.aclose()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._http.aclose()

    async def call(self, method: str, params: A2AType, answer_type: type[T]) -> T:
        """Make one call; raises `RemoteCallError`, `RemoteReplyError`, or what httpx raises."""
        self._call_count += 1
        encoded_params: dict[str, Any] = msgspec.to_builtins(params)  # pyright: ignore[reportUnknownMemberType]
        if self._interface.tenant:
            encoded_params["tenant"] = self._interface.tenant
        body = {
            "jsonrpc": "2.0",
            "id": self._call_count,
            "method": method,
            "params": encoded_params,
        }
        request = self._http.build_request("POST", self._interface.url, json=body)
        response = _decode(await self._exchange(request), JsonRpcResponse)
        if response.error is not None:
            raise RemoteCallError(response.error.code, response.error.message)
        if not isinstance(response.result, msgspec.Raw):
            raise RemoteReplyError(
                "answers with neither a result nor an error; see that it speaks A2A"
            )
        return _decode(bytes(response.result), answer_type)

    async def _fetch_card(self) -> AgentCard:
        return _decode(await self._exchange(self._http.build_request("GET", self.url)), AgentCard)

    async def _exchange(self, request: httpx.Request) -> bytes:
        """Send the request and read the body in time. A byte now and then never times out in
        httpx.
        """
        try:
            async with asyncio.timeout(self.seconds):
                return await self._send(request)
        except TimeoutError:
            message = f"takes longer than {self.seconds:g} s for one answer"
            raise RemoteReplyError(
                f"{message}; see that it is well, or give it more time"
            ) from None

    async def _send(self, request: httpx.Request) -> bytes:
        response = await self._http.send(request, stream=True)
        try:
            if response.next_request is not None:
                target = response.next_request.url.copy_with(userinfo=b"")
                raise RemoteReplyError(f"sends us to {target}; give that address if it is meant")
            body = await self._read_bounded(response)
        finally:
            await response.aclose()
        if response.status_code != STATUS_OK:
            reason = STATUS_TEXTS.get(
                response.status_code, _single_line(body.decode("utf-8", "replace"))
            )
            raise RemoteReplyError(f"answers {response.status_code}: {reason}")
        return body

    async def _read_bounded(self, response: httpx.Response) -> bytes:
        body = bytearray()
        async for chunk in response.aiter_raw():
            body += chunk
            if len(body) > self.answer_bytes:
                raise RemoteReplyError(
                    f"answers with more than {self.answer_bytes} bytes; let it say less"
                )
        return bytes(body)


def _select_interface(card: AgentCard, url: str) -> AgentInterface:
    """Return the card's interface for the binding and protocol version of this client."""
    candidates = [
        interface
        for interface in card.supported_interfaces
        if interface.protocol_binding == JSONRPC_BINDING
    ]
    selected_interface = next(
        (interface for interface in candidates if interface.protocol_version.startswith("1.")), None
    )
    if selected_interface is None:
        message = "has a card without an interface for JSON-RPC and protocol 1.0"
        raise RemoteReplyError(f"{message}; ask whoever runs it for one")
    if _origin(url) != _origin(selected_interface.url):
        message = f"has a card that names another host, {_single_line(selected_interface.url)}"
        raise RemoteReplyError(f"{message}; give the card's address at that host if it is meant")
    return selected_interface


def _origin(url: str) -> tuple[str, bytes, bytes]:
    """Return the origin of an address: the same host may be written in several ways."""
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, ValueError):
        return "", b"", b""
    return parsed.scheme, parsed.netloc, parsed.userinfo


def _decode(body: bytes, expected_type: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=expected_type)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RemoteReplyError(f"answers what is no A2A ({error}); see that it speaks it") from None


def _single_line(text: str) -> str:
    return " ".join(text.split())[:DETAIL_CHARS_MAX]
