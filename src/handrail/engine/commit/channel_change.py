"""A channel while a batch is decided: its state, the events decided so far, and their write.

The kernel's channel machine decides. This module adds what the machine leaves to its shell: opening
and closing a channel, who did something and when, and stored notices. In the journal every event
carries `at` and `by`.

Every batch looks up which members are busy elsewhere (`AgentLoad`). The database forbids two turns
of an agent that works on one thing at a time; such a write loses, like any write that was decided
on old state, and is decided again.
"""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from handrail.kernel.channel import events as ev
from handrail.kernel.channel import state as channels
from handrail.kernel.channel.decide import decide
from handrail.kernel.channel.evolve import evolve
from handrail.kernel.channel.state import Channel, TurnConfig
from handrail.kernel.decision import Refusal, Value
from handrail.store.channels import AgentLoad
from handrail.store.rows import (
    EMPTY_HEAD,
    ChannelLogRow,
    ChannelMemberRow,
    ChannelRow,
    ChannelWrite,
    IdempotencyKeyRow,
    MessageRow,
    StreamWrite,
    encode,
    iso,
    journal_entry,
    parse_iso,
)

CHANNEL_STREAM_PREFIX = "channel:"
ENGINE_ACTOR = "engine"


class _ShellRecord(Value, frozen=True, kw_only=True, tag=True, tag_field="type"):
    """Base of shell events and commands, encoded as the kernel encodes its own."""


class OpenChannel(_ShellRecord, frozen=True, kw_only=True):
    """Create the channel, or reopen a closed one."""

    config: TurnConfig


class CloseChannel(_ShellRecord, frozen=True, kw_only=True):
    """Close the channel: all members leave, and nothing more happens in it."""


class Opened(_ShellRecord, frozen=True, kw_only=True):
    config: TurnConfig


class Closed(_ShellRecord, frozen=True, kw_only=True):
    """The channel was closed. It may be reopened; turn and message numbers continue."""


class Noticed(_ShellRecord, frozen=True, kw_only=True):
    """A notice was written to the channel. A notice is not a message: it gives nobody a turn."""

    code: str
    text: str


ShellEvent = Opened | Closed | Noticed
ChannelJournalEvent = ev.ChannelEvent | ShellEvent
decode_channel_events = msgspec.json.Decoder(list[ChannelJournalEvent]).decode
decode_channel = msgspec.json.Decoder(Channel).decode


class ChannelRequest(Value):
    """A command to a channel, and its author: a person, an agent, or the engine."""

    command: ev.ChannelCommand | OpenChannel | CloseChannel
    by: str = ENGINE_ACTOR


def turn_id(channel_id: str, number: int) -> str:
    """The id of a turn, distinct from the ids of dispatches."""
    return f"{channel_id}.t{number}"


class StampedEvent(Value):
    """An event with the time and author that the journal adds."""

    event: ChannelJournalEvent
    at: datetime
    by: str


