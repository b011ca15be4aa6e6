"""Ticket memory on PostgreSQL: its text search finds the candidates."""

from collections.abc import Sequence

from msgspec.structs import astuple

from handrail.store.engine_store import StreamWrite
from handrail.store.filters import text_filters
from handrail.store.postgres.commit import SQL, append_entry
from handrail.store.postgres.database import PostgresConnection
from handrail.store.postgres.engine_store import PostgresEngineStore, row_of
from handrail.store.ticket_memory import MemoryChange, MemoryRow

INSERT_COLUMNS = 9
"""Columns of a new row; the rest start empty."""


class _StaleMemoryError(Exception):
    """The memory has changed since the person saw it."""


class PostgresTicketMemoryStore(PostgresEngineStore):
    def put_memories(self, rows: Sequence[MemoryRow], memories_max: int) -> list[MemoryRow]:
        ordered = sorted(rows, key=lambda row: row.execution_id)  # in one order for all engines
        with self._borrow_for_write() as db, db.transaction():
            for row in ordered:
                db.execute(SQL["remember"], astuple(row)[:INSERT_COLUMNS])
            db.execute(SQL["forget_oldest"], (memories_max,))
            return [_stored_memory(db, row) for row in rows]

    def search_memories(
        self, words: Sequence[str], bead_id: str, execution_id: str, limit: int
    ) -> list[MemoryRow]:
        ts_query = " | ".join(f"'{word}'" for word in words)  # quotes disable operators
        rows = self._fetch_all("recall", ts_query, bead_id, execution_id, limit) if ts_query else []
        return [row_of(MemoryRow, row) for row in rows]

    def record_memory_use(self, memory_id: str, bead_id: str, execution_id: str, at: str) -> bool:
        return self._execute("use_memory", execution_id, memory_id, bead_id, at) > 0

    def get_memory(self, memory_id: str) -> MemoryRow | None:
        row = self._fetch_one("memory", memory_id)
        return row_of(MemoryRow, row) if row is not None else None

    def list_memories(
        self, *, text: str | None = None, before: str | None = None, limit: int = 50
    ) -> list[MemoryRow]:
        filters = {"before": before, "limit": limit, "within": text_filters(text)["within"]}
        return [row_of(MemoryRow, row) for row in self._fetch_filtered("memories", filters)]

    def change_memory(self, change: MemoryChange, journal_write: StreamWrite) -> bool:
        try:
            with self._borrow_for_write() as db, db.transaction():
                if not _change_memory(db, change) or not append_entry(db, journal_write, change.at):
                    raise _StaleMemoryError
        except _StaleMemoryError:
            return False
        return True


def _stored_memory(db: PostgresConnection, row: MemoryRow) -> MemoryRow:
    """Return the stored memory; `row` itself if it was deleted at once."""
    stored = db.execute(SQL["remembered"], (row.execution_id,), binary=True).fetchone()
    return row_of(MemoryRow, stored) if stored is not None else row


def _change_memory(db: PostgresConnection, change: MemoryChange) -> bool:
    if change.resolution is not None:
        values = (change.resolution, change.by, change.at, change.id, change.expected_resolution)
        return db.execute(SQL["correct_memory"], values).rowcount > 0
    if db.execute(SQL["forget_memory"], (change.id, change.expected_resolution)).rowcount == 0:
        return False
    db.execute(SQL["forget_uses"], (change.id,))
    return True
