"""What is counted of a run that has ended (L14), from its events alone.

A *visit* of a node is one stay there; its dispatches are the cycles that agents were given. What a
run needed beyond the first dispatch of a node are its retries there, whatever the reason: failure,
a lost agent, more turns, a way back. A team's agents are counted like nodes: a visit is a turn.
"""

from collections import Counter

from handrail.kernel.decision import Value
from handrail.kernel.run.events import (
    Asked,
    Ended,
    Faulted,
    HandedOff,
    Moved,
    Offered,
    Reported,
    Started,
)
from handrail.kernel.run.state import ApprovalKind
from handrail.views.steps import Events, started_event


class NodeStatistics(Value):
    visits: int
    dispatches: int


class RunStatistics(Value):
    """`seconds` are from the start to the end, waiting for people and pauses included."""

    seconds: float
    terminal_status: str
    escalations: int
    tokens: int
    cost: float
    nodes: dict[str, NodeStatistics]
    """Those that were dispatched at least once."""


def run_statistics(events: Events) -> RunStatistics | None:
    """The figures of a run; None while it goes on."""
    first, last = started_event(events), events[-1]
    if not isinstance(last, Ended):
        return None
    visits: Counter[str] = Counter()
    dispatches: Counter[str] = Counter()
    tokens, cost, escalations = 0, 0.0, 0
    for event in events:
        visits.update(_entered_steps(event))
        if isinstance(event, Offered):
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
