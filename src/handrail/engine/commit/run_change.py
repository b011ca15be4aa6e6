"""A run while a batch is decided: its state, the events decided so far, and the rows they change.

Several commands to one run in one batch become one journal entry: they are decided one after the
other, each on the state that the last one left, and are on disk together or not at all.

The journal entry holds the events; all other rows are projections that could be made again from the
journal (`audit/` does, and compares). They are pure functions. Rules:

1. A run's state is stored when it comes to rest (waits for a person, is paused, has ended) and
   every STATE_EVERY_EVENTS events. In between a step writes only where the run stands; a run that
   has not rested yet has no state but its events.
2. `next_due` is a lower bound: it moves later only when it has passed, so that a step does not move
   an index. An early wake-up finds nothing due, and moves it.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from handrail.engine.commit.budget_book import BudgetBook
from handrail.engine.commit.lock_change import LOCK_STREAM_PREFIX, Forfeited, Granted
from handrail.kernel import lock as locks
from handrail.kernel.decision import Refusal
from handrail.kernel.definition.plan import Plan
from handrail.kernel.run import commands as c
from handrail.kernel.run.clocks import next_due
from handrail.kernel.run.decide import decide_and_apply
from handrail.kernel.run.decision_builder import AcquireLock, ReleaseLock, RunEffect
from handrail.kernel.run.events import Answered, Asked, HandedOff, Moved, Reasked, RunEvent, Started
from handrail.kernel.run.evolve import evolve
from handrail.kernel.run.state import CLAIMED, OFFERED, PendingApproval, Position, Run, RunStatus
from handrail.store.rows import (
    EMPTY_HEAD,
    ApprovalRow,
    BeadRow,
    DispatchRow,
    IdempotencyKeyRow,
    MessageRow,
    RunRow,
    SpendingRow,
    StreamWrite,
    TransitionRow,
    encode,
    iso,
    journal_entry,
    parse_iso,
)
from handrail.views.history import event_transitions
from handrail.views.run_view import bead_error

STATE_EVERY_EVENTS = 200
"""Events between two stored states of an active run: the most that a restart replays."""
NO_STATE = "null"
"""Stands for the state as of event 0: the run begins with its events."""

decode_events = msgspec.json.Decoder(list[RunEvent]).decode
decode_run = msgspec.json.Decoder(Run | None).decode

_TRANSITION_EVENTS = frozenset({HandedOff, Moved, Started})
_APPROVAL_EVENTS = frozenset({Asked, Reasked})
RUNNING = RunStatus.RUNNING


class CachedRun(msgspec.Struct, frozen=True, gc=False):
    """A run as it is stored: its plan, its full state and its row; the time of its last event, and
    the `next_due` of its row."""

    plan: Plan
    run: Run
    row: RunRow
    last_event_at: datetime
    stored_due: datetime | None


def _next_stored_due(
    plan: Plan, before: CachedRun | None, run: Run, now: datetime
) -> tuple[datetime | None, bool]:
    """The `next_due` for the row, and whether the row has it already."""
    due = next_due(plan, run)
    stored = before.stored_due if before is not None else None
    if due is not None and stored is not None and now < stored <= due:
        return stored, True
    return due, False


def _needs_state(before: CachedRun | None, run: Run) -> bool:
    """Whether the run comes to rest, or changed at rest; or too many events have passed since the
    last stored state."""
    if before is None:
        return run.status is not RUNNING
    if run.seq - before.row.state_seq >= STATE_EVERY_EVENTS:
        return True
    old_run = before.run
    changed = run.status is not old_run.status or run.pending_approvals != old_run.pending_approvals
    return run.status is not RUNNING and changed


def _has_only_moved(before: CachedRun, run: Run) -> bool:
    """Whether only the run's positions change in its row."""
    old_run = before.run
    unchanged = run.status is old_run.status and run.version == old_run.version
    return (
        unchanged and run.definition_id == old_run.definition_id and not _needs_state(before, run)
    )


