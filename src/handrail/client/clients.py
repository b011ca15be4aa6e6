"""`handrail.Client(url)`: the HTTP API, for `async with` or for a plain `with`.

    async with handrail.Client("http://127.0.0.1:8080") as client:
        filed = await client.create_bead("500 on /invoices", workflow_id="fix")
        run = await client.result(filed.execution_id)

`calls.py` describes the calls, `retry.py` and `sse.py` decide how each is made; the clients here do
the I/O. Both clients drive the same generators and have the same methods.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar, cast

from handrail.client.call import Call, CallSequence
from handrail.client.calls import Calls, Page
from handrail.client.retry import (
    AttemptOutcome,
    Backoff,
    RetryPolicy,
    ServerAddresses,
    call_with_retries,
    parse_addresses,
)
from handrail.client.sse import (
    SILENCE_SECONDS_MAX,
    EventReceived,
    EventSubscription,
    OpenStream,
    StreamEvent,
    follow_subscription,
)

if TYPE_CHECKING:
    import httpx

P = ParamSpec("P")
T = TypeVar("T")

URL_DEFAULT = "http://127.0.0.1:8080"
SERVER_VARIABLE, TOKEN_VARIABLE = "HANDRAIL_SERVER", "HANDRAIL_TOKEN"
TIMEOUT_SECONDS, PATIENCE_SECONDS = 10.0, 30.0


class Client:
    """Enter it with `async with` for an `AsyncClient`, with `with` for a `SyncClient`.

    `url`: one address or several, as a list or separated by commas; default: `HANDRAIL_SERVER`,
    else this machine. `token`: default: `HANDRAIL_TOKEN`. A call waits `timeout` seconds for an
    answer, and is retried for about `patience` seconds. `transport`: replaces the socket, for
    `async with` only.
    """

    def __init__(
        self,
        url: str | Sequence[str] = "",
        token: str = "",
        *,
        timeout: float = TIMEOUT_SECONDS,
        patience: float = PATIENCE_SECONDS,
        transport: "httpx.AsyncBaseTransport | None" = None,
    ) -> None:
        server_urls = parse_addresses(url) or parse_addresses(os.environ.get(SERVER_VARIABLE, ""))
        self.servers = ServerAddresses(server_urls or [URL_DEFAULT])
        self.retry_policy = RetryPolicy(
            _clean_token(token or os.environ.get(TOKEN_VARIABLE, "")), patience
        )
        self.timeout, self.transport = timeout, transport
        self._async: AsyncClient | None = None
        self._sync: SyncClient | None = None

    def __getattr__(self, name: str) -> NoReturn:
        message = f"a Client has no '{name}' before it is entered; use"
        raise AttributeError(f"{message} `with handrail.Client(...) as client`, or `async with`")

    async def __aenter__(self) -> "AsyncClient":
        self._async = AsyncClient(self)
        return self._async

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._async is not None, "entered"
        await self._async.close()

    def __enter__(self) -> "SyncClient":
        self._sync = SyncClient(self)
        return self._sync

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._sync is not None, "entered"
        self._sync.close()


def _clean_token(text: str) -> str:
    token = text.strip()
    if not (token.isascii() and token.isprintable()):
        raise ValueError("the token has characters that no token has; set HANDRAIL_TOKEN again")
    return token


class AsyncClient(Calls):
    """The API for programs with an event loop. Made by `handrail.Client`."""

    def __init__(self, client: Client) -> None:
        from handrail.client.transport import AsyncTransport

        self._servers, self._retry_policy = client.servers, client.retry_policy
        self._transport = AsyncTransport(client.servers, client.timeout, client.transport)

    async def close(self) -> None:
        await self._transport.close()

    async def each(
        self, listing: Callable[P, Awaitable[Page[T]]], *args: P.args, **kwargs: P.kwargs
    ) -> AsyncIterator[T]:
        """Yield every item, page by page: `client.each(client.list_beads, status="open")`."""
        arguments: dict[str, Any] = {**kwargs}
        while True:
            page = await cast("Callable[..., Awaitable[Page[T]]]", listing)(*args, **arguments)
            for item in page.items:
                yield item
            if page.next_cursor is None:
                return
            arguments["cursor"] = page.next_cursor

    async def execute(self, request: Call[T] | CallSequence[T]) -> T:
        """Execute a described call, or a sequence of calls, and return the result."""
        if isinstance(request, Call):
            return await self._call(request)
        answer: Any = None
        while True:
            try:
                call = request.send(answer)
            except StopIteration as done:
                return done.value
            answer = await self._call(call)

    def bind(self, describe: Callable[P, Call[T] | CallSequence[T]]) -> Callable[P, Awaitable[T]]:
        """Used by `endpoint`."""

        @wraps(describe)
        async def called(*args: P.args, **kwargs: P.kwargs) -> T:
            return await self.execute(describe(*args, **kwargs))

        return called

    def bind_stream(
        self, describe: Callable[P, EventSubscription]
    ) -> Callable[P, AsyncIterator[StreamEvent]]:
        """Used by `stream_endpoint`."""

        @wraps(describe)
        def called(*args: P.args, **kwargs: P.kwargs) -> AsyncIterator[StreamEvent]:
            return self._follow(describe(*args, **kwargs))

        return called

    async def _call(self, call: Call[T]) -> T:
        steps = call_with_retries(call, self._servers, self._retry_policy)
        outcome: AttemptOutcome = None
        while True:
            try:
                step = steps.send(outcome)
            except StopIteration as done:
                return done.value
            if isinstance(step, Backoff):
                outcome = await asyncio.sleep(step.seconds)
            else:
                outcome = await self._transport.send(step)

    async def _follow(self, subscription: EventSubscription) -> AsyncIterator[StreamEvent]:
        steps = follow_subscription(subscription, self._servers, self._retry_policy)
        byte_stream = self._transport.open_stream(SILENCE_SECONDS_MAX)
        outcome: AttemptOutcome | bytes = None
        try:
            while True:
                try:
                    step = steps.send(outcome)
                except StopIteration:
                    return
                if isinstance(step, EventReceived):
                    yield step.event
                    outcome = None
                elif isinstance(step, Backoff):
                    outcome = await asyncio.sleep(step.seconds)
                elif isinstance(step, OpenStream):
                    outcome = await byte_stream.open(step.request)
                else:
                    outcome = await byte_stream.read()
        finally:
            await byte_stream.close()


class SyncClient(Calls):
    """The API for programs without an event loop. Made by `handrail.Client`."""

    def __init__(self, client: Client) -> None:
        from handrail.client.transport import SyncTransport

        self._servers, self._retry_policy = client.servers, client.retry_policy
        self._transport = SyncTransport(client.servers, client.timeout)

    def close(self) -> None:
        self._transport.close()

    def each(self, listing: Callable[P, Page[T]], *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        """Yield every item, page by page: `client.each(client.list_beads, status="open")`."""
        arguments: dict[str, Any] = {**kwargs}
        while True:
            page = cast("Callable[..., Page[T]]", listing)(*args, **arguments)
            yield from page.items
            if page.next_cursor is None:
                return
            arguments["cursor"] = page.next_cursor

    def execute(self, request: Call[T] | CallSequence[T]) -> T:
        """Execute a described call, or a sequence of calls, and return the result."""
        if isinstance(request, Call):
            return self._call(request)
        answer: Any = None
        while True:
            try:
                call = request.send(answer)
            except StopIteration as done:
                return done.value
            answer = self._call(call)

    def bind(self, describe: Callable[P, Call[T] | CallSequence[T]]) -> Callable[P, T]:
        """Used by `endpoint`."""

        @wraps(describe)
        def called(*args: P.args, **kwargs: P.kwargs) -> T:
            return self.execute(describe(*args, **kwargs))

        return called

    def bind_stream(
        self, describe: Callable[P, EventSubscription]
    ) -> Callable[P, Iterator[StreamEvent]]:
        """Used by `stream_endpoint`."""

        @wraps(describe)
        def called(*args: P.args, **kwargs: P.kwargs) -> Iterator[StreamEvent]:
            return self._follow(describe(*args, **kwargs))

        return called

    def _call(self, call: Call[T]) -> T:
        steps = call_with_retries(call, self._servers, self._retry_policy)
        outcome: AttemptOutcome = None
        while True:
            try:
                step = steps.send(outcome)
            except StopIteration as done:
                return done.value
            outcome = (
                time.sleep(step.seconds)
                if isinstance(step, Backoff)
                else self._transport.send(step)
            )

    def _follow(self, subscription: EventSubscription) -> Iterator[StreamEvent]:
        steps = follow_subscription(subscription, self._servers, self._retry_policy)
        byte_stream = self._transport.open_stream(SILENCE_SECONDS_MAX)
        outcome: AttemptOutcome | bytes = None
        try:
            while True:
                try:
                    step = steps.send(outcome)
                except StopIteration:
                    return
                if isinstance(step, EventReceived):
                    yield step.event
                    outcome = None
                elif isinstance(step, Backoff):
                    outcome = time.sleep(step.seconds)
                elif isinstance(step, OpenStream):
                    outcome = byte_stream.open(step.request)
                else:
                    outcome = byte_stream.read()
        finally:
            byte_stream.close()
