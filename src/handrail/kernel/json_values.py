"""Checks that a value can be stored as JSON and read back unchanged.

Events are the truth, and they are stored as JSON. A value that JSON cannot carry (a lone surrogate,
a NaN, a set), that a database cannot hold as text (a NUL), or that is too deep or too large would
make the live run and its replay differ. Commands with such a value are refused.
"""

from math import isfinite
from typing import Any

DEPTH_MAX = 64
KEY_DEPTH = -1
"""Stands for the depth where the item is the key of an object."""
VALUE_BYTES_MAX = 10_000_000
"""Characters plus values, roughly bytes."""
VALUE_ITEMS_MAX = 200_000
"""In all lists and objects: the check visits each value and blocks the event loop meanwhile."""


def are_simple_texts(*texts: str) -> bool:
    """Whether the texts are short ASCII, as almost all are, and need no further check."""
    try:
        joined = "".join(texts)
    except TypeError:
        return False
    return joined.isascii() and "\0" not in joined and len(joined) < VALUE_BYTES_MAX // 2


def find_json_problem(value: object) -> str:
    """Return the problem with the value, or "". Not recursive: depth is an attack."""
    stack: list[tuple[Any, int]] = [(value, 0)]
    size = values = 0
    while stack:
        item, depth = stack.pop()
        size += len(item) + 1 if isinstance(item, str) else 1
        if size > VALUE_BYTES_MAX:
            return f"it is larger than {VALUE_BYTES_MAX:,} characters"
        if isinstance(item, dict | list | tuple):
            if depth >= DEPTH_MAX:
                return f"it is nested more than {DEPTH_MAX} deep"
            values += len(item)  # pyright: ignore[reportUnknownArgumentType] - any JSON
            if values > VALUE_ITEMS_MAX:
                return f"it has more than {VALUE_ITEMS_MAX:,} values"
            if isinstance(item, dict):
                stack.extend((key, KEY_DEPTH) for key in item)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType] - any JSON
                item = item.values()  # pyright: ignore[reportUnknownVariableType] - any JSON
            stack.extend((child, depth + 1) for child in item)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType] - any JSON
        elif problem := _scalar_problem(item, is_key=depth == KEY_DEPTH):
            return problem
    return ""


def _scalar_problem(value: object, *, is_key: bool) -> str:
    if isinstance(value, str):
        if "\0" in value:
            return "a text has a NUL in it"
        return (
            "" if value.isascii() or _is_encodable(value) else "a text has a lone surrogate in it"
        )
    if is_key:
        return "a key of an object is no text"
    if isinstance(value, float) and not isfinite(value):
        return f"a number is {value}"
    if value is None or isinstance(value, bool | int | float):
        return ""
    return f"a {type(value).__name__} is no JSON value"


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
