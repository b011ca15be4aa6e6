"""Checks rows of runs, locks and channels against the events that make them.

The rows are made again with the functions that made them (`commit/`) and compared column by column.
Not compared are a run's `priority` and `notes`, which no event records, and whether a member of a
channel is `sole`: that is its agent's capacity. Of a run's `next_due` only that it is not later
than what the events themselves say is due.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Protocol

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
from handrail.engine.commit.lock_change import LOCK_STREAM_PREFIX, lock_row
from handrail.engine.commit.run_change import (
    NO_STATE,
    RUNNING,
    approval_rows,
    bead_row,
    decode_events,
    execution_row,
    transition_rows,
)
from handrail.kernel import lock as locks
from handrail.kernel.channel.state import Channel, check_invariants
from handrail.kernel.decision import Value
from handrail.kernel.run.events import RunEvent
from handrail.kernel.run.evolve import evolve
from handrail.kernel.run.state import WAITING, Run
from handrail.store.columns import Row
from handrail.store.maintenance import MaintenanceStore
from handrail.store.rows import (
    ApprovalRow,
    ChannelLogRow,
    ChannelRow,
    LockRow,
    RunRow,
    StoredEntry,
    StoreError,
    TransitionRow,
    encode,
    iso,
)
from handrail.views.audit import Finding

FINDINGS_MAX = 1_000
"""Findings that are stored; further ones are counted."""
VALUE_CHARS_MAX = 80
PAGE_ENTRIES = 500
PAGE_TRANSITIONS = 1_000
PAGE_LOG_ROWS = 1_000
APPROVALS_MAX = 10_000_000
decode_lock_events = msgspec.json.Decoder(list[locks.LockEvent]).decode


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


def read_entries(store: MaintenanceStore, stream: str) -> Iterator[StoredEntry]:
    """Read all entries of a stream, by pages."""
    after = 0
    while page := store.journal.read(stream, after, PAGE_ENTRIES):
        yield from page
        after = page[-1].seq


class _StreamReplay:
    """The events of one stream, replayed, and compared with the rows that they make."""

    def __init__(
        self, store: MaintenanceStore, findings: Findings, stream: str, label: str
    ) -> None:
        self.store, self.findings, self.stream, self.label = store, findings, stream, label

    def check(self) -> None:
        """Replay all events, then compare the rows."""
        entry: StoredEntry | None = None
        try:
            for entry in read_entries(self.store, self.stream):
                self.apply_entry(entry)
        except StoreError:
            raise
        except Exception as error:  # a forged event may raise anything in the kernel
            seq = entry.seq if entry is not None else 0
            message = f"the events of {self.label} up to {seq} cannot be replayed"
            reason = format_value(str(error) or type(error).__name__)
            self.findings.add("unreadable", f"{message}: {reason}", self.stream, seq)
            return
        assert entry is not None, "there are events"
        self.finish(entry)

    def apply_entry(self, entry: StoredEntry) -> None:
        """Apply the events of one entry."""
        raise NotImplementedError

    def finish(self, last: StoredEntry) -> None:
        """Compare the rows with the state after the last entry."""
        raise NotImplementedError

    def _compare(self, table: str, stored: Row, expected: Row, label: str = "") -> None:
        for name in stored.__struct_fields__ if stored != expected else ():
            actual, expected_value = getattr(stored, name), getattr(expected, name)
            if actual != expected_value:
                message = (
                    f"{table}.{name}{label} is {format_value(actual)}, by the events "
                    f"{format_value(expected_value)}"
                )
                self._add_finding("row_changed", message, getattr(expected, "seq", None))

    def _add_finding(self, code: str, message: str, seq: int | None = None) -> None:
        self.findings.add(code, f"{self.label}: {message}", self.stream, seq)


class RecordedBeads(Protocol):
    beads_of_runs: set[str]
    """Beads that are as the events of their last run say."""

    def bead_since(self, bead_id: str, n: int) -> bool:
        """Whether the bead was recorded after that commit."""
        ...


class RunReplay(_StreamReplay):
    """Checks a run's row, its state, its transitions and its approvals; with `recorded` its bead,
    unless a person has changed that since."""

    def __init__(
        self,
        store: MaintenanceStore,
        findings: Findings,
        row: RunRow,
        recorded: RecordedBeads | None = None,
    ) -> None:
        super().__init__(store, findings, row.id, f"run {row.id}")
        self.row, self.recorded = row, recorded
        self.left: tuple[Run, str, int] | None = None
        """The run when it last wrote its bead, the time, and the number of the commit."""
        self.run: Run | None = None
        self.at: datetime | None = None
        self.approvals: dict[str, ApprovalRow] = {}
        self.transitions = self._stored_transitions()
        self.transitions_match = True
        """Whether the transitions matched so far."""
        self.state_matches = row.state == NO_STATE and row.state_seq == 0
        """Whether the run had the stored state at some event; no state, if it has never rested."""

    def apply_entry(self, entry: StoredEntry) -> None:
        events = decode_events(entry.body)
        if len(events) != entry.count:
            message = f"an entry has {len(events)} events, not {entry.count}"
            self._add_finding("entry_changed", message, entry.seq)
        before, run = self.run, self.run
        for event in events:
            run = evolve(run, event)
        assert run is not None, "an entry has events"
        self.run = run
        last_at = events[-1].at
        self.at = last_at if self.at is None or last_at > self.at else self.at
        if before is None or before.status is not run.status or run.has_ended:
            self.left = run, iso(self.at), entry.n
        self._apply_approvals(before, run, events, iso(self.at))
        self._check_transitions(transition_rows(run, events))
        if run.status is not RUNNING and self.row.state == NO_STATE:
            self.state_matches = False
        if run.seq == self.row.state_seq:
            self.state_matches = True
            if encode(run).decode() != self.row.state:
                message = f"workflow_executions.state is not what the events up to {run.seq} make"
                self._add_finding("row_changed", message, run.seq)

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
        while page := self.store.runs.list_transitions(self.row.id, after, PAGE_TRANSITIONS):
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
            self._add_finding("row_missing", message, expected.seq)
        elif stored.seq < expected.seq:
            message = f"workflow_transitions has a row {number} that no event made"
            self._add_finding("row_extra", message, stored.seq)
        else:
            self._compare("workflow_transitions", stored, expected, f" of row {number}")

    def finish(self, last: StoredEntry) -> None:
        assert self.run is not None, "there are events"
        assert self.at is not None
        self._check_row(self.run, iso(self.at), last.hash)
        self._check_bead()
        extra = next(self.transitions, None)
        if self.transitions_match and extra is not None:
            message = f"workflow_transitions has a row {extra[0]} that no event made"
            self._add_finding("row_extra", message, extra[1].seq)
        for approval in self.store.approvals.list(execution_id=self.row.id, limit=APPROVALS_MAX):
            expected = self.approvals.pop(approval.id, None)
            if expected is None:
                message = f"approvals has '{approval.id}', which was never asked"
                self._add_finding("row_extra", message)
            else:
                self._compare("approvals", approval, expected, f" of '{approval.id}'")
        for name in self.approvals:
            self._add_finding("row_missing", f"approvals lacks '{name}'")

    def _check_bead(self) -> None:
        """Compare the bead with what the run has made of it, unless another run or a person has
        changed it since."""
        if self.recorded is None or self.left is None:
            return
        run, at, n = self.left
        bead = self.store.beads.get(run.bead_id)
        if bead is None:
            self._add_finding("row_missing", f"beads lacks '{run.bead_id}'")
        elif bead.execution_id == run.id and not self.recorded.bead_since(bead.id, n):
            self.recorded.beads_of_runs.add(bead.id)
            expected = bead_row(run, replace(self.row, updated_at=at), bead)
            expected = replace(expected, created_at=bead.created_at)
            self._compare("beads", bead, expected, f" of '{bead.id}'")

    def _check_row(self, run: Run, at: str, head: bytes) -> None:
        row = self.row
        due = row.next_due
        if not _is_possible_due(due, run):
            due = _latest_due(run) if run.has_ended else _latest_due(run) or "some moment"
        expected = replace(
            execution_row(None, run, head, None, at, row.priority),
            next_due=due,
            state=row.state,
            state_seq=row.state_seq if self.state_matches else run.seq,
        )
        self._compare("workflow_executions", row, expected, " of its row")


def _latest_due(run: Run) -> str | None:
    """The first due time that the events themselves give; a dispatch's clock is the
    definition's."""
    if run.has_ended:
        return None
    if run.pause_deadline is not None:
        return iso(run.pause_deadline)
    deadlines = [approval.deadline for approval in run.pending_approvals.values()]
    deadlines += [
        position.wait.due
        for position in run.positions.values()
        if position.phase is WAITING and position.wait is not None
    ]
    return iso(min(deadlines)) if deadlines else None


