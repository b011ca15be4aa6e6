"""The ASGI application: cards by GET, calls by POST as JSON-RPC, streams as server-sent events.

Rules
1. Every call brings a credential of Handrail, and is made with it. Nothing is kept between two
   requests, neither credential nor task.
2. A path is an agent: `/NAME` is a definition, `/` all of them.
3. Sizes, streams and times are bounded. Comments keep a silent stream alive; a stream whose reader
   has gone ends.
"""

import asyncio
import hashlib
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, MutableMapping
from contextlib import aclosing, contextmanager
from typing import Any, cast
from urllib.parse import quote

import msgspec

from handrail.a2a.cards import extended_card, public_card
from handrail.a2a.errors import HttpStatusError, JsonRpcError, error_response, translate_error
from handrail.a2a.methods import METHODS, STREAMING_METHODS, Subscription, stream_updates
from handrail.a2a.params import CallContext, decode_params
from handrail.agents.a2a_types import (
    CARD_PATH,
    PROTOCOL_VERSION,
    VERSION_HEADER,
    A2AType,
    AgentCard,
    JsonRpcRequest,
    SendMessageResponse,
)
from handrail.client.bearer import read_bearer_token
from handrail.client.clients import AsyncClient, Client
from handrail.client.errors import ClientError

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

BODY_BYTES_MAX = 2 * 1024 * 1024
DISCARDED_BYTES_MAX = 8 * BODY_BYTES_MAX
STREAMS_MAX, STREAMS_PER_CREDENTIAL_MAX = 200, 50
"""In all, and per credential."""
STREAM_SECONDS_MAX = 3_600.0
"""Of one stream; a caller that wants more subscribes again."""
WRITE_SECONDS_MAX = 60.0
KEEPALIVE_SECONDS = 3.0
"""Between two comments: many clients hang up after five seconds of silence."""
PATIENCE_SECONDS = 5.0
JSON_TYPE, EVENT_STREAM_TYPE = b"application/json", b"text/event-stream"
CARD_CACHE_CONTROL = b"public, max-age=300"
KEEPALIVE_COMMENT = b":\n\n"
NO_CREDENTIAL_DETAIL = "say who you are: Authorization: Bearer TOKEN, with a token of Handrail"


class A2aApp:
    """The ASGI application. `url` is its public address."""

    def __init__(self, server: str, url: str = "") -> None:
        self.server, self.url = server, url
        self._streams: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http", "it is served without a lifespan and without sockets"
        try:
            await self._route(scope, receive, send)
        except HttpStatusError as error:
            await _send_problem(send, error)

    async def _route(self, scope: Scope, receive: Receive, send: Send) -> None:
        method, path = scope["method"], cast("str", scope["path"])
        if method == "GET" and path.endswith(CARD_PATH):
            card = await self._card(scope, _definition_name(path.removesuffix(CARD_PATH)))
            await _send_card(scope, send, card)
        elif method == "POST":
            await self._call(scope, receive, send, _definition_name(path))
        else:
            raise HttpStatusError(404, f"there is nothing here; a card is at NAME{CARD_PATH}")

    async def _card(self, scope: Scope, name: str) -> AgentCard:
        token = _token(scope)
        if not token:
            return public_card(self._agent_url(name))
        async with self._open_client(token) as client:
            try:
                return await extended_card(client, self._agent_url(name), name)
            except ClientError as error:
                raise _http_error(error) from error

    async def _call(self, scope: Scope, receive: Receive, send: Send, name: str) -> None:
        token = _token(scope)
        if not token:
            raise HttpStatusError(401, NO_CREDENTIAL_DETAIL)
        raw = await _read_body(receive)
        request_id = None
        try:
            _check_content_type(scope)
            request = decode_params(raw, JsonRpcRequest)
            request_id = request.id
            _check_request(scope, request)
            async with self._open_client(token) as client:
                call_context = CallContext(client, name, self._agent_url(name))
                subscription = await _run_method(call_context, request, send)
                if subscription is not None:
                    with self._count_stream(token, subscription.run.id):
                        await _serve_stream(call_context, request, subscription, receive, send)
        except JsonRpcError as rpc_error:
            await _send_json(send, error_response(request_id, rpc_error))

    @contextmanager
    def _count_stream(self, token: str, task_id: str) -> Generator[None]:
        if (
            self._streams.total() >= STREAMS_MAX
            or self._streams[token] >= STREAMS_PER_CREDENTIAL_MAX
        ):
            message = f"{self._streams[token]} streams of yours are open here"
            raise HttpStatusError(
                503, f"{message}, and there is no room for more; get the task '{task_id}'"
            )
        self._streams[token] += 1
        try:
            yield
        finally:
            self._streams[token] -= 1
            self._streams = +self._streams  # drop counters that are zero

    def _open_client(self, token: str) -> "_ServerClient":
        return _ServerClient(self.server, token)

    def _agent_url(self, name: str) -> str:
        return f"{self.url}/{quote(name, safe='')}"


