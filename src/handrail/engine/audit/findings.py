"""Findings of a check: values with a code for programs and one line for people."""

from handrail.views.audit import Finding

FINDINGS_MAX = 1_000
"""Findings that are stored; further ones are counted."""
VALUE_CHARS_MAX = 80


class Findings:
    """A list that cannot fill the memory, however much is wrong."""

    def __init__(self) -> None:
        self.items: list[Finding] = []
        self.dropped = 0

    def add(self, code: str, message: str, stream: str = "", seq: int | None = None) -> None:
        if len(self.items) >= FINDINGS_MAX:
            self.dropped += 1
            return
        self.items.append(Finding(code=code, message=message, stream=stream, seq=seq))


def format_value(value: object) -> str:
    """Format a stored value for a message."""
    text = value.hex() if isinstance(value, bytes) else "nothing" if value is None else repr(value)
    return text if len(text) <= VALUE_CHARS_MAX else f"{text[: VALUE_CHARS_MAX - 1]}…"
