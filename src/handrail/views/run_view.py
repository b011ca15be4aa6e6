"""The run as the API, the page and the command line give it, and the error it leaves on its bead.

A view is a projection of the run's state and its events (`history.py`, `steps.py`) at one moment:
the clock comes in as an argument and matters only for the duration of a run that still goes. What
only the definition knows (limits of reworks, the measure) comes from the plan. Names are those of
the API; adding a field here adds it there.
"""

from datetime import datetime
from typing import Any

from msgspec.structs import asdict

from handrail.kernel.definition.model import TerminalStatus
from handrail.kernel.definition.plan import Plan
from handrail.kernel.run.measure import measure
from handrail.kernel.run.state import Run
from handrail.views import history, steps
from handrail.views.soft_rules import soft_rule_counts
from handrail.views.view_types import (
    Handoff,
    Iteration,
    LoopCounter,
    RuleCount,
    RunWarning,
    StopView,
    UsageView,
    View,
    stop_view,
)


class RunView(View):
    """One run. `current_node_id` is the oldest open place; None once the run has ended."""

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
    attempts: dict[str, int]
    loop_counters: dict[str, LoopCounter]
    soft_rules: dict[str, RuleCount]
    """What the rules that watch for progress have counted since the last, by their names."""
    handoff_sequence: tuple[Handoff, ...]
    warnings: tuple[RunWarning, ...]
    iterations: tuple[Iteration, ...]
    usage: UsageView
    last_progress_step: int
    total_steps: int
    remaining: int
    created_at: datetime
    updated_at: datetime
    ended_at: datetime | None
    duration: float


class RunSummary(View):
    """Of a `RunView` what follows from the run's state alone: no event is looked at."""

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
    usage: UsageView
    last_progress_step: int
    total_steps: int
    remaining: int
    created_at: datetime
    ended_at: datetime | None
    duration: float


class BeadError(View):
    """What an aborted run leaves on its bead."""

    rule: str
    reason: str
    pattern: tuple[str, ...]
    execution_id: str


def run_summary(plan: Plan, run: Run, now: datetime) -> RunSummary:
    """The run as it stands; its places as it entered them."""
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
        usage=UsageView(tokens=run.ledger.tokens, cost=float(run.ledger.cost)),
        last_progress_step=run.ledger.last_progress_step,
        total_steps=run.ledger.steps,
        remaining=measure(plan, run),
        created_at=run.started_at,
        ended_at=run.ended_at,
        duration=(until - run.started_at).total_seconds(),
    )


def run_view(plan: Plan, run: Run, events: steps.Events, now: datetime) -> RunView:
    """The run as it stands after these events."""
    step_ids = history.open_step_ids(run, events)
    summary_fields: dict[str, Any] = asdict(run_summary(plan, run, now))
    summary_fields |= {"current_node_id": next(iter(step_ids), None), "current_node_ids": step_ids}
    return RunView(
        **summary_fields,
        attempts=steps.attempts(events),
        loop_counters=history.loop_counters(run, events, rework_limits(plan)),
        soft_rules=soft_rule_counts(run),
        handoff_sequence=history.handoff_sequence(events),
        warnings=steps.warnings(events),
        iterations=history.iterations(events),
        updated_at=events[-1].at,
    )


def rework_limits(plan: Plan) -> dict[str, int]:
    """Node -> how often it may send the run back, in the scope of its target."""
    if plan.kind == "team":
        return {}
    rules = {node.id: node.config.on_failure for node in plan.workflow.nodes}
    return {name: rule.max for name, rule in rules.items() if rule is not None}


def bead_error(run: Run) -> BeadError | None:
    """The error on the bead of an aborted run; None while it goes and for every other end."""
    aborted = (TerminalStatus.ABORTED_STUCK, TerminalStatus.ABORTED_CONSTRAINT)
    if run.stop is None or run.terminal_status not in aborted:
        return None
    return BeadError(
        rule=run.stop.rule.value,
        reason=run.stop.reason,
        pattern=run.stop.pattern,
        execution_id=run.id,
    )
