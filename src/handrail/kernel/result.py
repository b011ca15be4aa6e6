"""The result of a dispatch, with its evidence and usage.

The last line of a text-only answer becomes an outcome or a marker (`run/text_protocol.py`).
"""

from enum import StrEnum
from typing import Annotated, Any, Literal

from msgspec import Meta

from handrail.kernel.decision import Value
from handrail.kernel.stop.findings import StepFinding

FIGURE_MAX = 10**12
"""Bound of one result's tokens, cost and score: sums over all runs still fit a database."""
Digest = Annotated[str, Meta(max_length=200)]
_WithinFigure = Meta(ge=-FIGURE_MAX, le=FIGURE_MAX)
_NonNegativeFigure = Meta(ge=0, le=FIGURE_MAX)


class Check(Value):
    """A command that was run."""

    command: str
    exit_code: int
    stderr: str = ""
    effect: bool = False
    """The command changed something outside of the run."""


TOOL_PATH_PREFIX = "tools:"
"""Path prefix of an agent's tool findings, which are artefacts and not files."""


class Evidence(Value):
    """The evidence for a result. `measured`: Handrail saw it itself; an agent cannot set it."""

    files: dict[str, Digest] | None = None
    """Path -> digest of the files as this turn left them; {} says "I changed nothing"."""
    checks: tuple[Check, ...] = ()
    score: Annotated[int, _WithinFigure] | Annotated[float, _WithinFigure] | None = None
    ticket_state: str | None = None
    failures: tuple[str, ...] | None = None
    measured: bool = False
    findings: tuple[StepFinding, ...] = ()
    """What the step showed, as the host saw it; profiles that judge findings look at it."""


NO_EVIDENCE = Evidence()
"""Empty evidence, as most results have: nothing to compare or to count."""


MODEL_CHARS_MAX = 200
"""Characters of the name of a model, or of its provider."""
ModelName = Annotated[str, Meta(max_length=MODEL_CHARS_MAX)]


class Usage(Value):
    """What a result has used: `tokens` are all of them, and `cost` is in the currency of the
    prices."""

    tokens: Annotated[int, _NonNegativeFigure] = 0
    cost: Annotated[int, _NonNegativeFigure] | Annotated[float, _NonNegativeFigure] = 0.0
    input_tokens: Annotated[int, _NonNegativeFigure] = 0
    output_tokens: Annotated[int, _NonNegativeFigure] = 0
    unpriced_calls: Annotated[int, _NonNegativeFigure] = 0
    """Calls of models whose price is not known, which `cost` leaves out."""
    model: ModelName = ""
    """The model called last."""
    provider: ModelName = ""


class Outcome(StrEnum):
    SUCCESS = "success"
    FAILURE = "failure"
    CONTINUE = "continue"
    HANDOFF = "handoff"
    TERMINATE = "terminate"
    ASK = "ask"
    WAITING = "waiting"


WAITS_FOR_CHARS_MAX, RETRY_SECONDS_MIN, RETRY_SECONDS_MAX = 200, 1, 3600
_WithinRetry = Meta(ge=RETRY_SECONDS_MIN, le=RETRY_SECONDS_MAX)


class Result(Value, rename={"waits_for": "for"}):
    """An agent's answer to one dispatch. An outcome of None is a protocol error."""

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
    waits_for: Annotated[str, Meta(max_length=WAITS_FOR_CHARS_MAX)] = ""
    """What the agent waits for, with outcome `waiting`."""
    retry_after: Annotated[int, _WithinRetry] | Annotated[float, _WithinRetry] = 0
    """Seconds until the agent wants its next dispatch, with outcome `waiting`."""


def merge_patch(context: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """Apply an RFC 7396 patch: its keys replace, its nulls remove, its objects merge."""
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
