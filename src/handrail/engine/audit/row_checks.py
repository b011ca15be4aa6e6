"""Checks rows of runs, locks and channels against the events that make them.

The rows are made again with the functions that made them (`commit/`) and compared column by column.
Not compared are a run's `priority` and `notes`, which no event records, and whether a member of a
channel is `sole`: that is its agent's capacity. Of a run's `next_due` only that it is not later
than what the events themselves say is due.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

import msgspec
from msgspec.structs import replace

from handrail.engine.commit.channel_change import (
    CHANNEL_STREAM_PREFIX,
    ChannelJournalEvent,
    Closed,
    Opened,
    StampedEvent,
    channel_row,
    decode_channel_events,
    evolve_journaled,
    log_row,
    member_rows,
)
from handrail.engine.commit.lock_change import lock_row
from handrail.engine.commit.run_change import (
    LOCK_STREAM_PREFIX,
    NO_STATE,
    RUNNING,
    approval_rows,
    decode_events,
    encode,
    execution_row,
    transition_rows,
)
from handrail.kernel import lock as locks
from handrail.kernel.channel.state import Channel, check_invariants
from handrail.kernel.decision import Value
from handrail.kernel.run.events import RunEvent
from handrail.kernel.run.machine import evolve
from handrail.kernel.run.state import Run
from handrail.store.columns import Row
from handrail.store.maintenance import MaintenanceStore
from handrail.store.rows import (
    ApprovalRow,
    ChannelLogRow,
    ChannelRow,
    JournalEntry,
    LockRow,
    RunRow,
    StoredEntry,
    StoreError,
    TransitionRow,
    iso,
)
from handrail.views.audit import Finding

FINDINGS_MAX = 1_000
"""Findings that are stored; further ones are counted."""
VALUE_CHARS_MAX = 80


class Findings:
    """A list that cannot fill the memory, however much is wrong."""

    def __init__(self) -> None:
        self.items: list[Finding] = []
        self.dropped = 0

    def add(self, code: str, message: str, stream: str = "", seq: int | None = None) -> None:
        if len(self.items) >= FINDINGS_MAX:
            self.dropped += 1
            return
        self.items.append(Finding(code=code, message=message, stream=stream, seq=seq))


def format_value(value: object) -> str:
    """Format a stored value for a message."""
    text = value.hex() if isinstance(value, bytes) else "nothing" if value is None else repr(value)
    return text if len(text) <= VALUE_CHARS_MAX else f"{text[: VALUE_CHARS_MAX - 1]}…"


PAGE_ENTRIES = 500
PAGE_TRANSITIONS = 1_000
APPROVALS_MAX = 10_000_000
decode_lock_events = msgspec.json.Decoder(list[locks.LockEvent]).decode


def check_run(store: MaintenanceStore, findings: Findings, row: RunRow) -> None:
    """Check a run's row, its state, its transitions and its approvals."""
    replay = _RunReplay(store, findings, row)
    entry: StoredEntry | None = None
    try:
        for entry in read_entries(store, row.id):
            replay.apply_entry(entry)
    except StoreError:
        raise
    except Exception as error:  # a forged event may raise anything in the kernel
        seq = entry.seq if entry is not None else 0
        message = f"the events of run {row.id} up to {seq} cannot be replayed"
        reason = str(error) or type(error).__name__
        findings.add("unreadable", f"{message}: {format_value(reason)}", row.id, seq)
        return
    replay.finish()


def read_entries(store: MaintenanceStore, stream: str) -> Iterator[StoredEntry]:
    """Read all entries of a stream, by pages."""
    after = 0
    while page := store.journal.read(stream, after, PAGE_ENTRIES):
        yield from page
        after = page[-1].seq


