"""The run in the API, the page and the command line, and the error that it leaves on its bead.

A view is a projection of the run's state and its events (`history.py`, `steps.py`) at one moment:
the time is an argument and matters only for the duration of a run in progress. Values that only the
definition has (limits of reworks, the measure) come from the plan. Field names are those of the
API; adding a field here adds it there. `RunDetails` is a run with everything that a page shows
beside it, and why it stopped or waits.
"""

from datetime import datetime
from typing import Any

from msgspec.structs import asdict

from handrail.kernel.decision import Value
from handrail.kernel.definition.model import TerminalStatus
from handrail.kernel.definition.plan import Plan
from handrail.kernel.run.measure import measure
from handrail.kernel.run.state import Run
from handrail.kernel.stop.rules import RULES, StopRule
from handrail.views import history, steps
from handrail.views.beads import BeadView
from handrail.views.history import StopView, run_usage, stop_view
from handrail.views.report import RunReport
from handrail.views.steps import StepDetails
from handrail.views.view_types import (
    Handoff,
    Iteration,
    LoopCounter,
    RedirectView,
    RuleCount,
    RunUsageView,
    RunWarning,
    View,
    WouldHaveDone,
)


def soft_rule_counts(run: Run) -> dict[str, RuleCount]:
    """Return the counts by rule name."""
    ledger, limits = run.ledger, run.limits
    counts = {
        row.rule.value: RuleCount(count=row.count(ledger, limits), limit=limit)
        for row in RULES
        if row.count is not None and (limit := getattr(limits, row.limit)) is not None
    }
    if run.kind == "team":
        faults = max((position.faults for position in run.positions.values()), default=0)
        limit = limits.protocol_error_limit
        counts[StopRule.PROTOCOL.value] = RuleCount(count=faults, limit=limit)
    return counts


RUN_IDS_MAX = 100
"""Runs whose summaries are read at once."""


class RunWaits(View):
    """How often agents have waited in this stretch. Of the open visits that have waited, the one
    whose deadline comes first: since when, and until when."""

    count: int = 0
    since: datetime | None = None
    deadline: datetime | None = None


class RunSummary(View, kw_only=True):
    """What follows from the run's state alone, without its events. `current_node_id` is its oldest
    position; None once the run has ended."""

    id: str
    bead_id: str
    workflow_id: str
    workflow_version: int
    current_node_id: str | None
    current_node_ids: tuple[str, ...]
    status: str
    phase: str
    phase_detail: str
    terminal_status: str | None
    stop: StopView | None
    final_agent: str
    usage: RunUsageView
    last_progress_step: int
    total_steps: int
    waits: RunWaits = RunWaits()
    remaining: int
    created_at: datetime
    ended_at: datetime | None
    duration: float
    dry_run: bool
    """Under a guard that ends nothing."""


class RunView(RunSummary, kw_only=True):
    """One run, with what follows from its events."""

    attempts: dict[str, int]
    loop_counters: dict[str, LoopCounter]
    soft_rules: dict[str, RuleCount]
    """Counts of the soft rules since the last progress, by rule name."""
    handoff_sequence: tuple[Handoff, ...]
    redirects: tuple[RedirectView, ...]
    warnings: tuple[RunWarning, ...]
    iterations: tuple[Iteration, ...]
    nudges: int
    """How often an agent was told that a stop rule is near."""
    updated_at: datetime
    would_have: tuple[WouldHaveDone, ...]
    """What the rules would have done in a dry run."""
    unguarded: str
    """Why only the hard limits judge a guarded run since an error of its guard; else empty."""


class BeadError(View):
    """The error that an aborted run leaves on its bead."""

    rule: str
    reason: str
    pattern: tuple[str, ...]
    execution_id: str


class RunItem(View):
    """A run in a list."""

    id: str
    bead_id: str
    title: str
    workflow_id: str
    workflow_version: int
    current_node_id: str | None
    status: str
    terminal_status: str | None
    stop_rule: str | None
    priority: int
    created_at: datetime
    updated_at: datetime
    ended_at: datetime | None
    duration: float


