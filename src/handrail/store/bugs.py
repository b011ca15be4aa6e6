"""Reported errors in the store, and a list of the commit locks.

A signature has one row: its newest bead, and how often the error occurred since that bead was
filed. The bead's status is read from the bead itself, so closing a bead needs no update here.
"""

from typing import Protocol

from handrail.store.engine_store import LockRow, Row


class BugRow(Row):
    """An error by its signature. `earlier` is its previous bead, closed since."""

    digest: str
    signature: str
    bead_id: str
    count: int
    first_seen: str
    last_seen: str
    earlier: str | None
    bead_status: str | None = None
    """Set when read; None if the bead was archived."""


class BugStore(Protocol):
    def get_bug(self, digest: str) -> BugRow | None: ...

    def put_bug(self, row: BugRow) -> bool:
        """Insert a new signature, or replace `earlier` by a new bead. Return False, and change
        nothing, if another caller was faster."""
        ...

    def increment_bug(self, digest: str, bead_id: str, occurrences: int, at: str) -> bool:
        """Add occurrences to the signature. Return False if it has another bead by now."""
        ...

    def list_bugs(self, *, before: str | None = None, limit: int = 50) -> list[BugRow]:
        """List errors by bead id, the newest first."""
        ...

    def count_bugs_since(self, at: str, filed_by: str) -> tuple[int, int]:
        """Return how many bugs were filed since `at`, and how many of them by `filed_by`."""
        ...

    def list_locks(self, *, after: str | None = None, limit: int = 50) -> list[LockRow]:
        """List commit locks by repository, those after `after`."""
        ...
