"""`handrail.Client(url)`: the HTTP API, for `async with` or for a plain `with`.

    async with handrail.Client("http://127.0.0.1:8080") as client:
        filed = await client.create_bead("500 on /invoices", workflow_id="fix")
        run = await client.result(filed.execution_id)

What can be called stands in `calls.py`, how in `talk.py` and `stream.py`; here it is done. Both
clients drive the same generators and have the same methods.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar, cast

from handrail.client.call import Call, Script
from handrail.client.calls import Calls, Page
from handrail.client.stream import SILENCE_SECONDS, Event, Found, Open, Stream, following
from handrail.client.talk import Came, Manners, Pause, Servers, addresses, conversation

if TYPE_CHECKING:
    import httpx

P = ParamSpec("P")
T = TypeVar("T")

URL = "http://127.0.0.1:8080"
SERVER_VARIABLE, TOKEN_VARIABLE = "HANDRAIL_SERVER", "HANDRAIL_TOKEN"
TIMEOUT, PATIENCE = 10.0, 30.0


class Client:
    """Enter it with `async with` for an `AsyncClient`, with `with` for a `SyncClient`.

    `url`: one address or several, in a list or with commas; left out, `HANDRAIL_SERVER`, else this
    machine. `token`: left out, `HANDRAIL_TOKEN`. A call waits `timeout` seconds for an answer, and
    is tried again for about `patience` seconds. `transport`: another way than a socket, for
    `async with`.
    """

    def __init__(
        self,
        url: str | Sequence[str] = "",
        token: str = "",
        *,
        timeout: float = TIMEOUT,
        patience: float = PATIENCE,
        transport: "httpx.AsyncBaseTransport | None" = None,
    ) -> None:
        found = addresses(url) or addresses(os.environ.get(SERVER_VARIABLE, ""))
        self.servers = Servers(found or [URL])
        self.manners = Manners(_token(token or os.environ.get(TOKEN_VARIABLE, "")), patience)
        self.timeout, self.transport = timeout, transport
        self._async: AsyncClient | None = None
        self._sync: SyncClient | None = None

    def __getattr__(self, name: str) -> NoReturn:
        told = f"a Client has no '{name}' before it is entered; use"
        raise AttributeError(f"{told} `with handrail.Client(...) as client`, or `async with`")

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


def _token(given: str) -> str:
    token = given.strip()
    if not (token.isascii() and token.isprintable()):
        raise ValueError("the token has characters that no token has; set HANDRAIL_TOKEN again")
    return token


class AsyncClient(Calls):
    """The API for programs with an event loop. Made by `handrail.Client`."""

    def __init__(self, of: Client) -> None:
        from handrail.client.wire import AsyncWire

        self._servers, self._manners = of.servers, of.manners
        self._wire = AsyncWire(of.servers, of.timeout, of.transport)

    async def close(self) -> None:
        await self._wire.close()

    async def each(
        self, listing: Callable[P, Awaitable[Page[T]]], *args: P.args, **kwargs: P.kwargs
    ) -> AsyncIterator[T]:
        """Every item of a list, page by page: `client.each(client.beads, status="open")`."""
        wanted: dict[str, Any] = {**kwargs}
        while True:
            page = await cast("Callable[..., Awaitable[Page[T]]]", listing)(*args, **wanted)
            for item in page.items:
                yield item
            if page.next_cursor is None:
                return
            wanted["cursor"] = page.next_cursor

    async def run(self, wanted: Call[T] | Script[T]) -> T:
        """A described call, or several, to the end."""
        if isinstance(wanted, Call):
            return await self._talk(wanted)
        answer: Any = None
        while True:
            try:
                call = wanted.send(answer)
            except StopIteration as done:
                return done.value
            answer = await self._talk(call)

    def bound(self, describe: Callable[P, Call[T] | Script[T]]) -> Callable[P, Awaitable[T]]:
        """By `endpoint`."""

        @wraps(describe)
        async def called(*args: P.args, **kwargs: P.kwargs) -> T:
            return await self.run(describe(*args, **kwargs))

        return called

    def bound_stream(self, describe: Callable[P, Stream]) -> Callable[P, AsyncIterator[Event]]:
        """By `stream`."""

        @wraps(describe)
        def called(*args: P.args, **kwargs: P.kwargs) -> AsyncIterator[Event]:
            return self._follow(describe(*args, **kwargs))

        return called

    async def _talk(self, call: Call[T]) -> T:
        steps = conversation(call, self._servers, self._manners)
        came: Came = None
        while True:
            try:
                step = steps.send(came)
            except StopIteration as done:
                return done.value
            if isinstance(step, Pause):
                came = await asyncio.sleep(step.seconds)
            else:
                came = await self._wire.send(step)

    async def _follow(self, wanted: Stream) -> AsyncIterator[Event]:
        steps = following(wanted, self._servers, self._manners)
        pipe = self._wire.pipe(SILENCE_SECONDS)
        came: Came | bytes = None
        try:
            while True:
                try:
                    step = steps.send(came)
                except StopIteration:
                    return
                if isinstance(step, Found):
                    yield step.event
                    came = None
                elif isinstance(step, Pause):
                    came = await asyncio.sleep(step.seconds)
                elif isinstance(step, Open):
                    came = await pipe.open(step.send)
                else:
                    came = await pipe.read()
        finally:
            await pipe.close()


class SyncClient(Calls):
    """The API for programs without an event loop. Made by `handrail.Client`."""

    def __init__(self, of: Client) -> None:
        from handrail.client.wire import SyncWire

        self._servers, self._manners = of.servers, of.manners
        self._wire = SyncWire(of.servers, of.timeout)

    def close(self) -> None:
        self._wire.close()

    def each(self, listing: Callable[P, Page[T]], *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        """Every item of a list, page by page: `client.each(client.beads, status="open")`."""
        wanted: dict[str, Any] = {**kwargs}
        while True:
            page = cast("Callable[..., Page[T]]", listing)(*args, **wanted)
            yield from page.items
            if page.next_cursor is None:
                return
            wanted["cursor"] = page.next_cursor

    def run(self, wanted: Call[T] | Script[T]) -> T:
        """A described call, or several, to the end."""
        if isinstance(wanted, Call):
            return self._talk(wanted)
        answer: Any = None
        while True:
            try:
                call = wanted.send(answer)
            except StopIteration as done:
                return done.value
            answer = self._talk(call)

    def bound(self, describe: Callable[P, Call[T] | Script[T]]) -> Callable[P, T]:
        """By `endpoint`."""

        @wraps(describe)
        def called(*args: P.args, **kwargs: P.kwargs) -> T:
            return self.run(describe(*args, **kwargs))

        return called

    def bound_stream(self, describe: Callable[P, Stream]) -> Callable[P, Iterator[Event]]:
        """By `stream`."""

        @wraps(describe)
        def called(*args: P.args, **kwargs: P.kwargs) -> Iterator[Event]:
            return self._follow(describe(*args, **kwargs))

        return called

    def _talk(self, call: Call[T]) -> T:
        steps = conversation(call, self._servers, self._manners)
        came: Came = None
        while True:
            try:
                step = steps.send(came)
            except StopIteration as done:
                return done.value
            came = time.sleep(step.seconds) if isinstance(step, Pause) else self._wire.send(step)

    def _follow(self, wanted: Stream) -> Iterator[Event]:
        steps = following(wanted, self._servers, self._manners)
        pipe = self._wire.pipe(SILENCE_SECONDS)
        came: Came | bytes = None
        try:
            while True:
                try:
                    step = steps.send(came)
                except StopIteration:
                    return
                if isinstance(step, Found):
                    yield step.event
                    came = None
                elif isinstance(step, Pause):
                    came = time.sleep(step.seconds)
                elif isinstance(step, Open):
                    came = pipe.open(step.send)
                else:
                    came = pipe.read()
        finally:
            pipe.close()
