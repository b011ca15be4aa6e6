"""A run as a value: its positions, pending approvals, counters and end.

A workflow run has a position for each open node (more than one only inside a parallel block); a
team run has exactly one, at the active agent or at the review step. Nothing here grows with the
length of the run: the events hold what was said and done, by sequence number.
"""

from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Any, Literal

from handrail.kernel.decision import Value
from handrail.kernel.definition.limits import Limits
from handrail.kernel.definition.model import TerminalStatus
from handrail.kernel.stop.alike import AlikeStep, EffectCall, stop_code
from handrail.kernel.stop.best import BestResult, seal_best
from handrail.kernel.stop.ledger import Ledger
from handrail.kernel.stop.rules import RULE_ORDER, RULES_BY_NAME, FiredRule, Nudge, StopRule

ENGINE_KEYS = ("redispatch_requested", "last_run_at")
"""Keys of the bead's context that only the engine writes."""
AGENT_READONLY_KEYS = (*ENGINE_KEYS, "goal", "task_scope")
"""Keys that an agent's data cannot change: an agent must not move its own goal."""


class RunStatus(StrEnum):
    RUNNING = "running"
    WAITING = "waiting"
    PAUSED = "paused"
    ENDED = "ended"


class PositionPhase(StrEnum):
    """The phase of a position. READY waits to be offered or to pass; SETTLED has a result and
    awaits routing; ASKING has a result that asks a person; WAITING has a result that waits, and is
    offered again at its time; LEAVING was released by a person."""

    READY = "ready"
    OFFERED = "offered"
    CLAIMED = "claimed"
    SETTLED = "settled"
    ASKING = "asking"
    ASKED = "asked"
    WAITING = "waiting"
    LEAVING = "leaving"


OFFERED, CLAIMED = PositionPhase.OFFERED, PositionPhase.CLAIMED
WAITING = PositionPhase.WAITING
"""Module-level names for the hot path: `PositionPhase.X` takes longer than a whole rule (Python
3.11 calls a function for it)."""


class ApprovalKind(StrEnum):
    CLARIFICATION = "clarification_request"
    APPROVAL = "approval"
    ESCALATION = "escalation"


class Wait(Value):
    """The last wait of a visit to a node, or of a team's stretch: what the agent waited for, when
    it wants its next dispatch, and the deadline, which the first wait has set (K31)."""

    since: datetime
    """When the first wait began."""
    deadline: datetime
    not_before: datetime
    waits_for: str
    count: int = 1

    @property
    def is_in_time(self) -> bool:
        """Whether the next dispatch comes before the deadline."""
        return self.not_before <= self.deadline

    @property
    def due(self) -> datetime:
        return self.not_before if self.is_in_time else self.deadline


class Position(Value, rename={"step_id": "place", "approval_id": "question"}):
    """Where a run stands: one visit to a node, or to an agent of a team."""

    step_id: str
    since: datetime
    """When its clock started: ready and offered share one clock, claimed has its own."""
    phase: PositionPhase = PositionPhase.READY
    attempts: int = 0
    fence: int = 0
    step: int = 0
    agent: str = ""
    role: str = ""
    task: str = ""
    lock: int | None = None
    """The fence of the commit lock held, of `repository`."""
    repository: str = ""
    faults: int = 0
    """Unusable answers in this visit, lost leases included."""
    lost: int = 0
    fault_steps: tuple[int, ...] = ()
    refusal: str = ""
    approval_id: str = ""
    result: int = 0
    """Sequence number of the result that led here, or of the last result reported here, waits
    aside."""
    nudge: Nudge | None = None
    """What the dispatch tells its agent of a rule that is near."""
    wait: Wait | None = None
    """The last wait of this visit; in a team, of the stretch."""

    def has_waited(self, now: datetime) -> bool:
        """Whether a wait is over, in time or at its deadline."""
        return self.phase is WAITING and self.wait is not None and self.wait.due <= now

    def is_offered_again(self, now: datetime) -> bool:
        """Whether a wait is over in time."""
        return self.has_waited(now) and self.wait is not None and self.wait.is_in_time


class Block(Value):
    """An open parallel block: the branches its fork started this round, and the arrived ones."""

    heads: tuple[str, ...]
    arrived: tuple[str, ...] = ()


class PendingApproval(Value, rename={"step_id": "place"}):
    """An open approval. `digest` binds an answer to the shown content."""

    id: str
    kind: ApprovalKind
    step_id: str
    text: str
    digest: str
    asked_at: datetime
    deadline: datetime
    approvers: tuple[str, ...] = ()
    quorum: int = 1
    barred: tuple[str, ...] = ()
    approved_by: tuple[str, ...] = ()
    result: int = 0
    own: bool = False
    """Whether an agent asked it itself: then any text is an answer."""
    options: tuple[str, ...] = ()
    status: TerminalStatus = TerminalStatus.DONE_SUCCESS
    """How the run ends if a team's reviewer approves."""
    remaining: tuple[str, ...] = ()
    stop: "Stop | None" = None
    """How the run ends unless a person lets it go on."""


STOP_OPTIONS = ("go on", "stop")
"""What a person may say to the question whether a stopped run goes on."""


