"""The wire: cards by GET, calls by POST as JSON-RPC, streams as server-sent events.

Rules
1. Every call brings a token of Handrail, and is made with it, as whoever that is of. Nothing is
   kept between two requests, neither token nor task.
2. A path is an agent: `/NAME` is a definition, `/` all of them.
3. Sizes, streams and times are bounded. A stream that says nothing is kept alive by comments; one
   whose reader has gone ends.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, MutableMapping
from contextlib import aclosing, contextmanager
from typing import Any, cast
from urllib.parse import quote

import msgspec

from handrail.a2a.asked import Asking, read
from handrail.a2a.calls import CALLS, STREAMS, Following, follow
from handrail.a2a.cards import closed_card, open_card
from handrail.a2a.refusals import No, Outside, answer, refused
from handrail.agents.a2a_words import CARD_PATH, PROTOCOL, VERSION_HEADER, Card, Request, Said, Sent
from handrail.client.bearer import token_in
from handrail.client.clients import AsyncClient, Client
from handrail.client.errors import ClientError

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

BODY_BYTES_MAX = 2 * 1024 * 1024
DROPPED_BYTES_MAX = 8 * BODY_BYTES_MAX
STREAMS_MAX, STREAMS_OF_ONE = 200, 50
"""In all, and with one token."""
FOLLOW_SECONDS = 3_600.0
"""Of one stream; whoever wants more subscribes again."""
STALL_SECONDS = 60.0
BEAT_SECONDS = 3.0
"""Between two comments: many clients hang up after five seconds of silence."""
PATIENCE_SECONDS = 5.0
JSON, EVENTS = b"application/json", b"text/event-stream"
COMMENT = b":\n\n"
WHO = "say who you are: Authorization: Bearer TOKEN, with a token of Handrail"


class Door:
    """The ASGI application. `url` is where others reach it."""

    def __init__(self, server: str, url: str = "") -> None:
        self.server, self.url = server, url
        self._streams: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http", "it is served without a lifespan and without sockets"
        try:
            await self._answer(scope, receive, send)
        except Outside as error:
            await _problem(send, error)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        method, path = scope["method"], cast("str", scope["path"])
        if method == "GET" and path.endswith(CARD_PATH):
            card = await self._card(scope, _name(path.removesuffix(CARD_PATH)))
            await _json(send, card)
        elif method == "POST":
            await self._called(scope, receive, send, _name(path))
        else:
            raise Outside(404, f"there is nothing here; a card is at NAME{CARD_PATH}")

    async def _card(self, scope: Scope, name: str) -> Card:
        token = _token(scope)
        if not token:
            return closed_card(self._address(name))
        async with self._client(token) as client:
            try:
                return await open_card(client, self._address(name), name)
            except ClientError as error:
                raise _outside(error) from error

    async def _called(self, scope: Scope, receive: Receive, send: Send, name: str) -> None:
        token = _token(scope)
        if not token:
            raise Outside(401, WHO)
        raw = await _body(receive)
        call = None
        try:
            request = read(raw, Request)
            call = request.id
            _check(scope, request)
            async with self._client(token) as client:
                asking = Asking(client, name, self._address(name))
                watched = await _done(asking, request, send)
                if watched is not None:
                    with self._streaming(token, watched.run.id):
                        await _stream(asking, request, watched, receive, send)
        except No as no:
            await _json(send, answer(call, no))

    @contextmanager
    def _streaming(self, token: str, task_id: str) -> Generator[None]:
        if self._streams.total() >= STREAMS_MAX or self._streams[token] >= STREAMS_OF_ONE:
            told = f"{self._streams[token]} streams of yours are open here"
            raise Outside(503, f"{told}, and there is no room for more; get the task '{task_id}'")
        self._streams[token] += 1
        try:
            yield
        finally:
            self._streams[token] -= 1
            self._streams = +self._streams  # without those who have none

    def _client(self, token: str) -> "_Entered":
        return _Entered(self.server, token)

    def _address(self, name: str) -> str:
        return f"{self.url}/{quote(name, safe='')}"


class _Entered:
    """A client of the server with that token, for one request."""

    def __init__(self, server: str, token: str) -> None:
        try:
            self.of = Client(server, token, patience=PATIENCE_SECONDS)
        except ValueError as error:
            raise Outside(401, str(error)) from error

    async def __aenter__(self) -> AsyncClient:
        return await self.of.__aenter__()

    async def __aexit__(self, *error: Any) -> None:  # noqa: ANN401 - passed on
        await self.of.__aexit__(*error)


async def _done(asking: Asking, request: Request, send: Send) -> Following | None:
    """The call is answered; or what is to be told of, if it wants a stream."""
    params, stream = bytes(request.params), STREAMS.get(request.method)
    try:
        if stream is not None:
            return await stream(asking, params)
        said = await CALLS[request.method](asking, params)
    except ClientError as error:
        raise refused(error) from error
    await _json(send, _result(request, said))
    return None


# Requests


def _name(path: str) -> str:
    name = path.strip("/")
    if "/" in name or name in (".", ".."):
        raise Outside(404, f"'{path[:200]}' is no agent; /NAME is that of a definition")
    return name


def _header(scope: Scope, name: str) -> str:
    wanted = name.lower().encode()
    found = [value for given, value in scope["headers"] if given == wanted]
    return found[0].decode("latin-1") if len(found) == 1 else ""


def _token(scope: Scope) -> str:
    """The token of whoever asks; "" of whoever does not say."""
    token = token_in(scope["headers"])
    if token == "":
        raise Outside(401, WHO)
    return token or ""


def _check(scope: Scope, request: Request) -> None:
    version = _header(scope, VERSION_HEADER) or PROTOCOL
    if version.partition(".")[0] != PROTOCOL.partition(".")[0]:
        told = f"this agent speaks A2A {PROTOCOL}, not {version[:20]}"
        raise No("VERSION_NOT_SUPPORTED", told)
    if request.jsonrpc != "2.0":
        raise No("INVALID_REQUEST", "jsonrpc has to be '2.0'; send that")
    if request.method not in CALLS and request.method not in STREAMS:
        told = f"there is no call '{request.method[:100]}' here"
        raise No("METHOD_NOT_FOUND", f"{told}; there are: {', '.join((*CALLS, *STREAMS))}")


async def _body(receive: Receive) -> bytes:
    """All of it. Of one that is too long the rest is taken and dropped, up to a bound: whoever is
    hung up on while it sends does not hear why."""
    body, size, more = bytearray(), 0, True
    while more and size <= DROPPED_BYTES_MAX:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Outside(400, "the request is not complete; send it again")
        chunk = message.get("body", b"")
        size, more = size + len(chunk), message.get("more_body", False)
        if size <= BODY_BYTES_MAX:
            body += chunk
    if size > BODY_BYTES_MAX:
        raise Outside(413, f"a request has at most {BODY_BYTES_MAX:,} bytes; say it shorter")
    return bytes(body)


# Answers


def _result(request: Request, said: Said) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request.id, "result": said}


async def _json(send: Send, said: object) -> None:
    await _start(send, 200, JSON)
    await _send(send, msgspec.json.encode(said), more=False)


async def _problem(send: Send, error: Outside) -> None:
    who = [(b"www-authenticate", b'Bearer realm="handrail"')] if error.status == 401 else []
    problem = {"type": "about:blank", "status": error.status, "detail": str(error)}
    await _start(send, error.status, b"application/problem+json", who)
    await _send(send, msgspec.json.encode(problem), more=False)


async def _start(
    send: Send, status: int, kind: bytes, more: list[tuple[bytes, bytes]] | None = None
) -> None:
    headers = [(b"content-type", kind), (b"cache-control", b"no-store"), *(more or ())]
    await send({"type": "http.response.start", "status": status, "headers": headers})


async def _send(send: Send, body: bytes, *, more: bool) -> None:
    async with asyncio.timeout(STALL_SECONDS):
        await send({"type": "http.response.body", "body": body, "more_body": more})


def _outside(error: ClientError) -> Outside:
    found = refused(error)
    if isinstance(found, Outside):
        return found
    return Outside(error.status, str(found))


# Streams


async def _stream(
    asking: Asking, request: Request, watched: Following, receive: Receive, send: Send
) -> None:
    await _start(send, 200, EVENTS)
    telling = asyncio.ensure_future(_tell(request, follow(asking, watched), send))
    others = (asyncio.ensure_future(_beat(send)), asyncio.ensure_future(_gone(receive)))
    try:
        await asyncio.wait(
            (telling, *others), timeout=FOLLOW_SECONDS, return_when=asyncio.FIRST_COMPLETED
        )
    finally:
        for task in (telling, *others):
            task.cancel()
        await asyncio.gather(telling, *others, return_exceptions=True)
    if not telling.cancelled() and (error := telling.exception()) is not None:
        if isinstance(error, TimeoutError):
            return  # the reader takes nothing any more
        raise error
    await _send(send, b"", more=False)


async def _tell(request: Request, told: AsyncGenerator[Sent], send: Send) -> None:
    async with aclosing(told) as changes:
        try:
            async for change in changes:
                await _send(send, _frame(_result(request, change)), more=True)
        except ClientError as error:
            no = refused(error)
            kept = no if isinstance(no, No) else No("INTERNAL_ERROR", str(no))
            await _send(send, _frame(answer(request.id, kept)), more=True)


def _frame(said: object) -> bytes:
    """JSON has no line breaks of its own."""
    return b"data: %b\n\n" % msgspec.json.encode(said)


async def _beat(send: Send) -> None:
    while True:  # until it is cancelled
        await asyncio.sleep(BEAT_SECONDS)
        await _send(send, COMMENT, more=True)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue
