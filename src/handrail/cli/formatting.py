"""Format figures and texts for people."""

import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from handrail.kernel.definition.certificate import Bound
    from handrail.kernel.definition.model import DocumentProblem

_UNITS = (("d", 86400), ("h", 3600), ("min", 60))
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def program_name() -> str:
    """Return how the command line was called, so that what is shown can be typed."""
    return "uv run handrail" if "UV" in os.environ else "handrail"


def decode_argument(text: str) -> str:
    """Return the user's argument, with a sign for bytes that are not UTF-8, which cannot be
    stored.
    """
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def printable(text: str) -> str:
    """Return the text without characters that control the terminal: agents and files may have
    any.
    """
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def first_line(text: str, chars_max: int = 100) -> str:
    line = next(
        (candidate.strip() for candidate in printable(text).splitlines() if candidate.strip()), ""
    )
    return line if len(line) <= chars_max else f"{line[: chars_max - 1]}…"


def format_duration(seconds: float) -> str:
    """Format as 16 h, 1 h 30 min, 90 d, 0.2 s: the two largest units that count."""
    if seconds < 60:
        return f"{seconds:.3g} s"
    remaining, parts = round(seconds), list[str]()
    for unit, size in _UNITS:
        if remaining >= size:
            parts.append(f"{remaining // size} {unit}")
            remaining %= size
    if remaining:
        parts.append(f"{remaining} s")
    return " ".join(parts[:2])


def format_count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def format_certificate(bound: "Bound", kind: str) -> str:
    """Format the most that a run can cost, in one line."""
    moves = format_count(bound.handoffs, "handoff")
    if kind == "workflow":
        moves = format_count(bound.transitions, "transition")
    figures = [format_count(bound.dispatches, "dispatch").replace("dispatchs", "dispatches"), moves]
    if bound.questions:
        figures.append(format_count(bound.questions, "question"))
    return f"at most {', '.join(figures)}; {format_time_bound(bound, kind)}"


def format_time_bound(bound: "Bound", kind: str) -> str:
    time = bound.time
    if kind == "team":
        parts = [f"{format_duration(max(time.work, time.queue))} of running time"]
    else:
        parts = [
            f"{format_duration(time.work)} of work",
            f"{format_duration(time.queue)} in queues",
        ]
    if time.people:
        parts.append(f"{format_duration(time.people)} of waiting for people")
    return ", ".join(parts)


def format_asks_bound(bound: "Bound") -> str:
    """Format the bound of the agents' own questions: rare, and counted apart."""
    return (
        f"{format_count(bound.asks, 'question')} of the agents' own, "
        f"{format_duration(bound.time.asks)} long"
    )


def format_exactness(bound: "Bound") -> str:
    loose = [name for name, tight in bound.tight.items() if not tight]
    return f"safe, not always reached: {', '.join(loose)}" if loose else "every figure is reachable"


def format_problem(
    problem: "DocumentProblem", label: str, severity: str, line: int | None = None
) -> str:
    """Format as `file:line: error at place: message [code]`, and the hint on a line of its own."""
    hint = f"\n    {printable(problem.hint)}" if problem.hint else ""
    location = printable(label) if line is None else f"{printable(label)}:{line}"
    message = f"{printable(problem.path)}: {printable(problem.message)}"
    return f"{location}: {severity} at {message} [{problem.code}]{hint}"
