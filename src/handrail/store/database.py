"""What the store needs of a database: a narrow interface with one implementation for each.

A query is named as in the SQL files (`queries.py`), its values are keywords. Reads may be repeated
after a lost connection. A write outside of a transaction is a transaction of its own, and one round
trip. After `CommitOutcomeUnknownError` a write may be on disk or not.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from handrail.store.columns import Row
from handrail.store.queries import Queries, Query
from handrail.store.rows import (
    ChannelRow,
    CommitRow,
    LoadedRun,
    LockRow,
    RunRow,
    StoreError,
    StreamRow,
    StreamWrite,
)

T = TypeVar("T")
Rows = list[tuple[Any, ...]]
STREAM_TABLES: dict[type[Row], str] = {
    RunRow: "executions",
    LockRow: "locks",
    ChannelRow: "channels",
    StreamRow: "streams",
}
"""Which statements write the row of a stream: `insert_executions`, `update_locks` and so on."""
LockTopic = Literal["definitions", "files", "notes", "outages"]


class Statements(ABC):
    @abstractmethod
    def fetch_all(self, query: str, /, **values: object) -> Rows: ...

    def fetch_one(self, query: str, /, **values: object) -> tuple[Any, ...] | None:
        rows = self.fetch_all(query, **values)
        return rows[0] if rows else None

    @abstractmethod
    def execute(self, query: str, /, **values: object) -> int:
        """Return the number of rows written."""

    @abstractmethod
    def write_rows(self, query: str, rows: Iterable[Row | Sequence[object]], /) -> int:
        """Write rows by a query that takes a batch; return the number of rows written."""


class Transaction(Statements):
    @abstractmethod
    def lock(self, topic: LockTopic, key: str = "") -> None:
        """Wait until no other transaction holds this lock, and hold it to the end."""

    @abstractmethod
    def append(self, writes: Sequence[StreamWrite], at: str) -> bool:
        """Append entries to streams without tables of their own, in one commit. Return False if one
        of the streams has changed since it was read: then the transaction must end."""


class Database(Statements):
    queries: Queries
    inline: bool
    """Whether a call is fast enough for the event loop."""
    display_name: str
    """The database's name in messages, without a password."""

    @abstractmethod
    def read(self, query: Query, values: Mapping[str, object], /) -> Rows: ...

    def fetch_all(self, query: str, /, **values: object) -> Rows:
        return self.read(self.queries[query], values)

    def fetch_filtered(self, query: str, /, **filters: object) -> Rows:
        """Read with the filters that are not None."""
        return self.read(self.queries.select_filters(query, filters), filters)

    def fetch_scanning(self, query: str, /, **filters: object) -> Rows:
        """Read like `fetch_filtered`, by reading whole tables where that is faster."""
        return self.fetch_filtered(query, **filters)

    @abstractmethod
    def transaction(self) -> AbstractContextManager[Transaction]: ...

    @abstractmethod
    def commit(self, writes: Sequence[StreamWrite], at: str) -> tuple[CommitRow | None, list[bool]]:
        """Return the commit, and which writes won, in their order; no commit if all lost."""

    @abstractmethod
    def check_commit_settled(self) -> None:
        """After `CommitOutcomeUnknownError`: return once that commit's outcome is final and
        readable. Raise as long as the outcome may change."""

    @abstractmethod
    def has_changed(self) -> bool:
        """Return whether another process may have written since the last call."""

    @abstractmethod
    def find_dead_engines(self) -> list[str] | None: ...

    @abstractmethod
    def load_runs(self, ids: Sequence[str]) -> dict[str, LoadedRun]: ...

    @abstractmethod
    def reserve_dispatches(self, role: str, limit: int) -> Rows: ...

    @abstractmethod
    def text_search(self, words: Sequence[str]) -> str:
        """Return a search for any of the words, in the database's own language."""

    @abstractmethod
    def open_reader(self) -> "Database": ...

    @abstractmethod
    def open_maintenance(self) -> "MaintenanceDatabase | None": ...

    @abstractmethod
    def close(self) -> None: ...


LIVE_TABLES = ("agents", "engines")
"""Tables about processes that are alive now: a restore leaves them unchanged."""


class BrokenBackupError(StoreError):
    """The file to restore is not a backup, or fails its check. Nothing was changed."""


class TableSize(Row):
    """The size of a table. `bytes` includes indexes; None if the database cannot tell."""

    name: str
    rows: int
    bytes: int | None


class DatabaseSizes(msgspec.Struct, frozen=True):
    tables: Sequence[TableSize]
    bytes: int
    """Of the whole database."""
    log_bytes: int | None
    """Of its write-ahead log, if the database has its own."""
    free_bytes: int | None
    """Reusable space inside the database."""


class MaintenanceDatabase(Database):
    """A database opened for maintenance, beside those of the engines."""

    @abstractmethod
    def snapshot(self) -> AbstractContextManager[None]:
        """All reads inside see the data as of one moment, despite concurrent writes."""

    @abstractmethod
    def measure_sizes(self) -> DatabaseSizes: ...

    @abstractmethod
    def backup(self, file: Path) -> None:
        """Write everything as of one moment to a new file, which is on disk on return."""

    @abstractmethod
    def restore(
        self, file: Path, prepare: "Callable[[MaintenanceDatabase, str | None], None]"
    ) -> None:
        """Replace all data by the file's, or change nothing. `prepare` gets the data before they
        are committed, and when an engine was last alive; it raises to refuse them."""


class Subject:
    """Methods of the store about one thing, over any database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def _fetch_rows(self, make: Callable[..., T], query: str, /, **values: object) -> list[T]:
        return [make(*row) for row in self._database.fetch_all(query, **values)]

    def _fetch_row(self, make: Callable[..., T], query: str, /, **values: object) -> T | None:
        row = self._database.fetch_one(query, **values)
        return make(*row) if row is not None else None

    def _update(self, query: str, /, **values: object) -> bool:
        """Execute a write; return whether it changed anything."""
        return self._database.execute(query, **values) > 0

    def _fetch_filtered(self, make: Callable[..., T], query: str, /, **filters: object) -> list[T]:
        """Fetch rows with the filters that are not None."""
        return [make(*row) for row in self._database.fetch_filtered(query, **filters)]
