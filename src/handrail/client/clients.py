"""`handrail.Client(url)`: the HTTP API, for `async with` or for a plain `with`.

    async with handrail.Client("http://127.0.0.1:8080") as client:
        filed = await client.beads.create("500 on /invoices", workflow_id="fix")
        run = await client.result(filed.execution_id)

`handrail.api` declares the calls, `retry.py` and `sse.py` decide how each is made; the clients here
do the I/O. Both clients drive the same generators and have the same methods.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar, cast

from handrail.api.calls import Calls
from handrail.api.operation import Call, Operation
from handrail.api.runs import StreamEvent
from handrail.client.errors import unreadable_file
from handrail.client.retry import (
    AttemptOutcome,
    Backoff,
    RetryPolicy,
    ServerAddresses,
    call_with_retries,
    parse_addresses,
)
from handrail.client.sse import SILENCE_SECONDS_MAX, EventReceived, OpenStream, follow_stream
from handrail.views.run_view import RunView
from handrail.views.view_types import Page

if TYPE_CHECKING:
    import httpx

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

URL_DEFAULT = "http://127.0.0.1:8080"
SERVER_VARIABLE, TOKEN_VARIABLE = "HANDRAIL_SERVER", "HANDRAIL_TOKEN"
TIMEOUT_SECONDS, PATIENCE_SECONDS = 10.0, 30.0
WAIT_SECONDS_MAX = 60.0
"""The longest wait of one call; a longer wait takes several calls."""


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
        raise AttributeError(
            f"a Client has no '{name}' before it is entered; use "
            "`with handrail.Client(...) as client`, or `async with`"
        )

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
        raise ValueError(
            "the API token contains characters that no token has; set HANDRAIL_TOKEN again"
        )
    return token


class Deadline:
    """The end of a wait for a run; without a timeout there is none."""

    def __init__(self, execution_id: str, timeout: float | None) -> None:
        self.execution_id, self.timeout = execution_id, timeout
        self._at = float("inf") if timeout is None else time.monotonic() + timeout

    @property
    def wait_seconds(self) -> float:
        """Seconds that the next call may wait."""
        return min(max(0.0, self._at - time.monotonic()), WAIT_SECONDS_MAX)

    def has_ended(self, run: RunView) -> bool:
        """Return whether the run has ended; raises `TimeoutError` if it should have."""
        if run.status != "ended" and time.monotonic() >= self._at:
            raise TimeoutError(f"run '{self.execution_id}' is {run.status} after {self.timeout} s")
        return run.status == "ended"


def _build_call(operation: Operation[P, R], *args: P.args, **kwargs: P.kwargs) -> Call[R]:
    """Build the request; a definition may be named by its file."""
    arguments = operation.bind(*args, **kwargs)
    source = arguments.get("definition")
    if isinstance(source, str | Path):
        from handrail.engine.document_parser import load_document  # only files need it

        arguments["definition"], problems = load_document(Path(source))
        if problems:
            raise unreadable_file(str(source), problems)
    return operation.build(arguments)


class AsyncClient(Calls["AsyncClient"]):
    """The API for programs with an event loop. Made by `handrail.Client`."""

    def __init__(self, client: Client) -> None:
        from handrail.client.transport import AsyncTransport

        super().__init__(self)
        self._servers, self._retry_policy = client.servers, client.retry_policy
        self._transport = AsyncTransport(client.servers, client.timeout, client.transport)

    async def close(self) -> None:
        await self._transport.close()

    async def each(
        self, listing: Callable[P, Awaitable[Page[T]]], *args: P.args, **kwargs: P.kwargs
    ) -> AsyncIterator[T]:
        """Yield every item, page by page: `client.each(client.beads.list, status="open")`."""
        arguments: dict[str, Any] = {**kwargs}
        while True:
            page = await cast("Callable[..., Awaitable[Page[T]]]", listing)(*args, **arguments)
            for item in page.items:
                yield item
            if page.next_cursor is None:
                return
            arguments["cursor"] = page.next_cursor

    async def result(self, execution_id: str, *, timeout: float | None = None) -> RunView:
        """Wait for the run to end and return it. Raises `TimeoutError` after `timeout` seconds."""
        deadline = Deadline(execution_id, timeout)
        while True:
            run = await self.runs.get(execution_id, wait=deadline.wait_seconds)
            if deadline.has_ended(run):
                return run

    async def send(self, operation: Operation[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Make a call: `client.send(BeadCalls.get, "1")` is `client.beads.get("1")`."""
        return await self.execute(_build_call(operation, *args, **kwargs))

    async def execute(self, call: Call[R]) -> R:
        """Make a call that was built before; built once, it has the same key each time."""
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

    async def follow(
        self, operation: Operation[P, StreamEvent], *args: P.args, **kwargs: P.kwargs
    ) -> AsyncIterator[StreamEvent]:
        """Follow a stream of events across broken connections."""
        steps = follow_stream(operation.call(*args, **kwargs), self._servers, self._retry_policy)
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


class SyncClient(Calls["SyncClient"]):
    """The API for programs without an event loop. Made by `handrail.Client`."""

    def __init__(self, client: Client) -> None:
        from handrail.client.transport import SyncTransport

        super().__init__(self)
        self._servers, self._retry_policy = client.servers, client.retry_policy
        self._transport = SyncTransport(client.servers, client.timeout)

    def close(self) -> None:
        self._transport.close()

    def each(self, listing: Callable[P, Page[T]], *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        """Yield every item, page by page: `client.each(client.beads.list, status="open")`."""
        arguments: dict[str, Any] = {**kwargs}
        while True:
            page = cast("Callable[..., Page[T]]", listing)(*args, **arguments)
            yield from page.items
            if page.next_cursor is None:
                return
            arguments["cursor"] = page.next_cursor

    def result(self, execution_id: str, *, timeout: float | None = None) -> RunView:
        """Wait for the run to end and return it. Raises `TimeoutError` after `timeout` seconds."""
        deadline = Deadline(execution_id, timeout)
        while True:
            run = self.runs.get(execution_id, wait=deadline.wait_seconds)
            if deadline.has_ended(run):
                return run

    def send(self, operation: Operation[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Make a call: `client.send(BeadCalls.get, "1")` is `client.beads.get("1")`."""
        return self.execute(_build_call(operation, *args, **kwargs))

    def execute(self, call: Call[R]) -> R:
        """Make a call that was built before; built once, it has the same key each time."""
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

    def follow(
        self, operation: Operation[P, StreamEvent], *args: P.args, **kwargs: P.kwargs
    ) -> Iterator[StreamEvent]:
        """Follow a stream of events across broken connections."""
        steps = follow_stream(operation.call(*args, **kwargs), self._servers, self._retry_policy)
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
