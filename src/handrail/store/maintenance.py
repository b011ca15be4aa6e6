"""The store for maintenance: `verify`, `doctor`, archive, backup and restore.

A maintenance store is separate from the engine's store on the same database, so that engines never
wait for a scan of all data. `open_maintenance_store` in `urls.py` opens one.
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
"""Tables about processes that are alive now: a restore leaves them unchanged."""
IRREGULARITIES_MAX = 100
"""Rows per irregularity query."""


class BrokenBackupError(StoreError):
    """The file to restore is not a backup, or fails its check. Nothing was changed."""


class Irregularity(Row):
    """An inconsistency in the data. `code` is the name of the query that found it."""

    code: str
    subject: str
    detail: str


class TableSize(Row):
    """The size of a table. `bytes` includes indexes; None if the database cannot tell."""

    name: str
    rows: int
    bytes: int | None


class DatabaseSizes(Row):
    tables: Sequence[TableSize]
    bytes: int
    """Of the whole database."""
    log_bytes: int | None
    """Of its write-ahead log, if the database has its own."""
    free_bytes: int | None
    """Reusable space inside the database."""


class PrunedRun(Row):
    """A finished run at the time of archiving."""

    id: str
    head: bytes
    notes: int


class MaintenanceStore(EngineStore, Protocol):
    display_name: str
    """The database's name in messages, without a password."""

    def snapshot(self) -> AbstractContextManager[None]:
        """All reads inside see the data as of one moment, despite concurrent writes."""
        ...

    def list_transition_rows(
        self, execution_id: str, after_id: int, limit: int
    ) -> list[tuple[int, TransitionRow]]:
        """List a page of a run's transitions, with all columns, in the order of ids."""
        ...

    def list_all_locks(self) -> list[LockRow]:
        """List all commit locks."""
        ...

    def list_streams(self) -> list[StreamRow]:
        """List all streams without a table of their own."""
        ...

    def find_irregularities(
        self, kind: Literal["doctor", "stray"], now: str = ""
    ) -> list[Irregularity]:
        """Run the queries named `doctor_…` or `stray_…`; each returns at most IRREGULARITIES_MAX
        rows. Queries about time need `now`."""
        ...

    def list_finished_runs(self, before: str, after: str, limit: int) -> list[str]:
        """List ids of runs that ended before that moment, by id; a page after `after`."""
        ...

    def prune_runs(self, journal_write: StreamWrite, runs: Sequence[PrunedRun], at: str) -> None:
        """Delete the rows and the entry bodies of finished runs, and write this to the journal's
        stream `care`, in one transaction. If a run has changed, raise and change nothing."""
        ...

    def measure_sizes(self) -> DatabaseSizes: ...

    def is_empty(self) -> bool:
        """Return whether nothing was ever stored here."""
        ...

    def backup(self, file: Path) -> None:
        """Write everything as of one moment to a new file, which is on disk on return."""
        ...

    def restore(self, file: Path, now: str, check: Callable[["MaintenanceStore"], None]) -> None:
        """Replace all data by the file's, or change nothing. `check` examines the data before it
        is committed, and raises to refuse it. Live agents and engines stay, and the time since the
        backup counts as an outage."""
        ...