class ChannelStreamChange:
    """The change of one channel in a batch. `row` is None for a channel that does not exist yet."""

    run = None
    fault = ""

    def __init__(self, stream: str, row: ChannelRow | None) -> None:
        self.stream, self.row = stream, row
        self.before = Channel(id=stream.removeprefix(CHANNEL_STREAM_PREFIX))
        if row is not None:
            self.before = decode_channel(row.state)
        self.channel = self.before
        self.is_open = row is not None and row.closed_at is None
        self.agent_loads: dict[str, AgentLoad] = {}
        """What agents hold and receive in this batch; all channels of the batch share this."""
        self._turns_granted: Counter[str] = Counter()
        """Turns that this channel granted in this batch."""
        self.events: tuple[StampedEvent, ...] = ()
        self.effects: tuple[ev.ChannelEffect, ...] = ()
        self.keys: tuple[IdempotencyKeyRow, ...] = ()
        self.consumed: tuple[str, ...] = ()
        self.messages: tuple[MessageRow, ...] = ()

    def agent_ids(self) -> set[str]:
        """The agents whose load the batch has to look up."""
        return {member.agent_id for member in self.channel.members}

    def push_clocks(self, seconds: float, now: datetime) -> None:
        """Push all clocks: none ran while no engine was alive."""
        self._decide_and_record(
            ev.PushChannelClocks(seconds=seconds), ENGINE_ACTOR, self._monotonic_now(now)
        )

    def decide(self, request: ChannelRequest, now: datetime) -> Refusal | None:
        now = self._monotonic_now(now)
        command = request.command
        if isinstance(command, OpenChannel):
            return self._open(command, request.by, now)
        if not self.is_open:
            return unknown_channel_refusal(self.channel.id)
        self._update_busy(now)
        if isinstance(command, CloseChannel):
            return self._close(request.by, now)
        if isinstance(command, ev.AddMember):
            command = replace(command, busy=self._is_busy(command.agent_id))
        return self._decide_and_record(command, request.by, now)

    def _monotonic_now(self, now: datetime) -> datetime:
        """`now`, but never before the last event, whatever the clocks say."""
        return max(now, parse_iso(self.row.updated_at)) if self.row is not None else now

    def _open(self, command: OpenChannel, by: str, now: datetime) -> Refusal | None:
        if self.is_open:
            message = f"there is a channel '{self.channel.id}' already"
            return Refusal(
                code="channel_exists",
                message=message,
                hint="take another id, or change its turnConfig with PUT",
            )
        problems = channels.config_errors(command.config)
        if problems:
            message = f"turnConfig of channel '{self.channel.id}': " + "; ".join(problems)
            return Refusal(code="bad_config", message=message, hint="correct these")
        self.is_open = True
        self._record([Opened(config=command.config)], by, now)
        return None

    def _close(self, by: str, now: datetime) -> None:
        self._decide_and_record(
            ev.PauseChannel(), by, now
        )  # a removed member passes its turn to nobody
        for member in self.channel.members:
            self._decide_and_record(ev.RemoveMember(agent_id=member.agent_id), by, now)
        self._record([Closed()], by, now)
        self.is_open = False

    def _update_busy(self, now: datetime) -> None:
        """Record busy members before free ones: the turn may pass to a free member at once."""
        busy_members = [(self._is_busy(member.agent_id), member) for member in self.channel.members]
        changed = [
            (busy, member.agent_id) for busy, member in busy_members if busy is not member.busy
        ]
        for busy, agent_id in sorted(changed, reverse=True):
            self._decide_and_record(ev.SetBusy(agent_id=agent_id, busy=busy), ENGINE_ACTOR, now)

    def _is_busy(self, agent_id: str) -> bool:
        """Whether the agent already holds elsewhere as much as its capacity."""
        load, turn = self.agent_loads.get(agent_id), self.before.turn
        if load is None or load.capacity is None:
            return False
        held_here = self._turns_granted[agent_id] + (turn is not None and turn.agent_id == agent_id)
        return load.held - held_here >= load.capacity

    def _decide_and_record(
        self, command: ev.ChannelCommand, by: str, now: datetime
    ) -> Refusal | None:
        decision = decide(self.channel, command, now)
        notices = [effect for effect in decision.effects if isinstance(effect, ev.PostNotice)]
        self._record(decision.events, by, now)
        self._record(
            (Noticed(code=notice.code, text=notice.text) for notice in notices), ENGINE_ACTOR, now
        )
        self.effects += decision.effects
        return decision.refusal

    def _record(self, events: Iterable[ChannelJournalEvent], by: str, now: datetime) -> None:
        for event in events:
            self.channel = evolve_journaled(self.channel, event)
            if isinstance(event, ev.TurnGranted):
                self._count_granted_turn(event.agent_id)
            self.events += (StampedEvent(event=event, at=now, by=by),)

    def _count_granted_turn(self, agent_id: str) -> None:
        """Count the turn, so that other channels of this batch do not exceed the agent's
        capacity."""
        load = self.agent_loads.get(agent_id)
        if load is not None:
            self._turns_granted[agent_id] += 1
            self.agent_loads[agent_id] = load._replace(held=load.held + 1)

    def build_write(self) -> StreamWrite:
        head = self.row.head if self.row is not None else EMPTY_HEAD
        seq = (self.row.seq if self.row is not None else 0) + len(self.events)
        entry = journal_entry(self.stream, seq, head, [_stamped_builtins(e) for e in self.events])
        at = iso(self.events[-1].at)
        log_rows = [
            log_row(self.channel.id, n, stamped)
            for n, stamped in enumerate(self.events, seq - len(self.events) + 1)
        ]
        return StreamWrite(
            expected_head=head,
            entry=entry,
            row=channel_row(
                self.channel,
                seq,
                entry.hash,
                self.row.created_at if self.row is not None else at,
                at,
                is_open=self.is_open,
            ),
            channel=self._channel_write([row for row in log_rows if row is not None]),
            consumed_message_ids=self.consumed,
            keys=self.keys,
        )

    def _channel_write(self, log: list[ChannelLogRow]) -> ChannelWrite:
        old, new = member_rows(self.before), member_rows(self.channel)
        changed = [row for row in new.values() if old.pop(row.agent_id, None) != row]
        return ChannelWrite(
            members=[replace(row, sole=self._sole_flag(row.agent_id)) for row in changed],
            removed_members=[(self.channel.id, agent_id) for agent_id in old],
            log=log,
        )

    def _sole_flag(self, agent_id: str) -> int:
        load = self.agent_loads.get(agent_id)
        return int(load is not None and load.capacity == 1)


