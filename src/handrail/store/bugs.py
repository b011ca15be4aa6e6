"""Reported errors in the store.

A signature has one row: its newest bead, and how often the error occurred since that bead was
filed. The bead's status is read from the bead itself, so closing a bead needs no update here.
"""

from msgspec.structs import asdict

from handrail.store.columns import Row, Time
from handrail.store.database import Subject


class BugRow(Row):
    """An error by its signature. `earlier` is its previous bead, closed since."""

    digest: str
    signature: str
    bead_id: str
    count: int
    first_seen: Time
    last_seen: Time
    earlier: str | None
    bead_status: str | None = None
    """Set when read; None if the bead was archived."""


class BugStore(Subject):
    def get(self, digest: str) -> BugRow | None:
        return next(iter(self._fetch_filtered(BugRow, "bugs", digest=digest)), None)

    def put(self, row: BugRow) -> bool:
        """Insert a new signature, or replace `earlier` by a new bead. Return False, and change
        nothing, if another caller was faster."""
        return self._update("put_bug", **asdict(row))

    def increment(self, digest: str, bead_id: str, occurrences: int, at: str) -> bool:
        """Add occurrences to the signature. Return False if it has another bead by now."""
        return self._update(
            "increment_bug", digest=digest, bead_id=bead_id, occurrences=occurrences, at=at
        )

    def count_since(self, at: str, filed_by: str) -> tuple[int, int]:
        """Return how many bugs were filed since `at`, and how many of them by `filed_by`."""
        row = self._database.fetch_one("bugs_since", at=at, filed_by=filed_by)
        return (row[0], row[1]) if row is not None else (0, 0)

    def list(self, *, before: str | None = None, limit: int = 50) -> list[BugRow]:
        """List errors by bead id, the newest first."""
        return self._fetch_filtered(BugRow, "bugs", before=before, limit=limit)