def execution_row(
    before: CachedRun | None,
    run: Run,
    head: bytes,
    due: datetime | None,
    at: str,
    priority: int,
) -> RunRow:
    state: str | None = None
    state_seq = before.row.state_seq if before is not None else 0
    if _needs_state(before, run):
        state, state_seq = encode(run).decode(), run.seq
    elif before is None:
        state = NO_STATE
    return RunRow(
        id=run.id,
        bead_id=run.bead_id,
        workflow_id=run.definition_id,
        workflow_version=run.version,
        current_node_id=next(iter(run.positions), None),
        status=run.status.value,
        terminal_status=run.terminal_status.value if run.terminal_status is not None else None,
        stop_rule=run.stop.rule.value if run.stop is not None else None,
        priority=before.row.priority if before is not None else priority,
        seq=run.seq,
        head=head,
        next_due=iso(due) if due is not None else None,
        created_at=before.row.created_at if before is not None else iso(run.started_at),
        updated_at=at,
        ended_at=at if run.has_ended else None,
        state=state,
        state_seq=state_seq,
    )


def transition_rows(run: Run, events: Sequence[RunEvent]) -> list[TransitionRow]:
    """The transitions of the run; `events` are its last events."""
    rows: list[TransitionRow] = []
    first_seq = run.seq - len(events) + 1
    for n, event in enumerate(events):
        if type(event) in _TRANSITION_EVENTS:
            for source, target, outcome, reason, actor in event_transitions(event):
                rows.append(
                    TransitionRow(
                        execution_id=run.id,
                        seq=first_seq + n,
                        from_node_id=source,
                        to_node_id=target,
                        outcome=outcome,
                        reason=reason,
                        actor=actor,
                        timestamp=iso(event.at),
                    )
                )
    return rows


def _dispatch_rows(
    old_run: Run | None, run: Run, row: RunRow, at: str, sessions: dict[int, str]
) -> tuple[list[DispatchRow], list[int]]:
    """The open dispatches that are new or claimed, and the fences of those that are over."""
    old_positions = (
        {}
        if old_run is None
        else {
            open_position.fence: open_position
            for open_position in old_run.positions.values()
            if _is_open(open_position)
        }
    )
    rows: list[DispatchRow] = []
    for position in run.positions.values():
        if not _is_open(position):
            continue
        old_position = old_positions.pop(position.fence, None)
        if old_position is not None and old_position.phase is position.phase:
            continue
        is_claimed = position.phase is CLAIMED
        rows.append(
            DispatchRow(
                execution_id=run.id,
                fence=position.fence,
                place=position.step_id,
                role=position.role,
                priority=row.priority,
                offered_at=(
                    iso(old_position.since)
                    if old_position is not None and is_claimed
                    else iso(position.since)
                ),
                agent=position.agent if is_claimed else None,
                session=sessions.get(position.fence, "") if is_claimed else None,
                claimed_at=at if is_claimed else None,
            )
        )
    return rows, list(old_positions)


def _is_open(position: Position) -> bool:
    return position.phase is CLAIMED or position.phase is OFFERED


def new_bead_row(start: c.Start, priority: int, at: str) -> BeadRow:
    """The row of a bead as it is filed, before its first run."""
    return BeadRow(
        id=start.bead_id,
        title=start.title,
        description=start.description,
        status="open",
        priority=priority,
        filed_by=start.filed_by,
        context=encode(start.context).decode(),
        error=None,
        workflow_id=None,
        execution_id=None,
        created_at=at,
        updated_at=at,
    )


def bead_row(run: Run, row: RunRow, filed: BeadRow | None = None) -> BeadRow:
    """The bead's row: its status follows the run; its context is stored when the run comes to
    rest. What no run changes is as it was filed; once the row is written, it stays."""
    error = bead_error(run)
    if error is not None:
        status = "error"
    elif run.has_ended:
        status = "closed"
    else:
        status = "waiting" if run.status is RunStatus.WAITING else "in_progress"
    changes: dict[str, Any] = {
        "status": status,
        "context": encode(run.context).decode(),
        "error": encode(error).decode() if error is not None else None,
        "workflow_id": run.definition_id,
        "execution_id": run.id,
        "created_at": row.created_at,
        "updated_at": row.updated_at,
    }
    if filed is not None:
        return replace(filed, **changes)
    return BeadRow(
        id=run.bead_id,
        title=run.title,
        description=run.description,
        priority=row.priority,
        filed_by=run.filed_by,
        **changes,
    )