def evolve_journaled(channel: Channel, event: ChannelJournalEvent) -> Channel:
    """Return the channel after one event of its journal."""
    match event:
        case Opened(config=config):
            return replace(channel, config=config, paused=False, resting="", rest_ordered="")
        case Closed() | Noticed():
            return channel
        case _:
            return evolve(channel, event)


def _stamped_builtins(stamped: StampedEvent) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(stamped.event)
    return {**fields, "at": iso(stamped.at), "by": stamped.by}


def channel_row(
    channel: Channel, seq: int, head: bytes, created_at: str, at: str, *, is_open: bool
) -> ChannelRow:
    """The row of a channel after a journal entry."""
    due = channels.next_due(channel)
    return ChannelRow(
        id=channel.id,
        seq=seq,
        head=head,
        next_due=iso(due) if due is not None else None,
        created_at=created_at,
        updated_at=at,
        closed_at=None if is_open else at,
        state=encode(channel).decode(),
    )


def member_rows(channel: Channel) -> dict[str, ChannelMemberRow]:
    """The rows of the members, without their capacities, which no event records."""
    turn = channel.turn
    return {
        member.agent_id: ChannelMemberRow(
            channel_id=channel.id,
            agent_id=member.agent_id,
            state=member.state.value,
            busy=int(member.busy),
            sole=0,
            turn=turn.number if turn is not None and turn.agent_id == member.agent_id else None,
        )
        for member in channel.members
    }


def log_row(channel_id: str, seq: int, stamped: StampedEvent) -> ChannelLogRow | None:
    """The row of a message or a notice; None for any other event."""
    match stamped.event:
        case ev.MessagePosted() as e:
            return ChannelLogRow(
                channel_id=channel_id,
                seq=seq,
                kind="message",
                number=e.number,
                message_id=e.message_id,
                code="",
                author=e.author,
                human=int(e.human),
                text=e.text,
                recipient=e.to,
                at=iso(stamped.at),
            )
        case Noticed() as e:
            return ChannelLogRow(
                channel_id=channel_id,
                seq=seq,
                kind="notice",
                number=None,
                message_id="",
                code=e.code,
                author=ENGINE_ACTOR,
                human=0,
                text=e.text,
                recipient=None,
                at=iso(stamped.at),
            )
        case _:
            return None


def unknown_channel_refusal(channel_id: str) -> Refusal:
    return Refusal(
        code="unknown_channel",
        message=f"there is no channel '{channel_id[:200]}'",
        hint="look at the list of channels",
    )
