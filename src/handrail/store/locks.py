"""Commit locks in the store."""

from collections.abc import Sequence

from handrail.store.database import Subject
from handrail.store.rows import LockRow


class LockStore(Subject):
    def load(self, repositories: Sequence[str]) -> dict[str, LockRow]:
        """Load locks by repository; repositories without one are left out."""
        rows = (
            self._fetch_filtered(LockRow, "locks", repositories=repositories)
            if repositories
            else []
        )
        return {row.repository: row for row in rows}

    def list_due(self, now: str, limit: int) -> list[str]:
        """List repositories whose lock's clock has expired, the earliest first."""
        return self._fetch_rows(str, "due_locks", now=now, limit=limit)

    def list(self, *, after: str | None = None, limit: int | None = 50) -> list[LockRow]:
        """List locks by repository, those after `after`."""
        return self._fetch_filtered(LockRow, "locks", after=after, limit=limit)
