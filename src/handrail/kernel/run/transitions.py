"""Transitions of positions: over edges, back to an earlier node, or to a node a person chooses.

Forward, a position leaves by the first true edge (a fork by every true edge); arriving at the merge
of an open block may close it (K9, K10). Back, everything in the target's scope is cancelled and
done again (K11). Each `Moved` lists the rework counters it resets (K7), so that evolve needs no
graph.
"""

from msgspec.structs import replace

from handrail.kernel.definition.plan import Plan
from handrail.kernel.run.decision_builder import DecisionBuilder
from handrail.kernel.run.events import Moved
from handrail.kernel.run.state import Block, Run
from handrail.kernel.stop.rules import counts_handoffs, is_handoff_made


def leave(builder: DecisionBuilder, step_id: str, outcome: str, reason: str, by: str = "") -> None:
    """Leave by the first true success edge, or at a fork by every true one."""
    graph, edges = builder.plan.graph, builder.plan.success_edges[step_id]
    if len(edges) == 1 and not edges[0][0]:
        move_forward(builder, step_id, (edges[0][1],), outcome, reason, by)
        return
    taken: list[str] = []
    for expression, target in edges:
        condition = builder.plan.evaluate(expression, builder.run.context)
        if condition.error:
            message = f"'{expression}' of '{step_id}' counts as false: {condition.error}"
            builder.warn("condition_error", message, step_id)
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
            heads = tuple(t for t in targets if t != merge)
            event = replace(moved, enters=heads, opens={step_id: block})
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
    cancelled = tuple(
        step_id
        for step_id in run.positions
        if step_id != moved.source and graph.dominates(fork, graph.index[step_id])
    )
    inner = tuple(f for f in run.blocks if graph.dominates(fork, graph.index[f]))
    return replace(moved, enters=(target,), cancels=cancelled, closes=inner)


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
    inside = tuple(p for p in run.positions if graph.dominates(t, graph.index[p]))
    closes = tuple(f for f in run.blocks if graph.dominates(t, graph.index[f]))
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
            cancels=inside,
            closes=closes,
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
