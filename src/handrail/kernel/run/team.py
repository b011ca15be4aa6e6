"""How a team chooses the next step: the active agent hands off, ends the run, or tries again.

Every answer of the active agent uses up a step (K20). An invalid answer (an unknown target, an end
without authority, neither of both) is a fault: the run records it, and the agent gets the reason
and another dispatch; `protocol_error_limit` faults in one visit end the run. Only the terminator's
own outcome ends a run, or the last line of its own text (`text_protocol.py`). An agent may wait
where `max_waits` allows it (`waits.py`). A handoff to a completed once-only task returns the
earlier result to the source without a dispatch, and counts (K19).
A handoff that a loop rule is against may lead elsewhere (`redirect.py`, K30).

A task with `ends` or `then` leaves its holder fewer answers, any other is a fault (K33). Where such
a task applies, it is handed over, whatever task the handoff names. A run gains no way
that it had not without them, so certificate and measure stay true.
"""

from msgspec.structs import replace

from handrail.kernel.decision import Refusal, refuse
from handrail.kernel.definition.certificate import may_finish
from handrail.kernel.definition.limits import ASKS_MAX
from handrail.kernel.definition.model import REVIEW_STEP_ID, Agent, Task, TerminalStatus
from handrail.kernel.definition.plan import Plan
from handrail.kernel.result import Outcome, Result
from handrail.kernel.run.decision_builder import DecisionBuilder, expected_paths, first_line
from handrail.kernel.run.events import Ended, HandedOff, Moved, Reported
from handrail.kernel.run.redirect import Redirect, find_redirect
from handrail.kernel.run.state import ApprovalKind, Position, PositionPhase, Run, Stop
from handrail.kernel.run.text_protocol import COMPLETE_MARKER, TERMINATE_MARKER, apply_text_protocol
from handrail.kernel.run.waits import (
    find_wait_problem,
    next_wait,
    past_deadline,
    record_wait,
)
from handrail.kernel.stop.ladder import CONCLUSION_CHARS_MAX
from handrail.kernel.stop.ledger import assess_result, show_findings
from handrail.kernel.stop.rules import FiredRule, StopRule, is_handoff_made

HANDOFF, TERMINATE, ASK = Outcome.HANDOFF, Outcome.TERMINATE, Outcome.ASK
WAITING = Outcome.WAITING
READY = PositionPhase.READY
LOST_AGENT_REMEDY = "an agent that answers before its lease ends"


def conclude(builder: DecisionBuilder, position: Position, stop: Stop, result: Result) -> None:
    """End a stopped run with its last answer: its text and usage count, and nothing else (K29)."""
    builder.emit(
        Reported(
            at=builder.now,
            step_id=position.step_id,
            fence=position.fence,
            agent=position.agent,
            result=Result(text=result.text, usage=result.usage),
        )
    )
    builder.end(replace(stop, conclusion=result.text[:CONCLUSION_CHARS_MAX]))


def report(builder: DecisionBuilder, position: Position, result: Result) -> Refusal | None:
    """Apply an answer of the active agent; refuse a wait in a team that has none."""
    if result.outcome is WAITING:
        return _report_wait(builder, position, result)
    run, agent = builder.run, builder.plan.agents[position.step_id]
    result = apply_text_protocol(result, _default_target(builder.plan, agent))
    terminates = result.marker == TERMINATE_MARKER and agent.id == builder.plan.team.terminator
    is_overridden = terminates and result.outcome is HANDOFF
    if terminates and result.outcome in (HANDOFF, None):
        result = replace(result, outcome=Outcome.TERMINATE, to="")
    problem = find_fault(builder.plan, run, agent, result)
    if problem is not None:
        handle_fault(builder, position, *problem, result)
        return None
    result = show_findings(run.limits, position.step_id, result)
    task = _find_task(agent, position.task)
    milestone = _reached_milestone(agent, task, result)
    assessment = assess_result(
        run.ledger,
        run.limits,
        position.step_id,
        result.evidence,
        task=position.task,
        milestone=milestone,
        paths=expected_paths(run, result),
    )
    detail = result.data.get("phase_detail") if milestone else ""
    asking = result.outcome is ASK
    builder.emit_result(
        Reported(
            at=builder.now,
            step_id=position.step_id,
            fence=position.fence,
            agent=position.agent,
            result=result,
            weighed=assessment,
            phase=milestone,
            phase_detail=detail if isinstance(detail, str) else "",
            done=_spent_task(agent, task, result, milestone),
            asking=asking,
        )
    )
    if is_overridden:
        builder.warn(
            "marker_wins",
            f"'{agent.id}' ended its text with {TERMINATE_MARKER}: that wins over its handoff",
            agent.id,
        )
    elif result.marker and result.marker != agent.marker and not terminates:
        builder.warn(
            "marker_ignored",
            f"'{result.marker}' from '{agent.id}' is not its marker and counts for nothing",
            agent.id,
        )
    _route(builder, position, result, builder.judge_result(position.step_id, result, position.step))
    return None