class _RunReplay:
    def __init__(self, store: MaintenanceStore, findings: Findings, row: RunRow) -> None:
        self.store, self.findings, self.row = store, findings, row
        self.run: Run | None = None
        self.at: datetime | None = None
        self.last: JournalEntry | None = None
        self.approvals: dict[str, ApprovalRow] = {}
        self.transitions = self._stored_transitions()
        self.transitions_match = True
        """Whether the transitions matched so far."""
        self.state_matches = row.state == NO_STATE and row.state_seq == 0
        """Whether the run had the stored state at some event; no state, if it has never rested."""

    def apply_entry(self, entry: StoredEntry) -> None:
        events = decode_events(entry.body)
        if len(events) != entry.count:
            message = f"run {self.row.id} has an entry with {len(events)} events, not {entry.count}"
            self._add_finding("entry_changed", message, entry.seq)
        before, run = self.run, self.run
        for event in events:
            run = evolve(run, event)
        assert run is not None, "an entry has events"
        self.run = run
        last_at = events[-1].at
        self.at = last_at if self.at is None or last_at > self.at else self.at
        at = iso(self.at)
        self.last = JournalEntry(
            stream=entry.stream, seq=entry.seq, count=entry.count, body="", hash=entry.hash
        )
        self._apply_approvals(before, run, events, at)
        self._check_transitions(transition_rows(run, events))
        if run.status is not RUNNING and self.row.state == NO_STATE:
            self.state_matches = False
        if run.seq == self.row.state_seq:
            self.state_matches = True
            if encode(run).decode() != self.row.state:
                message = f"workflow_executions.state is not what the events up to {run.seq} make"
                self._add_finding("row_changed", f"run {self.row.id}: {message}", run.seq)

    def _add_finding(self, code: str, message: str, seq: int | None = None) -> None:
        self.findings.add(code, message, self.row.id, seq)

    def _apply_approvals(
        self, before: Run | None, run: Run, events: Sequence[RunEvent], at: str
    ) -> None:
        """Apply approvals as the store writes them: a settled one stays."""
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

    def _stored_transitions(self) -> Iterator[tuple[int, TransitionRow]]:
        after = -(2**62)
        while page := self.store.runs.list_transition_rows(self.row.id, after, PAGE_TRANSITIONS):
            yield from page
            after = page[-1][0]

    def _check_transitions(self, expected: Sequence[TransitionRow]) -> None:
        for expected_row in expected:
            if not self.transitions_match:
                return
            number, stored = next(self.transitions, (0, None))
            if stored != expected_row:
                self.transitions_match = False
                self._report_transition(number, stored, expected_row)

    def _report_transition(
        self, number: int, stored: TransitionRow | None, expected: TransitionRow
    ) -> None:
        passage = f"{expected.from_node_id} to {expected.to_node_id} at event {expected.seq}"
        if stored is None or stored.seq > expected.seq:
            message = f"workflow_transitions lacks the way from {passage}"
            self._add_finding("row_missing", f"run {self.row.id}: {message}", expected.seq)
        elif stored.seq < expected.seq:
            message = f"workflow_transitions has a row {number} that no event made"
            self._add_finding("row_extra", f"run {self.row.id}: {message}", stored.seq)
        else:
            self._compare("workflow_transitions", f"row {number}", stored, expected)

    def _compare(self, table: str, label: str, stored: Row, expected: Row) -> None:
        for name in stored.__struct_fields__:
            actual, expected_value = getattr(stored, name), getattr(expected, name)
            if actual != expected_value:
                message = (
                    f"{table}.{name} of {label} is {format_value(actual)}, by the events "
                    f"{format_value(expected_value)}"
                )
                self._add_finding(
                    "row_changed", f"run {self.row.id}: {message}", getattr(expected, "seq", None)
                )

    def finish(self) -> None:
        assert self.run is not None, "there are events"
        assert self.at is not None
        assert self.last is not None
        self._finish_row(self.run, iso(self.at), self.last)
        extra = next(self.transitions, None)
        if self.transitions_match and extra is not None:
            message = f"workflow_transitions has a row {extra[0]} that no event made"
            self._add_finding("row_extra", f"run {self.row.id}: {message}", extra[1].seq)
        stored = self.store.approvals.list(execution_id=self.row.id, limit=APPROVALS_MAX)
        for approval in stored:
            expected = self.approvals.pop(approval.id, None)
            if expected is None:
                message = f"run {self.row.id}: approvals has '{approval.id}', which was never asked"
                self._add_finding("row_extra", message)
            elif approval != expected:
                self._compare("approvals", f"'{approval.id}'", approval, expected)
        for name in self.approvals:
            self._add_finding("row_missing", f"run {self.row.id}: approvals lacks '{name}'")

    def _finish_row(self, run: Run, at: str, last: JournalEntry) -> None:
        row = self.row
        expected = execution_row(None, run, last, None, at, row.priority)
        due = row.next_due
        if not _is_possible_due(due, run):
            due = _latest_due(run) if run.has_ended else _latest_due(run) or "some moment"
        expected = replace(
            expected,
            next_due=due,
            state=row.state,
            state_seq=row.state_seq if self.state_matches else run.seq,
        )
        if row != expected:
            self._compare("workflow_executions", "its row", row, expected)


