"""Bring names and texts of agents, which are hostile input, into a form that can be stored.

A name that no definition could have, or a text that no database holds, must not cost a program its
result, nor a person the record of it. So it is changed as it comes in, always in the same way. Of a
text that is none of the record's business, only length and digest stay.
"""

import hashlib
from typing import Any, Literal

from handrail.kernel.stop.findings import digest_letters

RecordTexts = Literal["digests", "full"]
"""How the texts of a guarded program are recorded."""
NAME_CHARS_MAX = 100
UNNAMED = "?"
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def safe_name(raw_name: str) -> str:
    """Return one name for one agent: visible characters, a long one ends with its digest."""
    if raw_name.isprintable() and 0 < len(raw_name) <= NAME_CHARS_MAX and not raw_name.isspace():
        return raw_name
    name = "".join(
        character if character.isprintable() else REPLACEMENT
        for character in raw_name[:NAME_CHARS_MAX]
    )
    if len(raw_name) > NAME_CHARS_MAX:
        digest = hashlib.sha256(raw_name.encode(errors="replace")).hexdigest()[:12]
        name = f"{name[: NAME_CHARS_MAX - 13]}~{digest}"
    return name if name.strip() else UNNAMED


def safe_text(text: str, chars_max: int | None = None) -> str:
    """Return the text, up to the limit, without what cannot be stored (a NUL, half a character)."""
    if chars_max is not None and len(text) > chars_max:
        text = f"{text[: chars_max - 1]}…"
    if text.isascii() and "\0" not in text:
        return text
    return text.encode(errors="replace").decode().replace("\0", REPLACEMENT)


def describe_text(text: str) -> str:
    """Return what is recorded of a text in its place: equal texts have equal descriptions."""
    return f"[{len(text):,} characters, digest {digest_letters(text)}]" if text else ""


def safe_texts(value: Any) -> Any:
    """Apply `safe_text` to every text in a value."""
    if isinstance(value, str):
        return safe_text(value)
    if isinstance(value, dict):
        return {safe_texts(key): safe_texts(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType] - any JSON
    if isinstance(value, list):
        return [safe_texts(item) for item in value]  # pyright: ignore[reportUnknownVariableType] - any JSON
    return value
