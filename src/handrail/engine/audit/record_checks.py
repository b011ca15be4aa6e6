"""Checks rows on record against the streams that they are recorded in (`store/record.py`).

Every row must be as its last event says; a row without an event was never written by Handrail. What
runs make of their beads is in the runs' own events, and checked when these are replayed.
"""

import hashlib
from collections.abc import Callable, Sequence
from datetime import datetime

import msgspec

from handrail.engine.audit.row_checks import Findings
from handrail.engine.maintenance.archive_file import RETENTION_STREAM
from handrail.store.beads import FileRow
from handrail.store.budgets import BudgetRow
from handrail.store.columns import Row
from handrail.store.maintenance import MaintenanceStore
from handrail.store.record import (
    BEAD_KEPT,
    BEADS,
    BUDGETS,
    NOTES,
    TABLES,
    Key,
    RecordedTable,
    decode_recorded,
    describe_row,
    is_record_stream,
    row_digest,
)
from handrail.store.rows import BeadRow, StoredEntry, filed_digest, iso

LEAST_KEY: dict[str, object] = {"version": -1}
"""What is less than any value of a column; of texts it is the empty one."""
PAGE_ROWS = {"bead_files": 10}
PAGE_ROWS_DEFAULT = 500


class _Start(msgspec.Struct):
    """What the first event of a run says of its bead."""

    bead_id: str = ""
    filed: str = ""
    title: str = ""
    description: str = ""
    filed_by: str = ""
    at: datetime | None = None

    @property
    def filed_as(self) -> tuple[str, str]:
        """The digest of the bead as it was filed, and the time. A guarded run files its own."""
        filed = self.filed or filed_digest(
            BeadRow(
                id=self.bead_id,
                title=self.title,
                description=self.description,
                status="",
                priority=0,
                filed_by=self.filed_by,
                context="",
                error=None,
                workflow_id=None,
                execution_id=None,
                created_at="",
                updated_at="",
            )
        )
        return filed, iso(self.at) if self.at is not None else ""


_decode_starts = msgspec.json.Decoder(list[_Start]).decode
Recorded = tuple[str | None, int]
"""The digest of a row as last recorded, None once it was removed; and the number of the commit."""


