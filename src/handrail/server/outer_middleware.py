"""The outermost middleware: rate limits, a bound on bodies, and headers of every response.

Plain ASGI around the whole application, so that no request or response bypasses it: not an unknown
path, not an internal error. Requests of one token share a bucket; so do failed requests from one
address, so that tokens cannot be guessed quickly. Failures of others at the same address slow down
no caller with a valid credential: it is looked up before the request is refused. All bodies of open
requests share a bound.
"""

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from litestar.types import ASGIApp, Message, Receive, ReceiveMessage, Scope, Send

from handrail.api.shared import PROBLEM
from handrail.engine.log_events import log_event
from handrail.server.access import (
    SCOPE_SERVER,
    Caller,
    caller_from_credential,
    digest_secret,
    parse_session_cookie,
    split_authorization,
)
from handrail.server.problems import RETRY_HEADERS, HTTPProblemError
from handrail.store.rows import StoreError

if TYPE_CHECKING:
    from handrail.server.app import ServerApp

log = logging.getLogger("handrail.http")

BUCKETS_MAX = 10_000
BURST_SECONDS = 5
BODIES_BYTES_MAX = 128 * 1024 * 1024
_CONTENT_SECURITY_POLICY = (
    "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "object-src 'none'"
)
SECURITY_HEADERS = (
    (b"content-security-policy", _CONTENT_SECURITY_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
)
NO_STORE = (b"cache-control", b"no-store")
UNKNOWN_PATH = "(other)"
"""In metrics and logs: paths that are no template would grow without bound."""
SECRET_HEADERS = (b"authorization", b"cookie")
SIGN_IN_PATH = "/sign-in/"
"""The path of a link to sign in with; the secret follows."""


class TokenBuckets:
    """Rate limit per key: `per_second`, with bursts of BURST_SECONDS' worth."""

    def __init__(self, per_second: float) -> None:
        self.per_second, self.burst = per_second, max(1.0, per_second * BURST_SECONDS)
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def level(self, key: str, now: float) -> float:
        level, updated_at = self._levels.get(key, (self.burst, now))
        return min(self.burst, level + (now - updated_at) * self.per_second)

    def wait(self, key: str, now: float) -> int:
        """Return the seconds until the key may be taken; 0 for now."""
        level = self.level(key, now)
        return 0 if level >= 1 else max(1, round((1 - level) / self.per_second))

    def take(self, key: str, now: float) -> None:
        self._levels[key] = (self.level(key, now) - 1, now)
        self._levels.move_to_end(key)
        if len(self._levels) > BUCKETS_MAX:
            self._levels.popitem(last=False)


class RecentCallers:
    """The last accepted callers, by the digest of their secret."""

    def __init__(self) -> None:
        self._digests: OrderedDict[str, None] = OrderedDict()

    def __contains__(self, digest: str) -> bool:
        return digest in self._digests

    def add(self, digest: str) -> None:
        self._digests[digest] = None
        self._digests.move_to_end(digest)
        if len(self._digests) > BUCKETS_MAX:
            self._digests.popitem(last=False)

    def discard(self, digest: str) -> None:
        self._digests.pop(digest, None)


class OuterMiddleware:
    def __init__(self, app: ASGIApp, server_app: "ServerApp") -> None:
        self.app, self.server_app = app, server_app
        self.calls = TokenBuckets(server_app.settings.rate_limit)
        self.failures = TokenBuckets(server_app.settings.failed_tokens)
        self.recent_callers = RecentCallers()
        self.body_bytes = 0
        """The size of all bodies of open requests."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.server_app.run_lifespan(cast("Any", receive), cast("Any", send))
            return
        cast("dict[str, Any]", scope)[SCOPE_SERVER] = self.server_app
        client = scope.get("client")
        address = client[0] if client else ""
        secret = _read_secret(scope)
        caller_key = digest_secret(secret) if secret else address
        started = time.perf_counter()
        response = SecuredResponse(
            send, lambda status: self._record_response(scope, status, started)
        )
        body = CountedBody(self, receive)
        try:
            await self._check_rate(caller_key, address, secret)
            _check_no_nul(scope)
            await self.app(scope, body, response)
        except HTTPProblemError as problem:
            await response.send_problem(problem)
        except Exception as error:
            path = _path_template(scope)
            log_event(log, "request_failed", method=scope["method"], path=path, error=error)
            internal = HTTPProblemError(500, "internal", "the server failed", "its log says why")
            await response.send_problem(internal)
        finally:
            self.body_bytes -= body.size
        if response.status == 401:
            self.recent_callers.discard(caller_key)
            self.failures.take(address, time.monotonic())
        elif secret and scope.get("user") is not None:
            self.recent_callers.add(caller_key)

    def _record_response(self, scope: Mapping[str, object], status: int, began: float) -> None:
        seconds = time.perf_counter() - began
        method, path = str(scope["method"]), _path_template(scope)
        self.server_app.metrics.record_response(method, path, status, seconds)
        if log.isEnabledFor(logging.DEBUG):
            caller = cast("Caller | None", scope.get("user"))
            log_event(
                log,
                "request",
                method=method,
                path=path,
                status=status,
                seconds=round(seconds, 6),
                actor=caller.name if caller is not None else None,
                role=caller.role if caller is not None else None,
            )

    async def _check_rate(self, caller_key: str, address: str, secret: str) -> None:
        """Only callers with a valid credential have their own bucket: others could send ever new
        secrets.
        """
        now = time.monotonic()
        if caller_key not in self.recent_callers:
            wait_seconds = self.calls.wait(address, now) or self.failures.wait(address, now)
            if not wait_seconds:
                self.calls.take(address, now)
                return
            if not await self._is_valid(secret):
                raise _too_many_requests(wait_seconds)
        if wait_seconds := self.calls.wait(caller_key, now):
            raise _too_many_requests(wait_seconds)
        self.calls.take(caller_key, now)

    async def _is_valid(self, secret: str) -> bool:
        """Whether the secret is that of a credential in force."""
        credentials = self.server_app.credentials
        now = credentials.engine.clock()
        try:
            row = await credentials.find(secret, now.timestamp()) if secret else None
        except StoreError:
            return False
        return row is not None and caller_from_credential(row, now) is not None


def _too_many_requests(wait_seconds: int) -> HTTPProblemError:
    return HTTPProblemError(
        429,
        "too_many_requests",
        "too many requests",
        f"wait {wait_seconds} s",
        headers={"Retry-After": str(wait_seconds)},
    )


def _path_template(scope: Mapping[str, object]) -> str:
    return str(scope.get("path_template", "")) or UNKNOWN_PATH


def _read_secret(scope: Scope) -> str:
    """Return the request's token, else that of a link to sign in, else its session, or nothing."""
    headers: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        if name in SECRET_HEADERS:
            headers.setdefault(name, value)
    if b"authorization" in headers:
        return split_authorization(headers[b"authorization"].decode("latin-1"))[1]
    if scope["path"].startswith(SIGN_IN_PATH):
        return scope["path"].removeprefix(SIGN_IN_PATH)
    return parse_session_cookie(headers.get(b"cookie", b"").decode("latin-1"))


def _check_no_nul(scope: Scope) -> None:
    """Reject a NUL in the address: no name has one, and no query should."""
    if "\0" in scope["path"] or b"%00" in scope["query_string"]:
        raise HTTPProblemError(
            400, "bad_address", "the URL contains a NUL character", "leave it out"
        )


class CountedBody:
    """Receives the request's body, and counts it until the request is over."""

    def __init__(self, middleware: OuterMiddleware, receive: Receive) -> None:
        self._middleware, self._receive, self.size = middleware, receive, 0

    async def __call__(self) -> ReceiveMessage:
        message = await self._receive()
        if message["type"] == "http.request":
            size = len(message.get("body", b""))
            self.size += size
            self._middleware.body_bytes += size
            if self._middleware.body_bytes > BODIES_BYTES_MAX:
                raise HTTPProblemError(
                    503,
                    "too_much_at_once",
                    "the bodies of all requests in progress are too large together",
                    "try again",
                    headers=RETRY_HEADERS,
                )
        return message


class SecuredResponse:
    """Sends the response, with the security headers."""

    def __init__(self, send: Send, on_start: Callable[[int], None]) -> None:
        self._send, self._on_start, self.status = send, on_start, 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._on_start(self.status)
            headers = [*message["headers"], *SECURITY_HEADERS]
            if not any(name == NO_STORE[0] for name, _ in headers):
                headers.append(NO_STORE)
            message["headers"] = headers
        await self._send(message)

    async def send_problem(self, problem: HTTPProblemError) -> None:
        """Send a problem; if a response has begun, abort the connection, which the client sees."""
        if self.status:
            raise ConnectionAbortedError(problem.detail) from problem
        headers = [
            (name.lower().encode(), value.encode()) for name, value in problem.headers.items()
        ]
        headers.append((b"content-type", PROBLEM.encode()))
        body = problem.body()
        headers.append((b"content-length", str(len(body)).encode()))
        await self({"type": "http.response.start", "status": problem.status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body, "more_body": False})
