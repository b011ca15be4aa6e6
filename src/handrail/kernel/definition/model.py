"""Definitions, which say how a bead is worked: workflows and teams, as plain values.

A workflow is nodes with roles joined by outcome edges. Forward edges form a DAG; the only ways back
are a node's `on_failure.rework` (bounded by its `max`) and a person's revision. A team is agents
that hand off to each other under stop rules, with one authority that may end the run.

Durations are seconds here; documents may also say "10m" (see `reader.py`). `checks.py` validates a
definition; `certificate.py` bounds its cost.
"""

from enum import StrEnum
from typing import Annotated, Any, Literal

from msgspec import Meta

from handrail.kernel.decision import Value
from handrail.kernel.definition.limits import (
    WAIT_DEADLINE_SECONDS,
    Count,
    Positive,
    Seconds,
    StopRules,
    WaitSeconds,
)

PositiveSeconds = Annotated[float, Meta(gt=0, le=10 * 365 * 86400)]
INVISIBLE_CHARS = r"\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff"
"""Control characters, and characters of zero width or that change the text direction."""
Name = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=200,
        pattern=rf"^[^{INVISIBLE_CHARS}]*$",
    ),
]
"""A name that people read and compare: without INVISIBLE_CHARS."""
Text = Annotated[str, Meta(max_length=20_000)]

BUILTIN_ROLES = (
    "engineering-manager",
    "qa-engineer",
    "web-designer",
    "backend-engineer",
    "project-manager",
    "ceo",
)
"""The roles of every installation; a definition's `roles` or the settings add more."""


PERSON_LEVELS = {"viewer": 0, "operator": 1, "ceo": 2, "admin": 3}
"""Permission levels of people; each includes the one before."""
OVERRIDE_LEVEL = "ceo"
"""The least level that may override a run."""


class TerminalStatus(StrEnum):
    """How a run ended. Set exactly once."""

    DONE_SUCCESS = "done_success"
    DONE_PARTIAL = "done_partial"
    ABORTED_STUCK = "aborted_stuck"
    ABORTED_CONSTRAINT = "aborted_constraint"
    CLOSED_BY_HUMAN = "closed_by_human"


class Settings(Value):
    """The installation's settings for all definitions. Durations in seconds."""

    role_grace: Seconds = 60
    """How long a dispatch stays offered without a live agent of its role; then it times out."""
    node_timeout: Seconds = 1800
    queue_timeout: Seconds = 86400
    human_deadline: Seconds = 7 * 86400
    pause_deadline: Seconds = 30 * 86400
    wait_deadline: WaitSeconds = WAIT_DEADLINE_SECONDS
    """How long agents may wait, from their first wait on, where a definition says nothing."""
    guard_silence: Seconds = 300
    """How long a guarded program may be silent; then its run ends."""
    dispatch_bound_max: Annotated[int, Meta(ge=1, le=2**53 - 1)] = 1_000_000
    roles: tuple[str, ...] = ()


class NodeType(StrEnum):
    START = "start"
    END = "end"
    TASK = "task"
    APPROVAL = "approval"
    DECISION = "decision"
    MERGE = "merge"


class Rework(Value):
    """On failure, go back to node `rework`, at most `max` times in the scope of that node."""

    rework: Name
    max: Positive


class NodeConfig(Value):
    """Options of a node; each key applies to the node types named beside it."""

    multi_dispatch: bool = False  # task: `continue` asks for another dispatch
    parallel: bool = False  # decision: take every true edge at once
    queue_timeout: PositiveSeconds | None = None  # task: offered until claimed
    max_waits: Count = 0  # task: `waiting` results of one visit
    waits_within: WaitSeconds | None = None  # task: from the first of them on
    on_failure: Rework | None = None  # task
    kind: Literal["commit", "verification", "investigation"] | None = None  # task
    role_from: Name | None = None  # task: key of the bead's context that holds the role
    repository: Name | None = None  # commit
    wait: Literal["all", "any"] = "all"  # merge
    revise_to: Name | None = None  # approval
    deadline: PositiveSeconds | None = None  # approval
    approvers: tuple[Name, ...] = ()  # approval: roles or names of people
    quorum: Annotated[int, Meta(ge=1, le=100)] = 1  # approval: M of N
    four_eyes: bool = False  # approval: the bead's author may not answer
    status: TerminalStatus = TerminalStatus.DONE_SUCCESS  # end


class Node(Value):
    id: Name
    type: NodeType
    role: Text = ""
    max_attempts: Positive = 3
    timeout: PositiveSeconds | None = None
    config: NodeConfig = NodeConfig()
    description: Text = ""


class Edge(Value):
    """`condition`: empty (success), `failure`, or an expression over the bead's context."""

    from_node_id: Name
    to_node_id: Name
    condition: Text | None = ""
    id: Text = ""

    @property
    def is_failure(self) -> bool:
        return (self.condition or "").strip() == "failure"

    @property
    def expression(self) -> str:
        """The condition's expression; "" for the unconditional edge and for the failure edge."""
        return "" if self.is_failure else (self.condition or "").strip()


class Workflow(Value, tag="workflow", tag_field="kind"):
    name: Name
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    id: Text = ""
    description: Text = ""
    roles: tuple[Name, ...] = ()
    stop_rules: StopRules = StopRules()
    metadata: dict[str, Any] = {}


class Task(Value):
    """A task that an agent of a team offers. `once`: done at most once in a run. `ends` and `then`
    leave its holder fewer answers: it ends the run, or hands off to that agent (K33)."""

    id: Name
    once: bool = False
    milestone: Text = ""
    when: Text = ""
    ends: bool = False
    then: Text = ""
    description: Text = ""

    @property
    def is_narrow(self) -> bool:
        return self.ends or bool(self.then)


class Agent(Value):
    id: Name
    hands_off_to: tuple[Name, ...] = ()
    role: Text = ""
    tasks: tuple[Task, ...] = ()
    marker: Text = ""
    """The agent's milestones count only in a result that ends with this marker."""
    when_exhausted: dict[Name, Name] = {}
    """Target -> the agent that gets the turn instead where a rule is against the target (K30)."""
    description: Text = ""

    @property
    def effective_role(self) -> str:
        return self.role or self.id


class Review(Value):
    """A person approves a result of `after`, or revises it: the run goes on at `back_to`."""

    after: tuple[Name, ...]
    back_to: Name
    required: bool = True
    deadline: PositiveSeconds | None = None
    approvers: tuple[Name, ...] = ()
    quorum: Annotated[int, Meta(ge=1, le=100)] = 1


REVIEW_STEP_ID = "review"
"""The handoff target that stands for the reviewing person; never dispatched to an agent."""


class Team(Value, tag="team", tag_field="kind"):
    name: Name
    start: Name
    agents: tuple[Agent, ...]
    id: Text = ""
    description: Text = ""
    terminator: Name | None = None
    initial_phase: Text = ""
    review: Review | None = None
    roles: tuple[Name, ...] = ()
    stop_rules: StopRules = StopRules()
    metadata: dict[str, Any] = {}


Definition = Workflow | Team


def has_too_few_approvers(approvers: tuple[str, ...], quorum: int) -> bool:
    """Whether the quorum can never be reached: a name is one person, a level may be many."""
    return (
        bool(approvers)
        and not PERSON_LEVELS.keys() & set(approvers)
        and len(set(approvers)) < quorum
    )


class DocumentProblem(Value):
    """An error or warning about a document: a stable code, the path, and what to do."""

    code: str
    path: str
    message: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" + (f" ({self.hint})" if self.hint else "")
