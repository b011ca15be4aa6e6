"""From a decision to rows: what a run's new events change in every table. Pure.

The journal's entry holds the events; all other rows are projections that could be made again from
the journal (`audit.py` does, and compares). Rules:

1. A run's state is stored when it comes to rest (waits for a person, is paused, has ended) and
   every STATE_EVERY events. In between a step writes only where the run stands; one that has not
   rested yet has no state but its events.
2. `next_due` is a lower bound: it moves later only when it has passed, so that a step does not move
   an index. Whoever is woken too early finds nothing due, and it moves.
"""

from collections.abc import Sequence
from datetime import datetime

import msgspec
from msgspec.structs import replace

from handrail.kernel.history import passages
from handrail.kernel.plan import Plan
from handrail.kernel.run.events import Answered, Asked, HandedOff, Moved, Reasked, RunEvent, Started
from handrail.kernel.run.machine import evolve, next_due
from handrail.kernel.run.state import CLAIMED, OFFERED, Question, Run, RunStatus, Token
from handrail.kernel.view import bead_error
from handrail.store.chain import START, entry_hash
from handrail.store.port import (
    ApprovalRow,
    BeadRow,
    DispatchRow,
    Entry,
    Execution,
    KeyRow,
    Message,
    Transition,
    Write,
    iso,
    moment,
)

STATE_EVERY = 200
"""Events between two stored states of a run that goes on: how many a restart replays at most."""
NO_STATE = "null"
"""In place of the state, as of event 0: the run begins with its events."""

encode = msgspec.json.Encoder().encode
decode_events = msgspec.json.Decoder(list[RunEvent]).decode
decode_run = msgspec.json.Decoder(Run | None).decode

_PASSES = frozenset({HandedOff, Moved, Started})
_ASKS = frozenset({Asked, Reasked})
RUNNING = RunStatus.RUNNING


class Kept(msgspec.Struct, frozen=True, gc=False):
    """A run as it is stored: its plan, its state in full and its row; when something last happened
    to it, and the clock that its row says it has."""

    plan: Plan
    run: Run
    row: Execution
    at: datetime
    due: datetime | None