class Stop(Value):
    """Why the run ended: typed, citing the events, never guessed from a text."""

    rule: StopRule
    reason: str
    agent: str = ""
    limit: int | float | str | None = None
    seen: int | float | str | None = None
    pattern: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    remedy: str = ""
    also: tuple[StopRule, ...] = ()
    remaining: tuple[str, ...] = ()
    """What a partial success leaves undone."""
    code: str = ""
    """The rule with the agents or tools that it met, short and stable; empty: the rule alone."""
    alike: tuple[AlikeStep, ...] = ()
    """What the cited events had in common; empty where a total was passed, not a repetition."""
    effects: tuple[EffectCall, ...] = ()
    """Calls with an effect outside of the run, from the last step with progress on."""
    profile: str = ""
    limit_name: str = ""
    """The field of the stop rules that sets the limit."""
    best: BestResult | None = None
    """The best result whose evidence Handrail measured."""
    conclusion: str = ""
    """The last answer of the agent whose turn it was."""


def build_stop(fired: list[FiredRule], agent: str, ledger: Ledger, profile: str) -> Stop:
    """Build the stop from the first of these rules, in the order of the table; `also` lists the
    others. A handoff that a rule refused, which the ledger has not counted, is not cited."""
    refused_handoff = f"handoff {ledger.handoffs + 1}"
    ranked = sorted(fired, key=lambda fired_rule: RULE_ORDER[fired_rule.rule])
    first = ranked[0]
    return Stop(
        rule=first.rule,
        reason=first.reason,
        agent=agent,
        limit=first.limit,
        seen=first.seen,
        pattern=first.pattern,
        evidence=tuple(citation for citation in first.evidence if citation != refused_handoff),
        remedy=first.remedy,
        also=tuple(dict.fromkeys(f.rule for f in ranked[1:] if f.rule is not first.rule)),
        code=stop_code(first.rule, first.alike, first.names),
        alike=tuple(step for step in first.alike if step.citation != refused_handoff),
        effects=ledger.effects,
        profile=profile,
        limit_name=first.limit_name or RULES_BY_NAME[first.rule].limit,
        best=seal_best(ledger.best),
    )


def goal_command(context: dict[str, Any]) -> str:
    """Return the command of the bead's functional goal (S13); "" if there is none."""
    goal = context.get("goal")
    command = goal.get("command") if isinstance(goal, dict) else None  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType] - any JSON
    return command if isinstance(command, str) else ""


def stop_question(stop: Stop) -> str:
    """Return the question to a person whether the run goes on."""
    cited = f" ({', '.join(stop.evidence)})" if stop.evidence else ""
    return f"{stop.rule}: {stop.reason}{cited}. Let it go on, or stop it?"


class Person(Value):
    """A person with a credential. The caller vouches for it; no text can create a person."""

    name: str
    role: Literal["viewer", "operator", "ceo", "admin"] = "ceo"


class Run(
    Value,
    rename={
        "positions": "tokens",
        "pending_approvals": "questions",
        "approvals_opened": "questions_asked",
    },
):
    id: str
    bead_id: str
    definition_id: str
    version: int
    kind: Literal["workflow", "team"]
    started_at: datetime
    limits: Limits
    definition_digest: str = ""
    """The digest of the definition's text when the run began, or was migrated to it."""
    seq: int = 0
    """Events applied so far; the sequence number of the last one."""
    status: RunStatus = RunStatus.RUNNING
    title: str = ""
    description: str = ""
    filed_by: str = ""
    context: dict[str, Any] = {}
    review: Literal["required", "skip"] | None = None
    """The bead's choice; None leaves it to the definition."""
    hands: tuple[str, ...] = ()
    """People who shaped the shown content: they filed or changed the bead, or revised a result."""
    paths: tuple[str, ...] | None = None
    dry_run: bool = False
    """A guarded run that no rule ends."""
    traceparent: str = ""
    positions: dict[str, Position] = {}
    blocks: dict[str, Block] = {}
    reworks: dict[str, int] = {}
    pending_approvals: dict[str, PendingApproval] = {}
    approvals_opened: int = 0
    asks: int = 0
    fence: int = 0
    stretch: int = 1
    ledger: Ledger = Ledger()
    phase: str = ""
    phase_detail: str = ""
    done: dict[str, int] = {}
    """Completed once-only tasks: "agent/task" -> sequence number of the result."""
    last_targets: dict[str, str] = {}
    """The last handoff target of each agent of a team."""
    redirected: tuple[str, ...] = ()
    """The edges of this stretch that led to another target (K30), each by its `edge_key`."""
    nudge: Nudge | None = None
    """A nudge for the next dispatch."""
    concluding: Stop | None = None
    """Why the run ends as soon as its last dispatch is over."""
    committers: tuple[str, ...] = ()
    ran: float = 0.0
    ran_since: datetime | None = None
    paused_at: datetime | None = None
    pause_deadline: datetime | None = None
    final_agent: str = ""
    terminal_status: TerminalStatus | None = None
    stop: Stop | None = None
    ended_at: datetime | None = None

    @property
    def has_ended(self) -> bool:
        return self.terminal_status is not None

    def elapsed_seconds(self, now: datetime) -> float:
        """Running time of this stretch, without waits for people, pauses and time after the end."""
        current_seconds = (
            (now - self.ran_since).total_seconds() if self.ran_since is not None else 0.0
        )
        return self.ran + max(0.0, current_seconds)

    def find_position(self, fence: int) -> Position | None:
        """Return the position whose open dispatch has this fence."""
        for position in self.positions.values():
            if position.fence == fence and (position.phase is CLAIMED or position.phase is OFFERED):
                return position
        return None


@lru_cache(maxsize=1_024)  # settings and limits: the same few values at every step
def to_timedelta(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


def dispatch_id(run_id: str, fence: int) -> str:
    """Return the public id of a dispatch (an approval's is RUN.qN)."""
    return f"{run_id}.d{fence}"
