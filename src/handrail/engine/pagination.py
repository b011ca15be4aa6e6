"""Pages of lists: a number of items, and where the next page begins."""

from typing import NoReturn

from handrail.engine.errors import refuse
from handrail.views.view_types import CURSOR_CHARS_MAX, PAGE_ITEMS_MAX


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
