"""How a call is made: tried, tried again, tried elsewhere, given up. No I/O here.

A conversation is a generator: it yields what to do next (`Send` a request, `Pause`), is sent what
came of it (`Reply`, `Broken`), and returns the answer or raises a `ClientError`. The two drivers of
`clients.py` do what it says, one with an event loop and one without, so they cannot differ.

Rules
1. Tried again is what broke off, timed out, or was answered 429, 502, 503 or 504. Any other answer
   is an answer.
2. Every POST has an `Idempotency-Key`, the same for all tries of it: the server does it once.
3. With several servers the next one is tried at once. When all of them failed there is a pause: a
   random part of a span that doubles (full jitter), never less than a server's `Retry-After`.
4. It ends: after so many tries, or when `patience` seconds would be over.
5. Whatever works is stayed with, by all later calls too.
"""

import random
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import NamedTuple, TypeVar
from urllib.parse import urlsplit

import msgspec
from uuid_utils import uuid7

from handrail.client.call import API, Call
from handrail.client.errors import error_of, unreachable, unreadable

T = TypeVar("T")

TRIES_MAX = 8
"""Of one call, over all servers; each server is tried twice at least."""
PAUSE_FIRST, PAUSE_MAX = 0.1, 5.0
TOO_OFTEN = 429
AGAIN = frozenset({TOO_OFTEN, 502, 503, 504})


class Send(NamedTuple):
    """A request to be made, and how long its answer may take."""

    method: str
    url: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes | None
    wait: float


class Pause(NamedTuple):
    seconds: float


class Reply(NamedTuple):
    status: int
    headers: Mapping[str, str]
    """Their names in small letters."""
    body: bytes


class Broken(NamedTuple):
    """No answer came."""

    reason: str


Step = Send | Pause
Came = Reply | Broken | None
Conversation = Generator[Step, Came, T]


class Servers:
    """The addresses of one installation, and which of them is talked to."""

    def __init__(self, addresses: Sequence[str]) -> None:
        assert addresses, "at least one"
        self.addresses = tuple(addresses)
        self._at = 0

    @property
    def current(self) -> str:
        return self.addresses[self._at]

    def failed(self, address: str) -> None:
        """The next one, unless somebody else has gone on already."""
        if address == self.current:
            self._at = (self._at + 1) % len(self.addresses)


class Manners(NamedTuple):
    """Who talks, and how patiently. Time and chance can be given by tests."""

    token: str
    patience: float
    clock: Callable[[], float] = time.monotonic
    chance: Callable[[], float] = random.random


def conversation(call: Call[T], servers: Servers, manners: Manners) -> Conversation[T]:
    """One call to its answer."""
    headers = headers_of(call, manners.token)
    until = manners.clock() + manners.patience
    tries_max = max(TRIES_MAX, 2 * len(servers.addresses))
    came: Came = None
    tries = 0
    while tries < tries_max:
        address = servers.current
        came = yield request(call, address, headers)
        tries += 1
        if isinstance(came, Reply) and came.status not in AGAIN:
            return _answer(call, came)
        servers.failed(address)
        seconds = pause(tries, servers, came, manners.chance)
        if manners.clock() + seconds > until:
            break
        if seconds > 0:
            yield Pause(seconds)
    if isinstance(came, Reply):
        raise error_of(str(call), came.status, came.body)
    reason = came.reason if came is not None else "not tried"
    raise unreachable(str(call), servers.addresses, reason, tries)


def request(call: Call[T], address: str, headers: Mapping[str, str]) -> Send:
    url = f"{address}{API}{call.path}"
    return Send(call.method, url, call.query, headers, call.body, call.wait)


def pause(tries: int, servers: Servers, came: Came, chance: Callable[[], float]) -> float:
    """Seconds before the next try: none while there is a server that was not tried this round,
    unless it was said that whoever asks, asks too often."""
    rounds, rest = divmod(tries, len(servers.addresses))
    if rest and not (isinstance(came, Reply) and came.status == TOO_OFTEN):
        return 0.0
    asked = _retry_after(came) if isinstance(came, Reply) else 0.0
    span = min(PAUSE_MAX, PAUSE_FIRST * 2.0 ** min(max(rounds - 1, 0), 16))
    return asked + chance() * span  # with the jitter on top, so that not all come back at once


def _retry_after(reply: Reply) -> float:
    """Only seconds; a date is as good as nothing said."""
    said = reply.headers.get("retry-after", "")
    return min(float(said), 3600.0) if said.isascii() and said.isdigit() else 0.0


def headers_of(call: Call[T], token: str) -> dict[str, str]:
    headers = {"Accept": call.accept, "User-Agent": "handrail"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    if call.body is not None:
        headers["Content-Type"] = call.media_type
    if call.method == "POST":
        headers["Idempotency-Key"] = call.key or str(uuid7())
    return headers


def _answer(call: Call[T], reply: Reply) -> T:
    if not 200 <= reply.status < 300:
        raise error_of(str(call), reply.status, reply.body)
    try:
        return call.read(reply.body)
    except (msgspec.DecodeError, UnicodeDecodeError) as wrong:
        raise unreadable(str(call), reply.status, wrong) from wrong


def addresses(url: str | Sequence[str]) -> list[str]:
    """The addresses in a text with commas, or in a list; raises `ValueError`, which says how."""
    parts = url.split(",") if isinstance(url, str) else url
    found = [part.strip().rstrip("/") for part in parts if part.strip()]
    for one in found:
        split = urlsplit(one)
        if split.scheme not in ("http", "https") or not split.hostname or split.query:
            raise ValueError(f"'{one}' is no address of a server; say http://HOST:PORT")
    return list(dict.fromkeys(found))
