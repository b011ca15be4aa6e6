"""Decorators that make one description of a call a method of both clients.

    @endpoint
    def get_bead(self, bead_id: str) -> Call[BeadView]: ...

On an `AsyncClient` it is `async (bead_id) -> BeadView`, on a `SyncClient` `(bead_id) -> BeadView`;
`stream_endpoint` does the same for event streams. A description makes no request and does not use
the client: `self` is there only because it is a method.
"""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from handrail.client.call import Call, CallSequence
from handrail.client.sse import EventSubscription, StreamEvent

if TYPE_CHECKING:
    from handrail.client.clients import AsyncClient, SyncClient

P = ParamSpec("P")
T = TypeVar("T")


class endpoint(Generic[P, T]):  # noqa: N801 - a decorator
    """Decorates a method that describes a call, or a sequence of calls."""

    def __init__(self, describe: Callable[Concatenate[Any, P], Call[T] | CallSequence[T]]) -> None:
        self.describe = describe
        self.__doc__, self.__name__ = describe.__doc__, describe.__name__

    @overload
    def __get__(self, client: None, owner: type) -> Self: ...
    @overload
    def __get__(
        self, client: "AsyncClient", owner: type
    ) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, client: "SyncClient", owner: type) -> Callable[P, T]: ...

    def __get__(self, client: Any, owner: type) -> Any:
        return self if client is None else client.bind(self.describe.__get__(client))


class stream_endpoint(Generic[P]):  # noqa: N801 - a decorator
    """Decorates a method that describes a stream of events."""

    def __init__(self, describe: Callable[Concatenate[Any, P], EventSubscription]) -> None:
        self.describe = describe
        self.__doc__, self.__name__ = describe.__doc__, describe.__name__

    @overload
    def __get__(self, client: None, owner: type) -> Self: ...
    @overload
    def __get__(
        self, client: "AsyncClient", owner: type
    ) -> Callable[P, AsyncIterator[StreamEvent]]: ...
    @overload
    def __get__(self, client: "SyncClient", owner: type) -> Callable[P, Iterator[StreamEvent]]: ...

    def __get__(self, client: Any, owner: type) -> Any:
        return self if client is None else client.bind_stream(self.describe.__get__(client))
