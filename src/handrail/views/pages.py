"""Pages of lists: a number of items, and where the next page begins."""

from typing import Generic, TypeVar

from handrail.kernel.decision import Value

T = TypeVar("T")

PAGE_ITEMS_DEFAULT, PAGE_ITEMS_MAX = 50, 500
CURSOR_CHARS_MAX = 600


class Page(Value, Generic[T], omit_defaults=False):
    """`next_cursor` asks for the next page; None on the last one."""

    items: tuple[T, ...]
    next_cursor: str | None = None
