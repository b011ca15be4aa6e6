"""Rows against events, of channels: their rows, members and logs are what their events make.

Not compared is whether a member is `sole`: that is its agent's capacity, of which no event speaks.
"""

from collections.abc import Iterable
from datetime import datetime

import msgspec
from msgspec.structs import replace

from handrail.engine.audit_rows import entries
from handrail.engine.channel_work import (
    CHANNEL,
    Closed,
    Event,
    Opened,
    Told,
    channel_row,
    decode_channel_events,
    evolved,
    log_row,
    member_rows,
)
from handrail.engine.findings import Findings, shown
from handrail.kernel.channel import Channel, check
from handrail.kernel.decision import Value
from handrail.store.channels import ChannelRow, LogRow
from handrail.store.port import Entry, Recorded, StoreError, iso
from handrail.store.records import Records
from handrail.store.row import Row

LOG_A_PAGE = 1_000


class _Beside(Value):
    """What the journal says beside an event."""

    at: datetime
    by: str = ""


_decode_beside = msgspec.json.Decoder(list[_Beside]).decode


def check_channel(store: Records, found: Findings, row: ChannelRow) -> None:
    """Everything that is stored about one channel."""
    replay = _Replay(store, found, row)
    seq = 0
    try:
        for entry in entries(store, CHANNEL + row.id):
            seq = entry.seq
            replay.take(entry)
    except StoreError:
        raise
    except Exception as error:  # whatever a forged event does to the kernel
        told = f"the events of channel {row.id} up to {seq} cannot be replayed"
        why = shown(str(error) or type(error).__name__)
        found.add("unreadable", f"{told}: {why}", CHANNEL + row.id, seq)
        return
    replay.finish()


class _Replay:
    def __init__(self, store: Records, found: Findings, row: ChannelRow) -> None:
        self.store, self.found, self.row = store, found, row
        self.channel = Channel(id=row.id)
        self.is_open = False
        self.created_at = self.at = ""
        self.last: Recorded | None = None
        self.logged = 0

    def take(self, entry: Recorded) -> None:
        events, beside = decode_channel_events(entry.body), _decode_beside(entry.body)
        first = entry.seq - entry.count + 1
        expected: list[LogRow] = []
        for n, (event, said) in enumerate(zip(events, beside, strict=True), first):
            self._apply(event)
            line = log_row(self.row.id, n, Told(event=event, at=said.at, by=said.by))
            expected += [line] if line is not None else []
            self.at = iso(said.at)
        self.created_at = self.created_at or self.at
        self.last = entry
        self._check_log(expected)

    def _apply(self, event: Event) -> None:
        self.channel = evolved(self.channel, event)
        if isinstance(event, Opened | Closed):
            self.is_open = isinstance(event, Opened)

    def _check_log(self, expected: list[LogRow]) -> None:
        if not expected:
            return
        stored = self.store.channel_log(self.row.id, expected[0].seq - 1, len(expected))
        by_seq = {line.seq: line for line in stored}
        for right in expected:
            self.logged += 1
            line = by_seq.get(right.seq)
            if line is None:
                told = f"channel_log lacks what was said at event {right.seq}"
                self._add("row_missing", told, right.seq)
            else:
                self._compare("channel_log", line, right)

    def finish(self) -> None:
        assert self.last is not None, "there are events"
        entry = Entry(
            stream=self.last.stream,
            seq=self.last.seq,
            count=self.last.count,
            body="",
            hash=self.last.hash,
        )
        right = channel_row(self.channel, entry, self.created_at, self.at, is_open=self.is_open)
        self._compare("channels", self.row, right)
        for broken in check(self.channel) if self.is_open else ():
            self._add("invariant", broken)
        self._check_members()
        if self._count_log() > self.logged:
            self._add("row_extra", "channel_log has a line that no event made")

    def _check_members(self) -> None:
        rights = member_rows(self.channel)
        for row in self.store.members_of(self.row.id):
            right = rights.pop(row.agent_id, None)
            if right is None:
                self._add("row_extra", f"channel_members has {shown(row.agent_id)}, no member")
            else:
                self._compare("channel_members", row, replace(right, sole=row.sole))
        self._lacks(rights)

    def _lacks(self, members: Iterable[str]) -> None:
        for agent_id in members:
            self._add("row_missing", f"channel_members lacks {shown(agent_id)}")

    def _count_log(self) -> int:
        count, after = 0, 0
        while page := self.store.channel_log(self.row.id, after, LOG_A_PAGE):
            count, after = count + len(page), page[-1].seq
        return count

    def _compare(self, table: str, stored: Row, right: Row) -> None:
        for name in stored.__struct_fields__ if stored != right else ():
            is_, should = getattr(stored, name), getattr(right, name)
            if is_ != should:
                told = f"{table}.{name} is {shown(is_)}, by the events {shown(should)}"
                self._add("row_changed", told, getattr(right, "seq", None))

    def _add(self, code: str, message: str, seq: int | None = None) -> None:
        self.found.add(code, f"channel {self.row.id}: {message}", CHANNEL + self.row.id, seq)
