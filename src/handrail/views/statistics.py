"""Statistics of runs that have ended (L14): of one run, from its events alone, and of a definition.

A *visit* lasts from entering a node to leaving it; its dispatches are the cycles that agents took:
one that nobody claimed is none. All dispatches of a node beyond the first are retries, whatever the
reason: failure, a lost agent, more cycles, a way back. A team's agents count like nodes: a handoff
begins a visit.
"""

from collections import Counter

from handrail.kernel.decision import Value
from handrail.kernel.run.events import (
    Asked,
    Claimed,
    Ended,
    Faulted,
    HandedOff,
    Moved,
    Reported,
    Started,
)
from handrail.kernel.run.state import ApprovalKind
from handrail.views.steps import Events, started_event
from handrail.views.view_types import UsageView, View


class NodeStatistics(Value):
    visits: int
    dispatches: int


class RunStatistics(Value):
    """`seconds` run from start to end, including waits for people and pauses."""

    seconds: float
    terminal_status: str
    escalations: int
    tokens: int
    cost: float
    nodes: dict[str, NodeStatistics]
    """Nodes that an agent has claimed at least once."""


def run_statistics(events: Events) -> RunStatistics | None:
    """Return the statistics of a run; None while it is in progress."""
    first, last = started_event(events), events[-1]
    if not isinstance(last, Ended):
        return None
    visits: Counter[str] = Counter()
    dispatches: Counter[str] = Counter()
    tokens, cost, escalations = 0, 0.0, 0
    for event in events:
        visits.update(_entered_steps(event))
        if isinstance(event, Claimed):
            dispatches[event.step_id] += 1
        elif isinstance(event, Reported | Faulted):
            tokens += event.result.usage.tokens
            cost += event.result.usage.cost
        elif isinstance(event, Asked):
            escalations += event.approval.kind is ApprovalKind.ESCALATION
    return RunStatistics(
        seconds=(last.at - first.at).total_seconds(),
        terminal_status=last.status.value,
        escalations=escalations,
        tokens=tokens,
        cost=cost,
        nodes={
            step_id: NodeStatistics(visits=visits[step_id], dispatches=n)
            for step_id, n in sorted(dispatches.items())
        },
    )


def _entered_steps(event: object) -> tuple[str, ...]:
    match event:
        case Started(step_id=step_id):
            return (step_id,)
        case Moved(enters=enters):
            return enters
        case HandedOff(target=target, accepted=True, already_done=False):
            return (target,)
        case _:
            return ()


class DurationStatistics(View):
    p50: float
    p90: float
    p99: float
    mean: float


class DefinitionStatistics(View):
    """The ended runs of a definition."""

    workflow_id: str
    runs: int
    time_to_resolution: DurationStatistics
    success_rate: float
    escalation_rate: float
    """The share of runs that needed the CEO."""
    retries: dict[str, dict[str, int]]
    """Node -> how many runs needed 0, 1, 2, … dispatches beyond the first."""
    dispatch_cycles: dict[str, float]
    """Node -> dispatches a run, on average."""
    usage: UsageView
    investigation_success: float | None = None
    """Of the runs that were investigated, the share whose fix was approved and applied. None
    without such runs, and for a definition that does not both investigate and commit, as the next
    two."""
    fix_success: float | None = None
    """Of the runs that applied a fix, the share that ended well: it passed verification."""
    fix_cycles: float | None = None
    """How often a fix was applied, on average, in runs that applied one."""
