"""Where a token goes: over the edges, back to an earlier node, or where a person puts it.

Forward, a token leaves by the first true edge (a fork by every true one), and arriving at the
merge of an open block may close it (K9, K10). Back, everything in the target's scope is cancelled
and done again (K11). Each move says which rework counters it makes fresh (K7), so that evolve needs
no graph.
"""

from msgspec.structs import replace

from handrail.kernel.plan import Plan
from handrail.kernel.rules import StopRule
from handrail.kernel.run.book import Book
from handrail.kernel.run.events import Moved
from handrail.kernel.run.state import Block, Run


def leave(book: Book, place: str, outcome: str, why: str, by: str = "") -> None:
    """By the success edges: the first true one, or every true one at a fork."""
    graph, ways = book.plan.graph, book.plan.ways_out[place]
    if len(ways) == 1 and not ways[0][0]:
        forward(book, place, (ways[0][1],), outcome, why, by)
        return
    taken: list[str] = []
    for expression, target in ways:
        found = book.plan.holds(expression, book.run.context)
        if found.error:
            told = f"'{expression}' of '{place}' counts as false: {found.error}"
            book.warn("condition_error", told, place)
        if found.holds:
            taken.append(target)
            if graph.index[place] not in graph.heads:
                break
    forward(book, place, tuple(taken), outcome, why, by)


def forward(
    book: Book, place: str, targets: tuple[str, ...], outcome: str, why: str, by: str = ""
) -> None:
    """Over forward edges; arriving at the merge of an open block may close it (K9, K10)."""
    graph, run = book.plan.graph, book.run
    fired = book.judge_handoff(place, targets[0]) if run.limits.count_handoffs else []
    if fired and any(f.rule is not StopRule.REPEATED_PATTERN for f in fired):
        book.stop(fired, run.tokens[place].agent)
        return
    i = graph.index[place]
    moved = Moved(at=book.now, source=place, targets=targets, outcome=outcome, reason=why, by=by)
    if i in graph.heads:
        merge = graph.nodes[graph.merge_of[i]].id
        arrived = tuple(t for t in targets if t == merge)
        block = Block(heads=targets, arrived=arrived)
        if arrived == targets:
            event = replace(moved, enters=(merge,))
        else:
            heads = tuple(t for t in targets if t != merge)
            event = replace(moved, enters=heads, opens={place: block})
    else:
        event = _arrival(run, book, moved, targets[0])
    _emit_move(book, event)
    if fired and not book.run.ended:
        book.stop(fired, "")


def _arrival(run: Run, book: Book, moved: Moved, target: str) -> Moved:
    graph = book.plan.graph
    to = graph.index[target]
    fork = graph.fork_of.get(to)
    block = run.blocks.get(graph.nodes[fork].id) if fork is not None else None
    if fork is None or block is None:
        return replace(moved, enters=(target,))
    name = graph.nodes[fork].id
    region = graph.region[graph.index[moved.source]]
    assert region is not None, "only a branch leads to an open block's merge"
    head = graph.nodes[region[1]].id
    waits = graph.nodes[to].config.wait == "all"
    if waits and len(block.arrived) + 1 < len(block.heads):
        return replace(moved, arrives=(name, head))
    others = tuple(
        place
        for place in run.tokens
        if place != moved.source and graph.dominates(fork, graph.index[place])
    )
    inner = tuple(f for f in run.blocks if graph.dominates(fork, graph.index[f]))
    return replace(moved, enters=(target,), cancels=others, closes=inner)


def back(
    book: Book,
    place: str,
    target: str,
    outcome: str,
    why: str,
    *,
    by: str = "",
    spends: str = "",
    renews: bool = False,
) -> None:
    """To a node before: everything in its scope is cancelled and done again (K7, K11)."""
    graph, run = book.plan.graph, book.run
    t = graph.index[target]
    inside = tuple(p for p in run.tokens if graph.dominates(t, graph.index[p]))
    closes = tuple(f for f in run.blocks if graph.dominates(t, graph.index[f]))
    _emit_move(
        book,
        Moved(
            at=book.now,
            source=place,
            targets=(target,),
            outcome=outcome,
            reason=why,
            by=by,
            enters=(target,),
            cancels=inside,
            closes=closes,
            spends=spends,
            renews=renews,
        ),
    )


def place_anew(book: Book, target: str, outcome: str, why: str, by: str) -> None:
    """A person puts the run's one token on a node: branches cancelled, counters fresh (K14)."""
    run = book.run
    event = Moved(
        at=book.now,
        source="",
        targets=(target,),
        outcome=outcome,
        reason=why,
        by=by,
        enters=(target,),
        cancels=tuple(run.tokens),
        closes=tuple(run.blocks),
        opens=blocks_around(book.plan, target),
        forgets=tuple(run.reworks),
        renews=True,
    )
    book.emit(event)


def blocks_around(plan: Plan, place: str) -> dict[str, Block]:
    """The blocks a token is set into: each fork counts as having started this one branch, so that
    its merge passes as soon as the token arrives."""
    graph = plan.graph
    return {
        graph.nodes[fork].id: Block(heads=(graph.nodes[head].id,))
        for fork, head in graph.blocks_around(graph.index[place])
    }


def _emit_move(book: Book, event: Moved) -> None:
    """Add which rework counters the move makes fresh, then record it (K7)."""
    book.emit(replace(event, forgets=_forgotten(book, event)) if book.run.reworks else event)


def _forgotten(book: Book, event: Moved) -> tuple[str, ...]:
    graph, run = book.plan.graph, book.run
    gone = {event.source, *event.cancels}
    places = [p for p in run.tokens if p not in gone] + list(event.enters)
    places += [f for f in run.blocks if f not in event.closes]
    places += event.opens
    stand = [graph.index[p] for p in places]
    back_to = graph.index[event.targets[0]] if event.spends or event.renews else None
    forward_to = {graph.index[p] for p in event.enters} if back_to is None else set[int]()
    out: list[str] = []
    for name in run.reworks:
        rule = graph.nodes[graph.index[name]].config.on_failure
        assert rule is not None
        scope = graph.index[rule.rework]
        closed = not any(graph.dominates(scope, p) for p in stand)
        inner = back_to is not None and graph.dominates(back_to, scope)
        kept = event.spends and scope == back_to
        if closed or scope in forward_to or (inner and not kept):
            out.append(name)
    return tuple(out)