def _report_wait(builder: DecisionBuilder, position: Position, result: Result) -> Refusal | None:
    """Let the active agent wait; past the deadline, end the run."""
    if not builder.run.limits.max_waits:
        return refuse(
            "no_waits",
            f"'{position.step_id}' wants to wait, and its team has no stop_rules.max_waits",
            "hand off or terminate, or set stop_rules.max_waits",
        )
    problem = _find_wait_fault(builder.run, result)
    if problem is not None:
        handle_fault(builder, position, *problem, result)
        return None
    wait = next_wait(builder, position, result, builder.run.limits.wait_deadline)
    fired = record_wait(builder, position, result, wait)
    if wait is None and position.wait is not None:
        fired = [*fired, past_deadline(builder, position.wait)]
    if fired:
        builder.stop(fired, position.step_id)
    return None


def _default_target(plan: Plan, agent: Agent) -> str:
    """The target of an agent that reports only its own marker; "" if there is no single target."""
    targets = plan.handoff_targets[agent.id]
    return targets[0] if agent.marker == COMPLETE_MARKER and len(targets) == 1 else ""


def find_fault(plan: Plan, run: Run, agent: Agent, result: Result) -> tuple[str, str] | None:
    """Return (code, message to the agent) for an invalid answer; None for a valid one."""
    task = _find_task(agent, run.positions[agent.id].task)
    if task is not None and (problem := _find_task_fault(agent, task, result)) is not None:
        return problem
    if result.outcome is HANDOFF:
        return _find_handoff_fault(plan, agent, result)
    match result.outcome:
        case Outcome.TERMINATE:
            if not may_finish(plan.team, agent):
                authority = plan.team.terminator or "the reviewing person"
                return "terminate_refused", (
                    f"'{agent.id}' may not end the run; only '{authority}' may. Hand off instead."
                )
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
            reason = result.reason or first_line(result.text) or "no reason given"
            return "failure", f"Your failure is on record ({reason}). Hand off, or try again."
        case _:
            outcome_text = f"'{result.outcome}'" if result.outcome else "neither"
            return (
                "says_neither",
                f"Say explicitly: hand off or terminate. You said {outcome_text}.",
            )


def _find_task_fault(agent: Agent, task: Task, result: Result) -> tuple[str, str] | None:
    """Return the fault of an answer that the task leaves no room for (K33)."""
    handing_off, terminating = result.outcome is HANDOFF, result.outcome is TERMINATE
    if task.ends and handing_off:
        return "task_ends", f"Task '{task.id}' ends the run: terminate instead of handing off."
    if task.then and (terminating or (handing_off and result.to != task.then)):
        return "task_then", f"After task '{task.id}' hand off to '{task.then}', and nowhere else."
    lacks_marker = bool(agent.marker) and result.marker != agent.marker
    if handing_off and task.once and task.milestone and lacks_marker:
        return (
            "no_marker",
            f"End your text with {agent.marker}: without it '{task.id}' is not done.",
        )
    return None


def _find_wait_fault(run: Run, result: Result) -> tuple[str, str] | None:
    if problem := find_wait_problem(result):
        return "bad_wait", f"The wait cannot be used: {problem}."
    limit = run.limits.max_waits
    if run.ledger.waits < limit:
        return None
    return "too_many_waits", f"The team has waited {limit} times. Go on without waiting."


def _find_handoff_fault(plan: Plan, agent: Agent, result: Result) -> tuple[str, str] | None:
    targets = plan.handoff_targets[agent.id]
    if result.to not in targets:
        allowed = ", ".join(targets) or "nobody"
        return (
            "bad_target",
            f"'{agent.id}' may not hand off to '{result.to[:100]}'; it may to: {allowed}.",
        )
    if not result.task:
        return None
    is_review = result.to == REVIEW_STEP_ID and plan.team.review is not None
    tasks = () if is_review else plan.agents[result.to].tasks
    if result.task not in [task.id for task in tasks]:
        task_names = ", ".join(task.id for task in tasks) or "none"
        return (
            "bad_task",
            f"'{result.to}' has no task '{result.task[:100]}'; its tasks: {task_names}.",
        )
    return None


def handle_fault(
    builder: DecisionBuilder, position: Position, code: str, message: str, result: Result
) -> None:
    fired = builder.record_fault(position, code, message, result)
    if result.outcome is Outcome.HANDOFF:
        builder.emit(
            HandedOff(
                at=builder.now,
                source=position.step_id,
                target=result.to[:200],
                reason=result.reason,
                accepted=False,
            )
        )
    if code != "failure":
        builder.warn(code, message, position.step_id)
    settle_fault(builder, position.step_id, message, fired)