def _is_possible_due(due: str | None, run: Run) -> bool:
    if run.has_ended or due is None:
        return run.has_ended and due is None
    latest = _latest_due(run)
    return latest is None or due <= latest


class LockReplay(_StreamReplay):
    """Checks the row of a commit lock."""

    def __init__(self, store: MaintenanceStore, findings: Findings, row: LockRow) -> None:
        stream = LOCK_STREAM_PREFIX + row.repository
        super().__init__(store, findings, stream, stream)
        self.row, self.lock, self.at = row, locks.CommitLock(repository=row.repository), ""

    def apply_entry(self, entry: StoredEntry) -> None:
        for event in decode_lock_events(entry.body):
            self.lock = locks.evolve(self.lock, event)
            self.at = iso(event.at)

    def finish(self, last: StoredEntry) -> None:
        self._compare("commit_locks", self.row, lock_row(self.lock, last.seq, last.hash, self.at))


class _EventStamp(Value):
    """The time and author that the journal adds to an event."""

    at: datetime
    by: str = ""


_decode_stamps = msgspec.json.Decoder(list[_EventStamp]).decode


class ChannelReplay(_StreamReplay):
    """Checks the rows of a channel, its members and its log."""

    def __init__(self, store: MaintenanceStore, findings: Findings, row: ChannelRow) -> None:
        super().__init__(store, findings, CHANNEL_STREAM_PREFIX + row.id, f"channel {row.id}")
        self.row = row
        self.channel = Channel(id=row.id)
        self.is_open = False
        self.created_at = self.at = ""
        self.log_rows_checked = 0

    def apply_entry(self, entry: StoredEntry) -> None:
        events, stamps = decode_channel_events(entry.body), _decode_stamps(entry.body)
        expected: list[ChannelLogRow] = []
        for n, (event, stamp) in enumerate(
            zip(events, stamps, strict=True), entry.seq - entry.count + 1
        ):
            self._apply(event)
            expected_row = log_row(
                self.row.id, n, StampedEvent(event=event, at=stamp.at, by=stamp.by)
            )
            expected += [expected_row] if expected_row is not None else []
            self.at = iso(stamp.at)
        self.created_at = self.created_at or self.at
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
                self._add_finding(
                    "row_missing",
                    f"channel_log lacks what was said at event {expected_row.seq}",
                    expected_row.seq,
                )
            else:
                self._compare("channel_log", stored_row, expected_row)

    def finish(self, last: StoredEntry) -> None:
        expected_row = channel_row(
            *(self.channel, last.seq, last.hash, self.created_at, self.at), is_open=self.is_open
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
        for agent_id in expected_rows:
            self._add_finding("row_missing", f"channel_members lacks {format_value(agent_id)}")

    def _count_log(self) -> int:
        count, after = 0, 0
        while page := self.store.channels.read_log(self.row.id, after, PAGE_LOG_ROWS):
            count, after = count + len(page), page[-1].seq
        return count
