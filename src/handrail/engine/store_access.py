"""How the engine reaches its store: short calls, and long queries that nobody else waits for."""

import asyncio
from collections.abc import Callable
from threading import Lock
from typing import ParamSpec, TypeVar

from handrail.engine.threads import StoreThreads
from handrail.kernel.run.state import Run
from handrail.store.rows import CommitOutcomeUnknownError, StoreError
from handrail.store.store import Store

P = ParamSpec("P")
T = TypeVar("T")

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
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, lambda: query(self.reader))

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
