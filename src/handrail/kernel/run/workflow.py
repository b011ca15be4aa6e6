"""How a workflow chooses the next step: outcome edges, rework, forks and merges, escalation.

One table says how an attempt ends (K3): each way of ending names the answers to try, in order; the
first that applies is taken. Escalating always applies, so a failure to route cannot happen (K5).

    success    leave by the first true success edge
    failure    failure edge; else rework while it has turns; if there was one: escalate; else retry
    again      (continue, unusable, lost) retry; else escalate
    timed out  escalate
"""

from collections.abc import Callable

from msgspec.structs import replace

from handrail.kernel.decision import Refusal
from handrail.kernel.definition import Node, NodeType, TerminalStatus
from handrail.kernel.ledger import weigh
from handrail.kernel.limits import ASKS_MAX
from handrail.kernel.plan import Plan
from handrail.kernel.result import Outcome, Result
from handrail.kernel.rules import StopRule, judge_handoff, judge_result, judge_step
from handrail.kernel.run.book import Book, first_line, known_paths, refuse
from handrail.kernel.run.events import Ended, Moved, Offered, Reported
from handrail.kernel.run.state import Block, Phase, QuestionKind, Run, Stop, Token


class Ending:
    """The ways an attempt ends."""

    SUCCESS = "success"
    FAILURE = "failure"
    AGAIN = "again"
    TIMED_OUT = "timed_out"


Try = Callable[[Book, Token, str], bool]


def settle(book: Book, place: str, ending: str, why: str) -> None:
    """Route the token after an attempt ended this way."""
    token = book.run.tokens[place]
    for attempt in ANSWERS[ending]:
        if attempt(book, token, why):
            return
    raise AssertionError("escalating always applies")  # pragma: no cover


def _leave(book: Book, token: Token, why: str) -> bool:
    leave(book, token.place, "success", why)
    return True


def _failure_edge(book: Book, token: Token, why: str) -> bool:
    graph = book.plan.graph
    links = [link for link in graph.succ[graph.index[token.place]] if link.on_failure]
    if links:
        forward(book, token.place, (graph.nodes[links[0].node].id,), "failure", why)
    return bool(links)


def _rework(book: Book, token: Token, why: str) -> bool:
    rule = book.plan.node(token.place).config.on_failure
    if rule is None or book.run.reworks.get(token.place, 0) >= rule.max:
        return False
    back(book, token.place, rule.rework, "rework", why, spends=token.place)
    return True


def _escalate_after_rework(book: Book, token: Token, why: str) -> bool:
    rule = book.plan.node(token.place).config.on_failure
    return rule is not None and _escalate(book, token, f"{rule.max} reworks used up: {why}")


def _retry(book: Book, token: Token, why: str) -> bool:
    """Attempts left: the token is offered again by `advance`."""
    return token.attempts < book.plan.node(token.place).max_attempts


def _escalate(book: Book, token: Token, why: str) -> bool:
    node = book.plan.node(token.place)
    tried = f"{token.attempts} of {node.max_attempts} attempts"
    text = f"'{node.id}' needs a decision after {tried}: {why}"
    book.ask(token, QuestionKind.ESCALATION, text)
    return True


ANSWERS: dict[str, tuple[Try, ...]] = {
    Ending.SUCCESS: (_leave,),
    Ending.FAILURE: (_failure_edge, _rework, _escalate_after_rework, _retry, _escalate),
    Ending.AGAIN: (_retry, _escalate),
    Ending.TIMED_OUT: (_escalate,),
}
ENDING_OF = {
    Outcome.SUCCESS: Ending.SUCCESS,
    Outcome.FAILURE: Ending.FAILURE,
    Outcome.CONTINUE: Ending.AGAIN,
}


def report(book: Book, token: Token, result: Result) -> Refusal | None:
    """A result of a workflow's node."""
    node = book.plan.node(token.place)
    if result.outcome is Outcome.CONTINUE and not node.config.multi_dispatch:
        return refuse(
            "not_multi_dispatch",
            f"'{node.id}' takes one dispatch an attempt; '{token.agent}' asks to continue",
            "report success or failure, or set config.multi_dispatch",
        )
    ending = ENDING_OF.get(result.outcome) if result.outcome is not None else None
    if ending is None and result.outcome is not Outcome.ASK:
        said = result.outcome or "neither success nor failure"
        return refuse(
            "bad_outcome",
            f"'{token.agent}' says {said} at '{node.id}'",
            "a workflow's node takes success, failure, continue or ask",
        )
    weighed = weigh(
        book.run.ledger, book.run.limits, token.agent, result.evidence, paths=known_paths(book.run)
    )
    committed = node.config.kind == "commit" and result.outcome is Outcome.SUCCESS
    asking = ending is None and token.attempts < node.max_attempts and book.run.asks < ASKS_MAX
    book.emit(
        Reported(
            at=book.now,
            place=token.place,
            fence=token.fence,
            agent=token.agent,
            result=result,
            weighed=weighed,
            committed=committed,
            asking=asking,
        )
    )
    moment = book.moment()._replace(agent=token.agent, evidence=result.evidence, step=token.step)
    fired = judge_result(moment)
    if fired:
        book.stop(fired, token.agent)
    elif ending is not None:
        settle(book, token.place, ending, result.reason or first_line(result.text))
    else:
        _ask_back(book, token, result)
    return None


