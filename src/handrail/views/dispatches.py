"""A dispatch as an agent gets it, and its briefing: what the agent has to know to answer well."""

from datetime import datetime
from typing import Any

import msgspec

from handrail.kernel.definition.limits import Constraints
from handrail.kernel.stop.rules import Nudge
from handrail.views.view_types import Handoff, HumanAct, Iteration, RedirectView, Step, View


class TaskBrief(View):
    """A task of an agent. `done`: it was done, and a once-only task is not done again."""

    id: str
    description: str
    when: str
    milestone: str
    once: bool
    ends: bool
    """Whether its holder ends the run, and may not hand off."""
    then: str
    """The only agent that its holder hands off to; "" for any."""
    done: bool


class Colleague(View):
    """An agent to hand off to, and how often this agent did since the last progress."""

    id: str
    description: str
    marker: str
    tasks: tuple[TaskBrief, ...]
    handed: int


class ResearchGoal(View):
    """Research: the best score of an agent at a task, and the visits without a better one."""

    goal: str
    best: float
    in_vain: int


class RepeatedFailure(View):
    """A failure that occurred again, and how often since the last progress."""

    signature: str
    count: int


class UsedLimits(View):
    """What this stretch of the run has used of its limits."""

    steps: int = 0
    handoffs: int = 0
    tokens: int = 0
    cost: float = 0.0


class Briefing(View):
    """`limits` are those in force, by their names in `stop_rules`; a limit that is off is
    missing."""

    kind: str = "workflow"
    name: str = ""
    about: str = ""
    you: str = ""
    """The purpose of the agent, or of the node."""
    marker: str = ""
    tasks: tuple[TaskBrief, ...] = ()
    colleagues: tuple[Colleague, ...] = ()
    terminator: str | None = None
    """The only agent that may end the run; None where a reviewing person does."""
    review: bool = False
    """Whether a person has to approve before the run can end."""
    facts: tuple[str, ...] = ()
    """Names in the bead's context that the definition declares, and its conditions read."""
    limits: dict[str, Any] = {}
    constraints: Constraints = Constraints()
    tool_limits: dict[str, int] = {}
    profile: str = "strict"
    used: UsedLimits = UsedLimits()
    last_progress_step: int = 0
    research: tuple[ResearchGoal, ...] = ()
    failing: tuple[RepeatedFailure, ...] = ()
    unchanged: int = 0
    """Dispatches since the last progress that left every file unchanged."""
    returned: int = 0
    """Dispatches since the last progress that went back to earlier contents."""


class AllowedOutcomes(View):
    """The outcomes that the agent may report; in a team also the agents that it may hand off to,
    and the marker without which no handoff is accepted."""

    outcomes: tuple[str, ...]
    to: tuple[str, ...] = ()
    marker: str = ""


class BeadFile(View):
    """A file of the bead."""

    name: str
    size: int
    sha256: str
    content_type: str


class DispatchBead(View):
    """The bead, with its files."""

    id: str
    title: str
    description: str
    context: dict[str, Any]
    files: tuple[BeadFile, ...]


class HeldLock(View):
    """The commit lock that goes with the dispatch, and when a silent holder loses it."""

    repository: str
    fence: int
    expires_at: datetime | None


class DispatchWait(View):
    """How often the node's visit, or the team's stretch, has waited, since when, and until when it
    may: a wait past the deadline is the last."""

    since: datetime
    deadline: datetime
    count: int


class DispatchView(View, tag="step", tag_field="kind"):
    """Contract: "A dispatch". `node` is set in a workflow, `agent` in a team."""

    id: str
    execution_id: str
    bead: DispatchBead
    definition: str
    node: str | None
    agent: str | None
    task: str | None
    phase: str
    role: str
    attempt: int
    max_attempts: int
    step: int
    fence: int
    key: str
    """Stays the same until a result is reported: for outside effects that must not happen twice."""
    lease_expires_at: datetime | None
    history: tuple[Step, ...]
    iterations: tuple[Iteration, ...]
    handoff_sequence: tuple[Handoff, ...]
    people: tuple[HumanAct, ...]
    last_refusal: str | None
    answer: str | None
    """A person's answer to this agent's own question, if that is why it has the dispatch."""
    allowed: AllowedOutcomes
    lock: HeldLock | None
    remaining: int
    briefing: Briefing = msgspec.field(default_factory=Briefing)
    """Who the agent is, to whom it may turn, and what is counted; empty from an older server."""
    question: str | None = None
    """The agent's own question, which `answer` answers."""
    redirected: RedirectView | None = None
    """Why this agent has the turn, if another was proposed."""
    nudge: Nudge | None = None
    """A stop rule that is near."""
    concluding: bool = False
    """Whether the run ends after this dispatch: then only the text of its result counts."""
    wait: DispatchWait | None = None
    """What was waited for until now, if anything was."""
