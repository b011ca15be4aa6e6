"""Open dispatches in the store."""

from handrail.store.database import Subject
from handrail.store.rows import DispatchRow


class DispatchStore(Subject):
    def reserve(self, role: str, limit: int) -> list[DispatchRow]:
        """Reserve offered dispatches, by priority and age. Other engines skip them for a while."""
        return [DispatchRow(*row) for row in self._database.reserve_dispatches(role, limit)]

    def list_claimed(self, session: str | None = None) -> list[DispatchRow]:
        """List dispatches claimed by that session, or by any; the oldest claim first."""
        rows = self._database.fetch_filtered("claimed_dispatches", session=session)
        return [DispatchRow(*row) for row in rows]

    def list_orphaned(self, silent_since: str, limit: int) -> list[DispatchRow]:
        """List claimed dispatches whose session is gone, disabled, or silent since then."""
        rows = self._database.fetch_all(
            "orphaned_dispatches", silent_since=silent_since, limit=limit
        )
        return [DispatchRow(*row) for row in rows]

    def list_unmatched(
        self, silent_since: str, offered_before: str, limit: int
    ) -> list[DispatchRow]:
        """List dispatches offered before that moment whose role no live agent has."""
        rows = self._database.fetch_all(
            "unmatched_dispatches",
            silent_since=silent_since,
            offered_before=offered_before,
            limit=limit,
        )
        return [DispatchRow(*row) for row in rows]

    def list(self, execution_id: str) -> list[DispatchRow]:
        """List the dispatches of one run."""
        rows = self._database.fetch_all("dispatches", execution_id=execution_id)
        return [DispatchRow(*row) for row in rows]
