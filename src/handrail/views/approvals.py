"""The view of an approval: its text, its subject, and what led to it (L6.4).

It is built from the events, so that a settled approval can be shown too. An escalation carries its
dossier: the cause, every attempt of every visit with its outcome, the last check of the run that
failed, and the possible next steps.
"""

from datetime import datetime
from typing import Any, Literal

from handrail.kernel.decision import Value
from handrail.kernel.run.events import (
    Answered,
    Asked,
    Faulted,
    HandedOff,
    Lost,
    Moved,
    Offered,
    Reasked,
    Reported,
    RunEvent,
    TimedOut,
)
from handrail.kernel.run.evolve import evolve
from handrail.kernel.run.human_commands import REQUIRED_LEVELS
from handrail.kernel.run.state import ApprovalKind, PendingApproval, Run
from handrail.views.history import rebuild_run
from handrail.views.steps import Events

ApprovalStatus = Literal["open", "answered", "void", "expired"]


ATTEMPTS_SHOWN_MAX = 100
"""Of a node that was tried more often, the latest attempts are shown."""
OUTPUT_CHARS_MAX = 4_000


class ApprovalAttempt(Value):
    """One dispatch to the node that the approval is about: attempt `n` of its `visit`, from 1."""

    n: int
    visit: int
    agent: str
    outcome: str
    text: str
    at: datetime


class FailedCheck(Value):
    """A check that failed, with the end of its output."""

    command: str
    exit_code: int
    output: str
    node_id: str
    agent: str
    at: datetime


class Dossier(Value):
    """What led to an approval."""

    attempts: tuple[ApprovalAttempt, ...] = ()
    failed_check: FailedCheck | None = None


class Approval(Value):
    """Contract: "An approval". `result` is the whole text of the result that was shown, `proposal`
    the value of that name in the bead's context at the time of the request. `approvers` are the
    people and the least roles that may answer, `waits_for` those who still have to; `own` says that
    an agent asks for itself: any answer is accepted."""

    id: str
    type: ApprovalKind
    status: ApprovalStatus
    bead_id: str
    original_bead_id: str
    execution_id: str
    node_id: str
    question: str
    result: str
    digest: str
    failure_reason: str
    attempt_history: tuple[ApprovalAttempt, ...]
    proposed_next_steps: tuple[str, ...]
    created_at: datetime
    deadline: datetime
    answer: str = ""
    decision: str = ""
    by: str = ""
    options: tuple[str, ...] = ()
    proposal: Any = None
    own: bool = False
    approvers: tuple[str, ...] = ()
    quorum: int = 1
    approved_by: tuple[str, ...] = ()
    waits_for: tuple[str, ...] = ()
    failed_check: FailedCheck | None = None
    """Of an escalation: the last check of the run that failed."""


def allowed_approvers(pending: PendingApproval) -> tuple[str, ...]:
    """Return who may answer: names of people, and least roles."""
    return pending.approvers or (REQUIRED_LEVELS[pending.kind],)


def missing_approvers(pending: PendingApproval) -> tuple[str, ...]:
    """Return the allowed approvers who have not answered and are not barred."""
    excluded = {*pending.approved_by, *pending.barred}
    return tuple(approver for approver in allowed_approvers(pending) if approver not in excluded)


def approvals(events: Events) -> tuple[Approval, ...]:
    """Return every approval of the run, in order of request."""
    run, _ = rebuild_run(events)
    contexts = _contexts_when_asked(events)
    requests = (
        (index, event.approval)
        for index, event in enumerate(events)
        if isinstance(event, Asked | Reasked)
    )
    return tuple(
        _build_approval(run, events, index, pending, contexts[index]) for index, pending in requests
    )


def _contexts_when_asked(events: Events) -> dict[int, dict[str, Any]]:
    """Return the bead's context at the time of each request, by event index."""
    run: Run | None = None
    contexts: dict[int, dict[str, Any]] = {}
    for index, event in enumerate(events):
        run = evolve(run, event)
        if isinstance(event, Asked | Reasked):
            contexts[index] = run.context
    return contexts


