"""The commands of a run, in the imperative. The caller vouches for the identity behind each."""

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
    """Files that exist at the start; None if unknown."""
    from_step_id: str = ""


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