class _ServerClient:
    """A client of the server with that credential, for one request."""

    def __init__(self, server: str, token: str) -> None:
        try:
            self.client = Client(server, token, patience=PATIENCE_SECONDS)
        except ValueError as error:
            raise HttpStatusError(401, str(error)) from error

    async def __aenter__(self) -> AsyncClient:
        return await self.client.__aenter__()

    async def __aexit__(self, *error: Any) -> None:  # noqa: ANN401 - passed on
        await self.client.__aexit__(*error)


async def _run_method(
    call_context: CallContext, request: JsonRpcRequest, send: Send
) -> Subscription | None:
    """Answer the call; or return the subscription, if it wants a stream."""
    params, streaming_method = bytes(request.params), STREAMING_METHODS.get(request.method)
    try:
        if streaming_method is not None:
            return await streaming_method(call_context, params)
        result = await METHODS[request.method](call_context, params)
    except ClientError as error:
        raise translate_error(error) from error
    await _send_json(send, _rpc_result(request, result))
    return None


# Requests


def _definition_name(path: str) -> str:
    name = path.strip("/")
    if "/" in name or name in (".", ".."):
        raise HttpStatusError(404, f"'{path[:200]}' is no agent; /NAME is that of a definition")
    return name


def _header(scope: Scope, name: str) -> str:
    header_name = name.lower().encode()
    values = [value for key, value in scope["headers"] if key == header_name]
    return values[0].decode("latin-1") if len(values) == 1 else ""


def _token(scope: Scope) -> str:
    """Return the bearer token of the request; "" if it has none."""
    token = read_bearer_token(scope["headers"])
    if token == "":
        raise HttpStatusError(401, NO_CREDENTIAL_DETAIL)
    return token or ""


def _check_request(scope: Scope, request: JsonRpcRequest) -> None:
    version = _header(scope, VERSION_HEADER) or PROTOCOL_VERSION
    if version.partition(".")[0] != PROTOCOL_VERSION.partition(".")[0]:
        message = f"this agent speaks A2A {PROTOCOL_VERSION}, not {version[:20]}"
        raise JsonRpcError("VERSION_NOT_SUPPORTED", message)
    if request.jsonrpc != "2.0":
        raise JsonRpcError("INVALID_REQUEST", "jsonrpc has to be '2.0'; send that")
    if request.method not in METHODS and request.method not in STREAMING_METHODS:
        message = f"there is no call '{request.method[:100]}' here"
        raise JsonRpcError(
            "METHOD_NOT_FOUND", f"{message}; there are: {', '.join((*METHODS, *STREAMING_METHODS))}"
        )


def _check_content_type(scope: Scope) -> None:
    """Raise the protocol's own error; a request that names no type is taken for JSON."""
    media_type = _header(scope, "content-type").partition(";")[0].strip().lower()
    if media_type not in ("", JSON_TYPE.decode()):
        message = f"a call has the content type application/json, not '{media_type[:100]}'"
        raise JsonRpcError("CONTENT_TYPE_NOT_SUPPORTED", message)


async def _read_body(receive: Receive) -> bytes:
    """Read the whole body.

    Of a body that is too long the rest is read and dropped, up to a bound: a client that is cut off
    while it sends does not see why.
    """
    body, size, more = bytearray(), 0, True
    while more and size <= DISCARDED_BYTES_MAX:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise HttpStatusError(400, "the request is not complete; send it again")
        chunk = message.get("body", b"")
        size, more = size + len(chunk), message.get("more_body", False)
        if size <= BODY_BYTES_MAX:
            body += chunk
    if size > BODY_BYTES_MAX:
        raise HttpStatusError(
            413, f"a request has at most {BODY_BYTES_MAX:,} bytes; say it shorter"
        )
    return bytes(body)


