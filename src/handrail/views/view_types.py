"""What is shown of a run: handoffs, steps, rounds of review, the stop, as values and nothing more.

The report, the API and the page show the same things under the same names. Every field is written,
set or not, so that a reader need not know the defaults. Numbers that JSON cannot tell apart (3 and
3.0) have one form here: what is computed from recorded and from decoded events is the same, byte
for byte.
"""

from datetime import datetime

import msgspec

from handrail.kernel.decision import Value
from handrail.kernel.run.state import Stop


class View(Value, omit_defaults=False):
    """Base of what is shown: every field is written, set or not."""


class Handoff(View, frozen=True, kw_only=True):
    """One proposed handoff. `number` counts the accepted ones from 1; 0 was refused."""

    from_: str = msgspec.field(name="from")
    to: str
    reason: str
    at: datetime
    accepted: bool
    already_done: bool = False
    task: str = ""
    number: int = 0


class TransitionView(View):
    """The run went from one place to another; "" is outside: before the start, after the end."""

    id: str
    from_node_id: str
    to_node_id: str
    outcome: str
    reason: str
    actor: str
    timestamp: datetime


class Step(View):
    """One step: a dispatch, or the earlier answer of a once-only task. No outcome: still open."""

    n: int
    place: str
    attempt: int
    agent: str = ""
    outcome: str = ""
    reason: str = ""
    text: str = ""
    offered_at: datetime | None = None
    claimed_at: datetime | None = None
    ended_at: datetime | None = None


class RunWarning(View):
    """Something doubtful; `step` is the last one begun when it was seen."""

    code: str
    message: str
    step: int
    at: datetime


class Iteration(View):
    """One round of review: what was asked for, what came, what the person said to it.

    `task` is the original task in the first round, the revision's text in those after it. No
    decision: nobody has settled it, or the question was withdrawn; `at` is then when it was asked.
    """

    n: int
    task: str
    agent: str
    result: str
    decision: str | None
    text: str
    by: str
    at: datetime


class HumanAct(View):
    """What a person did to the run, and why."""

    act: str
    by: str
    reason: str
    place: str
    at: datetime


class LoopCounter(View):
    """One way of handing over or going back: since the last progress, in all, the last reasons."""

    count: int
    total: int
    limit: int | None
    reasons: tuple[str, ...]


class RuleCount(View):
    """What a stop rule has counted, and at which count it ends the run."""

    count: int
    limit: int


class LastProgress(View):
    """The last step that brought the run forward, and by what."""

    step: int
    agent: str
    what: tuple[str, ...]
    at: datetime


class LastCommand(View):
    """The last command that a check ran; `seen` is how often its failure was met in the run."""

    command: str
    exit_code: int
    signature: str
    seen: int
    step: int


class UsageView(View):
    tokens: int
    cost: float


class RunTotals(View):
    """Over the whole run, whatever the stretches."""

    steps: int
    handoffs: int
    dispatches: int
    transitions: int
    questions: int
    stretches: int


class StopView(View):
    """Why the run ended, every field in one form."""

    rule: str
    reason: str
    agent: str
    limit: int | float | str | None
    seen: int | float | str | None
    pattern: tuple[str, ...]
    evidence: tuple[str, ...]
    also: tuple[str, ...]
    remedy: str
    remaining: tuple[str, ...]


def normalize_number(number: int | float | str | None) -> int | float | str | None:
    """3 for 3.0: a limit reads the same before and after JSON."""
    return int(number) if isinstance(number, float) and number.is_integer() else number


def stop_view(stop: Stop | None) -> StopView | None:
    if stop is None:
        return None
    return StopView(
        rule=stop.rule.value,
        reason=stop.reason,
        agent=stop.agent,
        limit=normalize_number(stop.limit),
        seen=normalize_number(stop.seen),
        pattern=stop.pattern,
        evidence=stop.evidence,
        also=tuple(rule.value for rule in stop.also),
        remedy=stop.remedy,
        remaining=stop.remaining,
    )
