"""Memory on SQLite: FTS5 finds the candidates."""

import sqlite3
from collections.abc import Sequence

from msgspec.structs import astuple

from handrail.store.listing import found_by
from handrail.store.memory import MemoryChange, MemoryRow
from handrail.store.port import Write
from handrail.store.sqlite.store import SQL, SqliteStore, row_of

COLUMNS = 9
"""Of a new row; the rest begins empty."""


class _OtherwiseError(Exception):
    """It is not as somebody saw it."""


class SqliteMemories(SqliteStore):
    def remember(self, rows: Sequence[MemoryRow], most: int) -> list[MemoryRow]:
        with self._writing() as db:
            db.executemany(SQL["remember"], [astuple(row)[:COLUMNS] for row in rows])
            db.executemany(SQL["index_memory"], [(row.execution_id,) for row in rows])
            for n, memory_id in db.execute(SQL["forget_oldest"], (most,)).fetchall():
                db.execute(SQL["unindex_memory"], (n,))
                db.execute(SQL["forget_uses"], (memory_id,))
            return [_kept(db, row) for row in rows]

    def recall(
        self, words: Sequence[str], bead_id: str, execution_id: str, limit: int
    ) -> list[MemoryRow]:
        wanted = " OR ".join(f'"{word}"' for word in words)  # in quotes no word is an operator
        rows = self._all("recall", wanted, bead_id, execution_id, limit) if wanted else []
        return [row_of(MemoryRow, row) for row in rows]

    def use_memory(self, memory_id: str, bead_id: str, execution_id: str, at: str) -> bool:
        with self._writing() as db:
            values = (execution_id, memory_id, bead_id, at)
            used = db.execute(SQL["use_memory"], values).rowcount > 0
            if used:
                db.execute(SQL["count_use"], (at, memory_id))
        return used

    def memory(self, memory_id: str) -> MemoryRow | None:
        row = self._one("memory", memory_id)
        return row_of(MemoryRow, row) if row is not None else None

    def memories(
        self, *, text: str | None = None, before: str | None = None, limit: int = 50
    ) -> list[MemoryRow]:
        wanted = {"before": before, "limit": limit, "within": found_by(text)["within"]}
        return [row_of(MemoryRow, row) for row in self._list("memories", wanted)]

    def change_memory(self, change: MemoryChange, told: Write) -> bool:
        def beside(db: sqlite3.Connection, won: list[bool]) -> None:
            if won != [True] or not _changed(db, change):
                raise _OtherwiseError

        try:
            self._commit([told], change.at, beside)
        except _OtherwiseError:
            return False
        return True


def _kept(db: sqlite3.Connection, row: MemoryRow) -> MemoryRow:
    """As it stands; one that was forgotten at once as it was given."""
    kept = db.execute(SQL["remembered"], (row.execution_id,)).fetchone()
    return row_of(MemoryRow, kept) if kept is not None else row


def _changed(db: sqlite3.Connection, change: MemoryChange) -> bool:
    if change.resolution is not None:
        values = (change.resolution, change.by, change.at, change.id, change.was)
        return db.execute(SQL["correct_memory"], values).rowcount > 0
    gone = db.execute(SQL["forget_memory"], (change.id, change.was)).fetchall()
    for (n,) in gone:
        db.execute(SQL["unindex_memory"], (n,))
        db.execute(SQL["forget_uses"], (change.id,))
    return bool(gone)
