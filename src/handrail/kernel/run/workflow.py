"""How a workflow chooses the next step: outcome edges, rework, forks and merges, escalation.

One table says how an attempt ends (K3): each way of ending names the answers to try, in order; the
first that applies is taken. Escalating always applies, so a failure to route cannot happen (K5).

    success    leave by the first true success edge
    failure    failure edge; else rework while it has turns; if there was one: escalate; else retry
    again      (continue, unusable, lost) retry; else escalate
    timed out  escalate
"""

from collections.abc import Callable

from handrail.kernel.decision import Refusal
from handrail.kernel.definition import Node, NodeType, TerminalStatus
from handrail.kernel.limits import ASKS_MAX
from handrail.kernel.plan import Plan
from handrail.kernel.progress import weigh
from handrail.kernel.result import Outcome, Result
from handrail.kernel.rules import StopRule
from handrail.kernel.run import moves
from handrail.kernel.run.book import Book, first_line, known_paths, refuse
from handrail.kernel.run.events import Ended, Offered, Reported
from handrail.kernel.run.state import Phase, QuestionKind, Run, Stop, Token


class Ending:
    """The ways an attempt ends."""

    SUCCESS = "success"
    FAILURE = "failure"
    AGAIN = "again"
    TIMED_OUT = "timed_out"


TASK, SUCCESS, CONTINUE, ASK = NodeType.TASK, Outcome.SUCCESS, Outcome.CONTINUE, Outcome.ASK
Try = Callable[[Book, Token, str], bool]


def settle(book: Book, place: str, ending: str, why: str) -> None:
    """Route the token after an attempt ended this way."""
    token = book.run.tokens[place]
    for attempt in ANSWERS[ending]:
        if attempt(book, token, why):
            return
    raise AssertionError("escalating always applies")  # pragma: no cover


def _leave(book: Book, token: Token, why: str) -> bool:
    moves.leave(book, token.place, "success", why)
    return True


def _failure_edge(book: Book, token: Token, why: str) -> bool:
    graph = book.plan.graph
    links = [link for link in graph.succ[graph.index[token.place]] if link.on_failure]
    if links:
        moves.forward(book, token.place, (graph.nodes[links[0].node].id,), "failure", why)
    return bool(links)


def _rework(book: Book, token: Token, why: str) -> bool:
    rule = book.plan.node(token.place).config.on_failure
    if rule is None or book.run.reworks.get(token.place, 0) >= rule.max:
        return False
    moves.back(book, token.place, rule.rework, "rework", why, spends=token.place)
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
    text = f"'{node.id}' needs a decision after {tried}: {why or 'no reason was given'}"
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
    if result.outcome is CONTINUE and not node.config.multi_dispatch:
        return refuse(
            "not_multi_dispatch",
            f"'{node.id}' takes one dispatch an attempt; '{token.agent}' asks to continue",
            "report success or failure, or set config.multi_dispatch",
        )
    ending = ENDING_OF.get(result.outcome) if result.outcome is not None else None
    if ending is None and result.outcome is not ASK:
        said = result.outcome or "neither success nor failure"
        return refuse(
            "bad_outcome",
            f"'{token.agent}' says {said} at '{node.id}'",
            "a workflow's node takes success, failure, continue or ask",
        )
    if ending is None and not (result.question.strip() and book.run.asks < ASKS_MAX):
        return refuse(
            "bad_ask",
            f"'{token.agent}' asks at '{node.id}' without a question, or people were asked "
            f"{ASKS_MAX} times in this stretch",
            "decide yourself: report success or failure",
        )
    weighed = weigh(
        book.run.ledger,
        book.run.limits,
        token.agent,
        result.evidence,
        paths=known_paths(book.run, result),
    )
    committed = node.config.kind == "commit" and result.outcome is SUCCESS
    asking = ending is None and token.attempts < node.max_attempts
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
    fired = book.judge_result(token.agent, result, token.step)
    if fired:
        book.stop(fired, token.agent)
    elif ending is not None:
        settle(book, token.place, ending, result.reason or first_line(result.text))
    else:
        _ask_back(book, token, result)
    return None


def malformed(book: Book, token: Token, told: str, result: Result) -> None:
    """The caller could not read a result: the attempt is used up (K1)."""
    fired = book.fault(token, "malformed", told, result)
    if fired:
        book.stop(fired, token.agent)
    else:
        why = f"{token.agent} gave no usable result: {told}"
        settle(book, token.place, Ending.AGAIN, why)


def _ask_back(book: Book, token: Token, result: Result) -> None:
    """The agent asks a person. On its last attempt nobody could hear the answer: escalate."""
    held = book.run.tokens[token.place]
    if held.phase is Phase.ASKING:
        book.ask(
            held, QuestionKind.CLARIFICATION, result.question, own=True, options=result.options
        )
    else:
        _escalate(book, held, f"'{token.agent}' asks: {result.question}")


def advance(book: Book) -> None:
    """Until every token waits for an agent, a person, a lock or a paused run to go on."""
    for _ in book.plan.rounds:  # each round passes or offers one token
        token = _next_to_go(book)
        if token is None:
            return
        node = book.plan.node(token.place)
        if node.type is TASK:
            offer(book, token, role_of(book.run, node))
        elif node.type is NodeType.APPROVAL:
            _ask_approval(book, token, node)
        elif node.type is NodeType.END:
            _finish(book, node)
        else:
            moves.leave(book, token.place, node.type.value, "")
        if book.run.terminal_status is not None:
            return
    raise AssertionError("a run that only passes nodes has passed them all")  # pragma: no cover


WAITING_TO_GO = (Phase.READY, Phase.SETTLED, Phase.ASKING)


def _next_to_go(book: Book) -> Token | None:
    run = book.run
    if run.paused_at is not None:
        return None
    for token in run.tokens.values():
        if token.phase in WAITING_TO_GO and not needs_lock(book.plan.node(token.place)):
            return token
    return None


def needs_lock(node: Node) -> bool:
    """A commit dispatch is offered only once the repository's lock is granted (L12)."""
    return node.type is TASK and node.config.kind == "commit"


def repository_of(plan: Plan, place: str) -> str:
    return plan.node(place).config.repository or "default"


def role_of(run: Run, node: Node) -> str:
    """The node's role, or the one that stands in the bead's context under `role_from`."""
    named = run.context.get(node.config.role_from) if node.config.role_from else None
    return named if isinstance(named, str) and named and named != "ceo" else node.role


def offer(book: Book, token: Token, role: str, lock: int | None = None) -> None:
    fired = book.judge_step()
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
            repository=repository_of(book.plan, token.place) if lock is not None else "",
        )
    )


def _ask_approval(book: Book, token: Token, node: Node) -> None:
    config = node.config
    text = node.description or f"Approve '{node.id}'?"
    barred = book.run.hands if config.four_eyes else ()
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
