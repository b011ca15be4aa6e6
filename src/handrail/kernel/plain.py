"""Plain values: what can be stored as JSON and read back the same.

Events are the truth, and they are stored as JSON. A value that JSON cannot carry (a lone surrogate,
a NaN, a set), that a database cannot hold as text (a NUL), or that is too deep or too large would
make the live run and its replay differ, so a command with one in it is refused before anything
happens.
"""

from math import isfinite
from typing import Any

DEPTH_MAX = 64
KEY = -1
"""In place of the depth: the key of an object."""
SIZE_MAX = 10_000_000
"""Characters and values together, roughly bytes."""
VALUES_MAX = 200_000
"""In lists and objects together: each is looked at, while nobody else goes on."""


def are_plain_texts(*texts: str) -> bool:
    """Whether they are ASCII and not large, as almost all are: then there is nothing to walk."""
    try:
        whole = "".join(texts)
    except TypeError:
        return False
    return whole.isascii() and "\0" not in whole and len(whole) < SIZE_MAX // 2


def why_not_plain(value: object) -> str:
    """What is wrong with the value, or "" if it is plain. Never recursive: depth is an attack."""
    stack: list[tuple[Any, int]] = [(value, 0)]
    size = values = 0
    while stack:
        held, depth = stack.pop()
        size += len(held) + 1 if isinstance(held, str) else 1
        if size > SIZE_MAX:
            return f"it is larger than {SIZE_MAX:,} characters"
        if isinstance(held, dict | list | tuple):
            if depth >= DEPTH_MAX:
                return f"it is nested more than {DEPTH_MAX} deep"
            values += len(held)  # pyright: ignore[reportUnknownArgumentType] - any JSON
            if values > VALUES_MAX:
                return f"it has more than {VALUES_MAX:,} values"
            if isinstance(held, dict):
                stack.extend((key, KEY) for key in held)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType] - any JSON
                held = held.values()  # pyright: ignore[reportUnknownVariableType] - any JSON
            stack.extend((one, depth + 1) for one in held)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType] - any JSON
        elif wrong := _why_no_leaf(held, is_key=depth == KEY):
            return wrong
    return ""


def _why_no_leaf(held: object, *, is_key: bool) -> str:
    if isinstance(held, str):
        if "\0" in held:
            return "a text has a NUL in it"
        return "" if held.isascii() or _encodes(held) else "a text has a lone surrogate in it"
    if is_key:
        return "a key of an object is no text"
    if isinstance(held, float) and not isfinite(held):
        return f"a number is {held}"
    if held is None or isinstance(held, bool | int | float):
        return ""
    return f"a {type(held).__name__} is no JSON value"


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