def settle_fault(
    builder: DecisionBuilder, step_id: str, reason: str, fired: list[FiredRule]
) -> None:
    """End the run if the fault limit is reached, or a rule fired on the answer's evidence."""
    position, limit = builder.run.positions[step_id], builder.run.limits.protocol_error_limit
    if builder.run.concluding is not None:
        builder.end(builder.run.concluding)  # no second try
        return
    if position.faults >= limit:
        unusable = position.faults - position.lost
        parts = [f"{unusable} unusable answers"] if unusable else []
        parts += [f"{position.lost} lost leases"] if position.lost else []
        used_up = FiredRule(
            rule=StopRule.PROTOCOL if unusable else StopRule.AGENT_LOST,
            reason=f"{' and '.join(parts)} of {step_id} in one turn; the last time: {reason}",
            limit=limit,
            seen=position.faults,
            evidence=tuple(f"step {n}" for n in position.fault_steps),
            remedy="an answer that says handoff or terminate" if unusable else LOST_AGENT_REMEDY,
        )
        fired, builder.fault = [*fired, used_up], builder.fault and used_up.reason
    if fired:
        builder.stop(fired, step_id)


def _reached_milestone(agent: Agent, task: Task | None, result: Result) -> str:
    """The task's milestone; "" if the agent has a marker and the result lacks it."""
    if task is None or not task.milestone or result.outcome is ASK:
        return ""
    if agent.marker and result.marker != agent.marker:
        return ""
    return task.milestone


def _spent_task(agent: Agent, task: Task | None, result: Result, milestone: str) -> str:
    """The once-only task that this result does: by its milestone, if it has one; "" if none."""
    if task is None or not task.once or result.outcome is ASK or task.milestone != milestone:
        return ""
    return f"{agent.id}/{task.id}"


def _find_task(agent: Agent, task_id: str) -> Task | None:
    for task in agent.tasks:
        if task.id == task_id:
            return task
    return None


def choose_task(builder: DecisionBuilder, agent: Agent, task_id: str) -> Task | None:
    """Return the named task, unless a narrow one applies by its `when`; else the first open task
    that applies; else the first that applies."""
    named = _find_task(agent, task_id)
    if named is not None and (named.is_narrow or not any(t.is_narrow for t in agent.tasks)):
        return named
    fitting = _fitting_tasks(builder, agent)
    if named is not None:
        return next((task for task in fitting if task.is_narrow and task.when.strip()), named)
    open_tasks = [task for task in fitting if f"{agent.id}/{task.id}" not in builder.run.done]
    return next(iter([*open_tasks, *fitting]), None)


def _fitting_tasks(builder: DecisionBuilder, agent: Agent) -> list[Task]:
    """Return the tasks whose `when` holds now."""
    context = {**builder.run.context, "phase": builder.run.phase}
    fitting: list[Task] = []
    for task in agent.tasks:
        condition = builder.evaluate(task.when, context)
        if condition.error:
            builder.warn(
                "condition_error",
                f"'{task.when}' of '{agent.id}' counts as false: {condition.error}",
                agent.id,
            )
        if condition.holds:
            fitting.append(task)
    return fitting


def _route(
    builder: DecisionBuilder, position: Position, result: Result, fired: list[FiredRule]
) -> None:
    agent = builder.plan.agents[position.step_id]
    finishing = result.outcome is TERMINATE or result.to == REVIEW_STEP_ID
    if result.outcome is ASK:
        if fired:
            builder.stop(fired, position.step_id)
            return
        builder.open_approval(
            builder.run.positions[position.step_id],
            ApprovalKind.CLARIFICATION,
            result.question,
            own=True,
            options=result.options,
        )
    elif finishing and needs_review(builder.plan, builder.run):
        _request_review(builder, position, result, fired)
    elif finishing:
        is_termination = (
            agent.id == builder.plan.team.terminator and result.outcome is Outcome.TERMINATE
        )
        rule = StopRule.TERMINATED if is_termination else StopRule.COMPLETED
        _complete(builder, position, result, fired, rule)
    else:
        _hand_off(builder, position, result, fired)


def needs_review(plan: Plan, run: Run) -> bool:
    """Whether a person reviews the result: the bead decides, else the definition (R3.1, R3.2)."""
    review = plan.team.review
    if review is None or run.review == "skip":
        return False
    return review.required or run.review == "required"


def _complete(
    builder: DecisionBuilder,
    position: Position,
    result: Result,
    fired: list[FiredRule],
    rule: StopRule,
) -> None:
    """End the run by an agent's decision; a rule that fired on the same event is named first."""
    reason = result.reason or f"{position.step_id} ended the run"
    if fired:
        builder.stop([*fired, FiredRule(rule=rule, reason=reason)], position.step_id)
        return
    builder.emit(
        Ended(
            at=builder.now,
            status=TerminalStatus(result.status),
            stop=Stop(rule=rule, reason=reason, agent=position.step_id, remaining=result.remaining),
        )
    )