def _latest_due(run: Run) -> str | None:
    """The first due time that the events themselves give; a dispatch's clock is the
    definition's."""
    if run.has_ended:
        return None
    if run.pause_deadline is not None:
        return iso(run.pause_deadline)
    return (
        iso(min(approval.deadline for approval in run.pending_approvals.values()))
        if run.pending_approvals
        else None
    )


def _is_possible_due(due: str | None, run: Run) -> bool:
    if run.has_ended or due is None:
        return run.has_ended and due is None
    latest = _latest_due(run)
    return latest is None or due <= latest


def check_lock(store: MaintenanceStore, findings: Findings, row: LockRow, stream: str) -> None:
    lock = locks.CommitLock(repository=stream.removeprefix(LOCK_STREAM_PREFIX))
    seq, head, at = 0, b"", ""
    try:
        for entry in read_entries(store, stream):
            seq, head = entry.seq, entry.hash
            for event in decode_lock_events(entry.body):
                lock = locks.evolve(lock, event)
                at = iso(event.at)
    except StoreError:
        raise
    except Exception as error:  # as above
        message = f"the events of {stream} up to {seq} cannot be replayed"
        findings.add("unreadable", f"{message}: {format_value(str(error))}", stream, seq)
        return
    expected_row = lock_row(lock, seq, head, at)
    for name in row.__struct_fields__:
        actual, expected = getattr(row, name), getattr(expected_row, name)
        if actual != expected:
            message = (
                f"commit_locks.{name} is {format_value(actual)}, by the events "
                f"{format_value(expected)}"
            )
            findings.add("row_changed", f"{stream}: {message}", stream, seq)


PAGE_LOG_ROWS = 1_000


class _EventStamp(Value):
    """The time and author that the journal adds to an event."""

    at: datetime
    by: str = ""


_decode_stamps = msgspec.json.Decoder(list[_EventStamp]).decode


def check_channel(store: MaintenanceStore, findings: Findings, row: ChannelRow) -> None:
    """Check everything that is stored about one channel."""
    replay = _ChannelReplay(store, findings, row)
    seq = 0
    try:
        for entry in read_entries(store, CHANNEL_STREAM_PREFIX + row.id):
            seq = entry.seq
            replay.apply_entry(entry)
    except StoreError:
        raise
    except Exception as error:  # a forged event may raise anything in the kernel
        message = f"the events of channel {row.id} up to {seq} cannot be replayed"
        reason = format_value(str(error) or type(error).__name__)
        findings.add("unreadable", f"{message}: {reason}", CHANNEL_STREAM_PREFIX + row.id, seq)
        return
    replay.finish()


