"""The store for whoever looks after the record: `verify`, `doctor`, archive, backup and restore.

It is a store of its own on the same database, so that an engine neither waits for a long look at
everything nor carries what only a caretaker needs. `open_records` in `urls.py` makes one.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Literal, Protocol

from handrail.store.engine_store import (
    EngineStore,
    LockRow,
    Row,
    StoreError,
    StreamRow,
    StreamWrite,
    TransitionRow,
)

LIVE_TABLES = ("agents", "engines")
"""About who is there now: a restore leaves them as they are."""
IRREGULARITIES_MAX = 100
"""Rows that one question about irregularities gives at most."""


class BrokenBackupError(StoreError):
    """What was to be restored is no backup, or does not pass its check. Nothing was changed."""


class Irregularity(Row):
    """Something that should not be: `code` is the name of the query that found it."""

    code: str
    subject: str
    detail: str


class TableSize(Row):
    """`bytes` includes indexes; None if the database cannot say."""

    name: str
    rows: int
    bytes: int | None


class DatabaseSizes(Row):
    tables: Sequence[TableSize]
    bytes: int
    """Of the whole database."""
    log_bytes: int | None
    """Of its write-ahead log, where it has one of its own."""
    free_bytes: int | None
    """Inside the database, to be used again."""


class PrunedRun(Row):
    """A finished run that was archived, as it was then."""

    id: str
    head: bytes
    notes: int


class MaintenanceStore(EngineStore, Protocol):
    display_name: str
    """The database as messages name it; without a password."""

    def snapshot(self) -> AbstractContextManager[None]:
        """Everything that is read inside is of one moment, whatever others write meanwhile."""
        ...

    def list_transition_rows(
        self, execution_id: str, after_id: int, limit: int
    ) -> list[tuple[int, TransitionRow]]:
        """A page of what `transitions` shows, with all columns, in the order of ids."""
        ...

    def list_all_locks(self) -> list[LockRow]:
        """All commit locks."""
        ...

    def list_streams(self) -> list[StreamRow]:
        """All streams without a table of their own."""
        ...

    def find_irregularities(
        self, kind: Literal["doctor", "stray"], now: str = ""
    ) -> list[Irregularity]:
        """What the queries named `doctor_…` or `stray_…` find, each IRREGULAR_MAX at most.
        What goes by time needs `now`."""
        ...

    def list_finished_runs(self, before: str, after: str, limit: int) -> list[str]:
        """Ids of runs that ended before that moment, by id; a page after that id."""
        ...

    def prune_runs(self, journal_write: StreamWrite, runs: Sequence[PrunedRun], at: str) -> None:
        """One transaction: these finished runs lose their rows and the bodies of their entries, and
        `care` says so in the journal. If one of them has changed it raises; nothing is changed."""
        ...

    def measure_sizes(self) -> DatabaseSizes: ...

    def is_empty(self) -> bool:
        """Whether nothing was ever stored here."""
        ...

    def backup(self, file: Path) -> None:
        """Everything as of one moment, in one new file, on disk when this returns."""
        ...

    def restore(self, file: Path, now: str, check: Callable[["MaintenanceStore"], None]) -> None:
        """Everything becomes as it is in the file, or nothing is changed. `check` looks at what is
        about to be restored, and raises if it is not fit. Who is alive stays alive, and the time
        since the backup counts as an outage."""
        ...