class NoteView(View):
    """A refused input, kept as evidence: a late, doubled or foreign result, an answer to a settled
    approval, a forged name. `said` is the input."""

    at: datetime
    actor: str
    code: str
    said: Any


def run_summary(plan: Plan, run: Run, now: datetime) -> RunSummary:
    """Summarize the run's state; its positions are in order of entry."""
    until = run.ended_at if run.ended_at is not None else max(now, run.started_at)
    return RunSummary(
        id=run.id,
        bead_id=run.bead_id,
        workflow_id=run.definition_id,
        workflow_version=run.version,
        current_node_id=next(iter(run.positions), None),
        current_node_ids=tuple(run.positions),
        status=run.status.value,
        phase=run.phase,
        phase_detail=run.phase_detail,
        terminal_status=run.terminal_status,
        stop=stop_view(run.stop),
        final_agent=run.final_agent,
        usage=run_usage(run.ledger),
        last_progress_step=run.ledger.last_progress_step,
        total_steps=run.ledger.steps,
        waits=run_waits(run),
        remaining=measure(plan, run),
        created_at=run.started_at,
        ended_at=run.ended_at,
        duration=(until - run.started_at).total_seconds(),
        dry_run=run.dry_run,
    )


def run_waits(run: Run) -> RunWaits:
    """Return the waits of this stretch, and the deadline that comes first."""
    waits = [position.wait for position in run.positions.values() if position.wait is not None]
    if not waits:
        return RunWaits(count=run.ledger.waits)
    first = min(waits, key=lambda wait: wait.deadline)
    return RunWaits(count=run.ledger.waits, since=first.since, deadline=first.deadline)


def run_view(plan: Plan, run: Run, events: steps.Events, now: datetime) -> RunView:
    """Return the view of the run after these events."""
    step_ids = history.open_step_ids(run, events)
    summary_fields: dict[str, Any] = asdict(run_summary(plan, run, now))
    summary_fields |= {"current_node_id": next(iter(step_ids), None), "current_node_ids": step_ids}
    return RunView(
        **summary_fields,
        attempts=steps.attempts(events),
        loop_counters=history.loop_counters(run, events, rework_limits(plan)),
        soft_rules=soft_rule_counts(run),
        handoff_sequence=history.handoff_sequence(events),
        redirects=history.redirects(events),
        warnings=steps.warnings(events),
        iterations=history.iterations(events),
        nudges=steps.count_nudges(events),
        updated_at=events[-1].at,
        would_have=steps.would_have(events),
        unguarded=steps.unguarded(events),
    )


def rework_limits(plan: Plan) -> dict[str, int]:
    """Return node -> how often it may send the run back, in the scope of its target."""
    if plan.kind == "team":
        return {}
    rules = {node.id: node.config.on_failure for node in plan.workflow.nodes}
    return {name: rule.max for name, rule in rules.items() if rule is not None}


def bead_error(run: Run) -> BeadError | None:
    """Return the error for the bead of an aborted run; None for any other run."""
    aborted = (TerminalStatus.ABORTED_STUCK, TerminalStatus.ABORTED_CONSTRAINT)
    if run.stop is None or run.terminal_status not in aborted:
        return None
    return BeadError(
        rule=run.stop.rule.value,
        reason=run.stop.reason,
        pattern=run.stop.pattern,
        execution_id=run.id,
    )


class WaitReason(Value):
    """One open position of a run. `code` is for programs, `message` and `hint` for people."""

    place: str
    code: str
    message: str
    since: datetime
    hint: str = ""


class RunExplanation(View):
    """Why a run stopped, or what each of its open positions waits for; `next` says what to do."""

    status: str
    terminal_status: str | None
    why: str
    """In one sentence."""
    next: str
    stop: StopView | None
    waiting: tuple[WaitReason, ...]
    notes: tuple[str, ...]
    """Further notes: a newer version of the run's definition."""


class RunDetails(View):
    """The details of a run. The report holds the transitions; its own steps are those in
    `steps`."""

    run: RunView
    bead: BeadView
    steps: tuple[StepDetails, ...]
    report: RunReport
    why: RunExplanation
