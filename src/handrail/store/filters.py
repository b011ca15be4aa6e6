"""What both stores do alike with lists: filters as statements name them, pages put together."""

from collections.abc import Sequence
from heapq import merge
from typing import Any

from handrail.store.store import BeadItem

Filters = dict[str, Any]


def text_filters(text: str | None) -> Filters:
    """Patterns for a text in a title, and at the beginning of an id; no sign in it is special."""
    if text is None:
        return {"within": None, "prefix": None}
    escaped = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return {"within": f"%{escaped}%", "prefix": f"{escaped}%"}


def status_filters(status: str | None) -> Filters:
    """Open questions have an index of their own, which only the plain word finds."""
    is_open = status == "open"
    return {"open": True if is_open else None, "status": None if is_open else status}


def merge_newest(limit: int, *pages: Sequence[BeadItem]) -> list[BeadItem]:
    """One page of several."""
    return list(merge(*pages, key=lambda bead: bead.id, reverse=True))[:limit]


def bead_queries(type_: str | None, status: str | None) -> list[tuple[str, Filters]]:
    """The statements that list beads of that type and status, with their filters."""
    queries: list[tuple[str, Filters]] = []
    if type_ in (None, "work"):
        queries.append(("work_beads", {"status": status}))
    if type_ in (None, "approval") and status in (None, "open", "closed"):
        status_filter = {"open": None, "closed": None} | (
            {status: True} if status is not None else {}
        )
        queries.append(("approval_beads", status_filter))
    return queries
