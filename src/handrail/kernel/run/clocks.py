"""The clocks of a run: when the next clock is due, and what happens then (K15, K17).

A dispatch has two clocks: offered until claimed, claimed until result. A wait of an agent has its
own, and a deadline. An approval has a deadline, a pause has one, and a run has a maximum running
time. A pause stops every clock but its own; waiting for a person stops the run's clock, an agent's
wait does not. A guarded program has a clock for its silence, also while an approval is pending.
decide calls `expire` before it looks at the command, so a late answer is late whether or not a Tick
came in between.
"""

from datetime import datetime

from handrail.kernel.definition.plan import Plan
from handrail.kernel.run import team, workflow
from handrail.kernel.run.decision_builder import DecisionBuilder
from handrail.kernel.run.events import Lost, TimedOut
from handrail.kernel.run.state import (
    CLAIMED,
    WAITING,
    PendingApproval,
    Position,
    PositionPhase,
    Run,
    RunStatus,
    to_timedelta,
)
from handrail.kernel.run.waits import past_deadline
from handrail.kernel.stop.rules import FiredRule, RuleContext, StopRule, judge_step

Clock = tuple[datetime, "Position | PendingApproval | None"]
ASKED = PositionPhase.ASKED


def next_due(plan: Plan, run: Run) -> datetime | None:
    """Return when the next clock is due; None for a run that has ended."""
    if len(run.positions) != 1 or run.pending_approvals or run.pause_deadline is not None:
        return min([at for at, _ in _clocks(plan, run)], default=None)
    (position,) = run.positions.values()  # the usual case needs no list
    due = _position_due(plan, position)
    if run.limits.max_duration is None:
        return due
    end = duration_deadline(run)
    return end if end is not None and end < due else due


def _position_due(plan: Plan, position: Position) -> datetime:
    if position.phase is WAITING and position.wait is not None:
        return position.wait.due
    waits = plan.node_waits.get(position.step_id, plan.default_waits)
    return position.since + waits[position.phase is CLAIMED]


def duration_deadline(run: Run) -> datetime | None:
    """Return when the run reaches its maximum running time; None if its clock is off."""
    max_seconds = run.limits.max_duration
    if run.ran_since is None or max_seconds is None:
        return None
    return run.ran_since + to_timedelta(max(0.0, max_seconds - run.ran))


def _clocks(plan: Plan, run: Run, *, dispatches: bool = True) -> list[Clock]:
    if run.terminal_status is not None:
        return []
    if run.pause_deadline is not None:
        return [(run.pause_deadline, None)]
    clocks: list[Clock] = []
    end = duration_deadline(run)
    if end is not None:
        clocks.append((end, None))
    for approval in run.pending_approvals.values():
        clocks.append((approval.deadline, approval))
    for position in run.positions.values() if dispatches else ():
        if position.phase is not ASKED or plan.is_guarded:
            clocks.append((_position_due(plan, position), position))
    return clocks


def expire(builder: DecisionBuilder, *, dispatches: bool = True) -> None:
    """Fire every due clock, the earliest first, until the run ends."""
    first = next_due(builder.plan, builder.run)
    if first is None or first > builder.now:
        return
    clocks = _clocks(builder.plan, builder.run, dispatches=dispatches)
    due = [clock for clock in clocks if clock[0] <= builder.now]
    for _, subject in sorted(due, key=lambda clock: clock[0]):
        _fire(builder, subject)
        if builder.run.has_ended:
            return


def _fire(builder: DecisionBuilder, subject: Position | PendingApproval | None) -> None:
    if isinstance(subject, PendingApproval):
        _stop_run(
            builder,
            StopRule.HUMAN_DEADLINE,
            f"nobody answered '{subject.id}' in time: {subject.text}",
        )
    elif isinstance(subject, Position) and builder.plan.is_guarded:
        _stop_for_silence(builder, subject)
    elif isinstance(subject, Position) and subject.phase is WAITING:
        end_wait(builder, subject)
    elif isinstance(subject, Position):
        clock = "work" if subject.phase is PositionPhase.CLAIMED else "queue"
        time_out_dispatch(builder, subject, clock)
    elif builder.run.status is RunStatus.PAUSED:
        _stop_run(builder, StopRule.PAUSE_DEADLINE, "the run stayed paused too long")
    else:
        stop_for_duration(builder)


