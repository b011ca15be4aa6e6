"""Memory on PostgreSQL: its text search finds the candidates."""

from collections.abc import Sequence

from msgspec.structs import astuple

from handrail.store.listing import found_by
from handrail.store.memory import MemoryChange, MemoryRow
from handrail.store.port import Write
from handrail.store.postgres.opening import Database
from handrail.store.postgres.store import PostgresStore, row_of
from handrail.store.postgres.writing import SQL, append

COLUMNS = 9
"""Of a new row; the rest begins empty."""


class _OtherwiseError(Exception):
    """It is not as somebody saw it."""


class PostgresMemories(PostgresStore):
    def remember(self, rows: Sequence[MemoryRow], most: int) -> list[MemoryRow]:
        ordered = sorted(rows, key=lambda row: row.execution_id)  # in one order for all engines
        with self._writing() as db, db.transaction():
            for row in ordered:
                db.execute(SQL["remember"], astuple(row)[:COLUMNS])
            db.execute(SQL["forget_oldest"], (most,))
            return [_kept(db, row) for row in rows]

    def recall(
        self, words: Sequence[str], bead_id: str, execution_id: str, limit: int
    ) -> list[MemoryRow]:
        wanted = " | ".join(f"'{word}'" for word in words)  # in quotes no sign is an operator
        rows = self._all("recall", wanted, bead_id, execution_id, limit) if wanted else []
        return [row_of(MemoryRow, row) for row in rows]

    def use_memory(self, memory_id: str, bead_id: str, execution_id: str, at: str) -> bool:
        return self._change("use_memory", execution_id, memory_id, bead_id, at) > 0

    def memory(self, memory_id: str) -> MemoryRow | None:
        row = self._one("memory", memory_id)
        return row_of(MemoryRow, row) if row is not None else None

    def memories(
        self, *, text: str | None = None, before: str | None = None, limit: int = 50
    ) -> list[MemoryRow]:
        wanted = {"before": before, "limit": limit, "within": found_by(text)["within"]}
        return [row_of(MemoryRow, row) for row in self._list("memories", wanted)]

    def change_memory(self, change: MemoryChange, told: Write) -> bool:
        try:
            with self._writing() as db, db.transaction():
                if not _changed(db, change) or not append(db, told, change.at):
                    raise _OtherwiseError
        except _OtherwiseError:
            return False
        return True


def _kept(db: Database, row: MemoryRow) -> MemoryRow:
    """As it stands; one that was forgotten at once as it was given."""
    kept = db.execute(SQL["remembered"], (row.execution_id,), binary=True).fetchone()
    return row_of(MemoryRow, kept) if kept is not None else row


def _changed(db: Database, change: MemoryChange) -> bool:
    if change.resolution is not None:
        values = (change.resolution, change.by, change.at, change.id, change.was)
        return db.execute(SQL["correct_memory"], values).rowcount > 0
    if db.execute(SQL["forget_memory"], (change.id, change.was)).rowcount == 0:
        return False
    db.execute(SQL["forget_uses"], (change.id,))
    return True
