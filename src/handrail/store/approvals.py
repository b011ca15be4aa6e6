"""Approvals in the store."""

from handrail.store.database import Subject
from handrail.store.rows import ApprovalRow


class ApprovalStore(Subject):
    def get(self, approval_id: str) -> ApprovalRow | None:
        row = self._database.fetch_one("approval", id=approval_id)
        return ApprovalRow(*row) if row is not None else None

    def list_newest(
        self,
        *,
        execution_id: str | None = None,
        status: str | None = None,
        before: tuple[str, str] | None = None,
        limit: int = 50,
    ) -> list[ApprovalRow]:
        """List approvals, the newest first; `before` is (created_at, id)."""
        before_at, before_id = before or (None, None)
        rows = self._database.fetch_filtered(
            "newest_approvals",
            execution_id=execution_id,
            before_at=before_at,
            before_id=before_id,
            limit=limit,
            **_status_filters(status),
        )
        return [ApprovalRow(*row) for row in rows]

    def list(
        self, *, execution_id: str | None = None, status: str | None = None, limit: int = 1_000
    ) -> list[ApprovalRow]:
        """List approvals, the oldest first."""
        rows = self._database.fetch_filtered(
            "approvals", execution_id=execution_id, limit=limit, **_status_filters(status)
        )
        return [ApprovalRow(*row) for row in rows]


def _status_filters(status: str | None) -> dict[str, str | bool | None]:
    """Return the filters for a status. Open approvals have an index of their own, which the
    database uses only for a literal value."""
    is_open = status == "open"
    return {"open": True if is_open else None, "status": None if is_open else status}
