"""How a team chooses the next step: the holder of the turn hands off, ends the run, or is asked
again.

Whatever the holder answers uses up a step (K20). An answer that may not be (an unknown target, an
end without authority, neither of both) is a fault: on record, the holder is told why and gets the
turn again, and `protocol_error_limit` of them in one turn end the run. Only the terminator's own
outcome ends a run, or the last line of its own text (`text_protocol.py`). A handoff to a once-only
task that was done gives the source the earlier result without a dispatch, and counts (K19).
"""

from msgspec.structs import replace

from handrail.kernel.definition import REVIEW_SEAT, Agent, Task, TerminalStatus
from handrail.kernel.limits import ASKS_MAX
from handrail.kernel.plan import Plan
from handrail.kernel.progress import weigh
from handrail.kernel.result import Outcome, Result
from handrail.kernel.rules import Fired, StopRule
from handrail.kernel.run.book import Book, first_line, known_paths
from handrail.kernel.run.events import Ended, HandedOff, Moved, Reported
from handrail.kernel.run.state import Phase, QuestionKind, Run, Stop, Token
from handrail.kernel.run.workflow import offer
from handrail.kernel.text_protocol import COMPLETE_MARKER, TERMINATE_MARKER, read

HANDOFF, TERMINATE, ASK = Outcome.HANDOFF, Outcome.TERMINATE, Outcome.ASK
READY = Phase.READY
ANSWERING = "an agent that answers before its lease ends"


def report(book: Book, token: Token, result: Result) -> None:
    """An answer of the holder of the turn."""
    run, agent = book.run, book.plan.agents[token.place]
    result = read(result, _back_to(book.plan, agent))
    ends = result.marker == TERMINATE_MARKER and agent.id == book.plan.team.terminator
    overridden = ends and result.outcome is HANDOFF
    if ends and result.outcome in (HANDOFF, None):
        result = replace(result, outcome=Outcome.TERMINATE, to="")
    wrong = fault_of(book.plan, run, agent, result)
    if wrong is not None:
        fault(book, token, *wrong, result)
        return
    task = _task(agent, token.task)
    reached = _milestone(agent, task, result)
    weighed = weigh(
        run.ledger,
        run.limits,
        token.place,
        result.evidence,
        task=token.task,
        milestone=reached,
        paths=known_paths(run, result),
    )
    detail = result.data.get("phase_detail") if reached else ""
    asking = result.outcome is ASK
    book.emit(
        Reported(
            at=book.now,
            place=token.place,
            fence=token.fence,
            agent=token.agent,
            result=result,
            weighed=weighed,
            phase=reached,
            phase_detail=detail if isinstance(detail, str) else "",
            done=f"{agent.id}/{task.id}" if task is not None and task.once and not asking else "",
            asking=asking,
        )
    )
    if overridden:
        told = f"'{agent.id}' ended its text with {TERMINATE_MARKER}: that wins over its handoff"
        book.warn("marker_wins", told, agent.id)
    elif result.marker and result.marker != agent.marker and not ends:
        told = f"'{result.marker}' from '{agent.id}' is not its marker and counts for nothing"
        book.warn("marker_ignored", told, agent.id)
    _go_on(book, token, result, book.judge_result(token.place, result, token.step))


def _back_to(plan: Plan, agent: Agent) -> str:
    """To whom an agent hands that says no more than its own marker."""
    targets = plan.targets[agent.id]
    return targets[0] if agent.marker == COMPLETE_MARKER and len(targets) == 1 else ""


def fault_of(plan: Plan, run: Run, agent: Agent, result: Result) -> tuple[str, str] | None:
    """(code, what to tell the holder) if this answer may not be given; None if it may."""
    if result.outcome is HANDOFF:
        return _bad_handoff(plan, agent, result)
    match result.outcome:
        case Outcome.TERMINATE:
            if not may_finish(plan, agent):
                authority = plan.team.terminator or "the reviewing person"
                told = (
                    f"'{agent.id}' may not end the run; only '{authority}' may. Hand off instead."
                )
                return "terminate_refused", told
            if result.status == "done_partial" and not any(r.strip() for r in result.remaining):
                return "no_remaining", "done_partial needs `remaining`: what is left to do."
            return None
        case Outcome.ASK:
            if not result.question.strip():
                return "no_question", "An ask needs a question."
            if run.asks >= ASKS_MAX:
                return "too_many_asks", f"People were asked {ASKS_MAX} times. Decide yourself."
            return None
        case Outcome.FAILURE:
            why = result.reason or first_line(result.text) or "no reason given"
            return "failure", f"Your failure is on record ({why}). Hand off, or try again."
        case _:
            said = f"'{result.outcome}'" if result.outcome else "neither"
            told = f"Say explicitly: hand off or terminate. You said {said}."
            return "says_neither", told


