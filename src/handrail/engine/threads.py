"""Threads for a store that has to be waited for, so that the engine's loop never does.

An executor would do the same, but each of its futures is a lock, a condition and a chain of
callbacks: for one question to a store on the same machine they cost twice what this does, and a
lone run asks one question a step.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

from handrail.engine.vocabulary import tell
from handrail.store.port import StoreError

T = TypeVar("T")
log = logging.getLogger("handrail.engine")


class Threads:
    """So many at most, each started when there is something to do for it; with none of them
    everything is done at once."""

    def __init__(self, most: int, name: str) -> None:
        self._most, self._name = most, name
        self._given: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads: list[Thread] = []
        self._closed = False

    async def do(self, function: Callable[..., T], *values: object) -> T:
        """What the function returns or raises."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._give(partial(_answer, loop, future, function, values))
        return await future

    def soon(self, function: Callable[[T], None], value: T) -> None:
        """Something that nobody waits for, and that may fail."""
        self._give(partial(_try, function, value))

    def _give(self, work: Callable[[], None]) -> None:
        if not self._most:
            work()
            return
        if self._closed:
            raise StoreError("the engine is closed; open it again")
        if len(self._threads) < self._most:
            name = f"{self._name}-{len(self._threads) + 1}"
            thread = Thread(target=self._work, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()
        self._given.put(work)

    def _work(self) -> None:
        while (work := self._given.get()) is not None:
            work()
            del work  # or what it was about would live until there is more to do

    def close(self) -> None:
        """Everything that was given is done first."""
        self._closed = True
        for _ in self._threads:
            self._given.put(None)
        for thread in self._threads:
            thread.join()


def _answer(
    loop: asyncio.AbstractEventLoop,
    future: asyncio.Future[Any],
    function: Callable[..., object],
    values: tuple[object, ...],
) -> None:
    result, error = None, None
    try:
        result = function(*values)
    except BaseException as wrong:  # whatever it is, whoever asked hears of it
        error = wrong
    with suppress(RuntimeError):  # the loop is closed: nobody waits any more
        loop.call_soon_threadsafe(_land, future, result, error)


def _land(future: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
    if future.done():  # whoever asked has gone
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)


def _try(function: Callable[[T], None], value: T) -> None:
    try:
        function(value)
    except Exception as error:  # it is made up for later, or is not worth more
        tell(log, "database_away", reason=str(error))
