"""Bells: whoever waits for something that happens to a run is told when it does. In memory."""

import asyncio
from typing import Generic, TypeVar

T = TypeVar("T")


class KeyedWaiters(Generic[T]):
    """`ring` tells all who wait for that name at that moment, and nobody later."""

    def __init__(self) -> None:
        self._futures: dict[str, set[asyncio.Future[T]]] = {}

    def notify(self, key: str, value: T) -> None:
        for future in self._futures.pop(key, ()):
            if not future.done():
                future.set_result(value)

    def keys(self) -> set[str]:
        """What is waited for."""
        return set(self._futures)

    def fail_all(self, error: BaseException) -> None:
        """Nothing will happen any more, to anybody."""
        for key in list(self._futures):
            for future in self._futures.pop(key):
                if not future.done():
                    future.set_exception(error)

    def subscribe(self, key: str) -> asyncio.Future[T]:
        """Listen before looking: what happens after the look is then heard."""
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