def _bad_handoff(plan: Plan, agent: Agent, result: Result) -> tuple[str, str] | None:
    targets = plan.targets[agent.id]
    if result.to not in targets:
        allowed = ", ".join(targets) or "nobody"
        told = f"'{agent.id}' may not hand off to '{result.to[:100]}'; it may to: {allowed}."
        return "bad_target", told
    if not result.task:
        return None
    known = result.to == REVIEW_SEAT and plan.team.review is not None
    tasks = () if known else plan.agents[result.to].tasks
    if result.task not in [task.id for task in tasks]:
        named = ", ".join(task.id for task in tasks) or "none"
        return "bad_task", f"'{result.to}' has no task '{result.task[:100]}'; its tasks: {named}."
    return None


def may_finish(plan: Plan, agent: Agent) -> bool:
    """The terminator may; and a reviewed agent may, since a person has the last word then."""
    review = plan.team.review
    return agent.id == plan.team.terminator or (review is not None and agent.id in review.after)


def fault(book: Book, token: Token, code: str, told: str, result: Result) -> None:
    fired = book.fault(token, code, told, result)
    if result.outcome is Outcome.HANDOFF:
        book.emit(
            HandedOff(
                at=book.now,
                source=token.place,
                target=result.to[:200],
                reason=result.reason,
                accepted=False,
            )
        )
    if code != "failure":
        book.warn(code, told, token.place)
    after_fault(book, token.place, told, fired)


def after_fault(book: Book, place: str, why: str, fired: list[Fired]) -> None:
    """End the run if the turn is used up, or a rule fired on what the answer rests on."""
    token, most = book.run.tokens[place], book.run.limits.protocol_error_limit
    if token.faults >= most:
        unusable = token.faults - token.lost
        said = [f"{unusable} unusable answers"] if unusable else []
        said += [f"{token.lost} lost leases"] if token.lost else []
        used_up = Fired(
            rule=StopRule.PROTOCOL if unusable else StopRule.AGENT_LOST,
            reason=f"{' and '.join(said)} of {place} in one turn; the last time: {why}",
            limit=most,
            seen=token.faults,
            evidence=tuple(f"step {n}" for n in token.fault_steps),
            remedy="an answer that says handoff or terminate" if unusable else ANSWERING,
        )
        fired = [*fired, used_up]
    if fired:
        book.stop(fired, place)


def _milestone(agent: Agent, task: Task | None, result: Result) -> str:
    """The milestone this result reaches: its task's, with the agent's marker if it has one."""
    if task is None or not task.milestone or result.outcome is ASK:
        return ""
    if agent.marker and result.marker != agent.marker:
        return ""
    return task.milestone


def _task(agent: Agent, task_id: str) -> Task | None:
    for task in agent.tasks:
        if task.id == task_id:
            return task
    return None


def choose_task(book: Book, agent: Agent, named: str) -> Task | None:
    """The named task; else the first that applies and is not done; else the first that applies."""
    if named or not agent.tasks:
        return _task(agent, named)
    context = {**book.run.context, "phase": book.run.phase}
    fitting: list[Task] = []
    for task in agent.tasks:
        found = book.plan.holds(task.when, context)
        if found.error:
            told = f"'{task.when}' of '{agent.id}' counts as false: {found.error}"
            book.warn("condition_error", told, agent.id)
        if found.holds:
            fitting.append(task)
    open_ones = [task for task in fitting if f"{agent.id}/{task.id}" not in book.run.done]
    return next(iter([*open_ones, *fitting]), None)


