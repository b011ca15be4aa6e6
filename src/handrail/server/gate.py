"""The gate before everything: how often somebody may call, and headers that every answer has.

Plain ASGI around the whole application, so that nothing comes in or goes out beside it: not an
unknown path, not a mistake of ours. Requests of one token share a bucket; so do failed ones from
one address, so that nobody guesses tokens quickly. Whoever was let in before is not slowed down by
the failures of others at its address. All bodies of requests under way share a bound.
"""

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import cast

from litestar.types import ASGIApp, Message, Receive, ReceiveMessage, Scope, Send

from handrail.engine.vocabulary import tell
from handrail.server.access import Caller
from handrail.server.authenticate import session_in, token_in
from handrail.server.problems import MEDIA_TYPE, RETRY_SECONDS, Wrong
from handrail.server.prometheus import template
from handrail.server.secrets import digest
from handrail.server.settings import ServerSettings

log = logging.getLogger("handrail.http")

Answered = Callable[[Mapping[str, object], int, float], None]
"""Called when an answer begins: its status, and how long it took until then."""

BUCKETS_MAX = 10_000
BURST_SECONDS = 5
BODIES_BYTES_MAX = 128 * 1024 * 1024
_POLICY = (
    "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "object-src 'none'"
)
HEADERS = (
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
)
NO_STORE = (b"cache-control", b"no-store")
SECRET = (b"authorization", b"cookie")


class Buckets:
    """How often each may still do it: so many a second, and some more at once."""

    def __init__(self, a_second: float) -> None:
        self.a_second, self.full = a_second, max(1.0, a_second * BURST_SECONDS)
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def left(self, who: str, now: float) -> float:
        left, at = self._left.get(who, (self.full, now))
        return min(self.full, left + (now - at) * self.a_second)

    def take(self, who: str, now: float) -> None:
        self._left[who] = (self.left(who, now) - 1, now)
        self._left.move_to_end(who)
        if len(self._left) > BUCKETS_MAX:
            self._left.popitem(last=False)


class Admitted:
    """The last ones that were let in, by the digest of their secret."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, None] = OrderedDict()

    def __contains__(self, who: str) -> bool:
        return who in self._known

    def add(self, who: str) -> None:
        self._known[who] = None
        self._known.move_to_end(who)
        if len(self._known) > BUCKETS_MAX:
            self._known.popitem(last=False)

    def drop(self, who: str) -> None:
        self._known.pop(who, None)


class Gate:
    def __init__(self, app: ASGIApp, settings: ServerSettings, answered: Answered) -> None:
        self.app, self.answered = app, answered
        self.calls = Buckets(settings.rate_limit)
        self.failures = Buckets(settings.failed_tokens)
        self.admitted = Admitted()
        self.bodies = 0
        """Bytes of all bodies that are held."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        client = scope.get("client")
        address = client[0] if client else ""
        secret = _secret(scope)
        who = digest(secret) if secret else address
        began = time.perf_counter()
        answer = Answer(send, lambda status: self._begun(scope, status, began))
        body = Body(self, receive)
        try:
            self._slow_down(who, address)
            _readable(scope)
            await self.app(scope, body, answer)
        except Wrong as wrong:
            await answer.refuse(wrong)
        except Exception as error:
            path = template(scope)
            tell(log, "request_failed", method=scope["method"], path=path, error=error)
            told = "something went wrong in the server; its log says what"
            await answer.refuse(Wrong(500, "internal", told))
        finally:
            self.bodies -= body.size
        if answer.status == 401:
            self.admitted.drop(who)
            self.failures.take(address, time.monotonic())
        elif secret and scope.get("user") is not None:
            self.admitted.add(who)

    def _begun(self, scope: Mapping[str, object], status: int, began: float) -> None:
        seconds = time.perf_counter() - began
        self.answered(scope, status, seconds)
        if log.isEnabledFor(logging.DEBUG):
            who = cast("Caller | None", scope.get("user"))
            tell(
                log,
                "request",
                method=scope["method"],
                path=template(scope),
                status=status,
                seconds=round(seconds, 6),
                actor=who.name if who is not None else None,
                role=who.role if who is not None else None,
            )

    def _slow_down(self, who: str, address: str) -> None:
        """Only who was let in has a bucket of its own: others would bring a new secret a time."""
        now = time.monotonic()
        known = who in self.admitted
        who = who if known else address
        for buckets, key in ((self.calls, who), *(() if known else ((self.failures, address),))):
            left = buckets.left(key, now)
            if left < 1:
                wait = str(max(1, round((1 - left) / buckets.a_second)))
                told = f"too many requests; wait {wait} s"
                raise Wrong(429, "too_many_requests", told, headers={"Retry-After": wait})
        self.calls.take(who, now)


def _secret(scope: Scope) -> str:
    """The token, else the session, that the request came with; empty without one."""
    given: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        if name in SECRET:
            given.setdefault(name, value)
    if b"authorization" in given:
        return token_in(given[b"authorization"].decode("latin-1"))[1]
    return session_in(given.get(b"cookie", b"").decode("latin-1"))


def _readable(scope: Scope) -> None:
    """A NUL is part of no name, and nothing that a database should be asked for."""
    if "\0" in scope["path"] or b"%00" in scope["query_string"]:
        raise Wrong(400, "bad_address", "there is a NUL in the address; leave it out")


class Body:
    """The request's body on its way in, counted until the request is over."""

    def __init__(self, gate: Gate, receive: Receive) -> None:
        self._gate, self._receive, self.size = gate, receive, 0

    async def __call__(self) -> ReceiveMessage:
        message = await self._receive()
        if message["type"] == "http.request":
            size = len(message.get("body", b""))
            self.size += size
            self._gate.bodies += size
            if self._gate.bodies > BODIES_BYTES_MAX:
                again = {"Retry-After": str(RETRY_SECONDS)}
                told = "the bodies of requests that are under way are too large together; try again"
                raise Wrong(503, "too_much_at_once", told, headers=again)
        return message


class Answer:
    """The answer on its way out."""

    def __init__(self, send: Send, begun: Callable[[int], None]) -> None:
        self._send, self._begun, self.status = send, begun, 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._begun(self.status)
            headers = [*message["headers"], *HEADERS]
            if not any(name == NO_STORE[0] for name, _ in headers):
                headers.append(NO_STORE)
            message["headers"] = headers
        await self._send(message)

    async def refuse(self, wrong: Wrong) -> None:
        """If nothing was said yet; else the connection is cut, and the other side sees that."""
        if self.status:
            raise ConnectionAbortedError(wrong.detail) from wrong
        headers = [(name.lower().encode(), value.encode()) for name, value in wrong.headers.items()]
        headers.append((b"content-type", MEDIA_TYPE.encode()))
        body = wrong.body()
        headers.append((b"content-length", str(len(body)).encode()))
        await self({"type": "http.response.start", "status": wrong.status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body, "more_body": False})