def approval_rows(
    old_run: Run | None, run: Run, events: Sequence[RunEvent], at: str
) -> Sequence[ApprovalRow]:
    """Approvals that were opened, postponed, or settled. One may be opened and settled at once."""
    old_approvals = old_run.pending_approvals if old_run is not None else {}
    if not old_approvals and _APPROVAL_EVENTS.isdisjoint(map(type, events)):
        return ()
    new_approvals = {
        event.approval.id: event.approval for event in events if isinstance(event, Asked | Reasked)
    }
    answers = {
        event.approval_id: event for event in events if isinstance(event, Answered) and event.final
    }
    rows: list[ApprovalRow] = []
    for approval in {**old_approvals, **new_approvals}.values():
        current = run.pending_approvals.get(approval.id)
        if current is None:
            expired = run.ended_at is not None and run.ended_at >= approval.deadline
            is_expired = expired and approval.id not in answers
            row = approval_row(run, approval, at, answers.get(approval.id), expired=is_expired)
            rows.append(row)
        elif approval.id not in old_approvals or current.deadline != approval.deadline:
            rows.append(approval_row(run, current))
    return rows


def approval_row(
    run: Run,
    approval: PendingApproval,
    settled_at: str | None = None,
    answer: Answered | None = None,
    *,
    expired: bool = False,
) -> ApprovalRow:
    """The row of an approval: open without `settled_at`; else answered, expired, or void because
    the run moved elsewhere."""
    if settled_at is None:
        status = "open"
    elif answer is not None:
        status = "answered"
    else:
        status = "expired" if expired else "void"
    return ApprovalRow(
        id=approval.id,
        execution_id=run.id,
        bead_id=run.bead_id,
        node_id=approval.step_id,
        type=approval.kind.value,
        status=status,
        question=approval.text,
        digest=approval.digest,
        deadline=iso(approval.deadline),
        created_at=iso(approval.asked_at),
        decision=answer.decision if answer is not None else None,
        answer=answer.text if answer is not None else None,
        answered_by=answer.by if answer is not None else None,
        settled_at=settled_at,
    )


def rebuild_run(subject: RunRow, tail: Sequence[str]) -> Run:
    """Rebuild a run from its row: its last stored state, and the events since."""
    assert subject.state is not None, "loaded with its state"
    run = decode_run(subject.state)
    for body in tail:
        for event in decode_events(body):
            run = evolve(run, event)
    assert run is not None, f"run {subject.id} has neither a state nor events"
    assert run.seq == subject.seq, f"run {run.id} is stored up to {run.seq}, not {subject.seq}"
    return run


def cache_run(plan: Plan, run: Run, row: RunRow) -> CachedRun:
    """Make a cached run of a loaded run."""
    due = parse_iso(row.next_due) if row.next_due is not None else None
    return CachedRun(plan, run, replace(row, state=None), parse_iso(row.updated_at), due)


RunMessage = Granted | Forfeited
decode_run_message = msgspec.json.Decoder(RunMessage).decode


