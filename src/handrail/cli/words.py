"""Figures and texts as people read them."""

import os
import re

from handrail.kernel.certificate import Bound
from handrail.kernel.definition import Problem

_UNITS = (("d", 86400), ("h", 3600), ("min", 60))
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def called() -> str:
    """How the command line was called, so that what is shown can be typed."""
    return "uv run handrail" if "UV" in os.environ else "handrail"


def typed(text: str) -> str:
    """What a user gave, with a sign for bytes that are no UTF-8: nobody could store those."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def clean(text: str) -> str:
    """Without characters that would steer the terminal; agents and files write what they like."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def first_line(text: str, most: int = 100) -> str:
    line = next((one.strip() for one in clean(text).splitlines() if one.strip()), "")
    return line if len(line) <= most else f"{line[: most - 1]}…"


def duration(seconds: float) -> str:
    """16 h, 1 h 30 min, 90 d, 0.2 s: the two largest units that count."""
    if seconds < 60:
        return f"{seconds:.3g} s"
    left, parts = round(seconds), list[str]()
    for unit, size in _UNITS:
        if left >= size:
            parts.append(f"{left // size} {unit}")
            left %= size
    if left:
        parts.append(f"{left} s")
    return " ".join(parts[:2])


def count(number: int, what: str) -> str:
    return f"{number:,} {what}" + ("" if number == 1 else "s")


def certificate(bound: Bound, kind: str) -> str:
    """What a run can cost at most, in one line."""
    moves = count(bound.handoffs, "handoff")
    if kind == "workflow":
        moves = count(bound.transitions, "transition")
    figures = [count(bound.dispatches, "dispatch").replace("dispatchs", "dispatches"), moves]
    if bound.questions:
        figures.append(count(bound.questions, "question"))
    return f"at most {', '.join(figures)}; {longest(bound, kind)}"


def longest(bound: Bound, kind: str) -> str:
    time = bound.time
    if kind == "team":
        parts = [f"{duration(max(time.work, time.queue))} of running time"]
    else:
        parts = [f"{duration(time.work)} of work", f"{duration(time.queue)} in queues"]
    if time.people:
        parts.append(f"{duration(time.people)} of waiting for people")
    return ", ".join(parts)


def asks(bound: Bound) -> str:
    """The agents' own questions: rare, and counted apart."""
    return f"{count(bound.asks, 'question')} of the agents' own, {duration(bound.time.asks)} long"


def exactness(bound: Bound) -> str:
    loose = [name for name, tight in bound.tight.items() if not tight]
    return f"safe, not always reached: {', '.join(loose)}" if loose else "every figure is reachable"


def placed(problem: Problem, label: str, severity: str, line: int | None = None) -> str:
    """`file:line: error at place: message [code]`, and the hint on a line of its own."""
    hint = f"\n    {clean(problem.hint)}" if problem.hint else ""
    where = clean(label) if line is None else f"{clean(label)}:{line}"
    told = f"{clean(problem.path)}: {clean(problem.message)}"
    return f"{where}: {severity} at {told} [{problem.code}]{hint}"
