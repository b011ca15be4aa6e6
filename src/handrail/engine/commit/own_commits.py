"""Which commits are this engine's own: an engine that is alone need not look at what it wrote."""

from handrail.store.engine_store import CommitRow


class OwnCommits:
    """The latest ones between which nobody else has written; the database numbers all of them."""

    def __init__(self) -> None:
        self._first = self._last = 0

    def add(self, commit: CommitRow | None) -> None:
        """In the order in which they were made. None: nothing was written."""
        if commit is not None:
            self._first = self._first if commit.n == self._last + 1 else commit.n
            self._last = commit.n

    def covers(self, after: int, last: int) -> bool:
        """Whether all commits after the one, up to the other, are its own."""
        return last == after or (self._first <= after + 1 and last <= self._last)