class RunChange:
    """The change of one run in a batch. `before` is None for a run that begins."""

    __slots__ = (
        "after",
        "bead",
        "before",
        "book",
        "consumed",
        "effects",
        "events",
        "fault",
        "keys",
        "messages",
        "plan",
        "run",
        "sessions",
        "spending",
        "stream",
    )

    def __init__(
        self,
        stream: str,
        plan: Plan,
        before: CachedRun | None,
        bead: BeadRow | None = None,
        book: BudgetBook | None = None,
    ) -> None:
        self.stream, self.plan, self.before, self.bead = stream, plan, before, bead
        self.book = book
        self.spending: tuple[SpendingRow, ...] = ()
        self.run: Run | None = before.run if before is not None else None
        self.events: tuple[RunEvent, ...] = ()
        self.effects: tuple[RunEffect, ...] = ()
        self.fault = ""
        """Why the result of the last command counts for nothing."""
        self.sessions: dict[int, str] = {}
        self.keys: tuple[IdempotencyKeyRow, ...] = ()
        self.consumed: tuple[str, ...] = ()
        self.messages: tuple[MessageRow, ...] = ()
        self.after: CachedRun | None = None

    @property
    def last_event_at(self) -> datetime | None:
        """When the run's last event was; None for a run that begins."""
        if self.events:
            return self.events[-1].at
        return self.before.last_event_at if self.before is not None else None

    def decide(self, command: c.RunCommand, now: datetime) -> Refusal | None:
        if self.before is not None and now < self.before.last_event_at:
            now = (
                self.before.last_event_at
            )  # no event is before the last one, whatever the clocks say
        names = self.plan.limits.budgets
        if not names:
            decision, self.run = decide_and_apply(self.plan, self.run, command, now)
        else:
            book = self.book = self.book or BudgetBook()
            before, budgets = self.run, book.known(names)
            decision, self.run = decide_and_apply(self.plan, before, command, now, budgets)
            if self.run is not None:
                ledger_before = None if before is None else before.ledger
                self.spending += book.spend(names, ledger_before, self.run.ledger, now)
        self.events += decision.events
        self.effects += decision.effects
        self.fault = decision.fault
        return decision.refusal

    def command_for(self, message: RunMessage) -> c.RunCommand | None:
        """Return the command that a message means to the run now; None if the message is
        obsolete."""
        position = self.run.positions.get(message.place) if self.run is not None else None
        holds = position is not None and position.lock == message.lock
        if isinstance(message, Granted):
            return None if holds else c.GrantLock(step_id=message.place, lock=message.lock)
        if position is None or not holds or position.phase is not CLAIMED:
            return None
        return c.Lose(fence=position.fence, reason="the commit lock was lost: no heartbeat in time")

    def build_write(self) -> StreamWrite:
        """Return all rows that the events change; `after` is the run as it is stored then."""
        run, before, events = self.run, self.before, self.events
        assert run is not None, "it has events"
        for n, effect in enumerate(self.effects):
            if isinstance(effect, AcquireLock | ReleaseLock):
                self.messages += (self._message_to_lock(effect, f"{run.id}.{run.seq}.{n}"),)
        old_run, head, last_event_at = None, EMPTY_HEAD, events[-1].at
        if before is not None:
            old_run, head = before.run, before.row.head
            last_event_at = max(last_event_at, before.last_event_at)
        at = iso(last_event_at)
        entry = journal_entry(run.id, run.seq, head, events)
        due, due_unchanged = _next_stored_due(self.plan, before, run, last_event_at)
        only_moved = before is not None and due_unchanged and _has_only_moved(before, run)
        if before is not None and only_moved:
            row = replace(
                before.row,
                current_node_id=next(iter(run.positions), None),
                seq=run.seq,
                head=entry.hash,
                updated_at=at,
            )
        else:
            row = execution_row(
                before, run, entry.hash, due, at, self.bead.priority if self.bead is not None else 0
            )
        self.after = CachedRun(self.plan, run, row, last_event_at, due)
        has_new_status = old_run is None or old_run.status is not run.status
        dispatches, closed = _dispatch_rows(old_run, run, row, at, self.sessions)
        return StreamWrite(
            expected_head=head,
            entry=entry,
            row=row,
            position_only=only_moved,
            bead=bead_row(run, row, self.bead) if has_new_status or run.has_ended else None,
            transitions=transition_rows(run, events),
            approvals=approval_rows(old_run, run, events, at),
            dispatches=dispatches,
            closed_fences=closed,
            messages=self.messages,
            consumed_message_ids=self.consumed,
            keys=self.keys,
            spending=self.spending,
        )

    def _message_to_lock(self, effect: AcquireLock | ReleaseLock, message_id: str) -> MessageRow:
        if isinstance(effect, AcquireLock):
            command = locks.Acquire(run=self.stream, step=effect.step_id)
        else:
            command = locks.Release(run=self.stream, step=effect.step_id, fence=effect.lock)
        return MessageRow(
            id=message_id,
            target=LOCK_STREAM_PREFIX + effect.repository,
            body=encode(command).decode(),
            created_at=iso(self.events[-1].at),
        )


def is_at_rest(cached: CachedRun) -> bool:
    """Whether the run will not change by itself for a long time."""
    status = cached.run.status
    if status is RUNNING:
        return False
    # dispatches claimed before a pause still come back
    return status != "paused" or all(
        position.phase is not CLAIMED for position in cached.run.positions.values()
    )