def end_wait(builder: DecisionBuilder, position: Position) -> None:
    """End a wait whose clock is due. In time, `advance` offers the position again; past the
    deadline it escalates in a workflow, and ends a team's run (K31)."""
    wait = position.wait
    assert wait is not None, "a position that waits has a wait"
    if wait.is_in_time:
        return
    if builder.run.kind == "workflow":
        workflow.escalate_wait(builder, position, wait.waits_for)
    else:
        builder.stop([past_deadline(builder, wait)], position.step_id)


def stop_for_duration(builder: DecisionBuilder) -> None:
    """Stop the run at its maximum running time."""
    run = builder.run
    holder = next((t.step_id for t in run.positions.values()), "")
    # The clock was due on a rounded microsecond; the limit counts.
    fired = judge_step(
        RuleContext(
            run.ledger,
            run.limits,
            step=run.ledger.steps,
            ran=max(run.limits.max_duration or 0.0, run.elapsed_seconds(builder.now)),
        )
    )
    builder.stop([f for f in fired if f.rule is StopRule.MAX_DURATION], holder)


def _stop_for_silence(builder: DecisionBuilder, position: Position) -> None:
    silence = builder.plan.settings.guard_silence
    cause = (
        f"nothing was heard for {silence:g} s of the program elsewhere in which "
        f"'{position.step_id}'"
    )
    builder.stop(
        [
            FiredRule(
                rule=StopRule.AGENT_LOST,
                reason=f"{cause} has the turn: it died, or cannot reach this server",
                remedy="a program that lives: start it again",
            )
        ],
        position.step_id,
    )


def _stop_run(builder: DecisionBuilder, rule: StopRule, reason: str) -> None:
    builder.stop(
        [FiredRule(rule=rule, reason=reason, remedy="an answer in time")], builder.run.final_agent
    )


def time_out_dispatch(builder: DecisionBuilder, position: Position, clock: str) -> None:
    """Escalate in a workflow. In a team, count a fault; an unclaimed dispatch ends the run."""
    assert clock in ("queue", "role", "work")
    if position.phase in (
        PositionPhase.OFFERED,
        PositionPhase.CLAIMED,
    ):  # else it waited for a lock: no attempt
        builder.emit(
            TimedOut(
                at=builder.now,
                step_id=position.step_id,
                fence=position.fence,
                agent=position.agent,
                clock=clock,
            )
        )
    reason = _timeout_reason(position, clock)
    if builder.run.kind == "workflow":
        workflow.route_after_attempt(
            builder, position.step_id, workflow.AttemptEnding.TIMED_OUT, reason
        )
    elif clock == "work":
        team.settle_fault(builder, position.step_id, reason, [])
    else:
        _stop_run(builder, StopRule.AGENT_LOST, reason)


def _timeout_reason(position: Position, clock: str) -> str:
    if clock == "work":
        return f"{position.agent} worked on '{position.step_id}' past its timeout"
    if clock == "role":
        return f"no live agent has the role '{position.role}' for '{position.step_id}'"
    if position.phase not in (PositionPhase.OFFERED, PositionPhase.CLAIMED):
        return f"the commit lock for '{position.step_id}' did not come in time"
    return f"nobody with the role '{position.role}' took '{position.step_id}' in time"


def lose_dispatch(builder: DecisionBuilder, position: Position, reason: str) -> None:
    """Use up the attempt of a dispatch whose lease is gone (K1)."""
    builder.emit(
        Lost(
            at=builder.now,
            step_id=position.step_id,
            fence=position.fence,
            agent=position.agent,
            reason=reason,
        )
    )
    message = f"{position.agent} was lost at '{position.step_id}': {reason}"
    if builder.run.kind == "workflow":
        workflow.route_after_attempt(
            builder, position.step_id, workflow.AttemptEnding.AGAIN, message
        )
    else:
        team.settle_fault(builder, position.step_id, message, [])
