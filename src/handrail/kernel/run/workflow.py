"""How a workflow chooses the next step: outcome edges, rework, forks and merges, escalation.

The table `ROUTES` (K3) lists for each ending of an attempt the routes to try, in order; the first
that applies is taken. Escalating always applies, so routing cannot fail (K5).

    success    leave by the first true success edge
    failure    failure edge; else rework while it has turns; if there was one: escalate; else retry
    again      (continue, unusable, lost) retry; else escalate
    timed out  escalate
"""

from collections.abc import Callable

from handrail.kernel.decision import Refusal
from handrail.kernel.definition.limits import ASKS_MAX
from handrail.kernel.definition.model import Node, NodeType, TerminalStatus
from handrail.kernel.definition.plan import Plan
from handrail.kernel.result import Outcome, Result
from handrail.kernel.run import transitions
from handrail.kernel.run.decision_builder import DecisionBuilder, expected_paths, first_line, refuse
from handrail.kernel.run.events import Ended, Offered, Reported
from handrail.kernel.run.state import ApprovalKind, Position, PositionPhase, Run, Stop
from handrail.kernel.stop.progress import assess_result
from handrail.kernel.stop.rules import StopRule


class AttemptEnding:
    """The ways an attempt ends."""

    SUCCESS = "success"
    FAILURE = "failure"
    AGAIN = "again"
    TIMED_OUT = "timed_out"


TASK, SUCCESS, CONTINUE, ASK = NodeType.TASK, Outcome.SUCCESS, Outcome.CONTINUE, Outcome.ASK
Route = Callable[[DecisionBuilder, Position, str], bool]


def route_after_attempt(builder: DecisionBuilder, step_id: str, ending: str, reason: str) -> None:
    """Route the position after an attempt with this ending."""
    position = builder.run.positions[step_id]
    for route in ROUTES[ending]:
        if route(builder, position, reason):
            return
    raise AssertionError("escalating always applies")  # pragma: no cover


def _take_success_edge(builder: DecisionBuilder, position: Position, reason: str) -> bool:
    transitions.leave(builder, position.step_id, "success", reason)
    return True


def _take_failure_edge(builder: DecisionBuilder, position: Position, reason: str) -> bool:
    graph = builder.plan.graph
    links = [link for link in graph.succ[graph.index[position.step_id]] if link.is_failure]
    if links:
        transitions.move_forward(
            builder, position.step_id, (graph.nodes[links[0].node].id,), "failure", reason
        )
    return bool(links)


def _rework(builder: DecisionBuilder, position: Position, reason: str) -> bool:
    rule = builder.plan.node(position.step_id).config.on_failure
    if rule is None or builder.run.reworks.get(position.step_id, 0) >= rule.max:
        return False
    transitions.move_back(
        builder, position.step_id, rule.rework, "rework", reason, spends=position.step_id
    )
    return True


def _escalate_after_rework(builder: DecisionBuilder, position: Position, reason: str) -> bool:
    rule = builder.plan.node(position.step_id).config.on_failure
    return rule is not None and _escalate(
        builder, position, f"{rule.max} reworks used up: {reason}"
    )


def _retry(builder: DecisionBuilder, position: Position, reason: str) -> bool:
    """Whether attempts are left; `advance` then offers the position again."""
    return position.attempts < builder.plan.node(position.step_id).max_attempts


def _escalate(builder: DecisionBuilder, position: Position, reason: str) -> bool:
    node = builder.plan.node(position.step_id)
    tried = f"{position.attempts} of {node.max_attempts} attempts"
    text = f"'{node.id}' needs a decision after {tried}: {reason or 'no reason was given'}"
    builder.open_approval(position, ApprovalKind.ESCALATION, text)
    return True


ROUTES: dict[str, tuple[Route, ...]] = {
    AttemptEnding.SUCCESS: (_take_success_edge,),
    AttemptEnding.FAILURE: (_take_failure_edge, _rework, _escalate_after_rework, _retry, _escalate),
    AttemptEnding.AGAIN: (_retry, _escalate),
    AttemptEnding.TIMED_OUT: (_escalate,),
}
ENDING_BY_OUTCOME = {
    Outcome.SUCCESS: AttemptEnding.SUCCESS,
    Outcome.FAILURE: AttemptEnding.FAILURE,
    Outcome.CONTINUE: AttemptEnding.AGAIN,
}


