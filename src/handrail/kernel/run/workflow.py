"""How a workflow goes on: the routes after an attempt, and the transitions of positions.

The table `ROUTES` (K3) lists for each ending of an attempt the routes to try, in order; the first
that applies is taken. Escalating always applies, so routing cannot fail (K5).

    success    leave by the first true success edge
    failure    failure edge; else rework while it has turns; if there was one: escalate; else retry
    again      (continue, unusable, lost) retry; else escalate
    timed out  escalate
    waiting    wait; beyond `max_waits`, or past the deadline: escalate

Forward, a position leaves by the first true edge (a fork by every true edge); arriving at the merge
of an open block may close it (K9, K10). Back, everything in the target's scope is cancelled and
done again (K11). Each `Moved` lists the rework counters it resets (K7), so that evolve needs no
graph.
"""

from collections.abc import Callable

from msgspec.structs import replace

from handrail.kernel.decision import Refusal, refuse
from handrail.kernel.definition.certificate import wait_seconds
from handrail.kernel.definition.limits import ASKS_MAX
from handrail.kernel.definition.model import Node, NodeType, TerminalStatus
from handrail.kernel.definition.plan import Plan
from handrail.kernel.result import Outcome, Result
from handrail.kernel.run.decision_builder import DecisionBuilder, expected_paths, first_line
from handrail.kernel.run.events import Ended, Moved, Reported
from handrail.kernel.run.state import ApprovalKind, Block, Position, PositionPhase, Run, Stop
from handrail.kernel.run.waits import find_wait_problem, next_wait, record_wait
from handrail.kernel.stop.ledger import assess_result, show_findings
from handrail.kernel.stop.rules import StopRule, counts_handoffs, is_handoff_made


def leave(builder: DecisionBuilder, step_id: str, outcome: str, reason: str, by: str = "") -> None:
    """Leave by the first true success edge, or at a fork by every true one."""
    graph, edges = builder.plan.graph, builder.plan.success_edges[step_id]
    if len(edges) == 1 and not edges[0][0]:
        move_forward(builder, step_id, (edges[0][1],), outcome, reason, by)
        return
    taken: list[str] = []
    for expression, target in edges:
        condition = builder.evaluate(expression, builder.run.context)
        if condition.error:
            builder.warn(
                "condition_error",
                f"'{expression}' of '{step_id}' counts as false: {condition.error}",
                step_id,
            )
        if condition.holds:
            taken.append(target)
            if graph.index[step_id] not in graph.heads:
                break
    move_forward(builder, step_id, tuple(taken), outcome, reason, by)


def move_forward(
    builder: DecisionBuilder,
    step_id: str,
    targets: tuple[str, ...],
    outcome: str,
    reason: str,
    by: str = "",
) -> None:
    """Move over forward edges; arriving at the merge of an open block may close it (K9, K10)."""
    graph, run = builder.plan.graph, builder.run
    fired = builder.judge_handoff(step_id, targets[0]) if counts_handoffs(run.limits) else []
    if fired and not is_handoff_made(fired):
        builder.stop(fired, run.positions[step_id].agent)
        return
    i = graph.index[step_id]
    moved = Moved(
        at=builder.now, source=step_id, targets=targets, outcome=outcome, reason=reason, by=by
    )
    if i in graph.heads:
        merge = graph.nodes[graph.merge_of[i]].id
        arrived = tuple(t for t in targets if t == merge)
        block = Block(heads=targets, arrived=arrived)
        if arrived == targets:
            event = replace(moved, enters=(merge,))
        else:
            event = replace(
                moved, enters=tuple(t for t in targets if t != merge), opens={step_id: block}
            )
    else:
        event = _with_arrival(run, builder, moved, targets[0])
    _emit_move(builder, event)
    if fired and not builder.run.has_ended:
        builder.stop(fired, "")


def _with_arrival(run: Run, builder: DecisionBuilder, moved: Moved, target: str) -> Moved:
    graph = builder.plan.graph
    to = graph.index[target]
    fork = graph.fork_of.get(to)
    block = run.blocks.get(graph.nodes[fork].id) if fork is not None else None
    if fork is None or block is None:
        return replace(moved, enters=(target,))
    fork_id = graph.nodes[fork].id
    region = graph.region[graph.index[moved.source]]
    assert region is not None, "only a branch leads to an open block's merge"
    head = graph.nodes[region[1]].id
    waits_for_all = graph.nodes[to].config.wait == "all"
    if waits_for_all and len(block.arrived) + 1 < len(block.heads):
        return replace(moved, arrives=(fork_id, head))
    return replace(
        moved,
        enters=(target,),
        cancels=tuple(
            step_id
            for step_id in run.positions
            if step_id != moved.source and graph.dominates(fork, graph.index[step_id])
        ),
        closes=tuple(f for f in run.blocks if graph.dominates(fork, graph.index[f])),
    )


