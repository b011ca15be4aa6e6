"""`Idempotency-Key`: the same key and body again gets the first answer, and nothing is done twice.

The engine ensures that nothing is done twice: the key of a new bead or of an answer to an approval
goes into its own transaction (the argument `key` of a handler), and a result has a fence. This
module stores the first answer, so that a repeat gets the same: in memory at once (a repeat that
overtakes its original waits for it, up to a bound), and in the database a moment later, for other
servers and after a restart.
"""

import asyncio
import base64
import hashlib
import logging
from collections import OrderedDict
from typing import Any, cast

import msgspec
from litestar import Request
from litestar.types import ASGIApp, HTTPScope, Message, Receive, Scope, Send
from msgspec.structs import replace

from handrail.api.operation import Repeat
from handrail.engine.engine import Engine
from handrail.engine.log_events import log_event
from handrail.kernel.decision import prepare_types
from handrail.server.access import SCOPE_SERVER, Caller, HTTPRequest
from handrail.server.binding import KEY_HEADER, OPT_REPEAT
from handrail.server.problems import RETRY_HEADERS, HTTPProblemError
from handrail.store.rows import IdempotencyKeyRow, StoreError, iso

log = logging.getLogger("handrail.http")

KEY_CHARS_MAX = 255
CACHED_RESPONSES_MAX = 10_000
CACHED_RESPONSES_BYTES_MAX = 64 * 1024 * 1024
REPEAT_WAIT_SECONDS_MAX = 60.0
WAITING_REPEATS_MAX = 1_000
"""How long repeats wait for their original, and how many repeats may wait."""
UNWRITTEN_ROWS_MAX = 10_000
WRITE_INTERVAL_SECONDS = 0.05
RESPONSE_BYTES_MAX = 1_000_000
KEY_PREFIX = "http:"
"""Separates stored answers from the keys of the engine's own commands."""
STORED_STATUSES = (200, 201)
STORED_HEADERS = ("content-type", "location")


class StoredResponse(msgspec.Struct, frozen=True):
    status: int
    headers: dict[str, str]
    body: str
    """Base64."""
    shown_once: bool = False
    """The answer held a secret, so its body stays in memory only."""


prepare_types(StoredResponse)