def _ask_back(book: Book, token: Token, result: Result) -> None:
    """The agent asks a person. On its last attempt nobody could hear the answer: escalate."""
    held = book.run.tokens[token.place]
    question = result.question.strip() or "(no question given)"
    if held.phase is Phase.ASKING:
        book.ask(held, QuestionKind.CLARIFICATION, question, own=True, options=result.options)
    else:
        why = f"'{token.agent}' asks, after {book.run.asks} questions of agents: {question}"
        settle(book, token.place, Ending.AGAIN, why)


def leave(book: Book, place: str, outcome: str, why: str, by: str = "") -> None:
    """By the success edges: the first true one, or every true one at a fork."""
    graph, edges = book.plan.graph, book.plan.workflow.edges
    i = graph.index[place]
    links = [link for link in graph.succ[i] if not link.on_failure]
    links.sort(key=lambda link: not edges[link.edge].expression)  # stable: the default comes last
    taken: list[str] = []
    for link in links:
        expression = edges[link.edge].expression
        found = book.plan.holds(expression, book.run.context)
        if found.error:
            told = f"'{expression}' of '{place}' counts as false: {found.error}"
            book.warn("condition_error", told, place)
        if found.holds:
            taken.append(graph.nodes[link.node].id)
            if i not in graph.heads:
                break
    forward(book, place, tuple(taken), outcome, why, by)


def forward(
    book: Book, place: str, targets: tuple[str, ...], outcome: str, why: str, by: str = ""
) -> None:
    """Over forward edges; arriving at the merge of an open block may close it (K9, K10)."""
    graph, run = book.plan.graph, book.run
    fired = judge_handoff(book.moment()._replace(source=place, target=targets[0]))
    if any(f.rule is not StopRule.REPEATED_PATTERN for f in fired):
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
    book.emit(replace(event, forgets=_forgotten(book, event)))


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


def advance(book: Book) -> None:
    """Until every token waits for an agent, a person, a lock or a paused run to go on."""
    for _ in range(8 * len(book.plan.graph.nodes) + 8):  # each round passes or offers one token
        token = next((t for t in book.run.tokens.values() if _can_go(book, t)), None)
        if token is None:
            return
        node = book.plan.node(token.place)
        if node.type is NodeType.TASK:
            offer(book, token, role_of(book.run, node))
        elif node.type is NodeType.APPROVAL:
            _ask_approval(book, token, node)
        elif node.type is NodeType.END:
            _finish(book, node)
        else:
            leave(book, token.place, node.type.value, "")
        if book.run.ended:
            return
    raise AssertionError("a run that only passes nodes has passed them all")  # pragma: no cover


WAITING_TO_GO = (Phase.READY, Phase.SETTLED, Phase.ASKING)


def _can_go(book: Book, token: Token) -> bool:
    if token.phase not in WAITING_TO_GO or book.run.paused_at is not None:
        return False
    return not needs_lock(book.plan.node(token.place))


def needs_lock(node: Node) -> bool:
    """A commit dispatch is offered only once the repository's lock is granted (L12)."""
    return node.type is NodeType.TASK and node.config.kind == "commit"


def role_of(run: Run, node: Node) -> str:
    """The node's role, or the one that stands in the bead's context under `role_from`."""
    named = run.context.get(node.config.role_from) if node.config.role_from else None
    return named if isinstance(named, str) and named and named != "ceo" else node.role


def offer(book: Book, token: Token, role: str, lock: int | None = None) -> None:
    fired = judge_step(book.moment())
    if fired:
        book.stop(fired, book.run.final_agent)
        return
    book.emit(
        Offered(
            at=book.now,
            place=token.place,
            fence=book.run.fence + 1,
            attempt=token.attempts + 1,
            role=role,
            lock=lock,
        )
    )


def _ask_approval(book: Book, token: Token, node: Node) -> None:
    config = node.config
    text = node.description or f"Approve '{node.id}'?"
    barred = (book.run.filed_by,) if config.four_eyes and book.run.filed_by else ()
    book.ask(
        token,
        QuestionKind.APPROVAL,
        text,
        deadline=config.deadline,
        approvers=config.approvers,
        quorum=config.quorum,
        barred=barred,
    )


def _finish(book: Book, node: Node) -> None:
    status = node.config.status
    if status is TerminalStatus.ABORTED_STUCK:
        reason = f"the run reached '{node.id}', an end for runs that are stuck"
    else:
        reason = f"the run reached its end '{node.id}'"
    stop = Stop(rule=StopRule.COMPLETED, reason=reason, agent=book.run.final_agent)
    book.emit(Ended(at=book.now, status=status, stop=stop))
