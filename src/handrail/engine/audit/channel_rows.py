"""Checks rows of channels, members and logs against the events that make them.

Not compared is whether a member is `sole`: that is its agent's capacity, which no event records.
"""

from collections.abc import Iterable
from datetime import datetime

import msgspec
from msgspec.structs import replace

from handrail.engine.audit.findings import Findings, format_value
from handrail.engine.audit.run_rows import read_entries
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
from handrail.kernel.channel.state import Channel, check_invariants
from handrail.kernel.decision import Value
from handrail.store.columns import Row
from handrail.store.maintenance import MaintenanceStore
from handrail.store.rows import (
    ChannelLogRow,
    ChannelRow,
    JournalEntry,
    StoredEntry,
    StoreError,
    iso,
)

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
