"""What a store keeps of errors that were reported, and a look at the commit locks.

A signature has one row: its newest bead, and how often it was seen since that was filed. Whether
that bead is still worked on is read from the bead itself, so nobody has to be told when it closes.
"""

from typing import Protocol

from handrail.store.port import LockState, Row


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


class Healing(Protocol):
    def bug(self, digest: str) -> BugRow | None: ...

    def put_bug(self, row: BugRow) -> bool:
        """A new signature, or a new bead in place of `earlier`. False, and nothing has happened, if
        somebody else was faster."""
        ...

    def count_bug(self, digest: str, bead_id: str, more: int, at: str) -> bool:
        """It was seen so many times more. False if it has another bead by now."""
        ...

    def bugs(self, *, before: str | None = None, limit: int = 50) -> list[BugRow]:
        """By bead, the newest first."""
        ...

    def bugs_since(self, at: str, by: str) -> tuple[int, int]:
        """How many were filed since then, and how many of them by that one."""
        ...

    def locks(self, *, after: str | None = None, limit: int = 50) -> list[LockState]:
        """The commit locks by repository, after that one."""
        ...