class IdempotentResponses:
    """Stores the answers to requests with a key."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._responses: OrderedDict[tuple[str, str], asyncio.Future[IdempotencyKeyRow | None]] = (
            OrderedDict()
        )
        self._unwritten: list[IdempotencyKeyRow] = []
        self._repeats = 0
        self._bytes = 0

    async def find_or_reserve(
        self, key: str, actor: str
    ) -> "IdempotencyKeyRow | asyncio.Future[IdempotencyKeyRow | None]":
        """Return the stored answer; or, for the first request, the future that reserves it."""
        deadline = asyncio.get_running_loop().time() + REPEAT_WAIT_SECONDS_MAX
        while (original := self._responses.get((key, actor))) is not None:
            row = (
                original.result()
                if original.done()
                else await self._wait_for_original(original, deadline)
            )
            if row is not None:
                return row  # else the first request got no answer worth storing
        reserved: asyncio.Future[IdempotencyKeyRow | None] = (
            asyncio.get_running_loop().create_future()
        )
        self._responses[key, actor] = reserved
        try:
            row = await self.engine.stored_answers.get(key, actor)
        except BaseException:
            self.store(key, actor, None)
            raise
        if row is None:
            return reserved
        reserved.set_result(row)
        self._bytes += len(row.answer)
        self._evict_oldest()
        return row

    async def _wait_for_original(
        self, original: "asyncio.Future[IdempotencyKeyRow | None]", deadline: float
    ) -> IdempotencyKeyRow | None:
        """Wait for the original request; return its answer, if it was stored."""
        seconds_left = deadline - asyncio.get_running_loop().time()
        if seconds_left > 0 and self._repeats < WAITING_REPEATS_MAX:
            self._repeats += 1
            try:
                await asyncio.wait((original,), timeout=seconds_left)
            finally:
                self._repeats -= 1
        if not original.done():
            raise HTTPProblemError(
                503,
                "under_way",
                "a request with this Idempotency-Key is still being processed",
                "try again",
                headers=RETRY_HEADERS,
            )
        return original.result()

    def store(
        self,
        key: str,
        actor: str,
        row: IdempotencyKeyRow | None,
        written: IdempotencyKeyRow | None = None,
    ) -> None:
        """Store an answer in memory; `written` is the row for the database."""
        reserved = self._responses[key, actor]
        if not reserved.done():
            reserved.set_result(row)
        if row is None:
            del self._responses[key, actor]
            return
        self._bytes += len(row.answer)
        if written is not None and len(self._unwritten) < UNWRITTEN_ROWS_MAX:
            self._unwritten.append(written)
        self._evict_oldest()

    def _evict_oldest(self) -> None:
        """Evict finished answers. Pending ones stay: the open requests bound their number."""
        finished = (key for key, response in self._responses.items() if response.done())
        evicted: list[tuple[str, str]] = []
        count, size = len(self._responses), self._bytes
        while (count > CACHED_RESPONSES_MAX or size > CACHED_RESPONSES_BYTES_MAX) and (
            key := next(finished, None)
        ):
            row = self._responses[key].result()
            count, size = count - 1, size - (len(row.answer) if row is not None else 0)
            evicted.append(key)
        for key in evicted:
            del self._responses[key]
        self._bytes = size

    async def run(self) -> None:
        """Write stored answers to the database periodically, until cancelled."""
        while True:
            await asyncio.sleep(WRITE_INTERVAL_SECONDS)
            try:
                await self.flush()
            except StoreError as error:
                log_event(log, "answers_not_kept", reason=str(error))

    async def flush(self) -> None:
        rows, self._unwritten = self._unwritten, []
        try:
            if rows:
                await self.engine.stored_answers.put(rows)
        except StoreError:
            self._unwritten = [*rows, *self._unwritten][:UNWRITTEN_ROWS_MAX]  # for the next flush
            raise


class IdempotencyMiddleware:
    """A Litestar middleware, behind `AuthenticationMiddleware`."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request: HTTPRequest = Request(cast("HTTPScope", scope), receive, send)
        key = request.headers.get(KEY_HEADER, "")
        caller = cast("Caller | None", scope["user"])
        if request.method != "POST" or not key or caller is None:
            await self.app(scope, receive, send)
            return
        if len(key) > KEY_CHARS_MAX or not key.isprintable() or key.startswith(KEY_PREFIX):
            raise HTTPProblemError(
                422,
                "bad_key",
                f"the Idempotency-Key is longer than {KEY_CHARS_MAX} characters, not printable, or"
                f" begins with '{KEY_PREFIX}'",
                "take a UUID",
            )
        body = await request.body()  # Litestar caches it in the scope for the handler
        request_text = b"\0".join(
            (request.url.path.encode(), str(request.url.query).encode(), body)
        )
        digest, actor = hashlib.sha256(request_text).hexdigest(), f"{caller.role}:{caller.name}"
        row = await _responses(scope).find_or_reserve(KEY_PREFIX + key, actor)
        if not isinstance(row, IdempotencyKeyRow):
            await self._handle_first(scope, receive, send, (KEY_PREFIX + key, actor, digest))
        elif row.digest != digest:
            raise HTTPProblemError(
                422, "key_reused", f"the key '{key}' was used for another request", "use a new key"
            )
        else:
            await _send_stored(row, send)

    async def _handle_first(
        self, scope: Scope, receive: Receive, send: Send, request_key: tuple[str, str, str]
    ) -> None:
        responses, (key, actor, digest) = _responses(scope), request_key
        recorder, row, written = ResponseRecorder(send), None, None
        try:
            await self.app(scope, receive, recorder)
            if recorder.status in STORED_STATUSES and len(recorder.body) <= RESPONSE_BYTES_MAX:
                row = IdempotencyKeyRow(
                    key=key,
                    actor=actor,
                    digest=digest,
                    answer=recorder.encode(),
                    created_at=iso(responses.engine.clock()),
                )
                repeat: Repeat = scope["route_handler"].opt[OPT_REPEAT]
                if repeat is Repeat.ONCE:
                    written = replace(row, answer=recorder.encode(shown_once=True))
                elif repeat is Repeat.STORED:
                    written = row
        finally:
            responses.store(key, actor, row, written)
        await recorder.forward()


def _responses(scope: Scope) -> IdempotentResponses:
    return cast("dict[str, Any]", scope)[SCOPE_SERVER].idempotent_responses


class ResponseRecorder:
    """Holds an answer back until it is stored."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._messages: list[Message] = []
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""

    async def __call__(self, message: Message) -> None:
        self._messages.append(message)
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = {name.decode(): value.decode("latin-1") for name, value in message["headers"]}
            self.headers = {name: headers[name] for name in STORED_HEADERS if name in headers}
        elif message["type"] == "http.response.body":
            self.body += message["body"]

    def encode(self, *, shown_once: bool = False) -> str:
        body = "" if shown_once else base64.b64encode(self.body).decode()
        return msgspec.json.encode(
            StoredResponse(self.status, self.headers, body, shown_once)
        ).decode()

    async def forward(self) -> None:
        for message in self._messages:
            await self._send(message)


async def _send_stored(row: IdempotencyKeyRow, send: Send) -> None:
    stored = msgspec.json.decode(row.answer, type=StoredResponse)
    if stored.shown_once:
        raise HTTPProblemError(
            409,
            "shown_once",
            "this request was done before; its answer held a secret and was not stored",
            "revoke what it created, then repeat the request with a new key",
        )
    body = base64.b64decode(stored.body)
    headers = [(name.encode(), value.encode("latin-1")) for name, value in stored.headers.items()]
    headers += [(b"content-length", str(len(body)).encode()), (b"idempotent-replayed", b"true")]
    await send({"type": "http.response.start", "status": stored.status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
