"""`Idempotency-Key`: the same key and body again gets the first answer, and nothing is done twice.

That nothing is done twice is the engine's doing: the key of a new bead or of an answer to a
question goes into its own transaction (`key_of`), and a result has a fence. Here the first answer
is kept, so that the second one is the same: in memory from the start (a repeat that overtakes its
original waits for it, up to a bound), and in the database a moment later, for other servers and
after a restart.
"""

import asyncio
import base64
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, cast

import msgspec
from litestar import Request
from litestar.types import ASGIApp, HTTPScope, Message, Receive, Scope, Send
from msgspec.structs import replace

from handrail.engine.engine import Engine
from handrail.engine.vocabulary import tell
from handrail.kernel.decision import learn
from handrail.server.access import Caller
from handrail.server.problems import RETRY_SECONDS, Wrong
from handrail.store.port import KeyRow, StoreError, iso

log = logging.getLogger("handrail.http")

HEADER = "idempotency-key"
KEY_MAX = 255
ANSWERS_MAX = 10_000
ANSWERS_BYTES_MAX = 64 * 1024 * 1024
"""Answers at hand in memory."""
REPEAT_SECONDS = 60.0
REPEATS_MAX = 1_000
"""How long repeats wait for their original, and how many of them."""
UNWRITTEN_MAX = 10_000
WRITE_SECONDS = 0.05
ANSWER_BYTES_MAX = 1_000_000
PREFIX = "http:"
"""So that the kept answers lie apart from the keys of the engine's own commands."""
PASSING = "passing"
"""The option of a call whose answer is worth nothing later (a claim is given again by the engine),
or that changes nothing: it is kept in memory alone, so that whoever only looks fills no disk."""
SHOWN_ONCE = "shown_once"
"""In the `opt` of a handler whose answer holds a secret."""
KEPT_STATUS = (200, 201)
KEPT_HEADERS = ("content-type", "location")


class Kept(msgspec.Struct, frozen=True):
    status: int
    headers: dict[str, str]
    body: str
    """Base64."""
    shown_once: bool = False
    """It held a secret, so that its body is in memory alone."""


learn(Kept)