def move_back(
    builder: DecisionBuilder,
    step_id: str,
    target: str,
    outcome: str,
    reason: str,
    *,
    by: str = "",
    spends: str = "",
    renews: bool = False,
) -> None:
    """Move back to an earlier node: cancel everything in its scope, to be done again (K7, K11)."""
    graph, run = builder.plan.graph, builder.run
    t = graph.index[target]
    _emit_move(
        builder,
        Moved(
            at=builder.now,
            source=step_id,
            targets=(target,),
            outcome=outcome,
            reason=reason,
            by=by,
            enters=(target,),
            cancels=tuple(p for p in run.positions if graph.dominates(t, graph.index[p])),
            closes=tuple(f for f in run.blocks if graph.dominates(t, graph.index[f])),
            spends=spends,
            renews=renews,
        ),
    )


def reposition(builder: DecisionBuilder, target: str, outcome: str, reason: str, by: str) -> None:
    """Move the run to one node, by a person: cancel branches, reset counters (K14)."""
    run = builder.run
    event = Moved(
        at=builder.now,
        source="",
        targets=(target,),
        outcome=outcome,
        reason=reason,
        by=by,
        enters=(target,),
        cancels=tuple(run.positions),
        closes=tuple(run.blocks),
        opens=blocks_around(builder.plan, target),
        forgets=tuple(run.reworks),
        renews=True,
    )
    builder.emit(event)


def blocks_around(plan: Plan, step_id: str) -> dict[str, Block]:
    """The blocks around a new position: each fork counts as having started only this branch, so
    that its merge passes as soon as the position arrives."""
    graph = plan.graph
    return {
        graph.nodes[fork].id: Block(heads=(graph.nodes[head].id,))
        for fork, head in graph.blocks_around(graph.index[step_id])
    }


def _emit_move(builder: DecisionBuilder, event: Moved) -> None:
    """Emit the move with the rework counters that it resets (K7)."""
    builder.emit(
        replace(event, forgets=_reset_reworks(builder, event)) if builder.run.reworks else event
    )


def _reset_reworks(builder: DecisionBuilder, event: Moved) -> tuple[str, ...]:
    graph, run = builder.plan.graph, builder.run
    left_steps = {event.source, *event.cancels}
    step_ids = [p for p in run.positions if p not in left_steps] + list(event.enters)
    step_ids += [f for f in run.blocks if f not in event.closes]
    step_ids += event.opens
    occupied = [graph.index[p] for p in step_ids]
    back_to = graph.index[event.targets[0]] if event.spends or event.renews else None
    forward_to = {graph.index[p] for p in event.enters} if back_to is None else set[int]()
    reset_ids: list[str] = []
    for node_id in run.reworks:
        rule = graph.nodes[graph.index[node_id]].config.on_failure
        assert rule is not None
        scope = graph.index[rule.rework]
        closed = not any(graph.dominates(scope, p) for p in occupied)
        inner = back_to is not None and graph.dominates(back_to, scope)
        is_spent_now = event.spends and scope == back_to
        if closed or scope in forward_to or (inner and not is_spent_now):
            reset_ids.append(node_id)
    return tuple(reset_ids)


class AttemptEnding:
    """The ways an attempt ends."""

    SUCCESS = "success"
    FAILURE = "failure"
    AGAIN = "again"
    TIMED_OUT = "timed_out"


TASK, SUCCESS, CONTINUE, ASK = NodeType.TASK, Outcome.SUCCESS, Outcome.CONTINUE, Outcome.ASK
WAITING = Outcome.WAITING
Route = Callable[[DecisionBuilder, Position, str], bool]


def route_after_attempt(builder: DecisionBuilder, step_id: str, ending: str, reason: str) -> None:
    """Route the position after an attempt with this ending."""
    position = builder.run.positions[step_id]
    for route in ROUTES[ending]:
        if route(builder, position, reason):
            return
    raise AssertionError("escalating always applies")  # pragma: no cover


def _take_success_edge(builder: DecisionBuilder, position: Position, reason: str) -> bool:
    leave(builder, position.step_id, "success", reason)
    return True


def _take_failure_edge(builder: DecisionBuilder, position: Position, reason: str) -> bool:
    graph = builder.plan.graph
    links = [link for link in graph.succ[graph.index[position.step_id]] if link.is_failure]
    if links:
        move_forward(builder, position.step_id, (graph.nodes[links[0].node].id,), "failure", reason)
    return bool(links)


