"""Tracks which commits this engine made: an engine that is alone need not read its own writes."""

from handrail.store.engine_store import CommitRow


class OwnCommits:
    """The latest commits without another engine's between them; the database numbers all
    commits."""

    def __init__(self) -> None:
        self._first = self._last = 0

    def add(self, commit: CommitRow | None) -> None:
        """Add a commit, in the order in which commits are made. None: nothing was written."""
        if commit is not None:
            self._first = self._first if commit.n == self._last + 1 else commit.n
            self._last = commit.n

    def covers(self, after: int, last: int) -> bool:
        """Whether this engine made all commits after `after`, up to `last`."""
        return last == after or (self._first <= after + 1 and last <= self._last)
