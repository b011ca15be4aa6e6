"""Memory of resolved tickets in the store, and its search.

A memory belongs to the run that it was learned in, and is valid only with that run. Its standing
is computed from its run and its bead at every read, so a crash or another server cannot leave a
wrong memory valid. When a run is archived, the standing is written down.

The database finds candidates by words; it does not judge how similar two tickets are.
"""

from collections.abc import Sequence

from msgspec.structs import asdict, replace

from handrail.store.columns import Row, Time
from handrail.store.database import Subject, Transaction
from handrail.store.queries import text_filters
from handrail.store.record import MEMORIES, Change, record
from handrail.store.rows import StreamWrite


class MemoryRow(Row):
    """A remembered resolution."""

    id: str
    execution_id: str
    bead_id: str
    title: str
    ticket: str
    words: str
    """The words for the search, separated by spaces."""
    resolution: str
    remembered_by: str
    created_at: Time
    times_used: int = 0
    used_at: Time | None = None
    corrected_by: str | None = None
    corrected_at: Time | None = None
    standing: str = "pending"


class MemoryChange(Row):
    """A person's change to a memory; without a resolution, its removal."""

    id: str
    expected_resolution: str
    """The resolution that the person saw."""
    resolution: str | None
    by: str
    at: Time


class _StaleMemoryError(Exception):
    """The memory has changed since the person saw it."""


class TicketMemoryStore(Subject):
    def put(self, rows: Sequence[MemoryRow], memories_max: int) -> list[MemoryRow]:
        """Insert memories in one transaction. Return each run's memory: this one, or a person's
        version of it. Beyond `memories_max`, the least recently used are deleted."""
        with self._database.transaction() as transaction:
            for row in sorted(rows, key=lambda row: row.execution_id):  # one order for all engines
                transaction.execute("put_memory", **asdict(row))
            deleted = transaction.fetch_all("delete_oldest_memories", memories_max=memories_max)
            if deleted:
                ids = [memory_id for (memory_id,) in deleted]
                transaction.execute("delete_memory_uses", memory_ids=ids)
            stored = [_stored_memory(transaction, row) for row in rows]
            if rows:
                record(transaction, rows[-1].created_at, *map(_remembered, stored))
            return stored

    def search(
        self, words: Sequence[str], bead_id: str, execution_id: str, limit: int
    ) -> list[MemoryRow]:
        """Search valid memories with any of the words; roughly, most matching words first.
        Memories that answered the bead in another run are left out."""
        if not words:
            return []
        return self._fetch_rows(
            MemoryRow,
            "search_memories",
            words=self._database.text_search(words),
            bead_id=bead_id,
            execution_id=execution_id,
            limit=limit,
        )

    def record_use(self, memory_id: str, bead_id: str, execution_id: str, at: str) -> bool:
        """Record that the memory answers that run, once. Return False if it did before, or is
        gone."""
        with self._database.transaction() as transaction:
            if not transaction.execute(
                "insert_memory_use",
                memory_id=memory_id,
                bead_id=bead_id,
                execution_id=execution_id,
                at=at,
            ):
                return False
            transaction.execute("count_memory_use", memory_id=memory_id, at=at)
            return True

    def get(self, memory_id: str) -> MemoryRow | None:
        return next(iter(self._fetch_filtered(MemoryRow, "memories", id=memory_id)), None)

    def change(self, change: MemoryChange, journal_write: StreamWrite) -> bool:
        """Change or remove a memory, and write this to the journal, in one transaction. Return
        False, and change nothing, if the memory or the stream has changed meanwhile."""
        try:
            with self._database.transaction() as transaction:
                changed = _change_memory(transaction, change)
                if changed is None or not transaction.append([journal_write], change.at):
                    raise _StaleMemoryError
                record(transaction, change.at, changed)
        except _StaleMemoryError:
            return False
        return True

    def list(
        self, *, text: str | None = None, before: str | None = None, limit: int = 50
    ) -> list[MemoryRow]:
        """List memories by id, the newest first. `text` is in the ticket or the resolution, in any
        case."""
        within = text_filters(text).get("within")
        return self._fetch_filtered(
            MemoryRow, "memories", before=before, within=within, limit=limit
        )


def _stored_memory(transaction: Transaction, row: MemoryRow) -> MemoryRow:
    """Return the stored memory; `row` itself if it was deleted at once."""
    stored = transaction.fetch_one("memory_of_run", execution_id=row.execution_id)
    return MemoryRow(*stored) if stored is not None else row


def _remembered(row: MemoryRow) -> Change:
    return Change(table=MEMORIES, row=row, type="remembered", by=row.remembered_by)


def _change_memory(transaction: Transaction, change: MemoryChange) -> Change | None:
    """Return what to put on record, beside the person's act; None if the memory has changed
    meanwhile."""
    row = transaction.fetch_one("memory", id=change.id)
    if row is None:
        return None
    before = MemoryRow(*row)
    if change.resolution is not None:
        if not transaction.execute("correct_memory", **asdict(change)):
            return None
        after = replace(
            before, resolution=change.resolution, corrected_by=change.by, corrected_at=change.at
        )
        return Change(table=MEMORIES, row=after, type="memory_changed", by="")
    if not transaction.execute("delete_memory", **asdict(change)):
        return None
    transaction.execute("delete_memory_uses", memory_ids=[change.id])
    return Change(table=MEMORIES, row=before, type="memory_gone", by="", removed=True)
