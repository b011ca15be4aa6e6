"""What both stores do alike with lists: filters as statements name them, pages put together."""

from collections.abc import Sequence
from heapq import merge
from typing import Any

from handrail.store.office import BeadItem

Wanted = dict[str, Any]


def found_by(text: str | None) -> Wanted:
    """Patterns for a text in a title, and at the beginning of an id; no sign in it is special."""
    if text is None:
        return {"within": None, "prefix": None}
    plain = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return {"within": f"%{plain}%", "prefix": f"{plain}%"}


def of_status(status: str | None) -> Wanted:
    """Open questions have an index of their own, which only the plain word finds."""
    is_open = status == "open"
    return {"open": True if is_open else None, "status": None if is_open else status}


def newest(limit: int, *pages: Sequence[BeadItem]) -> list[BeadItem]:
    """One page of several."""
    return list(merge(*pages, key=lambda bead: bead.id, reverse=True))[:limit]


def beads_of(type_: str | None, status: str | None) -> list[tuple[str, Wanted]]:
    """The statements that list beads of that type and status, with their filters."""
    found: list[tuple[str, Wanted]] = []
    if type_ in (None, "work"):
        found.append(("work_beads", {"status": status}))
    if type_ in (None, "approval") and status in (None, "open", "closed"):
        one = {"open": None, "closed": None} | ({status: True} if status is not None else {})
        found.append(("approval_beads", one))
    return found
