"""What an engine works with: its clock and its store.

Time is the wall clock's at the start, then steady. A wall clock that is set forward must not end
every run at once, and one that is set back must neither fire a clock twice nor put a later event
before an earlier one. So the engine reads the wall clock once, when it opens, and never takes it
for earlier than what is already recorded; from then on the monotonic clock counts. A jump while the
engine is down looks like an outage, for which every clock is pushed.

The store is reached by short calls, and by long queries that nobody else waits for. A store whose
calls block has threads, so that the engine's loop never does. An executor would do the same, but
each of its futures is a lock, a condition and a chain of callbacks: for one query to a store on the
same machine they cost twice what `StoreThreads` does, and a lone run makes one query a step.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from queue import SimpleQueue
from threading import Lock, Thread
from time import monotonic
from typing import Any, ParamSpec, TypeVar

from handrail.engine.log_events import log_event
from handrail.kernel.run.state import Run
from handrail.store.rows import CommitOutcomeUnknownError, StoreError
from handrail.store.store import Store

P = ParamSpec("P")
T = TypeVar("T")
log = logging.getLogger("handrail.engine")


Clock = Callable[[], datetime]


def wall_clock() -> datetime:
    return datetime.now(UTC)


def steady_clock(
    not_before: datetime | None = None,
    wall: Clock = wall_clock,
    monotonic: Callable[[], float] = time.monotonic,
) -> Clock:
    """A clock that only goes forward, one second a second."""
    started_at = wall()
    if not_before is not None:
        started_at = max(started_at, not_before)
    started_monotonic = monotonic()
    return lambda: started_at + timedelta(seconds=monotonic() - started_monotonic)


STANDSTILL_SECONDS_MIN = 1.0
"""A shorter gap is an ordinary busy moment."""


class StandstillWatch:
    """How long this process has stood still: it was stopped, its machine was paused, or its event
    loop was blocked. An engine that does nothing by itself is not watched."""

    def __init__(self) -> None:
        self._awake_at: float | None = None
        self.lock = asyncio.Lock()
        """Held while what a standstill calls for is being done."""

    def note_awake(self) -> None:
        self._awake_at = monotonic()

    def seconds(self) -> float:
        return 0.0 if self._awake_at is None else monotonic() - self._awake_at

    def is_pending(self) -> bool:
        """Whether what a standstill calls for is not done yet."""
        return self.seconds() >= STANDSTILL_SECONDS_MIN or self.lock.locked()


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
        self._submit(partial(_run_and_resolve, loop, future, partial(function, *args, **kwargs)))
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
            thread = Thread(
                target=self._run_tasks, name=f"{self._name}-{len(self._threads) + 1}", daemon=True
            )
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


STORE_THREADS = 4
HISTORY_EVENTS_SHORT = 200
"""Events of a run that are read inline, if the store is called inline."""


class StoreAccess:
    """The store of an engine, while the engine is open and has not failed."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.failure: BaseException | None = None
        """What made the engine fail."""
        self.closed = asyncio.Event()
        self._threads = StoreThreads(0 if store.inline else STORE_THREADS, "handrail-store")
        self._reader: Store | None = None
        self._reader_lock = Lock()

    def check_open(self) -> None:
        """Raise `StoreError` if the engine has failed or is closed."""
        if self.failure is not None:
            raise StoreError(f"the engine has failed: {self.failure}") from self.failure
        if self.closed.is_set():
            raise StoreError("the engine is closed; open it again")

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a method of the store, on a thread if the store wants one."""
        try:
            if self.store.inline:
                return function(*args, **kwargs)
            return await self._threads.run(function, *args, **kwargs)
        except CommitOutcomeUnknownError:
            raise  # even in a failed engine: the committer finds out whether it is on disk
        except StoreError:
            self.check_open()  # a failed or closed engine is the better explanation
            raise

    def call_soon(self, function: Callable[[T], None], argument: T) -> None:
        """Make a small write that may fail; no caller waits for it."""
        self._threads.run_soon(function, argument)

    async def query(self, query: Callable[[Store], T]) -> T:
        """Run a long query on the reader, on a thread: no other caller waits for it."""
        self.check_open()
        if self.store.inline and self.reader is self.store:
            return query(self.store)
        return await asyncio.get_running_loop().run_in_executor(None, lambda: query(self.reader))

    @property
    def reader(self) -> Store:
        """The store for long queries."""
        with self._reader_lock:
            if self._reader is None:
                self._reader = self.store.open_reader()
            return self._reader

    def has_short_history(self, run: Run) -> bool:
        """Whether reading the run's events inline is faster than a query."""
        return self.store.inline and run.seq <= HISTORY_EVENTS_SHORT

    def store_for(self, run: Run) -> Store:
        """The store to read the run's events from."""
        return self.store if self.has_short_history(run) else self.reader

    def close_threads(self) -> None:
        """Finish all calls, then stop the threads."""
        self._threads.close()

    def close(self) -> None:
        """Close the reader and the store. An abandoned query may be opening the reader on a thread
        just now; a later query finds the store, which is closed."""
        self.close_threads()
        with self._reader_lock:
            reader, self._reader = self._reader, self.store
        if reader is not None and reader is not self.store:
            reader.close()
        self.store.close()
        self.closed.set()
