"""Beads and their files in the store."""

from heapq import merge
from typing import Any, Literal

from msgspec.structs import asdict

from handrail.store.columns import Row, Time
from handrail.store.database import Subject
from handrail.store.record import BEADS, FILES, Change, record
from handrail.store.rows import BeadRow, IdempotencyKeyRow

BEAD_FILES_MAX = 100
"""Files per bead."""
BeadOrder = Literal["created_at", "due_at", "priority"]
WORK_QUERIES: dict[BeadOrder, str] = {
    "created_at": "work_beads",
    "due_at": "beads_by_due",
    "priority": "beads_by_priority",
}


class BeadItem(BeadRow):
    """A bead in a list: work, or an approval, whose parent is the work it is about."""

    type: str = "work"
    parent_id: str | None = None


class FileRow(Row):
    """A file of a bead. Lists omit the content."""

    bead_id: str
    name: str
    sha256: str
    size: int
    content_type: str
    content: bytes | None
    uploaded_by: str
    created_at: Time


class BeadStore(Subject):
    def get(self, bead_id: str) -> BeadRow | None:
        return self._fetch_row(BeadRow, "bead", id=bead_id)

    def create(self, bead: BeadRow, key: IdempotencyKeyRow | None) -> IdempotencyKeyRow | None:
        """Insert a bead, unless it exists, and the request's idempotency key. If the key exists,
        insert nothing and return the existing key."""
        with self._database.transaction() as transaction:
            if key is not None and not transaction.write_rows("insert_new_keys", [key]):
                row = transaction.fetch_one("key", key=key.key, actor=key.actor)
                assert row is not None, "another request inserted it"
                return IdempotencyKeyRow(*row)
            if transaction.write_rows("insert_beads", [bead]):
                filed = Change(table=BEADS, row=bead, type="bead_filed", by=bead.filed_by)
                record(transaction, bead.created_at, filed)
            return None

    def update_context(self, bead: BeadRow, expected_updated_at: str, by: str) -> bool:
        """Update context and `updated_at`, if the bead was last updated at `expected_updated_at`
        and no run is active."""
        with self._database.transaction() as transaction:
            values = transaction.fetch_one(
                "update_bead_context",
                id=bead.id,
                context=bead.context,
                updated_at=bead.updated_at,
                expected_updated_at=expected_updated_at,
            )
            if values is not None:
                changed = Change(table=BEADS, row=BeadRow(*values), type="bead_changed", by=by)
                record(transaction, bead.updated_at, changed)
        return values is not None

    def put_file(self, file: FileRow) -> bool:
        """Insert a file. Return False if the bead has that name, or BEAD_FILES_MAX files."""
        with self._database.transaction() as transaction:
            transaction.lock("files", file.bead_id)
            if not transaction.execute("insert_file", **asdict(file), files_max=BEAD_FILES_MAX):
                return False
            attached = Change(
                table=FILES,
                row=file,
                type="file_attached",
                by=file.uploaded_by,
                about=file.name,
            )
            record(transaction, file.created_at, attached)
            return True

    def list_files(self, bead_id: str) -> list[FileRow]:
        """List files by name, without their contents."""
        return self._fetch_rows(FileRow, "files", bead_id=bead_id)

    def get_file(self, bead_id: str, name: str) -> FileRow | None:
        return self._fetch_row(FileRow, "file", bead_id=bead_id, name=name)

    def list(
        self,
        *,
        type: Literal["work", "approval"] | None = None,  # noqa: A002 - as the column
        status: str | None = None,
        workflow_id: str | None = None,
        due_before: str | None = None,
        order: BeadOrder = "created_at",
        before: str | None = None,
        limit: int = 50,
    ) -> list[BeadItem]:
        """List beads, the newest first, or only work by another order: the soonest due first,
        those without a date last, or the highest priority first. The status of an approval is open
        or closed, and it has no due date."""
        filters: dict[str, Any] = {"workflow_id": workflow_id, "before": before, "limit": limit}
        if type == "approval" and due_before is not None:
            return []
        if type != "approval" and (order != "created_at" or due_before is not None):
            return self._fetch_filtered(
                BeadItem, WORK_QUERIES[order], **filters, status=status, due_before=due_before
            )
        pages = [
            self._fetch_filtered(BeadItem, query, **filters, **status_is)
            for query, status_is in _bead_queries(type, status)
        ]
        return list(merge(*pages, key=lambda bead: bead.id, reverse=True))[:limit]


def _bead_queries(type_: str | None, status: str | None) -> list[tuple[str, dict[str, Any]]]:
    """Return the queries that list beads of that type and status, with their filters."""
    queries: list[tuple[str, dict[str, Any]]] = []
    if type_ in (None, "work"):
        queries.append(("work_beads", {"status": status}))
    if type_ in (None, "approval") and status in (None, "open", "closed"):
        is_open, is_closed = status == "open" or None, status == "closed" or None
        queries.append(("approval_beads", {"open": is_open, "closed": is_closed}))
    return queries
