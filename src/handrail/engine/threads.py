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

from handrail.engine.log_events import log_event
from handrail.store.engine_store import StoreError

T = TypeVar("T")
log = logging.getLogger("handrail.engine")


class StoreThreads:
    """So many at most, each started when there is something to do for it; with none of them
    everything is done at once."""

    def __init__(self, threads_max: int, name: str) -> None:
        self._threads_max, self._name = threads_max, name
        self._tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads: list[Thread] = []
        self._closed = False

    async def run(self, function: Callable[..., T], *args: object) -> T:
        """What the function returns or raises."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._submit(partial(_run_and_resolve, loop, future, function, args))
        return await future

    def run_soon(self, function: Callable[[T], None], argument: T) -> None:
        """Something that nobody waits for, and that may fail."""
        self._submit(partial(_run_and_log, function, argument))

    def _submit(self, task: Callable[[], None]) -> None:
        if not self._threads_max:
            task()
            return
        if self._closed:
            raise StoreError("the engine is closed; open it again")
        if len(self._threads) < self._threads_max:
            name = f"{self._name}-{len(self._threads) + 1}"
            thread = Thread(target=self._run_tasks, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()
        self._tasks.put(task)

    def _run_tasks(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()
            del task  # or what it was about would live until there is more to do

    def close(self) -> None:
        """Everything that was given is done first."""
        self._closed = True
        for _ in self._threads:
            self._tasks.put(None)
        for thread in self._threads:
            thread.join()


def _run_and_resolve(
    loop: asyncio.AbstractEventLoop,
    future: asyncio.Future[Any],
    function: Callable[..., object],
    args: tuple[object, ...],
) -> None:
    result, error = None, None
    try:
        result = function(*args)
    except BaseException as raised:  # whatever it is, whoever asked hears of it
        error = raised
    with suppress(RuntimeError):  # the loop is closed: nobody waits any more
        loop.call_soon_threadsafe(_resolve, future, result, error)


def _resolve(future: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
    if future.done():  # whoever asked has gone
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)


def _run_and_log(function: Callable[[T], None], argument: T) -> None:
    try:
        function(argument)
    except Exception as error:  # it is made up for later, or is not worth more
        log_event(log, "database_away", reason=str(error))
