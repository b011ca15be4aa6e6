"""The clocks of a run: when the next one is due, and what happens then (K15, K17).

A dispatch has two: offered until claimed, claimed until result. A question has its deadline, a
pause its own, a run the time it may be running. A pause stops all but its own; waiting for a person
stops the run's. A guarded program has one for its silence, also while a person is asked. `due`
lists what has run out; decide lets it happen before it looks at the command, so an answer that
comes too late is too late whether or not anybody looked at the clock in between.
"""

from datetime import datetime

from handrail.kernel.plan import Plan
from handrail.kernel.rules import Fired, Moment, StopRule, judge_step
from handrail.kernel.run import team, workflow
from handrail.kernel.run.book import Book
from handrail.kernel.run.events import Lost, TimedOut
from handrail.kernel.run.state import CLAIMED, Phase, Question, Run, RunStatus, Token, seconds

Clock = tuple[datetime, "Token | Question | None"]
ASKED = Phase.ASKED


def next_due(plan: Plan, run: Run) -> datetime | None:
    """When something will happen by itself; None for a run that has ended."""
    if len(run.tokens) != 1 or run.questions or run.pause_deadline is not None:
        return min([at for at, _ in _clocks(plan, run)], default=None)
    (token,) = run.tokens.values()  # as in most runs at most times: no need for a list
    due = token.since + plan.waits.get(token.place, plan.usual_waits)[token.phase is CLAIMED]
    if run.limits.max_duration is None:
        return due
    end = out_of_time(run)
    return end if end is not None and end < due else due


def out_of_time(run: Run) -> datetime | None:
    """When the run will have been running for as long as it may."""
    most = run.limits.max_duration
    if run.ran_since is None or most is None:
        return None
    return run.ran_since + seconds(max(0.0, most - run.ran))


def _clocks(plan: Plan, run: Run, *, dispatches: bool = True) -> list[Clock]:
    if run.terminal_status is not None:
        return []
    if run.pause_deadline is not None:
        return [(run.pause_deadline, None)]
    found: list[Clock] = []
    end = out_of_time(run)
    if end is not None:
        found.append((end, None))
    for question in run.questions.values():
        found.append((question.deadline, question))
    for token in run.tokens.values() if dispatches else ():
        if token.phase is not ASKED or plan.guarded:
            waits = plan.waits.get(token.place, plan.usual_waits)
            found.append((token.since + waits[token.phase is CLAIMED], token))
    return found


def expire(book: Book, *, dispatches: bool = True) -> None:
    """Let every clock fire that is due, the earliest first. What ends the run ends the list."""
    first = next_due(book.plan, book.run)
    if first is None or first > book.now:
        return
    clocks = _clocks(book.plan, book.run, dispatches=dispatches)
    due = [clock for clock in clocks if clock[0] <= book.now]
    for _, what in sorted(due, key=lambda clock: clock[0]):
        _fire(book, what)
        if book.run.ended:
            return


def _fire(book: Book, what: Token | Question | None) -> None:
    if isinstance(what, Question):
        _stop(book, StopRule.HUMAN_DEADLINE, f"nobody answered '{what.id}' in time: {what.text}")
    elif isinstance(what, Token) and book.plan.guarded:
        _fall_silent(book, what)
    elif isinstance(what, Token):
        clock = "work" if what.phase is Phase.CLAIMED else "queue"
        time_out(book, what, clock)
    elif book.run.status is RunStatus.PAUSED:
        _stop(book, StopRule.PAUSE_DEADLINE, "the run stayed paused too long")
    else:
        run_out(book)


def run_out(book: Book) -> None:
    """The run has been running for as long as it may."""
    run = book.run
    holder = next((t.place for t in run.tokens.values()), "")
    # The clock was due on a rounded microsecond; the limit is what counts.
    elapsed = max(run.limits.max_duration or 0.0, run.elapsed(book.now))
    moment = Moment(run.ledger, run.limits, step=run.ledger.steps, elapsed=elapsed)
    fired = judge_step(moment)
    book.stop([f for f in fired if f.rule is StopRule.MAX_DURATION], holder)


def _fall_silent(book: Book, token: Token) -> None:
    silence = book.plan.settings.guard_silence
    told = f"nothing was heard for {silence:g} s of the program elsewhere in which '{token.place}'"
    reason = f"{told} has the turn: it died, or cannot reach this server"
    remedy = "a program that lives: start it again"
    book.stop([Fired(rule=StopRule.AGENT_LOST, reason=reason, remedy=remedy)], token.place)


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
