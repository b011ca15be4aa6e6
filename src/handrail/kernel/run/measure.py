"""measure: a natural number that falls with every accepted event and is 0 exactly at the end (K26).

Workflow: for each position the rest of its visit and of the way after it; for each open block the
way after its merge; for each rework rule whose scope is open, its reworks left times their cost.
Team: four events (offered, claimed, reported, handed over) for each step the limits still allow,
and three (offered, claimed, reported) for a conclusion, two for the question whether to go on.
Both: a question and its answer for each ask left, and the end. A wait is offered, claimed and
reported, and then the position is where it was: a wait less in the visit, or in the team's stretch.
`rank.py` holds the tables.
"""

from typing import assert_never

from handrail.kernel.definition.certificate import handoffs_max
from handrail.kernel.definition.limits import ASKS_MAX
from handrail.kernel.definition.model import NodeType, Team
from handrail.kernel.definition.plan import Plan
from handrail.kernel.definition.rank import EVENTS_PER_APPROVAL, EVENTS_PER_TRANSITION
from handrail.kernel.run.state import Position, PositionPhase, Run

EVENTS_PER_STEP = 4
"""Events of a team's step: offered, claimed, reported, handed over."""
PHASE_EVENTS = {
    PositionPhase.READY: 0,
    PositionPhase.OFFERED: -1,
    PositionPhase.CLAIMED: -2,
    PositionPhase.SETTLED: -3,
    PositionPhase.ASKING: 2,
    PositionPhase.ASKED: 1,
    PositionPhase.WAITING: 0,
}
"""Events that the phase adds to or takes from the current step."""
EVENTS_PER_ASK = EVENTS_PER_STEP + 1
"""An agent's question costs an extra dispatch besides question and answer."""
EVENTS_PER_WAIT = 3
"""Offered, claimed, reported."""
EVENTS_PER_END = 1
EVENTS_PER_CONCLUSION = 3
"""Events of a concluding dispatch: offered, claimed, reported or lost."""
CONCLUDING_EVENTS = {PositionPhase.OFFERED: 2, PositionPhase.CLAIMED: 1}
"""Events left of it, by phase."""


def measure(plan: Plan, run: Run) -> int:
    if run.has_ended:
        return 0
    if not plan.is_of(run.definition_digest):
        return EVENTS_PER_END  # under an altered definition nothing goes on
    asks = (EVENTS_PER_ASK if run.kind == "team" else EVENTS_PER_APPROVAL) * max(
        0, ASKS_MAX - run.asks
    )
    paused = 1 if run.paused_at is not None else 0
    position_events = (
        _team_measure(plan, run) if run.kind == "team" else _workflow_measure(plan, run)
    )
    return position_events + asks + paused


def _workflow_measure(plan: Plan, run: Run) -> int:
    graph, ranks = plan.graph, plan.ranks
    total = 0
    occupied = [graph.index[fork] for fork in run.blocks]
    for position in run.positions.values():
        i = graph.index[position.step_id]
        occupied.append(i)
        total += ranks.rest[i] - ranks.visit_events[i] + _visit_events_left(plan, run, position)
    for fork in run.blocks:
        total += ranks.entry_value(graph.merge_of[graph.index[fork]])
    for target, nodes in graph.rework_sources.items():
        if any(graph.dominates(target, i) for i in occupied):
            for v in nodes:
                rule = graph.nodes[v].config.on_failure
                assert rule is not None
                left = rule.max - run.reworks.get(graph.nodes[v].id, 0)
                total += left * ranks.rework_cost[v]
    return total


def _visit_events_left(plan: Plan, run: Run, position: Position) -> int:
    """Events left of this visit to the node."""
    node, attempt = plan.node(position.step_id), plan.ranks.attempt_events
    if node.type is not NodeType.TASK and position.phase is PositionPhase.READY:
        return plan.ranks.visit_events[plan.graph.index[position.step_id]]
    waits = position.wait.count if position.wait is not None else 0
    dispatches = max(0, node.max_attempts - position.attempts) + node.config.max_waits - waits
    events_left = dispatches * attempt + EVENTS_PER_APPROVAL + EVENTS_PER_TRANSITION
    match position.phase:
        case PositionPhase.READY | PositionPhase.SETTLED | PositionPhase.WAITING:
            return events_left
        case PositionPhase.OFFERED:
            return events_left + attempt - 1
        case PositionPhase.CLAIMED:
            return events_left + attempt - 2
        case PositionPhase.ASKING:
            return events_left + 2
        case PositionPhase.LEAVING:
            return EVENTS_PER_TRANSITION
        case PositionPhase.ASKED:
            approval = run.pending_approvals[position.approval_id]
            if approval.own:
                return events_left + 1
            return approval.quorum - len(approval.approved_by) + EVENTS_PER_TRANSITION
        case _:
            assert_never(position.phase)


def _team_measure(plan: Plan, run: Run) -> int:
    """EVENTS_PER_STEP for each dispatch the limits allow, the current one included, and the end."""
    position = next(iter(run.positions.values()))
    if run.concluding is not None:
        return CONCLUDING_EVENTS.get(position.phase, 0) + EVENTS_PER_END
    if (
        position.phase is PositionPhase.ASKED
        and not run.pending_approvals[position.approval_id].own
    ):
        approval = run.pending_approvals[position.approval_id]
        return approval.quorum - len(approval.approved_by) + EVENTS_PER_END
    if position.phase is PositionPhase.LEAVING:
        return EVENTS_PER_END
    in_hand = position.phase in (
        PositionPhase.OFFERED,
        PositionPhase.CLAIMED,
        PositionPhase.SETTLED,
    )
    steps = _steps_left(plan.team, run, position, 1 if in_hand else 0)
    review = plan.team.review
    tail = EVENTS_PER_END if review is None else EVENTS_PER_END + 1 + review.quorum
    tail += EVENTS_PER_CONCLUSION if run.limits.ladder.conclude else 0
    tail += EVENTS_PER_APPROVAL if run.limits.ladder.ask else 0
    waits = EVENTS_PER_WAIT * max(0, run.limits.max_waits - run.ledger.waits)
    return EVENTS_PER_STEP * steps + PHASE_EVENTS[position.phase] + waits + tail


def _steps_left(team: Team, run: Run, position: Position, in_hand: int) -> int:
    limits, ledger = run.limits, run.ledger
    left: list[int] = []
    limit = handoffs_max(team, limits)
    if limit is not None:
        handoffs = limit - (ledger.handoffs - ledger.handoffs_before)
        left.append((handoffs + 1) * limits.protocol_error_limit - position.faults)
    if limits.ordinary_steps is not None:
        left.append(limits.ordinary_steps - (ledger.steps - ledger.steps_before) + in_hand)
    assert left, "a valid team has one of the two limits"
    return max(0, min(left))