# Responses


def _rpc_result(request: JsonRpcRequest, result: A2AType) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request.id, "result": result}


async def _send_card(scope: Scope, send: Send, card: AgentCard) -> None:
    """Send a card that may be kept: that of everybody for some minutes, that of a credential by
    whom it is for, after asking whether it is still the same.
    """
    body = msgspec.json.encode(card)
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'.encode()
    headers = [
        (b"cache-control", b"private, no-cache" if _token(scope) else CARD_CACHE_CONTROL),
        (b"etag", tag),
        (b"vary", b"authorization"),
    ]
    known_tags = [each.strip() for each in _header(scope, "if-none-match").encode().split(b",")]
    is_known = tag in known_tags or b"W/" + tag in known_tags
    await _send_start(send, 304 if is_known else 200, JSON_TYPE, headers)
    await _send_body(send, b"" if is_known else body, more=False)


async def _send_json(send: Send, document: object) -> None:
    await _send_start(send, 200, JSON_TYPE)
    await _send_body(send, msgspec.json.encode(document), more=False)


async def _send_problem(send: Send, error: HttpStatusError) -> None:
    challenge = [(b"www-authenticate", b'Bearer realm="handrail"')] if error.status == 401 else []
    problem = {"type": "about:blank", "status": error.status, "detail": str(error)}
    await _send_start(send, error.status, b"application/problem+json", challenge)
    await _send_body(send, msgspec.json.encode(problem), more=False)


async def _send_start(
    send: Send,
    status: int,
    content_type: bytes,
    extra_headers: list[tuple[bytes, bytes]] | None = None,
) -> None:
    headers = [(b"content-type", content_type), *(extra_headers or ())]
    if not any(name == b"cache-control" for name, _ in headers):
        headers.append((b"cache-control", b"no-store"))
    await send({"type": "http.response.start", "status": status, "headers": headers})


async def _send_body(send: Send, body: bytes, *, more: bool) -> None:
    async with asyncio.timeout(WRITE_SECONDS_MAX):
        await send({"type": "http.response.body", "body": body, "more_body": more})


def _http_error(error: ClientError) -> HttpStatusError:
    refusal = translate_error(error)
    if isinstance(refusal, HttpStatusError):
        return refusal
    return HttpStatusError(error.status, str(refusal))


# Streams


async def _serve_stream(
    call_context: CallContext,
    request: JsonRpcRequest,
    subscription: Subscription,
    receive: Receive,
    send: Send,
) -> None:
    await _send_start(send, 200, EVENT_STREAM_TYPE)
    sending = asyncio.ensure_future(
        _send_updates(request, stream_updates(call_context, subscription), send)
    )
    watchers = (
        asyncio.ensure_future(_send_keepalives(send)),
        asyncio.ensure_future(_wait_for_disconnect(receive)),
    )
    try:
        await asyncio.wait(
            (sending, *watchers), timeout=STREAM_SECONDS_MAX, return_when=asyncio.FIRST_COMPLETED
        )
    finally:
        for task in (sending, *watchers):
            task.cancel()
        await asyncio.gather(sending, *watchers, return_exceptions=True)
    if not sending.cancelled() and (error := sending.exception()) is not None:
        if isinstance(error, TimeoutError):
            return  # the reader has stopped reading
        raise error
    await _send_body(send, b"", more=False)


async def _send_updates(
    request: JsonRpcRequest, updates: AsyncGenerator[SendMessageResponse], send: Send
) -> None:
    async with aclosing(updates) as open_updates:
        try:
            async for update in open_updates:
                await _send_body(send, _sse_frame(_rpc_result(request, update)), more=True)
        except ClientError as error:
            refusal = translate_error(error)
            rpc_error = (
                refusal
                if isinstance(refusal, JsonRpcError)
                else JsonRpcError("INTERNAL_ERROR", str(refusal))
            )
            await _send_body(send, _sse_frame(error_response(request.id, rpc_error)), more=True)


def _sse_frame(document: object) -> bytes:
    """Encode one frame: JSON has no line breaks of its own."""
    return b"data: %b\n\n" % msgspec.json.encode(document)


async def _send_keepalives(send: Send) -> None:
    while True:  # until it is cancelled
        await asyncio.sleep(KEEPALIVE_SECONDS)
        await _send_body(send, KEEPALIVE_COMMENT, more=True)


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue
