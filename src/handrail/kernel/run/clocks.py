"""The clocks of a run: when the next one is due, and what happens then (K15, K17).

A dispatch has two: offered until claimed, claimed until result. A question has its deadline, a
pause its own, a run the time it may be running. A pause stops all but its own; waiting for a person
stops the run's. `due` lists what has run out; decide lets it happen before it looks at the command,
so an answer that comes too late is too late whether or not anybody looked at the clock in between.
"""

from collections.abc import Iterator
from datetime import datetime

from handrail.kernel.certificate import queue_seconds, work_seconds
from handrail.kernel.plan import Plan
from handrail.kernel.rules import Fired, StopRule, judge_step
from handrail.kernel.run import team, workflow
from handrail.kernel.run.book import Book
from handrail.kernel.run.events import Lost, TimedOut
from handrail.kernel.run.state import Phase, Question, Run, RunStatus, Token, seconds

Clock = tuple[datetime, "Token | Question | None"]


def next_due(plan: Plan, run: Run) -> datetime | None:
    """When something will happen by itself; None for a run that has ended."""
    return min((at for at, _ in _clocks(plan, run)), default=None)


def _clocks(plan: Plan, run: Run, *, dispatches: bool = True) -> Iterator[Clock]:
    if run.ended:
        return
    if run.pause_deadline is not None:
        yield run.pause_deadline, None
        return
    most = run.limits.max_duration
    if run.ran_since is not None and most is not None:
        yield run.ran_since + seconds(max(0.0, most - run.ran)), None
    for question in run.questions.values():
        yield question.deadline, question
    for token in run.tokens.values() if dispatches else ():
        if token.phase is not Phase.ASKED:
            yield token.since + seconds(_limit(plan, run, token)), token


def _limit(plan: Plan, run: Run, token: Token) -> float:
    """Seconds of the clock that runs in the token's phase."""
    working = token.phase is Phase.CLAIMED
    if run.kind == "team":
        return plan.settings.node_timeout if working else plan.settings.queue_timeout
    node = plan.node(token.place)
    return (work_seconds if working else queue_seconds)(node, plan.settings)


def expire(book: Book, *, dispatches: bool = True) -> None:
    """Let every clock fire that is due, the earliest first. What ends the run ends the list."""
    clocks = _clocks(book.plan, book.run, dispatches=dispatches)
    due = [clock for clock in clocks if clock[0] <= book.now]
    for _, what in sorted(due, key=lambda clock: clock[0]):
        _fire(book, what)
        if book.run.ended:
            return


def _fire(book: Book, what: Token | Question | None) -> None:
    if isinstance(what, Question):
        _stop(book, StopRule.HUMAN_DEADLINE, f"nobody answered '{what.id}' in time: {what.text}")
    elif isinstance(what, Token):
        clock = "work" if what.phase is Phase.CLAIMED else "queue"
        time_out(book, what, clock)
    elif book.run.status is RunStatus.PAUSED:
        _stop(book, StopRule.PAUSE_DEADLINE, "the run stayed paused too long")
    else:
        holder = next((t.place for t in book.run.tokens.values()), "")
        most = book.run.limits.max_duration or 0.0
        moment = (
            book.moment()
        )  # the clock was due on a rounded microsecond; the limit is what counts
        fired = judge_step(moment._replace(elapsed=max(most, moment.elapsed)))
        book.stop([f for f in fired if f.rule is StopRule.MAX_DURATION], holder)


def _stop(book: Book, rule: StopRule, reason: str) -> None:
    book.stop([Fired(rule=rule, reason=reason, remedy="an answer in time")], book.run.final_agent)


def time_out(book: Book, token: Token, clock: str) -> None:
    """In a workflow a person is asked; in a team the turn is poorer, or nobody will ever come."""
    assert clock in ("queue", "role", "work")
    if token.phase in (Phase.OFFERED, Phase.CLAIMED):  # else it waited for a lock: no attempt
        book.emit(
            TimedOut(
                at=book.now, place=token.place, fence=token.fence, agent=token.agent, clock=clock
            )
        )
    why = _why(token, clock)
    if book.run.kind == "workflow":
        workflow.settle(book, token.place, workflow.Ending.TIMED_OUT, why)
    elif clock == "work":
        team.after_fault(book, token.place, why, [])
    else:
        _stop(book, StopRule.AGENT_LOST, why)


def _why(token: Token, clock: str) -> str:
    if clock == "work":
        return f"{token.agent} worked on '{token.place}' past its timeout"
    if clock == "role":
        return f"no live agent has the role '{token.role}' for '{token.place}'"
    if token.phase not in (Phase.OFFERED, Phase.CLAIMED):
        return f"the commit lock for '{token.place}' did not come in time"
    return f"nobody with the role '{token.role}' took '{token.place}' in time"


def lose(book: Book, token: Token, reason: str) -> None:
    """The lease is gone: the attempt is used up (K1)."""
    book.emit(
        Lost(at=book.now, place=token.place, fence=token.fence, agent=token.agent, reason=reason)
    )
    why = f"{token.agent} was lost at '{token.place}': {reason}"
    if book.run.kind == "workflow":
        workflow.settle(book, token.place, workflow.Ending.AGAIN, why)
    else:
        team.after_fault(book, token.place, why, [])
