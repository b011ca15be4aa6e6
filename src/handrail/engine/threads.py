"""Threads for a store whose calls block, so that the engine's loop never does.

An executor would do the same, but each of its futures is a lock, a condition and a chain of
callbacks: for one query to a store on the same machine they cost twice what this does, and a lone
run makes one query a step.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any, ParamSpec, TypeVar

from handrail.engine.log_events import log_event
from handrail.store.rows import StoreError

P = ParamSpec("P")
T = TypeVar("T")
log = logging.getLogger("handrail.engine")


class StoreThreads:
    """A bounded number of threads, each started when there is work for it; with 0 threads every
    call is made inline."""

    def __init__(self, threads_max: int, name: str) -> None:
        self._threads_max, self._name = threads_max, name
        self._tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads: list[Thread] = []
        self._closed = False

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return or raise what the function does."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        call = partial(function, *args, **kwargs)
        self._submit(partial(_run_and_resolve, loop, future, call))
        return await future

    def run_soon(self, function: Callable[[T], None], argument: T) -> None:
        """Call a function that may fail; no caller waits for it."""
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
            del task  # else its arguments would live until the next task

    def close(self) -> None:
        """Finish all queued calls, then stop."""
        self._closed = True
        for _ in self._threads:
            self._tasks.put(None)
        for thread in self._threads:
            thread.join()


def _run_and_resolve(
    loop: asyncio.AbstractEventLoop,
    future: asyncio.Future[Any],
    function: Callable[[], object],
) -> None:
    result, error = None, None
    try:
        result = function()
    except BaseException as raised:  # the caller gets every exception
        error = raised
    with suppress(RuntimeError):  # the loop is closed: no caller waits any more
        loop.call_soon_threadsafe(_resolve, future, result, error)


def _resolve(future: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
    if future.done():  # the caller has gone
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)


def _run_and_log(function: Callable[[T], None], argument: T) -> None:
    try:
        function(argument)
    except Exception as error:  # a later write makes up for it, or it is not worth more
        log_event(log, "database_away", reason=str(error))
