"""What can be asked of a run, in the imperative. Who asks is vouched for by the caller."""

from typing import Any, Literal

from handrail.kernel.decision import Value
from handrail.kernel.result import Result
from handrail.kernel.run.state import Person


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
    """Files that exist at the start; None if nobody looked."""
    from_step_id: str = ""


class GrantLock(Value):
    """The commit lock came: the ready commit dispatch may be offered."""

    step_id: str
    lock: int


class Claim(Value):
    fence: int
    agent: str
    roles: tuple[str, ...]


class Report(Value):
    """A result. `malformed` says that the caller could not read one; it still costs the attempt."""

    fence: int
    agent: str
    result: Result = Result()
    malformed: str = ""


class Lose(Value):
    """The lease of a claimed dispatch ran out, or its worker handed it back."""

    fence: int
    reason: str


class MissRole(Value):
    """No live agent has the role of an offered dispatch."""

    fence: int


class Tick(Value):
    """Time passed; due clocks fire."""


class Answer(Value):
    """Text, or an explicit decision with or without text. `digest` is what the person saw."""

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
    """To be decided under the plan of the new version."""

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
    """What a person changes of the bead: its context, and files that are hung on it."""

    by: Person
    patch: dict[str, Any]
    files: dict[str, str] = {}
    """Name to digest."""


class PushClocks(Value):
    """The system was down so long."""

    seconds: float


RunCommand = (
    Start
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