def _build_approval(
    run: Run, events: Events, asked_index: int, pending: PendingApproval, context: dict[str, Any]
) -> Approval:
    settling_event = next(
        (event for event in events[asked_index:] if _settles(event, pending.id)), None
    )
    answer_event = settling_event if isinstance(settling_event, Answered) else None
    shown_event = events[pending.result - 1] if pending.result else None
    is_escalation = pending.kind is ApprovalKind.ESCALATION
    led_to = dossier(events[:asked_index], pending)
    return Approval(
        id=pending.id,
        type=pending.kind,
        status=_status(run, pending, settling_event),
        bead_id=pending.id,
        original_bead_id=run.bead_id,
        execution_id=run.id,
        node_id=pending.step_id,
        question=pending.text,
        result=shown_event.result.text if isinstance(shown_event, Reported) else "",
        digest=pending.digest,
        failure_reason=pending.text if is_escalation else "",
        attempt_history=led_to.attempts,
        failed_check=led_to.failed_check,
        proposed_next_steps=next_steps(pending),
        created_at=pending.asked_at,
        deadline=run.pending_approvals.get(pending.id, pending).deadline,
        answer=answer_event.text if answer_event is not None else "",
        decision=answer_event.decision if answer_event is not None else "",
        by=answer_event.by if answer_event is not None else "",
        options=pending.options,
        proposal=context.get("proposal"),
        own=pending.own,
        approvers=allowed_approvers(pending),
        quorum=pending.quorum,
        approved_by=_approved_by(events, pending.id),
        waits_for=missing_approvers(run.pending_approvals[pending.id])
        if pending.id in run.pending_approvals
        else (),
    )


def _approved_by(events: Events, approval_id: str) -> tuple[str, ...]:
    return tuple(
        event.by
        for event in events
        if isinstance(event, Answered)
        and event.approval_id == approval_id
        and event.decision == "approve"
    )


def _settles(event: RunEvent, approval_id: str) -> bool:
    if isinstance(event, Answered):
        return event.approval_id == approval_id and event.final
    return isinstance(event, Reasked) and event.approval_id == approval_id


def _status(run: Run, pending: PendingApproval, settling_event: RunEvent | None) -> ApprovalStatus:
    if isinstance(settling_event, Answered):
        return "answered"
    if pending.id in run.pending_approvals:
        return "open"
    is_expired = run.ended_at is not None and run.ended_at >= pending.deadline
    return "expired" if settling_event is None and is_expired else "void"


def dossier(events: Events, pending: PendingApproval) -> Dossier:
    """Return what led to the approval, which was asked after these events."""
    is_escalation = pending.kind is ApprovalKind.ESCALATION
    return Dossier(
        attempts=_attempts(events, pending.step_id),
        failed_check=_last_failed_check(events) if is_escalation else None,
    )


def _attempts(events: Events, step_id: str) -> tuple[ApprovalAttempt, ...]:
    """Return the latest attempts of the step, each with the number of its visit."""
    attempts: list[ApprovalAttempt] = []
    number, visit = 0, 1
    is_visited = False
    for event in events:
        if _enters(event, step_id):
            visit += is_visited
            is_visited = False
        elif isinstance(event, Offered) and event.step_id == step_id:
            number, is_visited = event.attempt, True
        elif isinstance(event, Reported | Faulted | Lost | TimedOut) and event.step_id == step_id:
            outcome, text = _outcome_and_text(event)
            attempts.append(
                ApprovalAttempt(
                    n=number,
                    visit=visit,
                    agent=event.agent,
                    outcome=outcome,
                    text=text,
                    at=event.at,
                )
            )
    return tuple(attempts[-ATTEMPTS_SHOWN_MAX:])


def _enters(event: RunEvent, step_id: str) -> bool:
    if isinstance(event, HandedOff):
        return event.accepted and event.target == step_id
    return isinstance(event, Moved) and step_id in event.enters


def _last_failed_check(events: Events) -> FailedCheck | None:
    for event in reversed(events):
        if isinstance(event, Reported | Faulted):
            for check in reversed(event.result.evidence.checks):
                if check.exit_code:
                    return FailedCheck(
                        command=check.command,
                        exit_code=check.exit_code,
                        output=check.stderr[-OUTPUT_CHARS_MAX:],
                        node_id=event.step_id,
                        agent=event.agent,
                        at=event.at,
                    )
    return None


def _outcome_and_text(event: Reported | Faulted | Lost | TimedOut) -> tuple[str, str]:
    if isinstance(event, Reported):
        return str(event.result.outcome or ""), event.result.text or event.result.reason
    if isinstance(event, Faulted):
        return event.fault, event.message
    if isinstance(event, Lost):
        return "lost", event.reason
    return "timed_out", f"the {event.clock} clock ran out"


def next_steps(pending: PendingApproval) -> tuple[str, ...]:
    """Return what a person can do, with the consequences."""
    step_id = pending.step_id
    if pending.own:
        return ("answer: whoever asks gets the text, and goes on",)
    if pending.stop is not None:
        return (
            f"approve, or go on: '{step_id}' gets the turn again, with all counts at zero",
            "revise: the same, with your text",
            f"reject, or stop: ends the run by {pending.stop.rule}",
        )
    if pending.kind is ApprovalKind.ESCALATION:
        return (
            f"approve: goes on as if '{step_id}' had succeeded",
            f"revise: '{step_id}' is tried again with your text and fresh attempts",
            "reject: closes the run and its bead",
            "or move the run to another node, with a reason",
        )
    return ("approve: goes on", "revise: goes back with your text", "reject: ends it here")
