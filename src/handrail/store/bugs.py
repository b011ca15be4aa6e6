"""What a store keeps of errors that were reported, and a look at the commit locks.

A signature has one row: its newest bead, and how often it was seen since that was filed. Whether
that bead is still worked on is read from the bead itself, so nobody has to be told when it closes.
"""

from typing import Protocol

from handrail.store.engine_store import LockRow, Row


class BugRow(Row):
    """An error by its signature. `earlier` is the bead that it had before, closed since."""

    digest: str
    signature: str
    bead_id: str
    count: int
    first_seen: str
    last_seen: str
    earlier: str | None
    bead_status: str | None = None
    """As read; None if the bead was archived."""


class BugStore(Protocol):
    def get_bug(self, digest: str) -> BugRow | None: ...

    def put_bug(self, row: BugRow) -> bool:
        """A new signature, or a new bead in place of `earlier`. False, and nothing has happened, if
        somebody else was faster."""
        ...

    def increment_bug(self, digest: str, bead_id: str, occurrences: int, at: str) -> bool:
        """It was seen so many times more. False if it has another bead by now."""
        ...

    def list_bugs(self, *, before: str | None = None, limit: int = 50) -> list[BugRow]:
        """By bead, the newest first."""
        ...

    def count_bugs_since(self, at: str, filed_by: str) -> tuple[int, int]:
        """How many were filed since then, and how many of them by that one."""
        ...

    def list_locks(self, *, after: str | None = None, limit: int = 50) -> list[LockRow]:
        """The commit locks by repository, after that one."""
        ...