class Beside(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What goes into the same transaction beside what follows from the events."""

    priority: int = 0
    sessions: dict[int, str] = {}
    """Fence -> the session of the agent that claimed it just now."""
    messages: Sequence[Message] = ()
    consumed: Sequence[str] = ()
    keys: Sequence[KeyRow] = ()


NOTHING = Beside()


def project(
    plan: Plan,
    before: Kept | None,
    run: Run,
    events: Sequence[RunEvent],
    beside: Beside = NOTHING,
) -> tuple[Write, Kept]:
    """Everything that these events change, and the run as it is stored afterwards."""
    last = max(events[-1].at, before.at) if before is not None else events[-1].at
    at = iso(last)
    head = before.row.head if before is not None else START
    body = encode(events).decode()
    entry = Entry(
        stream=run.id,
        seq=run.seq,
        count=len(events),
        body=body,
        hash=entry_hash(head, run.id, run.seq, body),
    )
    due, early = _due(plan, before, run, last)
    if before is not None and early and _only_moved(before, run):
        light = True
        place = next(iter(run.tokens), None)
        row = replace(
            before.row, current_node_id=place, seq=run.seq, head=entry.hash, updated_at=at
        )
    else:
        light = False
        row = execution_row(before, run, entry, due, at, beside.priority)
    old = before.run if before is not None else None
    dispatches, closed = _dispatches(old, run, row, at, beside.sessions)
    write = Write(
        expected=head,
        entry=entry,
        subject=row,
        light=light,
        bead=_bead(before, run, row),
        transitions=transitions(run, events),
        approvals=approval_rows(old, run, events, at),
        dispatches=dispatches,
        closed=closed,
        messages=beside.messages,
        consumed=beside.consumed,
        keys=beside.keys,
    )
    return write, Kept(plan, run, row, last, due)


def _due(plan: Plan, before: Kept | None, run: Run, now: datetime) -> tuple[datetime | None, bool]:
    """The clock for the row, and whether it is the one that stands there already."""
    due = next_due(plan, run)
    kept = before.due if before is not None else None
    if due is not None and kept is not None and now < kept <= due:
        return kept, True
    return due, False


def _is_stored(before: Kept | None, run: Run) -> bool:
    """Whether the run has come to rest, or something changed while it rests; or too many events
    have come since the last one."""
    if before is None:
        return run.status is not RUNNING
    if run.seq - before.row.state_seq >= STATE_EVERY:
        return True
    old = before.run
    changed = run.status is not old.status or run.questions != old.questions
    return run.status is not RUNNING and changed


def _only_moved(before: Kept, run: Run) -> bool:
    """Whether nothing of the row changes but where the run stands."""
    old = before.run
    same = run.status is old.status and run.version == old.version
    return same and run.definition_id == old.definition_id and not _is_stored(before, run)


def execution_row(
    before: Kept | None, run: Run, entry: Entry, due: datetime | None, at: str, priority: int
) -> Execution:
    state: str | None = None
    state_seq = before.row.state_seq if before is not None else 0
    if _is_stored(before, run):
        state, state_seq = encode(run).decode(), run.seq
    elif before is None:
        state = NO_STATE
    return Execution(
        id=run.id,
        bead_id=run.bead_id,
        workflow_id=run.definition_id,
        workflow_version=run.version,
        current_node_id=next(iter(run.tokens), None),
        status=run.status.value,
        terminal_status=run.terminal_status.value if run.terminal_status is not None else None,
        stop_rule=run.stop.rule.value if run.stop is not None else None,
        priority=before.row.priority if before is not None else priority,
        seq=run.seq,
        head=entry.hash,
        next_due=iso(due) if due is not None else None,
        created_at=before.row.created_at if before is not None else iso(run.started_at),
        updated_at=at,
        ended_at=at if run.ended else None,
        state=state,
        state_seq=state_seq,
    )


def transitions(run: Run, events: Sequence[RunEvent]) -> list[Transition]:
    """Where the run went; `events` are its last ones."""
    found: list[Transition] = []
    first = run.seq - len(events) + 1
    for n, event in enumerate(events):
        if type(event) in _PASSES:
            for source, target, outcome, reason, actor in passages(event):
                found.append(
                    Transition(
                        execution_id=run.id,
                        seq=first + n,
                        from_node_id=source,
                        to_node_id=target,
                        outcome=outcome,
                        reason=reason,
                        actor=actor,
                        timestamp=iso(event.at),
                    )
                )
    return found


def _dispatches(
    old: Run | None, run: Run, row: Execution, at: str, sessions: dict[int, str]
) -> tuple[list[DispatchRow], list[int]]:
    """The open dispatches that are new or were claimed, and the fences of those that are over."""
    was = {} if old is None else {t.fence: t for t in old.tokens.values() if _is_open(t)}
    found: list[DispatchRow] = []
    for token in run.tokens.values():
        if not _is_open(token):
            continue
        known = was.pop(token.fence, None)
        if known is not None and known.phase is token.phase:
            continue
        claimed = token.phase is CLAIMED
        offered = iso(known.since) if known is not None and claimed else iso(token.since)
        found.append(
            DispatchRow(
                execution_id=run.id,
                fence=token.fence,
                place=token.place,
                role=token.role,
                priority=row.priority,
                offered_at=offered,
                agent=token.agent if claimed else None,
                session=sessions.get(token.fence, "") if claimed else None,
                claimed_at=at if claimed else None,
            )
        )
    return found, list(was)


def _is_open(token: Token) -> bool:
    return token.phase is CLAIMED or token.phase is OFFERED


def _bead(before: Kept | None, run: Run, row: Execution) -> BeadRow | None:
    """The bead follows its run's status; its context is stored when the run comes to rest."""
    if before is not None and before.run.status is run.status and not run.ended:
        return None
    wrong = bead_error(run)
    if wrong is not None:
        status = "error"
    elif run.ended:
        status = "closed"
    else:
        status = "waiting" if run.status is RunStatus.WAITING else "in_progress"
    return BeadRow(
        id=run.bead_id,
        title=run.title,
        description=run.description,
        status=status,
        priority=row.priority,
        filed_by=run.filed_by,
        context=encode(run.context).decode(),
        error=encode(wrong).decode() if wrong is not None else None,
        workflow_id=run.definition_id,
        execution_id=run.id,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )


def approval_rows(
    old: Run | None, run: Run, events: Sequence[RunEvent], at: str
) -> Sequence[ApprovalRow]:
    """Questions that were asked, put off, or settled. One may be asked and settled at once."""
    was = old.questions if old is not None else {}
    if not was and _ASKS.isdisjoint(map(type, events)):
        return ()
    asked = {e.question.id: e.question for e in events if isinstance(e, Asked | Reasked)}
    answers = {e.question_id: e for e in events if isinstance(e, Answered) and e.final}
    found: list[ApprovalRow] = []
    for question in {**was, **asked}.values():
        now = run.questions.get(question.id)
        if now is None:
            expired = run.ended_at is not None and run.ended_at >= question.deadline
            late = expired and question.id not in answers
            row = approval_row(run, question, at, answers.get(question.id), expired=late)
            found.append(row)
        elif question.id not in was or now.deadline != question.deadline:
            found.append(approval_row(run, now))
    return found


def approval_row(
    run: Run,
    question: Question,
    settled_at: str | None = None,
    answer: Answered | None = None,
    *,
    expired: bool = False,
) -> ApprovalRow:
    """Open without `settled_at`; else answered, expired, or void because the run went elsewhere."""
    if settled_at is None:
        status = "open"
    elif answer is not None:
        status = "answered"
    else:
        status = "expired" if expired else "void"
    return ApprovalRow(
        id=question.id,
        execution_id=run.id,
        bead_id=run.bead_id,
        node_id=question.place,
        type=question.kind.value,
        status=status,
        question=question.text,
        digest=question.digest,
        deadline=iso(question.deadline),
        created_at=iso(question.asked_at),
        decision=answer.decision if answer is not None else None,
        answer=answer.text if answer is not None else None,
        answered_by=answer.by if answer is not None else None,
        settled_at=settled_at,
    )


def loaded(subject: Execution, tail: Sequence[str]) -> Run:
    """The run of a stored row: its last stored state, and the events since."""
    assert subject.state is not None, "loaded with its state"
    run = decode_run(subject.state)
    for body in tail:
        for event in decode_events(body):
            run = evolve(run, event)
    assert run is not None, f"run {subject.id} has neither a state nor events"
    assert run.seq == subject.seq, f"run {run.id} is stored up to {run.seq}, not {subject.seq}"
    return run


def kept(plan: Plan, run: Run, row: Execution) -> Kept:
    """A run that was loaded."""
    due = moment(row.next_due) if row.next_due is not None else None
    return Kept(plan, run, replace(row, state=None), moment(row.updated_at), due)
