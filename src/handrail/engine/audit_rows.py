"""Rows against events: what is stored about a run or a lock is what its events make.

The rows are made again with the functions that made them (`project.py`, `works.py`) and compared
column by column. Not compared are a run's `priority` and `notes`, of which no event speaks; of its
`next_due` only that it is not later than what the events themselves say is due.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime

import msgspec
from msgspec.structs import replace

from handrail.engine.findings import Findings, shown
from handrail.engine.project import (
    NO_STATE,
    RUNNING,
    approval_rows,
    decode_events,
    encode,
    execution_row,
    transitions,
)
from handrail.engine.works import LOCK, lock_row
from handrail.kernel import lock as locks
from handrail.kernel.run.events import RunEvent
from handrail.kernel.run.machine import evolve
from handrail.kernel.run.state import Run
from handrail.store.port import (
    ApprovalRow,
    Entry,
    Execution,
    LockState,
    Recorded,
    Row,
    StoreError,
    Transition,
    iso,
)
from handrail.store.records import Records

ENTRIES_A_PAGE = 500
TRANSITIONS_A_PAGE = 1_000
APPROVALS_MAX = 10_000_000
decode_lock_events = msgspec.json.Decoder(list[locks.LockEvent]).decode


def check_run(store: Records, found: Findings, row: Execution) -> None:
    """Its row, its state, its transitions and its approvals."""
    replay = _Replay(store, found, row)
    entry: Recorded | None = None
    try:
        for entry in entries(store, row.id):
            replay.take(entry)
    except StoreError:
        raise
    except Exception as error:  # whatever a forged event does to the kernel
        seq = entry.seq if entry is not None else 0
        told = f"the events of run {row.id} up to {seq} cannot be replayed"
        why = str(error) or type(error).__name__
        found.add("unreadable", f"{told}: {shown(why)}", row.id, seq)
        return
    replay.finish()


def entries(store: Records, stream: str) -> Iterator[Recorded]:
    """All of a stream, by pages."""
    after = 0
    while page := store.journal(stream, after, ENTRIES_A_PAGE):
        yield from page
        after = page[-1].seq


class _Replay:
    def __init__(self, store: Records, found: Findings, row: Execution) -> None:
        self.store, self.found, self.row = store, found, row
        self.run: Run | None = None
        self.at: datetime | None = None
        self.last: Entry | None = None
        self.approvals: dict[str, ApprovalRow] = {}
        self.transitions = self._stored_transitions()
        self.passing = True
        """Whether the transitions were as they should be so far."""
        self.state_seen = row.state == NO_STATE and row.state_seq == 0
        """Whether the stored state is one that the run had; none, if it has never rested."""

    def take(self, entry: Recorded) -> None:
        events = decode_events(entry.body)
        if len(events) != entry.count:
            told = f"run {self.row.id} has an entry with {len(events)} events, not {entry.count}"
            self._add("entry_changed", told, entry.seq)
        before, run = self.run, self.run
        for event in events:
            run = evolve(run, event)
        assert run is not None, "an entry has events"
        self.run = run
        last = events[-1].at
        self.at = last if self.at is None or last > self.at else self.at
        at = iso(self.at)
        self.last = Entry(
            stream=entry.stream, seq=entry.seq, count=entry.count, body="", hash=entry.hash
        )
        self._approvals(before, run, events, at)
        self._transitions(transitions(run, events))
        if run.status is not RUNNING and self.row.state == NO_STATE:
            self.state_seen = False
        if run.seq == self.row.state_seq:
            self.state_seen = True
            if encode(run).decode() != self.row.state:
                told = f"workflow_executions.state is not what the events up to {run.seq} make"
                self._add("row_changed", f"run {self.row.id}: {told}", run.seq)

    def _add(self, code: str, message: str, seq: int | None = None) -> None:
        self.found.add(code, message, self.row.id, seq)

    def _approvals(self, before: Run | None, run: Run, events: Sequence[RunEvent], at: str) -> None:
        """As the store writes them: what is settled stays."""
        for new in approval_rows(before, run, events, at):
            old = self.approvals.get(new.id)
            if old is None:
                self.approvals[new.id] = new
            elif old.status == "open":
                self.approvals[new.id] = replace(
                    old,
                    status=new.status,
                    deadline=new.deadline,
                    decision=new.decision,
                    answer=new.answer,
                    answered_by=new.answered_by,
                    settled_at=new.settled_at,
                )

    def _stored_transitions(self) -> Iterator[tuple[int, Transition]]:
        after = -(2**62)
        while page := self.store.transition_rows(self.row.id, after, TRANSITIONS_A_PAGE):
            yield from page
            after = page[-1][0]

    def _transitions(self, expected: Sequence[Transition]) -> None:
        for right in expected:
            if not self.passing:
                return
            number, stored = next(self.transitions, (0, None))
            if stored != right:
                self.passing = False
                self._wrong_transition(number, stored, right)

    def _wrong_transition(self, number: int, stored: Transition | None, right: Transition) -> None:
        passed = f"{right.from_node_id} to {right.to_node_id} at event {right.seq}"
        if stored is None or stored.seq > right.seq:
            told = f"workflow_transitions lacks the way from {passed}"
            self._add("row_missing", f"run {self.row.id}: {told}", right.seq)
        elif stored.seq < right.seq:
            told = f"workflow_transitions has a row {number} that no event made"
            self._add("row_extra", f"run {self.row.id}: {told}", stored.seq)
        else:
            self._compare("workflow_transitions", f"row {number}", stored, right)

    def _compare(self, table: str, which: str, stored: Row, right: Row) -> None:
        for name in stored.__struct_fields__:
            is_, should = getattr(stored, name), getattr(right, name)
            if is_ != should:
                told = f"{table}.{name} of {which} is {shown(is_)}, by the events {shown(should)}"
                self._add("row_changed", f"run {self.row.id}: {told}", getattr(right, "seq", None))

    def finish(self) -> None:
        assert self.run is not None, "there are events"
        assert self.at is not None
        assert self.last is not None
        self._finish_row(self.run, iso(self.at), self.last)
        extra = next(self.transitions, None)
        if self.passing and extra is not None:
            told = f"workflow_transitions has a row {extra[0]} that no event made"
            self._add("row_extra", f"run {self.row.id}: {told}", extra[1].seq)
        stored = self.store.approvals(execution_id=self.row.id, limit=APPROVALS_MAX)
        for one in stored:
            right = self.approvals.pop(one.id, None)
            if right is None:
                told = f"run {self.row.id}: approvals has '{one.id}', which was never asked"
                self._add("row_extra", told)
            elif one != right:
                self._compare("approvals", f"'{one.id}'", one, right)
        for name in self.approvals:
            self._add("row_missing", f"run {self.row.id}: approvals lacks '{name}'")

    def _finish_row(self, run: Run, at: str, last: Entry) -> None:
        row = self.row
        right = execution_row(None, run, last, None, at, row.priority)
        due = row.next_due
        if not _is_possible(due, run):
            due = _latest(run) if run.ended else _latest(run) or "some moment"
        right = replace(
            right,
            next_due=due,
            state=row.state,
            state_seq=row.state_seq if self.state_seen else run.seq,
        )
        if row != right:
            self._compare("workflow_executions", "its row", row, right)


def _latest(run: Run) -> str | None:
    """What the events themselves say will be due first; a dispatch's clock is the definition's."""
    if run.ended:
        return None
    if run.pause_deadline is not None:
        return iso(run.pause_deadline)
    return iso(min(one.deadline for one in run.questions.values())) if run.questions else None


def _is_possible(due: str | None, run: Run) -> bool:
    if run.ended or due is None:
        return run.ended and due is None
    latest = _latest(run)
    return latest is None or due <= latest


def check_lock(store: Records, found: Findings, row: LockState, stream: str) -> None:
    lock = locks.Lock(repository=stream.removeprefix(LOCK))
    seq, head, at = 0, b"", ""
    try:
        for entry in entries(store, stream):
            seq, head = entry.seq, entry.hash
            for event in decode_lock_events(entry.body):
                lock = locks.evolve(lock, event)
                at = iso(event.at)
    except StoreError:
        raise
    except Exception as error:  # as above
        told = f"the events of {stream} up to {seq} cannot be replayed"
        found.add("unreadable", f"{told}: {shown(str(error))}", stream, seq)
        return
    right = lock_row(lock, seq, head, at)
    for name in row.__struct_fields__:
        is_, should = getattr(row, name), getattr(right, name)
        if is_ != should:
            told = f"commit_locks.{name} is {shown(is_)}, by the events {shown(should)}"
            found.add("row_changed", f"{stream}: {told}", stream, seq)
