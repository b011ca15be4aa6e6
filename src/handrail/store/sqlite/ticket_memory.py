"""Ticket memory on SQLite: FTS5 finds the candidates."""

import sqlite3
from collections.abc import Sequence

from msgspec.structs import astuple

from handrail.store.engine_store import StreamWrite
from handrail.store.filters import text_filters
from handrail.store.sqlite.engine_store import SQL, SqliteEngineStore, row_of
from handrail.store.ticket_memory import MemoryChange, MemoryRow

INSERT_COLUMNS = 9
"""Columns of a new row; the rest start empty."""


class _StaleMemoryError(Exception):
    """The memory has changed since the person saw it."""


class SqliteTicketMemoryStore(SqliteEngineStore):
    def put_memories(self, rows: Sequence[MemoryRow], memories_max: int) -> list[MemoryRow]:
        with self._transaction() as db:
            db.executemany(SQL["remember"], [astuple(row)[:INSERT_COLUMNS] for row in rows])
            for (memory_id,) in db.execute(SQL["forget_oldest"], (memories_max,)).fetchall():
                db.execute(SQL["forget_uses"], (memory_id,))
            return [_stored_memory(db, row) for row in rows]

    def search_memories(
        self, words: Sequence[str], bead_id: str, execution_id: str, limit: int
    ) -> list[MemoryRow]:
        match_query = " OR ".join(f'"{word}"' for word in words)  # quotes disable operators
        rows = (
            self._fetch_all("recall", match_query, bead_id, execution_id, limit)
            if match_query
            else []
        )
        return [row_of(MemoryRow, row) for row in rows]

    def record_memory_use(self, memory_id: str, bead_id: str, execution_id: str, at: str) -> bool:
        with self._transaction() as db:
            values = (execution_id, memory_id, bead_id, at)
            used = db.execute(SQL["use_memory"], values).rowcount > 0
            if used:
                db.execute(SQL["count_use"], (at, memory_id))
        return used

    def get_memory(self, memory_id: str) -> MemoryRow | None:
        row = self._fetch_one("memory", memory_id)
        return row_of(MemoryRow, row) if row is not None else None

    def list_memories(
        self, *, text: str | None = None, before: str | None = None, limit: int = 50
    ) -> list[MemoryRow]:
        filters = {"before": before, "limit": limit, "within": text_filters(text)["within"]}
        return [row_of(MemoryRow, row) for row in self._fetch_filtered("memories", filters)]

    def change_memory(self, change: MemoryChange, journal_write: StreamWrite) -> bool:
        def change_row(db: sqlite3.Connection, won: list[bool]) -> None:
            if won != [True] or not _change_memory(db, change):
                raise _StaleMemoryError

        try:
            self._commit([journal_write], change.at, change_row)
        except _StaleMemoryError:
            return False
        return True


def _stored_memory(db: sqlite3.Connection, row: MemoryRow) -> MemoryRow:
    """Return the stored memory; `row` itself if it was deleted at once."""
    stored = db.execute(SQL["remembered"], (row.execution_id,)).fetchone()
    return row_of(MemoryRow, stored) if stored is not None else row


def _change_memory(db: sqlite3.Connection, change: MemoryChange) -> bool:
    if change.resolution is not None:
        values = (change.resolution, change.by, change.at, change.id, change.expected_resolution)
        return db.execute(SQL["correct_memory"], values).rowcount > 0
    values = (change.id, change.expected_resolution)
    if db.execute(SQL["forget_memory"], values).rowcount == 0:
        return False
    db.execute(SQL["forget_uses"], (change.id,))
    return True
