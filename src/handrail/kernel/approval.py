"""An approval as people see it: the question, what it is about, and how it came to it (L6.4).

Built from the events, so that it can be shown after it is settled too. An escalation carries its
dossier: why, every attempt of the visit with what became of it, and what could be done next.
"""

from datetime import datetime
from typing import Any, Literal

from handrail.kernel.decision import Value
from handrail.kernel.history import standing
from handrail.kernel.run.events import (
    Answered,
    Asked,
    Faulted,
    Lost,
    Moved,
    Offered,
    Reasked,
    Reported,
    RunEvent,
    TimedOut,
)
from handrail.kernel.run.evolve import evolve
from handrail.kernel.run.people import NEEDED
from handrail.kernel.run.state import Question, QuestionKind, Run
from handrail.kernel.steps import Events

Status = Literal["open", "answered", "void", "expired"]


class Attempt(Value):
    """One dispatch of the visit that the question is about."""

    n: int
    agent: str
    outcome: str
    text: str
    at: datetime


class Approval(Value):
    """Contract: "An approval". `result` is the whole text of the result that was shown, `proposal`
    what the bead's context had under that name when it was asked. `approvers` are the people and
    the least roles that may answer, `waits_for` those of them who are asked still; `own` says that
    an agent asks for itself: any answer is an answer."""

    id: str
    type: QuestionKind
    status: Status
    bead_id: str
    original_bead_id: str
    execution_id: str
    node_id: str
    question: str
    result: str
    digest: str
    failure_reason: str
    attempt_history: tuple[Attempt, ...]
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


def asked_of(question: Question) -> tuple[str, ...]:
    """Who may answer: names of people, and least roles."""
    return question.approvers or (NEEDED[question.kind],)


def waits_for(question: Question) -> tuple[str, ...]:
    """Those of them who have neither answered yet nor may not."""
    out = {*question.approved_by, *question.barred}
    return tuple(one for one in asked_of(question) if one not in out)


def approvals(events: Events) -> tuple[Approval, ...]:
    """Every question of the run, in the order asked."""
    run, _ = standing(events)
    contexts = _contexts(events)
    found = ((n, e.question) for n, e in enumerate(events) if isinstance(e, Asked | Reasked))
    return tuple(_approval(run, events, n, question, contexts[n]) for n, question in found)


def _contexts(events: Events) -> dict[int, dict[str, Any]]:
    """The bead's context when each question was asked."""
    run: Run | None = None
    found: dict[int, dict[str, Any]] = {}
    for n, event in enumerate(events):
        run = evolve(run, event)
        if isinstance(event, Asked | Reasked):
            found[n] = run.context
    return found


def _approval(
    run: Run, events: Events, asked: int, question: Question, context: dict[str, Any]
) -> Approval:
    settled = next((e for e in events[asked:] if _settles(e, question.id)), None)
    answered = settled if isinstance(settled, Answered) else None
    shown = events[question.result - 1] if question.result else None
    escalated = question.kind is QuestionKind.ESCALATION
    return Approval(
        id=question.id,
        type=question.kind,
        status=_status(run, question, settled),
        bead_id=question.id,
        original_bead_id=run.bead_id,
        execution_id=run.id,
        node_id=question.place,
        question=question.text,
        result=shown.result.text if isinstance(shown, Reported) else "",
        digest=question.digest,
        failure_reason=question.text if escalated else "",
        attempt_history=_attempts(events[:asked], question.place),
        proposed_next_steps=next_steps(question),
        created_at=question.asked_at,
        deadline=run.questions.get(question.id, question).deadline,
        answer=answered.text if answered is not None else "",
        decision=answered.decision if answered is not None else "",
        by=answered.by if answered is not None else "",
        options=question.options,
        proposal=context.get("proposal"),
        own=question.own,
        approvers=asked_of(question),
        quorum=question.quorum,
        approved_by=_approved_by(events, question.id),
        waits_for=waits_for(run.questions[question.id]) if question.id in run.questions else (),
    )


def _approved_by(events: Events, question_id: str) -> tuple[str, ...]:
    return tuple(
        event.by
        for event in events
        if isinstance(event, Answered)
        and event.question_id == question_id
        and event.decision == "approve"
    )


def _settles(event: RunEvent, question_id: str) -> bool:
    if isinstance(event, Answered):
        return event.question_id == question_id and event.final
    return isinstance(event, Reasked) and event.question_id == question_id


def _status(run: Run, question: Question, settled: RunEvent | None) -> Status:
    if isinstance(settled, Answered):
        return "answered"
    if question.id in run.questions:
        return "open"
    expired = run.ended_at is not None and run.ended_at >= question.deadline
    return "expired" if settled is None and expired else "void"


def _attempts(events: Events, place: str) -> tuple[Attempt, ...]:
    """The attempts of the last visit of the place: since it was entered."""
    found: list[Attempt] = []
    number = 0
    for event in events:
        if isinstance(event, Moved) and place in event.enters:
            found, number = [], 0
        elif isinstance(event, Offered) and event.place == place:
            number = event.attempt
        elif isinstance(event, Reported | Faulted | Lost | TimedOut) and event.place == place:
            outcome, text = _became(event)
            found.append(
                Attempt(n=number, agent=event.agent, outcome=outcome, text=text, at=event.at)
            )
    return tuple(found)


def _became(event: Reported | Faulted | Lost | TimedOut) -> tuple[str, str]:
    if isinstance(event, Reported):
        return str(event.result.outcome or ""), event.result.text or event.result.reason
    if isinstance(event, Faulted):
        return event.fault, event.message
    if isinstance(event, Lost):
        return "lost", event.reason
    return "timed_out", f"the {event.clock} clock ran out"


def next_steps(question: Question) -> tuple[str, ...]:
    """What a person can do about it, and what comes of each."""
    place = question.place
    if question.own:
        return ("answer: whoever asks gets the text, and goes on",)
    if question.kind is QuestionKind.ESCALATION:
        return (
            f"approve: goes on as if '{place}' had succeeded",
            f"revise: '{place}' is tried again with your text and fresh attempts",
            "reject: closes the run and its bead",
            "or move the run to another node, with a reason",
        )
    return ("approve: goes on", "revise: goes back with your text", "reject: ends it here")