def report(builder: DecisionBuilder, position: Position, result: Result) -> Refusal | None:
    """Apply the result of a workflow's node."""
    node = builder.plan.node(position.step_id)
    if result.outcome is CONTINUE and not node.config.multi_dispatch:
        return refuse(
            "not_multi_dispatch",
            f"'{node.id}' takes one dispatch an attempt; '{position.agent}' asks to continue",
            "report success or failure, or set config.multi_dispatch",
        )
    ending = ENDING_BY_OUTCOME.get(result.outcome) if result.outcome is not None else None
    if ending is None and result.outcome is not ASK:
        outcome_text = result.outcome or "neither success nor failure"
        return refuse(
            "bad_outcome",
            f"'{position.agent}' says {outcome_text} at '{node.id}'",
            "a workflow's node takes success, failure, continue or ask",
        )
    if ending is None and not (result.question.strip() and builder.run.asks < ASKS_MAX):
        return refuse(
            "bad_ask",
            f"'{position.agent}' asks at '{node.id}' without a question, or people were asked "
            f"{ASKS_MAX} times in this stretch",
            "decide yourself: report success or failure",
        )
    assessment = assess_result(
        builder.run.ledger,
        builder.run.limits,
        position.agent,
        result.evidence,
        paths=expected_paths(builder.run, result),
    )
    committed = node.config.kind == "commit" and result.outcome is SUCCESS
    asking = ending is None and position.attempts < node.max_attempts
    builder.emit(
        Reported(
            at=builder.now,
            step_id=position.step_id,
            fence=position.fence,
            agent=position.agent,
            result=result,
            weighed=assessment,
            committed=committed,
            asking=asking,
        )
    )
    fired = builder.judge_result(position.agent, result, position.step)
    if fired:
        builder.stop(fired, position.agent)
    elif ending is not None:
        route_after_attempt(
            builder, position.step_id, ending, result.reason or first_line(result.text)
        )
    else:
        _ask_person(builder, position, result)
    return None


def handle_malformed(
    builder: DecisionBuilder, position: Position, message: str, result: Result
) -> None:
    """Use up the attempt of a result that the caller could not read (K1)."""
    fired = builder.record_fault(position, "malformed", message, result)
    if fired:
        builder.stop(fired, position.agent)
    else:
        reason = f"{position.agent} gave no usable result: {message}"
        route_after_attempt(builder, position.step_id, AttemptEnding.AGAIN, reason)


def _ask_person(builder: DecisionBuilder, position: Position, result: Result) -> None:
    """Open the agent's question; on its last attempt, which no dispatch follows, escalate."""
    current = builder.run.positions[position.step_id]
    if current.phase is PositionPhase.ASKING:
        builder.open_approval(
            current, ApprovalKind.CLARIFICATION, result.question, own=True, options=result.options
        )
    else:
        _escalate(builder, current, f"'{position.agent}' asks: {result.question}")


def advance(builder: DecisionBuilder) -> None:
    """Advance until every position waits for an agent, a person or a lock, or the run is paused."""
    for _ in builder.plan.advance_rounds:  # each round passes or offers one position
        position = _next_to_advance(builder)
        if position is None:
            return
        node = builder.plan.node(position.step_id)
        if node.type is TASK:
            offer_dispatch(builder, position, role_of(builder.run, node))
        elif node.type is NodeType.APPROVAL:
            _open_node_approval(builder, position, node)
        elif node.type is NodeType.END:
            _finish(builder, node)
        else:
            transitions.leave(builder, position.step_id, node.type.value, "")
        if builder.run.terminal_status is not None:
            return
    raise AssertionError("a run that only passes nodes has passed them all")  # pragma: no cover


ADVANCEABLE_PHASES = (PositionPhase.READY, PositionPhase.SETTLED, PositionPhase.ASKING)


def _next_to_advance(builder: DecisionBuilder) -> Position | None:
    run = builder.run
    if run.paused_at is not None:
        return None
    for position in run.positions.values():
        if position.phase in ADVANCEABLE_PHASES and not needs_lock(
            builder.plan.node(position.step_id)
        ):
            return position
    return None


def needs_lock(node: Node) -> bool:
    """Whether the node's dispatch waits for the repository's commit lock (L12)."""
    return node.type is TASK and node.config.kind == "commit"


def repository_of(plan: Plan, step_id: str) -> str:
    return plan.node(step_id).config.repository or "default"


def role_of(run: Run, node: Node) -> str:
    """The role in the bead's context under `role_from`, else the node's own role."""
    role = run.context.get(node.config.role_from) if node.config.role_from else None
    return role if isinstance(role, str) and role and role != "ceo" else node.role


def offer_dispatch(
    builder: DecisionBuilder, position: Position, role: str, lock: int | None = None
) -> None:
    fired = builder.judge_step()
    if fired:
        builder.stop(fired, builder.run.final_agent)
        return
    builder.emit(
        Offered(
            at=builder.now,
            step_id=position.step_id,
            fence=builder.run.fence + 1,
            attempt=position.attempts + 1,
            role=role,
            lock=lock,
            repository=repository_of(builder.plan, position.step_id) if lock is not None else "",
        )
    )


def _open_node_approval(builder: DecisionBuilder, position: Position, node: Node) -> None:
    config = node.config
    text = node.description or f"Approve '{node.id}'?"
    barred = builder.run.hands if config.four_eyes else ()
    builder.open_approval(
        position,
        ApprovalKind.APPROVAL,
        text,
        deadline_seconds=config.deadline,
        approvers=config.approvers,
        quorum=config.quorum,
        barred=barred,
    )


def _finish(builder: DecisionBuilder, node: Node) -> None:
    status = node.config.status
    if status is TerminalStatus.ABORTED_STUCK:
        reason = f"the run reached '{node.id}', an end for runs that are stuck"
    else:
        reason = f"the run reached its end '{node.id}'"
    stop = Stop(rule=StopRule.COMPLETED, reason=reason, agent=builder.run.final_agent)
    builder.emit(Ended(at=builder.now, status=status, stop=stop))
