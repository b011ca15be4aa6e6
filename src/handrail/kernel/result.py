"""What an agent brings back: a result, its evidence, what it used.

If a team's answer is only text, its last line becomes an outcome or a marker (`text_protocol.py`).
"""

from enum import StrEnum
from typing import Annotated, Any, Literal

from msgspec import Meta

from handrail.kernel.decision import Value

FIGURE_MAX = 10**12
"""Of what one result used, cost or scored: sums over all runs still fit into a database."""
Digest = Annotated[str, Meta(max_length=200)]
_WithinFigure = Meta(ge=-FIGURE_MAX, le=FIGURE_MAX)
_NonNegativeFigure = Meta(ge=0, le=FIGURE_MAX)


class Check(Value):
    """A command that was run."""

    command: str
    exit_code: int
    stderr: str = ""


TOOL_PATH_PREFIX = "tools:"
"""Begins the path of what an agent's tools have found, which is an artefact and no file."""


class Evidence(Value):
    """What a result rests on. `measured`: Handrail saw it itself; an agent cannot set it."""

    files: dict[str, Digest] | None = None
    """Path -> digest of the files as this turn left them; {} says "I changed nothing"."""
    checks: tuple[Check, ...] = ()
    score: Annotated[int, _WithinFigure] | Annotated[float, _WithinFigure] | None = None
    ticket_state: str | None = None
    failures: tuple[str, ...] | None = None
    measured: bool = False


NO_EVIDENCE = Evidence()
"""Shows nothing, as after most turns: nothing to look at, to compare or to count."""


class Usage(Value):
    tokens: Annotated[int, _NonNegativeFigure] = 0
    cost: Annotated[int, _NonNegativeFigure] | Annotated[float, _NonNegativeFigure] = 0.0


class Outcome(StrEnum):
    SUCCESS = "success"
    FAILURE = "failure"
    CONTINUE = "continue"
    HANDOFF = "handoff"
    TERMINATE = "terminate"
    ASK = "ask"


class Result(Value):
    """One answer of an agent to one dispatch. An outcome of None says neither: a protocol error."""

    outcome: Outcome | None = None
    text: str = ""
    data: dict[str, Any] = {}
    evidence: Evidence = Evidence()
    usage: Usage = Usage()
    to: str = ""
    reason: str = ""
    task: str = ""
    status: Literal["done_success", "done_partial"] = "done_success"
    remaining: tuple[str, ...] = ()
    question: str = ""
    options: tuple[str, ...] = ()
    marker: str = ""


def merge_patch(context: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """RFC 7396: the patch's keys replace, its nulls remove, its objects merge."""
    out = dict(context)
    for key, value in patch.items():
        current = out.get(key)
        if value is None:
            out.pop(key, None)
        elif isinstance(value, dict):
            out[key] = merge_patch(current if isinstance(current, dict) else {}, value)  # pyright: ignore[reportUnknownArgumentType] - any JSON
        else:
            out[key] = value
    return out
