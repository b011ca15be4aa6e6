"""Bells: whoever waits for something that happens to a run is told when it does. In memory."""

import asyncio
from typing import Generic, TypeVar

T = TypeVar("T")


class Bell(Generic[T]):
    """`ring` tells all who wait for that name at that moment, and nobody later."""

    def __init__(self) -> None:
        self._waiting: dict[str, set[asyncio.Future[T]]] = {}

    def ring(self, name: str, told: T) -> None:
        for future in self._waiting.pop(name, ()):
            if not future.done():
                future.set_result(told)

    def names(self) -> set[str]:
        """What is waited for."""
        return set(self._waiting)

    def break_off(self, error: BaseException) -> None:
        """Nothing will happen any more, to anybody."""
        for name in list(self._waiting):
            for future in self._waiting.pop(name):
                if not future.done():
                    future.set_exception(error)

    def listen(self, name: str) -> asyncio.Future[T]:
        """Listen before looking: what happens after the look is then heard."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(name, set()).add(future)
        return future

    def forget(self, name: str, future: asyncio.Future[T]) -> None:
        waiting = self._waiting.get(name)
        if waiting is not None:
            waiting.discard(future)
            if not waiting:
                del self._waiting[name]
        future.cancel()
