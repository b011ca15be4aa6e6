"""Commit locks in the store."""

from collections.abc import Sequence

from handrail.store.database import Subject
from handrail.store.rows import LockRow


class LockStore(Subject):
    def load(self, repositories: Sequence[str]) -> dict[str, LockRow]:
        """Load locks by repository; repositories without one are left out."""
        if not repositories:
            return {}
        rows = self._database.fetch_filtered(
            "locks", repositories=repositories, after=None, limit=None
        )
        return {row[0]: LockRow(*row) for row in rows}

    def list_due(self, now: str, limit: int) -> list[str]:
        """List repositories whose lock's clock has expired, the earliest first."""
        return [name for (name,) in self._database.fetch_all("due_locks", now=now, limit=limit)]

    def list(self, *, after: str | None = None, limit: int | None = 50) -> list[LockRow]:
        """List locks by repository, those after `after`."""
        rows = self._database.fetch_filtered("locks", repositories=None, after=after, limit=limit)
        return [LockRow(*row) for row in rows]
