"""Waiters by key: wake the callers that wait for a change of a run. In memory."""

import asyncio
from typing import Generic, TypeVar

T = TypeVar("T")


class KeyedWaiters(Generic[T]):
    """Futures by key. `notify` wakes all who wait for the key at that moment, and no later
    waiter."""

    def __init__(self) -> None:
        self._futures: dict[str, set[asyncio.Future[T]]] = {}

    def notify(self, key: str, value: T) -> None:
        for future in self._futures.pop(key, ()):
            if not future.done():
                future.set_result(value)

    def keys(self) -> set[str]:
        """The keys with waiters."""
        return set(self._futures)

    def fail_all(self, error: BaseException) -> None:
        """Fail all waiters: the engine has stopped."""
        for key in list(self._futures):
            for future in self._futures.pop(key):
                if not future.done():
                    future.set_exception(error)

    def subscribe(self, key: str) -> asyncio.Future[T]:
        """Return a future for the next `notify`. Subscribe before reading, so that no change is
        missed."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._futures.setdefault(key, set()).add(future)
        return future

    def unsubscribe(self, key: str, future: asyncio.Future[T]) -> None:
        futures = self._futures.get(key)
        if futures is not None:
            futures.discard(future)
            if not futures:
                del self._futures[key]
        future.cancel()