def _request_review(
    builder: DecisionBuilder, position: Position, result: Result, fired: list[FiredRule]
) -> None:
    """Hand off to the reviewing person: the handoff counts, the approval shows the result."""
    review = builder.plan.team.review
    assert review is not None
    if not _record_handoff(builder, position, REVIEW_STEP_ID, result.reason, "", fired):
        return
    builder.open_approval(
        builder.run.positions[REVIEW_STEP_ID],
        ApprovalKind.CLARIFICATION,
        f"Approve the result of {position.step_id}, or say what to change.",
        deadline_seconds=review.deadline,
        approvers=review.approvers,
        quorum=review.quorum,
        barred=(position.agent,),
        status=TerminalStatus(result.status),
        remaining=result.remaining,
    )


def _hand_off(
    builder: DecisionBuilder, position: Position, result: Result, fired: list[FiredRule]
) -> None:
    agent = builder.plan.agents[position.step_id]
    holds = _find_task(agent, position.task)
    is_narrow = holds is not None and holds.is_narrow  # such a task leads nowhere else
    redirect = None if is_narrow else find_redirect(builder, agent, result, fired)
    if redirect is not None:
        result, fired = replace(result, to=redirect.target, task=""), []
    task = choose_task(builder, builder.plan.agents[result.to], result.task)
    if (
        position.step_id == builder.plan.team.start
        and builder.run.last_targets.get(position.step_id) == result.to
    ):
        builder.warn(
            "same_target_twice",
            f"'{position.step_id}' hands to '{result.to}' twice in a row",
            position.step_id,
        )
    _record_handoff(
        builder, position, result.to, result.reason, task.id if task else "", fired, redirect
    )


def _record_handoff(
    builder: DecisionBuilder,
    position: Position,
    target: str,
    reason: str,
    task: str,
    fired: list[FiredRule],
    redirect: Redirect | None = None,
) -> bool:
    """Record the handoff and stop the run if a rule fired; return True if the run goes on."""
    handoff_fired = builder.judge_handoff(position.step_id, target)
    done_tasks = builder.run.done
    is_replayed = (
        bool(done_tasks)
        and f"{target}/{task}" in done_tasks
        and _is_once_only(builder.plan, target, task)
    )
    step_fired = builder.judge_step() if is_replayed else []  # a replayed answer is a step (K19)
    accepted = not fired and not step_fired
    if handoff_fired and accepted:
        accepted = is_handoff_made(handoff_fired)
    builder.emit(
        HandedOff(
            at=builder.now,
            source=position.step_id,
            target=target,
            reason=reason,
            task=task,
            accepted=accepted,
            already_done=is_replayed and accepted,
            number=builder.run.ledger.handoffs + 1 if accepted else 0,
            proposed=redirect.proposed if redirect is not None else (),
            rule=redirect.rule if redirect is not None else None,
        )
    )
    if redirect is not None:
        builder.warn(
            "redirected",
            f"'{position.step_id}' wanted to hand off to '{redirect.proposed[0]}'; it goes to "
            f"'{target}' instead ({redirect.rule}: {redirect.reason})",
            position.step_id,
        )
    if fired or handoff_fired or step_fired:
        builder.stop([*fired, *handoff_fired, *step_fired], position.step_id)
        return False
    return True


def _is_once_only(plan: Plan, agent: str, task_id: str) -> bool:
    task = _find_task(plan.agents[agent], task_id) if agent in plan.agents else None
    return task is not None and task.once


def reposition(builder: DecisionBuilder, target: str, outcome: str, reason: str, by: str) -> None:
    """Move the run to an agent, by a person: a new stretch, all counters reset."""
    task = choose_task(builder, builder.plan.agents[target], "")
    builder.emit(
        Moved(
            at=builder.now,
            source=next(iter(builder.run.positions)),
            targets=(target,),
            outcome=outcome,
            reason=reason,
            by=by,
            enters=(target,),
            cancels=tuple(builder.run.positions),
            task=task.id if task else "",
            renews=True,
        )
    )


def advance(builder: DecisionBuilder) -> None:
    """Offer a dispatch to the active agent, unless the run is paused or waits for a person. In a
    guarded program the agent is working already."""
    (position,) = builder.run.positions.values()
    is_next = position.phase is READY or position.is_offered_again(builder.now)
    if is_next and builder.run.paused_at is None and not builder.plan.is_guarded:
        builder.offer_dispatch(position, builder.plan.agents[position.step_id].effective_role)
    else:
        builder.record_nudges()
