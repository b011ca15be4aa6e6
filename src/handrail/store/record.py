"""Rows on record: what decides and is not made by the events of a run.

Definitions, credentials, budgets, webhooks, answer links, memories, beads, files and notes are rows
that people and programs write directly. Each write appends an event to a stream of the row's
subject, in the same transaction and in the same chain as all other events: who did it, when, and
the digest of the row as it stands now. The row can be checked against it at any time.

Texts enter the digest of a row by their own digest, so that one can be erased one day (K41).
"""

from collections.abc import Sequence
from hashlib import sha256

import msgspec

from handrail.store.columns import Row, columns_of
from handrail.store.database import Transaction
from handrail.store.rows import (
    EMPTY_HEAD,
    BeadRow,
    NoteRow,
    StoreError,
    StreamRow,
    StreamWrite,
    encode,
    filed_digest,
    journal_entry,
)

Key = tuple[str | int, ...]


class RecordedTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table whose rows are on record."""

    name: str
    stream: str
    """The kind of its streams: the stream of a row is KIND:SUBJECT."""
    key: tuple[str, ...]
    """The columns of its key; the first names the subject."""
    texts: tuple[str, ...] = ()
    """The columns that enter by their digest."""
    free: tuple[str, ...] = ()
    """The columns that are not on record."""
    may_vanish: bool = False
    """Whether rows are removed by age alone, which is not recorded."""

    def stream_of(self, row: Row) -> str:
        return f"{self.stream}:{getattr(row, self.key[0])}"

    def key_of(self, row: Row) -> Key:
        return tuple(getattr(row, name) for name in self.key)


CREDENTIALS = RecordedTable(name="credentials", stream="credential", key=("id",))
DEFINITIONS = RecordedTable(
    name="workflow_versions",
    stream="definition",
    key=("workflow_id", "version"),
    texts=("definition",),
)
BUDGETS = RecordedTable(name="budgets", stream="budget", key=("name",))
BEADS = RecordedTable(
    name="beads", stream="bead", key=("id",), texts=("title", "description", "context", "error")
)
FILES = RecordedTable(name="bead_files", stream="file", key=("bead_id", "name"), free=("content",))
WEBHOOKS = RecordedTable(
    name="webhooks",
    stream="webhook",
    key=("id",),
    texts=("secret",),
    free=("since", "failures", "next_at", "busy_until", "delivered_at", "disabled_at", "reason"),
)
LINKS = RecordedTable(name="answer_links", stream="link", key=("id",), may_vanish=True)
MEMORIES = RecordedTable(
    name="memories",
    stream="resolution",
    key=("id",),
    texts=("title", "ticket", "words", "resolution"),
    free=("times_used", "used_at", "standing"),
    may_vanish=True,
)
NOTES = RecordedTable(name="notes", stream="notes", key=("execution_id",), texts=("body",))
"""The n-th event of a stream is about the n-th note of the run."""
TABLES = {
    table.name: table
    for table in (
        *(CREDENTIALS, DEFINITIONS, BUDGETS, BEADS, FILES, WEBHOOKS, LINKS, MEMORIES, NOTES),
    )
}
BEAD_KEPT = "bead_kept"
"""A bead stays although the run that it was last in was archived."""
STREAM_KINDS = frozenset(table.stream for table in TABLES.values())


class AlteredRowError(StoreError):
    """A row is not as it was recorded: somebody wrote to the database behind Handrail's back."""


class RowRecorded(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A row was written, or removed."""

    type: str
    """What was done, as the audit trail shows it: `token_created`."""
    table: str
    key: Key
    row: str | None
    """The digest of the row as it stands now; None once it is removed."""
    by: str
    at: str
    about: str = ""
    """What a reader of the trail needs to know about it."""
    filed: str = ""
    """Of a bead: the digest of what no run changes."""
    filed_at: str = ""


decode_recorded = msgspec.json.Decoder(list[RowRecorded]).decode


def is_record_stream(stream: str) -> bool:
    return stream.partition(":")[0] in STREAM_KINDS


def row_digest(table: RecordedTable, row: Row) -> str:
    """Return the digest of all columns that are on record."""
    values: list[object] = [table.name]
    for column in columns_of(type(row)):
        if column.name in table.free:
            continue
        value = getattr(row, column.name)
        if value is not None and column.name in table.texts:
            value = sha256(value.encode()).hexdigest()
        elif value is not None and column.type == "double precision":
            value = float(value)  # a whole number comes back from the database as a fraction
        values.append(value)
    return sha256(encode(values)).hexdigest()


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A row that was written in a transaction, or removed."""

    table: RecordedTable
    row: Row
    type: str
    by: str
    about: str = ""
    removed: bool = False


def kept_note(note: NoteRow) -> Change:
    return Change(table=NOTES, row=note, type="note_kept", by=note.actor, about=note.code)


def record(transaction: Transaction, at: str, *changes: Change) -> None:
    """Put changed rows on record, last in the transaction that has written them: the rows are
    locked, so nobody else writes to their streams."""
    streams: dict[str, list[RowRecorded]] = {}
    for change in changes:
        event = RowRecorded(
            type=change.type,
            table=change.table.name,
            key=change.table.key_of(change.row),
            row=None if change.removed else row_digest(change.table, change.row),
            by=change.by,
            at=at,
            about=change.about,
            filed=filed_digest(change.row) if isinstance(change.row, BeadRow) else "",
            filed_at=change.row.created_at if isinstance(change.row, BeadRow) else "",
        )
        streams.setdefault(change.table.stream_of(change.row), []).append(event)
    writes = [_write(transaction, stream, streams[stream]) for stream in sorted(streams)]
    if writes and not transaction.append(writes, at):
        raise StoreError("another process writes to the same row; nothing was written; try again")


def _write(transaction: Transaction, stream: str, events: Sequence[RowRecorded]) -> StreamWrite:
    row = transaction.fetch_one("stream", name=stream)
    before = StreamRow(*row) if row is not None else None
    seq, head = (before.seq, before.head) if before is not None else (0, EMPTY_HEAD)
    seq += len(events)
    entry = journal_entry(stream, seq, head, events)
    return StreamWrite(
        expected_head=head, entry=entry, row=StreamRow(name=stream, seq=seq, head=entry.hash)
    )


def is_on_record(table: RecordedTable, row: Row, body: str | None) -> bool:
    """Whether the row is as the last event of this entry's body says."""
    if not body:
        return False
    try:
        last = decode_recorded(body)[-1]
    except (msgspec.DecodeError, IndexError):
        return False
    digest = row_digest(table, row)
    return last.table == table.name and last.key == table.key_of(row) and last.row == digest


def describe_row(table: RecordedTable, key: Sequence[object]) -> str:
    """Name a row in a message."""
    return f"{table.name} {' '.join(map(str, key))}"
