"""Shared code for lists in both stores: filters by their names in statements, merging of pages."""

from collections.abc import Sequence
from heapq import merge
from typing import Any

from handrail.store.store import BeadItem

Filters = dict[str, Any]


def text_filters(text: str | None) -> Filters:
    """Return patterns for a text in a title or at the start of an id, wildcards escaped."""
    if text is None:
        return {"within": None, "prefix": None}
    escaped = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return {"within": f"%{escaped}%", "prefix": f"{escaped}%"}


def status_filters(status: str | None) -> Filters:
    """Return the filters for a status. Open approvals have an index of their own, which the
    database uses only for a literal value."""
    is_open = status == "open"
    return {"open": True if is_open else None, "status": None if is_open else status}


def merge_newest(limit: int, *pages: Sequence[BeadItem]) -> list[BeadItem]:
    """Merge several pages into one."""
    return list(merge(*pages, key=lambda bead: bead.id, reverse=True))[:limit]


def bead_queries(type_: str | None, status: str | None) -> list[tuple[str, Filters]]:
    """Return the statements that list beads of that type and status, with their filters."""
    queries: list[tuple[str, Filters]] = []
    if type_ in (None, "work"):
        queries.append(("work_beads", {"status": status}))
    if type_ in (None, "approval") and status in (None, "open", "closed"):
        status_filter = {"open": None, "closed": None} | (
            {status: True} if status is not None else {}
        )
        queries.append(("approval_beads", status_filter))
    return queries
