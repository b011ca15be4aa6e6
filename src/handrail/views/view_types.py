"""Types of a run's views: handoffs, steps, rounds of review; pages of lists. Values only.

The report, the API and the page use the same fields with the same names. Every field is written,
set or not, so that a reader need not know the defaults. Numbers that JSON cannot tell apart (3 and
3.0) have one form here: views of recorded and of decoded events are the same, byte for byte.
"""

from datetime import datetime
from typing import Generic, TypeVar

import msgspec

from handrail.kernel.decision import Value

T = TypeVar("T")

PAGE_ITEMS_DEFAULT, PAGE_ITEMS_MAX = 50, 500
CURSOR_CHARS_MAX = 600


class View(Value, omit_defaults=False):
    """Base of all views: every field is written, set or not."""


class Handoff(View, frozen=True, kw_only=True):
    """One proposed handoff. `number` counts accepted handoffs from 1; 0 means refused."""

    from_: str = msgspec.field(name="from")
    to: str
    reason: str
    at: datetime
    accepted: bool
    already_done: bool = False
    task: str = ""
    number: int = 0
    proposed: str = ""
    """The target that the agent named, where a rule led the turn elsewhere."""


class RedirectView(View, frozen=True, kw_only=True):
    """A handoff that went elsewhere: `from` proposed one agent, `rule` was against it, and the turn
    went `to` another. `step` is the step whose result proposed it."""

    from_: str = msgspec.field(name="from")
    proposed: str
    to: str
    rule: str
    step: int


class TransitionView(View):
    """A transition of the run between steps; "" stands for before the start and after the end."""

    id: str
    from_node_id: str
    to_node_id: str
    outcome: str
    reason: str
    actor: str
    timestamp: datetime


class Step(View):
    """One step: a dispatch, or the reused answer of a once-only task. No outcome: still open."""

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
    """A warning; `step` is the last step begun at that time."""

    code: str
    message: str
    step: int
    at: datetime


class WouldHaveDone(View):
    """What a rule would have done in a dry run, which no rule ends."""

    rung: str
    rule: str
    step: int


class Iteration(View):
    """One round of review: the task, the result, the person's decision.

    `task` is the original task in the first round, the revision's text in later ones. No decision:
    the approval is open or was withdrawn; `at` is then the time of the request.
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
    """An act of a person on the run, with its reason."""

    act: str
    by: str
    reason: str
    place: str
    at: datetime


class LoopCounter(View):
    """Uses of one edge or rework: since the last progress, in total, the last reasons."""

    count: int
    total: int
    limit: int | None
    reasons: tuple[str, ...]


class RuleCount(View):
    """The count of a stop rule, and the limit at which it ends the run."""

    count: int
    limit: int


class LastProgress(View):
    """The last step with progress, and the facts that counted as progress."""

    step: int
    agent: str
    what: tuple[str, ...]
    at: datetime


class LastCommand(View):
    """The last command of a check; `seen` counts the occurrences of its failure in the run."""

    command: str
    exit_code: int
    signature: str
    seen: int
    step: int


class UsageView(View):
    tokens: int
    cost: float


class RunUsageView(UsageView):
    input_tokens: int = 0
    output_tokens: int = 0
    unpriced_calls: int = 0
    """Calls of models whose price is not known, which `cost` leaves out."""


class RunTotals(View):
    """Totals of the whole run, over all stretches."""

    steps: int
    handoffs: int
    dispatches: int
    transitions: int
    questions: int
    stretches: int
    nudges: int
    redirects: int
    waits: int


class Page(View, Generic[T]):
    """A page of a list. `next_cursor` asks for the next page; None on the last one."""

    items: tuple[T, ...]
    next_cursor: str | None = None