def _rework(builder: DecisionBuilder, position: Position, reason: str) -> bool:
    rule = builder.plan.node(position.step_id).config.on_failure
    if rule is None or builder.run.reworks.get(position.step_id, 0) >= rule.max:
        return False
    move_back(builder, position.step_id, rule.rework, "rework", reason, spends=position.step_id)
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
    builder.open_approval(
        position,
        ApprovalKind.ESCALATION,
        f"'{node.id}' needs a decision after {tried}: {reason or 'no reason was given'}",
    )
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
    if result.outcome is WAITING:
        return _report_wait(builder, position, result)
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
            f"'{position.agent}' reported {outcome_text} at '{node.id}'",
            "a workflow's node takes success, failure, continue, ask or waiting",
        )
    if ending is None and not (result.question.strip() and builder.run.asks < ASKS_MAX):
        return refuse(
            "bad_ask",
            f"'{position.agent}' asks at '{node.id}' without a question, or people were asked "
            f"{ASKS_MAX} times in this stretch",
            "decide yourself: report success or failure",
        )
    result = show_findings(builder.run.limits, position.agent, result)
    assessment = assess_result(
        builder.run.ledger,
        builder.run.limits,
        position.agent,
        result.evidence,
        paths=expected_paths(builder.run, result),
    )
    builder.emit_result(
        Reported(
            at=builder.now,
            step_id=position.step_id,
            fence=position.fence,
            agent=position.agent,
            result=result,
            weighed=assessment,
            committed=node.config.kind == "commit" and result.outcome is SUCCESS,
            asking=ending is None and position.attempts < node.max_attempts,
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


def _report_wait(builder: DecisionBuilder, position: Position, result: Result) -> Refusal | None:
    node = builder.plan.node(position.step_id)
    if not node.config.max_waits:
        return refuse(
            "no_waits",
            f"'{position.agent}' wants to wait at '{node.id}', which has no config.max_waits",
            "report success or failure, or set config.max_waits",
        )
    if problem := find_wait_problem(result):
        return refuse(
            "bad_wait", f"'{position.agent}' waits at '{node.id}': {problem}", "correct it"
        )
    used = position.wait.count if position.wait is not None else 0
    wait = None
    if used < node.config.max_waits:
        seconds = wait_seconds(node, builder.plan.settings)
        wait = next_wait(builder, position, result, seconds)
    fired = record_wait(builder, position, result, wait)
    if fired:
        builder.stop(fired, position.agent)
    elif wait is None:
        escalate_wait(builder, position, result.waits_for)
    return None


def escalate_wait(builder: DecisionBuilder, position: Position, waits_for: str) -> None:
    """Escalate a visit whose waits are used up, or have passed their deadline."""
    config = builder.plan.node(position.step_id).config
    used = position.wait.count if position.wait is not None else 0
    _escalate(
        builder,
        builder.run.positions[position.step_id],
        f"it still waits for {waits_for} after {used} of {config.max_waits} waits",
    )


def handle_malformed(
    builder: DecisionBuilder, position: Position, message: str, result: Result
) -> None:
    """Use up the attempt of a result that the caller could not read (K1)."""
    fired = builder.record_fault(position, "malformed", message, result)
    if fired:
        builder.stop(fired, position.agent)
    else:
        route_after_attempt(
            builder,
            position.step_id,
            AttemptEnding.AGAIN,
            f"{position.agent} gave no usable result: {message}",
        )


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
            builder.record_nudges()
            return
        node = builder.plan.node(position.step_id)
        if node.type is TASK:
            builder.offer_dispatch(position, role_of(builder.run, node))
        elif node.type is NodeType.APPROVAL:
            _open_node_approval(builder, position, node)
        elif node.type is NodeType.END:
            _finish(builder, node)
        else:
            leave(builder, position.step_id, node.type.value, "")
        if builder.run.terminal_status is not None:
            return
    raise AssertionError("a run that only passes nodes has passed them all")  # pragma: no cover


ADVANCEABLE_PHASES = (PositionPhase.READY, PositionPhase.SETTLED, PositionPhase.ASKING)


def _next_to_advance(builder: DecisionBuilder) -> Position | None:
    run = builder.run
    if run.paused_at is not None:
        return None
    for position in run.positions.values():
        is_commit = position.step_id in builder.plan.commit_repositories
        if position.phase in ADVANCEABLE_PHASES and not is_commit:
            return position
        if position.is_offered_again(builder.now):
            return position
    return None


def role_of(run: Run, node: Node) -> str:
    """The role in the bead's context under `role_from`, else the node's own role."""
    role = run.context.get(node.config.role_from) if node.config.role_from else None
    return role if isinstance(role, str) and role and role != "ceo" else node.role


def _open_node_approval(builder: DecisionBuilder, position: Position, node: Node) -> None:
    config = node.config
    text = node.description or f"Approve '{node.id}'?"
    builder.open_approval(
        position,
        ApprovalKind.APPROVAL,
        text,
        deadline_seconds=config.deadline,
        approvers=config.approvers,
        quorum=config.quorum,
        barred=builder.run.hands if config.four_eyes else (),
    )


def _finish(builder: DecisionBuilder, node: Node) -> None:
    status = node.config.status
    if status is TerminalStatus.ABORTED_STUCK:
        reason = f"the run reached '{node.id}', an end for runs that are stuck"
    else:
        reason = f"the run reached its end '{node.id}'"
    builder.emit(
        Ended(
            at=builder.now,
            status=status,
            stop=Stop(rule=StopRule.COMPLETED, reason=reason, agent=builder.run.final_agent),
        )
    )