class _ChannelReplay:
    def __init__(self, store: MaintenanceStore, findings: Findings, row: ChannelRow) -> None:
        self.store, self.findings, self.row = store, findings, row
        self.channel = Channel(id=row.id)
        self.is_open = False
        self.created_at = self.at = ""
        self.last: StoredEntry | None = None
        self.log_rows_checked = 0

    def apply_entry(self, entry: StoredEntry) -> None:
        events, stamps = decode_channel_events(entry.body), _decode_stamps(entry.body)
        first = entry.seq - entry.count + 1
        expected: list[ChannelLogRow] = []
        for n, (event, stamp) in enumerate(zip(events, stamps, strict=True), first):
            self._apply(event)
            expected_row = log_row(
                self.row.id, n, StampedEvent(event=event, at=stamp.at, by=stamp.by)
            )
            expected += [expected_row] if expected_row is not None else []
            self.at = iso(stamp.at)
        self.created_at = self.created_at or self.at
        self.last = entry
        self._check_log(expected)

    def _apply(self, event: ChannelJournalEvent) -> None:
        self.channel = evolve_journaled(self.channel, event)
        if isinstance(event, Opened | Closed):
            self.is_open = isinstance(event, Opened)

    def _check_log(self, expected: list[ChannelLogRow]) -> None:
        if not expected:
            return
        stored = self.store.channels.read_log(self.row.id, expected[0].seq - 1, len(expected))
        by_seq = {stored_row.seq: stored_row for stored_row in stored}
        for expected_row in expected:
            self.log_rows_checked += 1
            stored_row = by_seq.get(expected_row.seq)
            if stored_row is None:
                message = f"channel_log lacks what was said at event {expected_row.seq}"
                self._add_finding("row_missing", message, expected_row.seq)
            else:
                self._compare("channel_log", stored_row, expected_row)

    def finish(self) -> None:
        assert self.last is not None, "there are events"
        entry = JournalEntry(
            stream=self.last.stream,
            seq=self.last.seq,
            count=self.last.count,
            body="",
            hash=self.last.hash,
        )
        expected_row = channel_row(
            self.channel, entry, self.created_at, self.at, is_open=self.is_open
        )
        self._compare("channels", self.row, expected_row)
        for violation in check_invariants(self.channel) if self.is_open else ():
            self._add_finding("invariant", violation)
        self._check_members()
        if self._count_log() > self.log_rows_checked:
            self._add_finding("row_extra", "channel_log has a line that no event made")

    def _check_members(self) -> None:
        expected_rows = member_rows(self.channel)
        for row in self.store.channels.list_members(self.row.id):
            expected_row = expected_rows.pop(row.agent_id, None)
            if expected_row is None:
                self._add_finding(
                    "row_extra", f"channel_members has {format_value(row.agent_id)}, no member"
                )
            else:
                self._compare("channel_members", row, replace(expected_row, sole=row.sole))
        self._report_missing_members(expected_rows)

    def _report_missing_members(self, members: Iterable[str]) -> None:
        for agent_id in members:
            self._add_finding("row_missing", f"channel_members lacks {format_value(agent_id)}")

    def _count_log(self) -> int:
        count, after = 0, 0
        while page := self.store.channels.read_log(self.row.id, after, PAGE_LOG_ROWS):
            count, after = count + len(page), page[-1].seq
        return count

    def _compare(self, table: str, stored: Row, expected: Row) -> None:
        for name in stored.__struct_fields__ if stored != expected else ():
            actual, expected_value = getattr(stored, name), getattr(expected, name)
            if actual != expected_value:
                message = (
                    f"{table}.{name} is {format_value(actual)}, by the events "
                    f"{format_value(expected_value)}"
                )
                self._add_finding("row_changed", message, getattr(expected, "seq", None))

    def _add_finding(self, code: str, message: str, seq: int | None = None) -> None:
        self.findings.add(
            code, f"channel {self.row.id}: {message}", CHANNEL_STREAM_PREFIX + self.row.id, seq
        )
