"""Reported errors, and a look at the locks, on PostgreSQL."""

from msgspec.structs import astuple

from handrail.store.healing import BugRow
from handrail.store.port import LockState
from handrail.store.postgres.store import PostgresStore, row_of

COLUMNS = 7
"""Of a row as it is written; how its bead stands is the bead's."""


class PostgresHealing(PostgresStore):
    def bug(self, digest: str) -> BugRow | None:
        row = self._one("bug", digest)
        return row_of(BugRow, row) if row is not None else None

    def put_bug(self, row: BugRow) -> bool:
        return self._change("put_bug", *astuple(row)[:COLUMNS]) > 0

    def count_bug(self, digest: str, bead_id: str, more: int, at: str) -> bool:
        return self._change("count_bug", more, at, digest, bead_id) > 0

    def bugs(self, *, before: str | None = None, limit: int = 50) -> list[BugRow]:
        rows = self._list("bugs", {"before": before, "limit": limit})
        return [row_of(BugRow, row) for row in rows]

    def bugs_since(self, at: str, by: str) -> tuple[int, int]:
        row = self._one("bugs_since", at, by)
        return (row[0], row[1]) if row is not None else (0, 0)

    def locks(self, *, after: str | None = None, limit: int = 50) -> list[LockState]:
        rows = self._list("locks", {"after": after, "limit": limit})
        return [row_of(LockState, row) for row in rows]
