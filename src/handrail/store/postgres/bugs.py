"""Reported errors and the list of commit locks on PostgreSQL."""

from msgspec.structs import astuple

from handrail.store.bugs import BugRow
from handrail.store.engine_store import LockRow
from handrail.store.postgres.engine_store import PostgresEngineStore, row_of

INSERT_COLUMNS = 7
"""Columns of a written row; the bead's status is read from the bead."""


class PostgresBugStore(PostgresEngineStore):
    def get_bug(self, digest: str) -> BugRow | None:
        row = self._fetch_one("bug", digest)
        return row_of(BugRow, row) if row is not None else None

    def put_bug(self, row: BugRow) -> bool:
        return self._execute("put_bug", *astuple(row)[:INSERT_COLUMNS]) > 0

    def increment_bug(self, digest: str, bead_id: str, occurrences: int, at: str) -> bool:
        return self._execute("count_bug", occurrences, at, digest, bead_id) > 0

    def list_bugs(self, *, before: str | None = None, limit: int = 50) -> list[BugRow]:
        rows = self._fetch_filtered("bugs", {"before": before, "limit": limit})
        return [row_of(BugRow, row) for row in rows]

    def count_bugs_since(self, at: str, filed_by: str) -> tuple[int, int]:
        row = self._fetch_one("bugs_since", at, filed_by)
        return (row[0], row[1]) if row is not None else (0, 0)

    def list_locks(self, *, after: str | None = None, limit: int = 50) -> list[LockRow]:
        rows = self._fetch_filtered("locks", {"after": after, "limit": limit})
        return [row_of(LockRow, row) for row in rows]
