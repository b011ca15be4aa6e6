"""Retries of a call, also at other servers, with backoff and a deadline. No I/O here.

A call is a generator: it yields the next step (`SendRequest`, `Backoff`), receives the outcome
(`RawResponse`, `TransportFailure`), and returns the answer or raises a `ClientError`. The two
clients of `clients.py`, with and without an event loop, drive it, so they cannot differ.

Rules
1. A try that broke off, timed out, or was answered 429, 502, 503 or 504 is repeated. Any other
   response is final.
2. Every POST has an `Idempotency-Key`, the same for all its tries: the server executes it once.
3. With several servers, the next one is tried at once. When all have failed there is a pause: a
   random part of a span that doubles (full jitter), never less than a server's `Retry-After`.
4. Retrying ends after TRIES_MAX tries, or when the next would be after `patience` seconds.
5. A server that works is kept, by all later calls too.
"""

import random
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import NamedTuple, TypeVar
from urllib.parse import urlsplit
from uuid import uuid4

import msgspec

from handrail.api.operation import Call
from handrail.client.errors import error_from_response, unreachable_error, unreadable_response

T = TypeVar("T")

TRIES_MAX = 8
"""Per call, over all servers; each server is tried at least twice."""
BACKOFF_SECONDS_FIRST, BACKOFF_SECONDS_MAX = 0.1, 5.0
TOO_MANY_REQUESTS = 429
RETRY_STATUSES = frozenset({TOO_MANY_REQUESTS, 502, 503, 504})


class SendRequest(NamedTuple):
    """Send a request. `wait_seconds`: how long the server may hold the answer back."""

    method: str
    url: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes | None
    wait_seconds: float


class Backoff(NamedTuple):
    seconds: float


class RawResponse(NamedTuple):
    status: int
    headers: Mapping[str, str]
    """Header names are lower case."""
    body: bytes


class TransportFailure(NamedTuple):
    """No answer came."""

    reason: str


RetryStep = SendRequest | Backoff
AttemptOutcome = RawResponse | TransportFailure | None
CallAttempts = Generator[RetryStep, AttemptOutcome, T]


class ServerAddresses:
    """The server addresses of one installation, and the one in use."""

    def __init__(self, addresses: Sequence[str]) -> None:
        assert addresses, "at least one"
        self.addresses = tuple(addresses)
        self._index = 0

    @property
    def current(self) -> str:
        return self.addresses[self._index]

    def mark_failed(self, address: str) -> None:
        """Switch to the next address, unless another call has already done so."""
        if address == self.current:
            self._index = (self._index + 1) % len(self.addresses)


class RetryPolicy(NamedTuple):
    """The token and the patience of a client. Tests replace `clock` and `jitter`."""

    token: str
    patience_seconds: float
    clock: Callable[[], float] = time.monotonic
    jitter: Callable[[], float] = random.random


def call_with_retries(
    call: Call[T], servers: ServerAddresses, policy: RetryPolicy
) -> CallAttempts[T]:
    """Yield the steps of a call; return its decoded answer."""
    headers = build_headers(call, policy.token)
    deadline = policy.clock() + policy.patience_seconds
    tries_max = max(TRIES_MAX, 2 * len(servers.addresses))
    outcome: AttemptOutcome = None
    tries = 0
    while tries < tries_max:
        address = servers.current
        outcome = yield build_request(call, address, headers)
        tries += 1
        if isinstance(outcome, RawResponse) and outcome.status not in RETRY_STATUSES:
            return _decode_response(call, outcome)
        servers.mark_failed(address)
        seconds = backoff_seconds(tries, servers, outcome, policy.jitter)
        if policy.clock() + seconds > deadline:
            break
        if seconds > 0:
            yield Backoff(seconds)
    if isinstance(outcome, RawResponse):
        raise error_from_response(str(call), outcome.status, outcome.body)
    reason = outcome.reason if outcome is not None else "not tried"
    raise unreachable_error(str(call), servers.addresses, reason, tries)


def build_request(call: Call[T], address: str, headers: Mapping[str, str]) -> SendRequest:
    url = f"{address}{call.path}"
    return SendRequest(
        call.operation.method, url, call.query, headers, call.body, call.wait_seconds
    )


def backoff_seconds(
    tries: int, servers: ServerAddresses, outcome: AttemptOutcome, jitter: Callable[[], float]
) -> float:
    """Return the seconds before the next try: 0 while a server is untried in this round, unless
    the outcome is a 429."""
    rounds, tried_this_round = divmod(tries, len(servers.addresses))
    if tried_this_round and not (
        isinstance(outcome, RawResponse) and outcome.status == TOO_MANY_REQUESTS
    ):
        return 0.0
    retry_after = _retry_after(outcome) if isinstance(outcome, RawResponse) else 0.0
    span = min(BACKOFF_SECONDS_MAX, BACKOFF_SECONDS_FIRST * 2.0 ** min(max(rounds - 1, 0), 16))
    return retry_after + jitter() * span  # the jitter keeps clients from returning all at once


def _retry_after(response: RawResponse) -> float:
    """Return the header's seconds; a date counts as absent."""
    value = response.headers.get("retry-after", "")
    return min(float(value), 3600.0) if value.isascii() and value.isdigit() else 0.0


def build_headers(call: Call[T], token: str) -> dict[str, str]:
    headers = {"Accept": call.accept, "User-Agent": "handrail"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    if call.body is not None:
        headers["Content-Type"] = call.media_type
    if call.operation.method == "POST":
        headers["Idempotency-Key"] = call.idempotency_key or str(uuid4())
    return headers


def _decode_response(call: Call[T], response: RawResponse) -> T:
    if not 200 <= response.status < 300:
        raise error_from_response(str(call), response.status, response.body)
    try:
        return call.operation.decode(response.body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise unreadable_response(str(call), response.status, error) from error


def parse_addresses(url: str | Sequence[str]) -> list[str]:
    """Return the addresses of a comma-separated text or a list; raises `ValueError`."""
    parts = url.split(",") if isinstance(url, str) else url
    urls = [part.strip().rstrip("/") for part in parts if part.strip()]
    for address in urls:
        split = urlsplit(address)
        if split.scheme not in ("http", "https") or not split.hostname or split.query:
            raise ValueError(f"'{address}' is not the URL of a server; write http://HOST:PORT")
    return list(dict.fromkeys(urls))