class RecordedRows:
    """What is on record of every row, read from the streams in the order of commits."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self.rows: dict[str, dict[Key, Recorded]] = {name: {} for name in TABLES}
        self.notes: dict[str, list[str | None]] = {}
        self.filed: dict[str, tuple[str, str]] = {}
        """The digest of each bead as it was filed, and the time: its first run says it, or its own
        stream."""
        self.beads_of_runs: set[str] = set()
        """Beads that are as the events of their last run say."""

    def read(self, entry: StoredEntry, *, is_first: bool) -> None:
        """Read an entry, if it is of a row, or begins a run: that says how its bead was filed."""
        if not entry.body:
            return
        try:
            if is_first and ":" not in entry.stream and entry.stream != RETENTION_STREAM:
                start = _decode_starts(entry.body)[0]
                self.filed.setdefault(start.bead_id, start.filed_as)
            for event in decode_recorded(entry.body) if is_record_stream(entry.stream) else ():
                if event.filed:
                    is_newer = event.type == BEAD_KEPT  # its first run was archived
                    filed = event.filed, event.filed_at
                    bead_id = str(event.key[0])
                    self.filed[bead_id] = filed if is_newer else self.filed.get(bead_id, filed)
                if event.table == NOTES.name:
                    self.notes.setdefault(str(event.key[0]), []).append(event.row)
                else:
                    self.rows[event.table][event.key] = (event.row, entry.n)
        except (ValueError, LookupError) as error:  # of JSON, of text, of an unknown table
            message = f"what '{entry.stream}' records cannot be read: {error}"
            self._findings.add("unreadable", message, entry.stream, entry.seq)

    def bead_since(self, bead_id: str, n: int) -> bool:
        """Whether the bead was recorded after that commit."""
        digest, recorded_n = self.rows[BEADS.name].get((bead_id,), (None, 0))
        return digest is not None and recorded_n > n


class RecordCheck:
    """Compares the tables with what is on record of them."""

    def __init__(
        self,
        store: MaintenanceStore,
        findings: Findings,
        recorded: RecordedRows,
        has_stream: Callable[[str], bool],
        on_progress: Callable[[], None],
    ) -> None:
        self._store, self._findings, self._recorded = store, findings, recorded
        self._has_stream, self._on_progress = has_stream, on_progress

    def check(self, is_archived: Callable[[str], bool]) -> None:
        """Check every table; the notes of archived runs are gone."""
        for table in TABLES.values():
            if table is not NOTES:
                self._check_table(table)
        self._check_notes(is_archived)
        for workflow_id in self._store.list_wrong_definitions():
            message = f"workflows {workflow_id}: it is not the newest version of that definition"
            self._findings.add("row_changed", message, f"definition:{workflow_id}")

    def _check_table(self, table: RecordedTable) -> None:
        expected = self._recorded.rows[table.name]
        seen: set[Key] = set()
        key: Sequence[object] = [LEAST_KEY.get(name, "") for name in table.key]
        limit = PAGE_ROWS.get(table.name, PAGE_ROWS_DEFAULT)
        while page := self._store.read_recorded(table, key, limit):
            self._on_progress()
            for row in page:
                key = table.key_of(row)
                seen.add(table.key_of(row))
                self._check_row(table, row, expected.get(table.key_of(row)))
        if table.may_vanish:
            return
        for missing, (digest, _) in expected.items():
            if digest is not None and missing not in seen:
                message = f"{describe_row(table, missing)}: it is on record, but was deleted"
                self._findings.add("row_missing", message, f"{table.stream}:{missing[0]}")

    def _check_row(self, table: RecordedTable, row: Row, recorded: Recorded | None) -> None:
        subject, stream = describe_row(table, table.key_of(row)), table.stream_of(row)
        if isinstance(row, BeadRow):
            filed = self._recorded.filed.get(row.id)
            if filed is not None and filed != (filed_digest(row), row.created_at):
                self._findings.add("row_changed", f"{subject}: it is not as it was filed", stream)
            if row.id in self._recorded.beads_of_runs:
                return
        if isinstance(row, FileRow) and _content_digest(row) != row.sha256:
            message = f"{subject}: its content is not the one of its sha256"
            self._findings.add("row_changed", message, stream)
        if recorded is None or recorded[0] is None:
            if isinstance(row, BeadRow) and not self._has_run(row):
                return  # of a run that does not exist, which is another finding
            if table is BUDGETS and isinstance(row, BudgetRow) and not row.updated_by:
                return  # the limits of a program are its own
            message = f"{subject}: it is not on record; nobody has stored it through Handrail"
            self._findings.add("row_extra", message, stream)
        elif row_digest(table, row) != recorded[0]:
            self._findings.add("row_changed", f"{subject}: it is not as it was recorded", stream)

    def _has_run(self, bead: BeadRow) -> bool:
        return bead.execution_id is None or self._has_stream(bead.execution_id)

    def _check_notes(self, is_archived: Callable[[str], bool]) -> None:
        streams = {stream for stream in self._recorded.notes if not is_archived(stream)}
        after = ""
        while page := self._store.list_streams_with_notes(after, PAGE_ROWS_DEFAULT):
            streams.update(page)
            after = page[-1]
        for stream in sorted(streams):
            self._on_progress()
            stored = [row_digest(NOTES, note) for note in self._store.list_kept_notes(stream)]
            if stored != self._recorded.notes.get(stream, []):
                message = f"notes of {stream}: they are not those on record"
                self._findings.add("row_changed", message, f"{NOTES.stream}:{stream}")


def _content_digest(file: FileRow) -> str:
    return hashlib.sha256(file.content or b"").hexdigest()