class Answers:
    """The answers that were given under a key."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._known: OrderedDict[tuple[str, str], asyncio.Future[KeyRow | None]] = OrderedDict()
        self._unwritten: list[KeyRow] = []
        self._repeats = 0
        self._bytes = 0

    async def first(self, key: str, actor: str) -> "KeyRow | asyncio.Future[KeyRow | None]":
        """The answer that was given; or, for the first to ask, the place for it."""
        until = asyncio.get_running_loop().time() + REPEAT_SECONDS
        while (known := self._known.get((key, actor))) is not None:
            row = known.result() if known.done() else await self._original(known, until)
            if row is not None:
                return row  # else whoever came first got no answer worth keeping
        place: asyncio.Future[KeyRow | None] = asyncio.get_running_loop().create_future()
        self._known[key, actor] = place
        try:
            row = await self.engine.kept_answer(key, actor)
        except BaseException:
            self.keep(key, actor, None)
            raise
        if row is None:
            return place
        place.set_result(row)
        self._bytes += len(row.answer)
        self._forget_oldest()
        return row

    async def _original(
        self, known: "asyncio.Future[KeyRow | None]", until: float
    ) -> KeyRow | None:
        """What came of the one that was there first."""
        left = until - asyncio.get_running_loop().time()
        if left > 0 and self._repeats < REPEATS_MAX:
            self._repeats += 1
            try:
                await asyncio.wait((known,), timeout=left)
            finally:
                self._repeats -= 1
        if not known.done():
            told = "a request with this key is under way, and it takes long; try again"
            raise Wrong(503, "under_way", told, headers={"Retry-After": str(RETRY_SECONDS)})
        return known.result()

    def keep(self, key: str, actor: str, row: KeyRow | None, written: KeyRow | None = None) -> None:
        """`written` is what of it goes to the database."""
        place = self._known[key, actor]
        if not place.done():
            place.set_result(row)
        if row is None:
            del self._known[key, actor]
            return
        self._bytes += len(row.answer)
        if written is not None and len(self._unwritten) < UNWRITTEN_MAX:
            self._unwritten.append(written)
        self._forget_oldest()

    def _forget_oldest(self) -> None:
        """Those under way stay: they are no more than there are requests."""
        done = (key for key, place in self._known.items() if place.done())
        gone: list[tuple[str, str]] = []
        count, size = len(self._known), self._bytes
        while (count > ANSWERS_MAX or size > ANSWERS_BYTES_MAX) and (key := next(done, None)):
            row = self._known[key].result()
            count, size = count - 1, size - (len(row.answer) if row is not None else 0)
            gone.append(key)
        for key in gone:
            del self._known[key]
        self._bytes = size

    async def go_on(self) -> None:
        """Write what was kept, again and again, until cancelled."""
        while True:
            await asyncio.sleep(WRITE_SECONDS)
            try:
                await self.write()
            except StoreError as error:
                tell(log, "answers_not_kept", reason=str(error))

    async def write(self) -> None:
        rows, self._unwritten = self._unwritten, []
        try:
            if rows:
                await self.engine.keep_answers(rows)
        except StoreError:
            self._unwritten = [*rows, *self._unwritten][:UNWRITTEN_MAX]  # for the next time
            raise


class Idempotent:
    """A Litestar middleware, behind `Authenticate`."""

    def __init__(self, app: ASGIApp, answers: Callable[[], Answers]) -> None:
        self.app, self._answers = app, answers

    @property
    def answers(self) -> Answers:
        return self._answers()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request: Request[Any, Any, Any] = Request(cast("HTTPScope", scope), receive, send)
        key = request.headers.get(HEADER, "")
        caller = cast("Caller | None", scope["user"])
        if request.method != "POST" or not key or caller is None:
            await self.app(scope, receive, send)
            return
        if len(key) > KEY_MAX or not key.isprintable() or key.startswith(PREFIX):
            told = f"the Idempotency-Key is longer than {KEY_MAX} characters, no plain text, or"
            told = f"{told} begins with '{PREFIX}'"
            raise Wrong(422, "bad_key", f"{told}; take a UUID")
        body = await request.body()  # kept in the scope for whoever handles it
        said = b"\0".join((request.url.path.encode(), str(request.url.query).encode(), body))
        digest, actor = hashlib.sha256(said).hexdigest(), f"{caller.role}:{caller.name}"
        found = await self.answers.first(PREFIX + key, actor)
        if not isinstance(found, KeyRow):
            await self._do(scope, receive, send, (PREFIX + key, actor, digest))
        elif found.digest != digest:
            told = f"the key '{key}' was used for another request; take a new key"
            raise Wrong(422, "key_reused", told)
        else:
            await _again(found, send)

    async def _do(
        self, scope: Scope, receive: Receive, send: Send, asked: tuple[str, str, str]
    ) -> None:
        key, actor, digest = asked
        answer, row, written = Recorder(send), None, None
        try:
            await self.app(scope, receive, answer)
            if answer.status in KEPT_STATUS and len(answer.body) <= ANSWER_BYTES_MAX:
                at = iso(self.answers.engine.clock())
                row = KeyRow(
                    key=key, actor=actor, digest=digest, answer=answer.kept(), created_at=at
                )
                told = scope["route_handler"].opt
                if told.get(SHOWN_ONCE):
                    written = replace(row, answer=answer.kept(shown_once=True))
                elif not told.get(PASSING):
                    written = row
        finally:
            self.answers.keep(key, actor, row, written)
        await answer.send_on()


class Recorder:
    """The answer, held back until it is kept."""

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
            told = {name.decode(): value.decode("latin-1") for name, value in message["headers"]}
            self.headers = {name: told[name] for name in KEPT_HEADERS if name in told}
        elif message["type"] == "http.response.body":
            self.body += message["body"]

    def kept(self, *, shown_once: bool = False) -> str:
        body = "" if shown_once else base64.b64encode(self.body).decode()
        return msgspec.json.encode(Kept(self.status, self.headers, body, shown_once)).decode()

    async def send_on(self) -> None:
        for message in self._messages:
            await self._send(message)


async def _again(found: KeyRow, send: Send) -> None:
    kept = msgspec.json.decode(found.answer, type=Kept)
    if kept.shown_once:
        told = "this was done before, and its answer, which held a secret, is kept nowhere"
        raise Wrong(409, "shown_once", f"{told}; revoke what it made, and take a new key")
    body = base64.b64decode(kept.body)
    headers = [(name.encode(), value.encode("latin-1")) for name, value in kept.headers.items()]
    headers += [(b"content-length", str(len(body)).encode()), (b"idempotent-replayed", b"true")]
    await send({"type": "http.response.start", "status": kept.status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


def key_of(request: Request[Any, Any, Any]) -> str:
    """The key for the engine's own transaction; empty without one."""
    return request.headers.get(HEADER, "")
