"""The way to an agent that speaks A2A: its card, then calls by JSON-RPC, each with bounds.

Rules
1. Its card says where it is reached. It has to be the host that the card came from: whoever is
   named elsewhere was not asked to, and is not given the token.
2. Nothing is followed. A redirect is told, with where it leads; no token goes there.
3. What comes back is somebody else's: its length and its time are bounded while it is read, it
   comes as it is (compressed, a few bytes could be many), and what is not in the protocol's shape
   is refused.
"""

import asyncio
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

import httpx
import msgspec

from handrail.agents.a2a_words import (
    CARD_PATH,
    JSON_RPC,
    PROTOCOL,
    VERSION_HEADER,
    Card,
    Interface,
    Reply,
    Said,
)

T = TypeVar("T")

OK = 200
DETAIL_CHARS = 300
REFUSED = {
    401: "wants a token that it knows",
    403: "does not let this token do it",
    404: "knows nothing of it",
}
"""What a status says, where the answer does not."""


class Unusable(Exception):  # noqa: N818 - told to people by whoever asks
    """An answer that is none, and what to do."""


class Declined(Exception):  # noqa: N818 - as above
    """The agent says no to a call, with one of the protocol's codes."""

    def __init__(self, code: int, said: str) -> None:
        super().__init__(f"says no ({code}): {_line(said)}")
        self.code = code


def card_address(url: str) -> str:
    """Where the card is: that address itself, or the usual place below it."""
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
        raise ValueError(f"'{url}' is no address of an agent; give http://… or https://…")
    return url if url.endswith(".json") else url.rstrip("/") + CARD_PATH


class Remote:
    """An agent, for one turn. Entered, its card has been read."""

    def __init__(self, url: str, token: str, *, seconds: float, answer_bytes: int) -> None:
        self.url, self.seconds, self.answer_bytes = card_address(url), seconds, answer_bytes
        headers = {VERSION_HEADER: PROTOCOL, "Accept-Encoding": "identity"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        self._http = httpx.AsyncClient(headers=headers, timeout=seconds, follow_redirects=False)
        self._at = Interface(url="")
        self._calls = 0

    async def __aenter__(self) -> Self:
        try:
            self._at = _reached(await self._card(), self.url)
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

    async def call(self, method: str, params: Said, answer: type[T]) -> T:
        """One call; raises `Declined`, `Unusable`, or what httpx raises."""
        self._calls += 1
        sent: dict[str, Any] = msgspec.to_builtins(params)  # pyright: ignore[reportUnknownMemberType]
        if self._at.tenant:
            sent["tenant"] = self._at.tenant
        body = {"jsonrpc": "2.0", "id": self._calls, "method": method, "params": sent}
        request = self._http.build_request("POST", self._at.url, json=body)
        reply = _read(await self._ask(request), Reply)
        if reply.error is not None:
            raise Declined(reply.error.code, reply.error.message)
        if not isinstance(reply.result, msgspec.Raw):
            raise Unusable("answers with neither a result nor an error; see that it speaks A2A")
        return _read(bytes(reply.result), answer)

    async def _card(self) -> Card:
        return _read(await self._ask(self._http.build_request("GET", self.url)), Card)

    async def _ask(self, request: httpx.Request) -> bytes:
        """What it says to that. Byte by byte it would not be late for httpx."""
        try:
            async with asyncio.timeout(self.seconds):
                return await self._asked(request)
        except TimeoutError:
            told = f"takes longer than {self.seconds:g} s for one answer"
            raise Unusable(f"{told}; see that it is well, or give it more time") from None

    async def _asked(self, request: httpx.Request) -> bytes:
        answer = await self._http.send(request, stream=True)
        try:
            if answer.next_request is not None:
                there = answer.next_request.url.copy_with(userinfo=b"")
                raise Unusable(f"sends us to {there}; give that address if it is meant")
            said = await self._bounded(answer)
        finally:
            await answer.aclose()
        if answer.status_code != OK:
            why = REFUSED.get(answer.status_code, _line(said.decode("utf-8", "replace")))
            raise Unusable(f"answers {answer.status_code}: {why}")
        return said

    async def _bounded(self, answer: httpx.Response) -> bytes:
        said = bytearray()
        async for chunk in answer.aiter_raw():
            said += chunk
            if len(said) > self.answer_bytes:
                raise Unusable(f"answers with more than {self.answer_bytes} bytes; let it say less")
        return bytes(said)


def _reached(card: Card, url: str) -> Interface:
    """Where the agent of that card speaks what is spoken here."""
    spoken = [one for one in card.supported_interfaces if one.protocol_binding == JSON_RPC]
    found = next((one for one in spoken if one.protocol_version.startswith("1.")), None)
    if found is None:
        told = "has a card without an interface for JSON-RPC and protocol 1.0"
        raise Unusable(f"{told}; ask whoever runs it for one")
    if _origin(url) != _origin(found.url):
        told = f"has a card that names another host, {_line(found.url)}"
        raise Unusable(f"{told}; give the card's address at that host if it is meant")
    return found


def _origin(url: str) -> tuple[str, bytes, bytes]:
    """Who is meant by an address: the same host may be written in several ways."""
    try:
        found = httpx.URL(url)
    except (httpx.InvalidURL, ValueError):
        return "", b"", b""
    return found.scheme, found.netloc, found.userinfo


def _read(said: bytes, shape: type[T]) -> T:
    try:
        return msgspec.json.decode(said, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Unusable(f"answers what is no A2A ({error}); see that it speaks it") from None


def _line(said: str) -> str:
    return " ".join(said.split())[:DETAIL_CHARS]
