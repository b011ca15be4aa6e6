"""Pages of lists: a number of items, and where the next page begins."""

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, NoReturn, TypeVar

from handrail.engine.errors import refuse
from handrail.views.view_types import CURSOR_CHARS_MAX, PAGE_ITEMS_MAX, Page

R = TypeVar("R")
V = TypeVar("V")


def check_limit(limit: int) -> int:
    if not 1 <= limit <= PAGE_ITEMS_MAX:
        refuse("bad_limit", f"limit is {limit}; it must be 1 to {PAGE_ITEMS_MAX}", "ask for fewer")
    return limit


def check_cursor(cursor: str) -> str:
    """Check a cursor that may have been given out; "" asks for the first page."""
    if len(cursor) > CURSOR_CHARS_MAX or not cursor.isprintable():
        refuse_cursor(cursor)
    return cursor


def refuse_cursor(cursor: str) -> NoReturn:
    refuse(
        "bad_cursor",
        f"{cursor[:80]!r} is not a cursor of this list",
        "send `next_cursor` of the page before, or no cursor for the first page",
    )


def to_page(
    rows: Sequence[R],
    limit: int,
    to_view: Callable[[R], V],
    cursor_of: Callable[[V], Any] = attrgetter("id"),
) -> Page[V]:
    """Return a page of at most `limit` rows; a further row means that there is a next page."""
    items = tuple(map(to_view, rows[:limit]))
    return Page(items=items, next_cursor=cursor_of(items[-1]) if len(rows) > limit else None)
