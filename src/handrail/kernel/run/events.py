"""The events of a run, in the past tense: the stored truth, and the only input of evolve.

Each event carries what decide computed, so that a replay needs no definition and no policy.
`may_raise_measure` and `is_measure_neutral` name the events that need not lower the measure (K16,
K27).
"""

from datetime import datetime
from typing import Any, Literal

from handrail.kernel.decision import Value
from handrail.kernel.definition.limits import Limits
from handrail.kernel.definition.model import TerminalStatus
from handrail.kernel.result import Result
from handrail.kernel.run.state import Block, PendingApproval, Stop, Wait
from handrail.kernel.stop import ledger as ledgers
from handrail.kernel.stop.budgets import BudgetState
from handrail.kernel.stop.early_warnings import EARLY_CODES
from handrail.kernel.stop.ledger import NO_ASSESSMENT, Assessment
from handrail.kernel.stop.rules import Nudge, StopRule

NUDGED = "nudged"
"""The code of the warning that is a nudge."""


def _snake_case(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")


class Event(
    Value,
    tag_field="type",
    tag=_snake_case,
    rename={"step_id": "place", "approval_id": "question_id", "approval": "question"},
):
    at: datetime


class Started(Event):
    run_id: str
    bead_id: str
    definition_id: str
    version: int
    kind: Literal["workflow", "team"]
    step_id: str
    limits: Limits
    blocks: dict[str, Block] = {}
    task: str = ""
    title: str = ""
    description: str = ""
    filed_by: str = ""
    context: dict[str, Any] = {}
    review: Literal["required", "skip"] | None = None
    paths: tuple[str, ...] | None = None
    phase: str = ""
    filed: str = ""
    """The digest of the bead as it was filed."""
    definition_digest: str = ""
    """The digest of the definition's text."""
    budgets: tuple[BudgetState, ...] = ()
    """The budgets that the run shares with others, as they stood."""
    carried: ledgers.Ledger | None = None
    """What earlier runs of the same thread counted (`continue_thread`); None for the first. It
    stands here so that the run can be judged again from its own events."""
    dry_run: bool = False
    """Under a guard that ends nothing, and records what it would have done."""
    traceparent: str = ""
    """The span of the guarded program below which the run is traced, as the W3C header has it."""


class Offered(Event):
    """A dispatch was offered: one attempt. Its queue clock runs from now on."""

    step_id: str
    fence: int
    attempt: int
    role: str
    lock: int | None = None
    """The commit lock's fence, at a commit node."""
    repository: str = ""
    concluding: Stop | None = None
    """Why the run ends after this dispatch, of which only the text counts."""


class DispatchEvent(Event):
    """Base of the events of one claimed dispatch."""

    step_id: str
    fence: int
    agent: str


class Claimed(DispatchEvent):
    """An agent took the dispatch. Its work clock runs from now on."""


class Reported(DispatchEvent):
    """An accepted result. `phase` is the milestone it reached, `done` the once-only task it
    completed; with `asking`, its question goes to a person; with `wait`, the agent waits."""

    result: Result
    weighed: Assessment = NO_ASSESSMENT
    phase: str = ""
    phase_detail: str = ""
    done: str = ""
    committed: bool = False
    asking: bool = False
    wait: Wait | None = None
    budgets: tuple[BudgetState, ...] = ()
    """The shared budgets, with what this result has used."""


class Faulted(DispatchEvent):
    """The agent's answer was unusable and cost the attempt; `message` tells the agent why."""

    fault: str
    message: str
    result: Result = Result()
    weighed: Assessment = NO_ASSESSMENT


class Lost(DispatchEvent):
    """The lease expired, or the worker returned the dispatch."""

    reason: str


class TimedOut(DispatchEvent):
    """A clock of the dispatch expired: offered too long, or in work too long."""

    clock: Literal["queue", "role", "work"]


class HandedOff(Event):
    """A handoff proposed by the active agent. A refused handoff is recorded and changes nothing."""

    source: str
    target: str
    reason: str
    task: str = ""
    accepted: bool = True
    already_done: bool = False
    number: int = 0
    proposed: tuple[str, ...] = ()
    """The targets that `rule` turned aside, the agent's own first; () for most handoffs (K30)."""
    rule: StopRule | None = None


class Moved(Event):
    """A transition. `enters` adds positions, `cancels` removes them; `renews` opens a stretch."""

    source: str
    targets: tuple[str, ...]
    outcome: str
    reason: str = ""
    by: str = ""
    enters: tuple[str, ...] = ()
    cancels: tuple[str, ...] = ()
    opens: dict[str, Block] = {}
    arrives: tuple[str, str] | None = None
    closes: tuple[str, ...] = ()
    spends: str = ""
    forgets: tuple[str, ...] = ()
    renews: bool = False
    task: str = ""


class Asked(Event):
    approval: PendingApproval


class Answered(Event):
    """An answer to an approval. `final`: it settles the approval (M of N: the last one needed).
    `role` is the role that `by` had then; "" in histories older than the field."""

    approval_id: str
    by: str
    decision: Literal["approve", "reject", "revise", "answer"]
    text: str = ""
    final: bool = True
    role: str = ""


class Reasked(Event):
    """The shown content changed: the old approval is void, a new one replaces it (K15, K16)."""

    approval_id: str
    approval: PendingApproval
    reason: str


class Paused(Event):
    by: str
    reason: str
    deadline: datetime


class Resumed(Event):
    by: str
    reason: str


class Patched(Event):
    """A person changed the bead's context, or attached `files`: name to digest."""

    by: str
    patch: dict[str, Any]
    files: dict[str, str] = {}


class Migrated(Event):
    """The run continues under another version; a `Moved` follows."""

    by: str
    reason: str
    definition_id: str
    version: int
    limits: Limits
    definition_digest: str = ""
    """The digest of the definition's text."""


class ClocksPushed(Event):
    """The system was down for `seconds`, which no clock of the run may count."""

    seconds: int | float


class HeardOf(Event):
    """The guarded program gave a sign of life: its silence clock restarts."""

    step_id: str


class Warned(Event):
    """A record that changes nothing else; with a `nudge`, it rides on the next dispatch. Of a dry
    run: `rule` would have taken the `rung` then.
    """

    code: str
    message: str
    step_id: str = ""
    nudge: Nudge | None = None
    rule: StopRule | None = None
    rung: str = ""
    step: int = 0
    """The step, where a guard has counted it."""
    subject: str = ""
    """The model whose price is not known, or the budget that is nearly spent."""
    budgets: tuple[BudgetState, ...] = ()
    """Budgets that became spent, or that a person made larger."""
    unguarded: bool = False
    """Whether a guard's own error left only the hard limits to judge the run from here on."""


def nudge_event(at: datetime, nudge: Nudge) -> Warned:
    """Return the record of a nudge; its text follows from the nudge."""
    message = f"{nudge.rule} is near: {nudge.count} of {nudge.limit}"
    return Warned(at=at, code=NUDGED, message=message, nudge=nudge)


class Ended(Event):
    status: TerminalStatus
    stop: Stop
    by: str = ""


RunEvent = (
    Started
    | Offered
    | Claimed
    | Reported
    | Faulted
    | Lost
    | TimedOut
    | HandedOff
    | Moved
    | Asked
    | Answered
    | Reasked
    | Paused
    | Resumed
    | Patched
    | Migrated
    | ClocksPushed
    | HeardOf
    | Warned
    | Ended
)

GuardedEvent = Reported | HandedOff | Warned | Ended
"""What a guard reports of a run after its beginning."""

PRICE_UNKNOWN = "price_unknown"
BUDGET_NEARLY_SPENT = "budget_80"
BUDGETS_CHANGED = "budgets_changed"
SPENDING_CODES = frozenset({PRICE_UNKNOWN, BUDGET_NEARLY_SPENT})
"""Codes of warnings that are given once in a stretch for each model, or each budget."""

MEASURE_NEUTRAL = (Warned, ClocksPushed, HeardOf, Patched, Migrated)
"""Events that leave the measure unchanged."""
GUARD_ERROR = "guard_error"
"""The warning of an error of the guard itself."""
HUMAN_ACTS = (Paused, Resumed, Reasked)
"""Acts of people that raise the measure a little (K16); a `Moved` that renews raises it most."""


def warning_key(event: Warned) -> str:
    """Return by what a warning is known that is given once in a stretch; empty for any other."""
    if event.code in EARLY_CODES:
        return event.code
    if event.code in SPENDING_CODES:
        return f"{event.code}:{event.subject}"
    if event.code == GUARD_ERROR:
        return f"{event.code}:unguarded" if event.unguarded else event.code
    return f"{event.code}:{event.rule}" if event.rule is not None else ""


def may_raise_measure(event: RunEvent) -> bool:
    """Whether the event is a person's act, which may raise the measure."""
    return isinstance(event, HUMAN_ACTS) or (isinstance(event, Moved) and event.renews)


def is_measure_neutral(event: RunEvent) -> bool:
    """Whether the event is only a record, which leaves the measure unchanged."""
    return isinstance(event, MEASURE_NEUTRAL) or (
        isinstance(event, HandedOff) and not event.accepted
    )
