"""The commands of a run, in the imperative. The caller vouches for the identity behind each."""

from datetime import datetime
from typing import Any, Literal

from handrail.kernel.decision import Value
from handrail.kernel.definition.limits import Limits
from handrail.kernel.result import Result
from handrail.kernel.run.events import GuardedEvent
from handrail.kernel.run.state import Person, Stop
from handrail.kernel.stop.budgets import BudgetState
from handrail.kernel.stop.ledger import Ledger


class Start(Value):
    run_id: str
    bead_id: str
    definition_id: str = ""
    version: int = 1
    title: str = ""
    description: str = ""
    filed_by: str = ""
    context: dict[str, Any] = {}
    review: Literal["required", "skip"] | None = None
    paths: tuple[str, ...] | None = None
    """Files that exist at the start; None if unknown."""
    from_step_id: str = ""
    filed: str = ""
    """The digest of the bead as it was filed, for the record."""
    starter: Person | None = None
    """The person who starts the run; None for the program that has the engine, which may all."""


class StartGuarded(Start, kw_only=True):
    """Begin the record of a run that takes place in another program, under a guard.

    A run that has ended already comes whole: with its `events`, and the time at which it began.
    The guard is this very program then, and what it saw needs no check.
    """

    limits: Limits
    started_at: datetime | None = None
    events: tuple[GuardedEvent, ...] = ()
    carried: Ledger | None = None
    """What earlier runs of the same thread counted."""
    dry_run: bool = False
    traceparent: str = ""
    budgets: tuple[BudgetState, ...] = ()


class Observe(Value):
    """Record what a guard has seen since its last report; no events are a sign of life.

    That the run ends is up to the guarded program, which keeps the same rules; nothing here could
    stop that program at once, so neither certificate nor measure is promised. What is promised is
    that the record ends. Every result is a step, and every accepted handoff counts: a report that
    passes the run's limits of either (100,000 where there is none) is refused, and so is one that
    goes on after an end or a refused handoff, or has too large an event. A team has at most 200
    agents and 1,000 edges, and people are asked ten times. A sign of life changes nothing (K27),
    and is recorded three times in the time for which a program may be silent. A program that is
    silent for longer has lost its run.
    """

    by: str
    """Who began the run."""
    events: tuple[GuardedEvent, ...] = ()
    sent_at: datetime | None = None
    """The reporter's time now; its events are dated by their age."""
    definition_id: str = ""
    version: int = 0
    """A new version of the team, which was made from version `extends`: these events show more of
    it. Decided under the plan of the new version."""
    extends: int = 0
    last_event_at: datetime | None = None
    """When the run's last event was: no event comes before it. The committer knows it."""


class Ask(Value):
    """Ask people in the name of a guarded program, which waits for `seconds`: then the run ends."""

    by: str
    text: str
    seconds: float
    options: tuple[str, ...] = ()
    """Answers to choose from; any other text is one as well."""
    stop: Stop | None = None
    """How the run ends unless a person lets it go on."""


class GrantLock(Value):
    """Grant the commit lock: the ready commit dispatch may be offered."""

    step_id: str
    lock: int


class Claim(Value):
    fence: int
    agent: str
    roles: tuple[str, ...]


class Report(Value):
    """Report a result. `malformed`: why the caller could not read it; the attempt is spent."""

    fence: int
    agent: str
    result: Result = Result()
    malformed: str = ""


class Lose(Value):
    """The lease of a claimed dispatch expired, or its worker returned it."""

    fence: int
    reason: str


class MissRole(Value):
    """No live agent has the role of an offered dispatch."""

    fence: int


class Tick(Value):
    """Time passed; due clocks fire."""


class Answer(Value):
    """A text, or an explicit decision with or without text. `digest` is of what the person saw."""

    approval_id: str
    by: Person
    text: str = ""
    decision: Literal["approve", "reject", "revise"] | None = None
    digest: str = ""


class Move(Value, rename={"step_id": "place"}):
    by: Person
    step_id: str
    reason: str


class Migrate(Value, rename={"step_id": "place"}):
    """Decided under the plan of the new version."""

    by: Person
    definition_id: str
    version: int
    step_id: str
    reason: str


class Close(Value):
    by: Person
    reason: str


class Pause(Value):
    by: Person
    reason: str


class Resume(Value):
    by: Person
    reason: str


class Patch(Value):
    """Change the bead: its context, and its attached files."""

    by: Person
    patch: dict[str, Any]
    files: dict[str, str] = {}
    """Name to digest."""


class PushClocks(Value):
    """The system was down for `seconds`."""

    seconds: float


RunCommand = (
    Start
    | StartGuarded
    | Observe
    | Ask
    | GrantLock
    | Claim
    | Report
    | Lose
    | MissRole
    | Tick
    | Answer
    | Move
    | Migrate
    | Close
    | Pause
    | Resume
    | Patch
    | PushClocks
)
