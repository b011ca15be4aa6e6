"""What a check found: values with a code for programs and one line for people."""

from handrail.kernel.decision import Value

FINDINGS_MAX = 1_000
"""Findings that are kept; further ones are counted."""
SHOWN_MAX = 80


class Finding(Value):
    """`stream` is a run's id, or "lock:REPOSITORY", or whatever else has events; `seq` is the last
    event that it is about."""

    code: str
    message: str
    stream: str = ""
    seq: int | None = None


class Findings:
    """A list that cannot fill the memory, however much is wrong."""

    def __init__(self) -> None:
        self.kept: list[Finding] = []
        self.more = 0

    def add(self, code: str, message: str, stream: str = "", seq: int | None = None) -> None:
        if len(self.kept) >= FINDINGS_MAX:
            self.more += 1
            return
        self.kept.append(Finding(code=code, message=message, stream=stream, seq=seq))


def shown(value: object) -> str:
    """A stored value in a message."""
    text = value.hex() if isinstance(value, bytes) else "nothing" if value is None else repr(value)
    return text if len(text) <= SHOWN_MAX else f"{text[: SHOWN_MAX - 1]}…"
