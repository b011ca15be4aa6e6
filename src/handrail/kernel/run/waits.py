"""Waits: an agent says that it waits for something outside of the run, and for how long (K31).

The dispatch is over. The position stays where it is and is offered again at the time that the agent
named; until then nobody holds it. A wait uses no attempt of a workflow's visit, but one of its
`max_waits`; in a team it uses a step, and one of the stretch's `max_waits`. The first wait of a
visit, or of a team's stretch, sets the deadline of all that follow: another reason renews nothing.
A wait that the deadline cuts off escalates in a workflow and ends a team's run.

The soft rules do not see a wait: only its usage counts, and what a constraint forbids.
"""

from msgspec.structs import replace

from handrail.kernel.result import RETRY_SECONDS_MAX, RETRY_SECONDS_MIN, Result
from handrail.kernel.run.decision_builder import DecisionBuilder
from handrail.kernel.run.events import Reported
from handrail.kernel.run.state import Position, Wait, to_timedelta
from handrail.kernel.stop.ledger import WAIT_ASSESSMENT
from handrail.kernel.stop.rules import FiredRule, wait_deadline_passed


def find_wait_problem(result: Result) -> str:
    """Return what a waiting result lacks, or ""."""
    if not result.waits_for.strip():
        return "a wait says what it is `for`"
    if result.retry_after < RETRY_SECONDS_MIN:
        return f"`retry_after` is {RETRY_SECONDS_MIN} to {RETRY_SECONDS_MAX} seconds"
    return ""


def next_wait(
    builder: DecisionBuilder, position: Position, result: Result, seconds: float
) -> Wait | None:
    """Return the wait that begins now, within `seconds` of the first; None past the deadline."""
    now = builder.run.paused_at or builder.now  # a pause stops the clock
    previous = position.wait
    not_before = builder.now + to_timedelta(result.retry_after)
    if previous is None:
        return Wait(
            since=builder.now,
            deadline=builder.now + to_timedelta(seconds),
            not_before=not_before,
            waits_for=result.waits_for,
        )
    if now >= previous.deadline:
        return None
    return replace(
        previous, not_before=not_before, waits_for=result.waits_for, count=previous.count + 1
    )


def past_deadline(builder: DecisionBuilder, wait: Wait) -> FiredRule:
    """Return the rule that ends a team's run whose waits have passed their deadline."""
    limits = builder.run.limits
    waited = (builder.now - wait.since).total_seconds()
    return wait_deadline_passed(limits, wait.waits_for, max(waited, limits.wait_deadline))


def record_wait(
    builder: DecisionBuilder, position: Position, result: Result, wait: Wait | None
) -> list[FiredRule]:
    """Record a waiting result; None if it waits no longer. Return the rules that fired."""
    result = replace(result, evidence=replace(result.evidence, findings=()))
    builder.emit(
        Reported(
            at=builder.now,
            step_id=position.step_id,
            fence=position.fence,
            agent=position.agent,
            result=result,
            weighed=WAIT_ASSESSMENT,
            wait=wait,
        )
    )
    agent = position.step_id if builder.run.kind == "team" else position.agent
    return builder.judge_result(agent, result, position.step)
