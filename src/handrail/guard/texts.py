"""What agents are called and what they say, in a form that can be kept: it is theirs, and hostile.

A name that no definition could have, or a text that no database holds, must not cost a program its
result, nor a person the record of it. So it is changed as it comes in, always in the same way.
"""

import hashlib
from typing import Any

NAME_MAX = 100
NOBODY = "?"
INSTEAD = "\N{REPLACEMENT CHARACTER}"


def name_of(given: str) -> str:
    """One name for one agent: visible characters, not too many. A long one ends with its digest."""
    if given.isprintable() and 0 < len(given) <= NAME_MAX and not given.isspace():
        return given
    name = "".join(one if one.isprintable() else INSTEAD for one in given[:NAME_MAX])
    if len(given) > NAME_MAX:
        digest = hashlib.sha256(given.encode(errors="replace")).hexdigest()[:12]
        name = f"{name[: NAME_MAX - 13]}~{digest}"
    return name if name.strip() else NOBODY


def text_in(given: str, most: int | None = None) -> str:
    """The text as far as anybody looks, without what cannot be stored (a NUL, half a character)."""
    if most is not None and len(given) > most:
        given = f"{given[: most - 1]}…"
    if given.isascii() and "\0" not in given:
        return given
    return given.encode(errors="replace").decode().replace("\0", INSTEAD)


def texts_in(value: Any) -> Any:  # noqa: ANN401 - any JSON
    """The same of every text in it."""
    if isinstance(value, str):
        return text_in(value)
    if isinstance(value, dict):
        return {texts_in(key): texts_in(one) for key, one in value.items()}  # pyright: ignore[reportUnknownVariableType] - any JSON
    if isinstance(value, list):
        return [texts_in(one) for one in value]  # pyright: ignore[reportUnknownVariableType] - any JSON
    return value