def _go_on(book: Book, token: Token, result: Result, fired: list[Fired]) -> None:
    agent = book.plan.agents[token.place]
    finishing = result.outcome is TERMINATE or result.to == REVIEW_SEAT
    if result.outcome is ASK:
        if fired:
            book.stop(fired, token.place)
            return
        held = book.run.tokens[token.place]
        book.ask(
            held, QuestionKind.CLARIFICATION, result.question, own=True, options=result.options
        )
    elif finishing and review_wanted(book.plan, book.run):
        _review(book, token, result, fired)
    elif finishing:
        ended = agent.id == book.plan.team.terminator and result.outcome is Outcome.TERMINATE
        rule = StopRule.TERMINATED if ended else StopRule.COMPLETED
        _complete(book, token, result, fired, rule)
    else:
        _hand_off(book, token, result, fired)


def review_wanted(plan: Plan, run: Run) -> bool:
    """What the bead wants, else what the definition in force says (R3.1, R3.2)."""
    review = plan.team.review
    if review is None or run.review == "skip":
        return False
    return review.required or run.review == "required"


def _complete(book: Book, token: Token, result: Result, fired: list[Fired], rule: StopRule) -> None:
    """The run is over by its own people; a rule that fired on the same event is named first."""
    reason = result.reason or f"{token.place} ended the run"
    if fired:
        book.stop([*fired, Fired(rule=rule, reason=reason)], token.place)
        return
    stop = Stop(rule=rule, reason=reason, agent=token.place, remaining=result.remaining)
    book.emit(Ended(at=book.now, status=TerminalStatus(result.status), stop=stop))


def _review(book: Book, token: Token, result: Result, fired: list[Fired]) -> None:
    """To the reviewing person: the handoff counts, the question shows the result."""
    review = book.plan.team.review
    assert review is not None
    if not _handed(book, token, REVIEW_SEAT, result.reason, "", fired):
        return
    book.ask(
        book.run.tokens[REVIEW_SEAT],
        QuestionKind.CLARIFICATION,
        f"Approve the result of {token.place}, or say what to change.",
        deadline=review.deadline,
        approvers=review.approvers,
        quorum=review.quorum,
        barred=(token.agent,),
        status=TerminalStatus(result.status),
        remaining=result.remaining,
    )


def _hand_off(book: Book, token: Token, result: Result, fired: list[Fired]) -> None:
    target = book.plan.agents[result.to]
    task = choose_task(book, target, result.task)
    if token.place == book.plan.team.start and book.run.last_targets.get(token.place) == result.to:
        told = f"'{token.place}' hands to '{result.to}' twice in a row"
        book.warn("same_target_twice", told, token.place)
    _handed(book, token, result.to, result.reason, task.id if task else "", fired)


def _handed(
    book: Book, token: Token, target: str, reason: str, task: str, fired: list[Fired]
) -> bool:
    """Record the handoff and end the run if a rule says so; True if the run goes on."""
    found = book.judge_handoff(token.place, target)
    already = book.run.done
    done = bool(already) and f"{target}/{task}" in already and _is_once(book.plan, target, task)
    full = book.judge_step() if done else []  # a replayed answer is a step (K19)
    accepted = not fired and not full
    if found and accepted:
        accepted = all(f.rule is StopRule.REPEATED_PATTERN for f in found)
    book.emit(
        HandedOff(
            at=book.now,
            source=token.place,
            target=target,
            reason=reason,
            task=task,
            accepted=accepted,
            already_done=done and accepted,
            number=book.run.ledger.handoffs + 1 if accepted else 0,
        )
    )
    if fired or found or full:
        book.stop([*fired, *found, *full], token.place)
    return book.run.terminal_status is None


def _is_once(plan: Plan, agent: str, task_id: str) -> bool:
    task = _task(plan.agents[agent], task_id) if agent in plan.agents else None
    return task is not None and task.once


def place_anew(book: Book, target: str, outcome: str, why: str, by: str) -> None:
    """A person gives the turn to an agent: a new stretch, all counters fresh."""
    task = choose_task(book, book.plan.agents[target], "")
    book.emit(
        Moved(
            at=book.now,
            source=next(iter(book.run.tokens)),
            targets=(target,),
            outcome=outcome,
            reason=why,
            by=by,
            enters=(target,),
            cancels=tuple(book.run.tokens),
            task=task.id if task else "",
            renews=True,
        )
    )


def advance(book: Book) -> None:
    """Offer the turn to its holder, unless the run is paused or a person is asked. A guarded
    program has it already."""
    (token,) = book.run.tokens.values()
    if token.phase is READY and book.run.paused_at is None and not book.plan.guarded:
        offer(book, token, book.plan.agents[token.place].works_as)
