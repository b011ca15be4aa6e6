"""A channel while a batch is decided: its state, what was decided so far, and the write of it all.

The machine is the kernel's. What is added here is what it leaves to its shell: that a channel is
opened and closed, who did something and when, and that notices are kept. In the journal every event
carries `at` and `by`.

Who is busy elsewhere is not believed but looked up for every batch (`Engaged`), and what the
database forbids (two turns of an agent that works on one thing at a time) loses, like any write
that was decided on old knowledge, and is decided anew.
"""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from handrail.engine.project import encode
from handrail.kernel import channel as channels
from handrail.kernel import channel_events as ev
from handrail.kernel.channel import Channel, TurnConfig
from handrail.kernel.channel_decide import decide
from handrail.kernel.channel_evolve import evolve
from handrail.kernel.decision import Refusal, Value
from handrail.store.chain import START, entry_hash
from handrail.store.channels import ChannelRow, ChannelWrite, Engaged, LogRow, MemberRow
from handrail.store.port import Entry, KeyRow, Message, Write, iso, moment

CHANNEL = "channel:"
ENGINE = "engine"


class _Tagged(Value, frozen=True, kw_only=True, tag=True, tag_field="type"):
    """As the kernel's."""


class Open(_Tagged, frozen=True, kw_only=True):
    """Make the channel, or open one that was closed."""

    config: TurnConfig


class Close(_Tagged, frozen=True, kw_only=True):
    """Everybody leaves, and nothing more happens here."""


class Opened(_Tagged, frozen=True, kw_only=True):
    config: TurnConfig


class Closed(_Tagged, frozen=True, kw_only=True):
    """It may be opened again; turns and messages are counted on."""


class Noticed(_Tagged, frozen=True, kw_only=True):
    """The channel was told something. It is no message: nobody's turn comes of it."""

    code: str
    text: str


ShellEvent = Opened | Closed | Noticed
Event = ev.ChannelEvent | ShellEvent
decode_channel_events = msgspec.json.Decoder(list[Event]).decode
decode_channel = msgspec.json.Decoder(Channel).decode


class Order(Value):
    """A command to a channel, and whose it is: a person's, an agent's, or the engine's."""

    command: ev.ChannelCommand | Open | Close
    by: str = ENGINE


def turn_id(channel_id: str, number: int) -> str:
    """A turn by name, beside the ids of dispatches."""
    return f"{channel_id}.t{number}"


class Told(Value):
    """An event with what the journal says beside it."""

    event: Event
    at: datetime
    by: str


class ChannelWork:
    """A channel in a batch. `row` is None for one that nobody has made."""

    run = None

    def __init__(self, stream: str, row: ChannelRow | None) -> None:
        self.stream, self.row = stream, row
        self.before = Channel(id=stream.removeprefix(CHANNEL))
        if row is not None:
            self.before = decode_channel(row.state)
        self.channel = self.before
        self.is_open = row is not None and row.closed_at is None
        self.engaged: dict[str, Engaged] = {}
        """What agents hold, and are given in this batch; all channels of it share this."""
        self._given: Counter[str] = Counter()
        """Turns that are given here, in this batch."""
        self.events: tuple[Told, ...] = ()
        self.effects: tuple[ev.ChannelEffect, ...] = ()
        self.keys: tuple[KeyRow, ...] = ()
        self.consumed: tuple[str, ...] = ()
        self.messages: tuple[Message, ...] = ()

    def agents(self) -> set[str]:
        """Of whom it has to be known what they hold."""
        return {member.agent_id for member in self.channel.members}

    def push(self, seconds: float, now: datetime) -> None:
        """No clock ran for so long: nobody was there."""
        self._decide(ev.PushClocks(seconds=seconds), ENGINE, self._not_before(now))

    def take(self, order: Order, now: datetime) -> Refusal | None:
        now = self._not_before(now)
        command = order.command
        if isinstance(command, Open):
            return self._open(command, order.by, now)
        if not self.is_open:
            return unknown_channel(self.channel.id)
        self._know_busy(now)
        if isinstance(command, Close):
            return self._close(order.by, now)
        if isinstance(command, ev.AddMember):
            command = replace(command, busy=self._is_busy(command.agent_id))
        return self._decide(command, order.by, now)

    def _not_before(self, now: datetime) -> datetime:
        """No event is before the one before it, whatever the clocks say."""
        return max(now, moment(self.row.updated_at)) if self.row is not None else now

    def _open(self, command: Open, by: str, now: datetime) -> Refusal | None:
        if self.is_open:
            told = f"there is a channel '{self.channel.id}' already"
            hint = "take another id, or change its turnConfig with PUT"
            return Refusal(code="channel_exists", message=told, hint=hint)
        wrong = channels.config_errors(command.config)
        if wrong:
            told = f"turnConfig of channel '{self.channel.id}': " + "; ".join(wrong)
            return Refusal(code="bad_config", message=told, hint="correct these")
        self.is_open = True
        self._record([Opened(config=command.config)], by, now)
        return None

    def _close(self, by: str, now: datetime) -> None:
        self._decide(ev.Pause(), by, now)  # who is removed leaves its turn to nobody
        for member in self.channel.members:
            self._decide(ev.RemoveMember(agent_id=member.agent_id), by, now)
        self._record([Closed()], by, now)
        self.is_open = False

    def _know_busy(self, now: datetime) -> None:
        """Who is busy now is told before who is free: the turn may pass to that one at once."""
        known = [(self._is_busy(one.agent_id), one) for one in self.channel.members]
        changed = [(busy, one.agent_id) for busy, one in known if busy is not one.busy]
        for busy, agent_id in sorted(changed, reverse=True):
            self._decide(ev.SetBusy(agent_id=agent_id, busy=busy), ENGINE, now)

    def _is_busy(self, agent_id: str) -> bool:
        """Whether it holds elsewhere all that it can work on."""
        known, turn = self.engaged.get(agent_id), self.before.turn
        if known is None or known.capacity is None:
            return False
        here = self._given[agent_id] + (turn is not None and turn.agent_id == agent_id)
        return known.held - here >= known.capacity

    def _decide(self, command: ev.ChannelCommand, by: str, now: datetime) -> Refusal | None:
        decision = decide(self.channel, command, now)
        notices = [e for e in decision.effects if isinstance(e, ev.PostNotice)]
        self._record(decision.events, by, now)
        self._record((Noticed(code=one.code, text=one.text) for one in notices), ENGINE, now)
        self.effects += decision.effects
        return decision.refusal

    def _record(self, events: Iterable[Event], by: str, now: datetime) -> None:
        for event in events:
            self.channel = evolved(self.channel, event)
            if isinstance(event, ev.TurnGranted):
                self._give(event.agent_id)
            self.events += (Told(event=event, at=now, by=by),)

    def _give(self, agent_id: str) -> None:
        """Others of this batch do not give it another turn beyond its capacity."""
        known = self.engaged.get(agent_id)
        if known is not None:
            self._given[agent_id] += 1
            self.engaged[agent_id] = known._replace(held=known.held + 1)

    def write(self) -> Write:
        head = self.row.head if self.row is not None else START
        seq = (self.row.seq if self.row is not None else 0) + len(self.events)
        body = encode([_as_told(one) for one in self.events]).decode()
        entry = Entry(
            stream=self.stream,
            seq=seq,
            count=len(self.events),
            body=body,
            hash=entry_hash(head, self.stream, seq, body),
        )
        at = iso(self.events[-1].at)
        created = self.row.created_at if self.row is not None else at
        first = seq - len(self.events) + 1
        log = [log_row(self.channel.id, n, one) for n, one in enumerate(self.events, first)]
        return Write(
            expected=head,
            entry=entry,
            subject=channel_row(self.channel, entry, created, at, is_open=self.is_open),
            channel=self._beside([row for row in log if row is not None]),
            consumed=self.consumed,
            keys=self.keys,
        )

    def _beside(self, log: list[LogRow]) -> ChannelWrite:
        old, new = member_rows(self.before), member_rows(self.channel)
        changed = [row for row in new.values() if old.pop(row.agent_id, None) != row]
        return ChannelWrite(
            members=[replace(row, sole=self._sole(row.agent_id)) for row in changed],
            left=[(self.channel.id, agent_id) for agent_id in old],
            log=log,
        )

    def _sole(self, agent_id: str) -> int:
        known = self.engaged.get(agent_id)
        return int(known is not None and known.capacity == 1)


def evolved(channel: Channel, event: Event) -> Channel:
    """The channel after an event of its journal."""
    match event:
        case Opened(config=config):
            return replace(channel, config=config, paused=False, resting="", rest_ordered="")
        case Closed() | Noticed():
            return channel
        case _:
            return evolve(channel, event)


def _as_told(told: Told) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(told.event)
    return {**fields, "at": iso(told.at), "by": told.by}


def channel_row(
    channel: Channel, entry: Entry, created_at: str, at: str, *, is_open: bool
) -> ChannelRow:
    """A channel as it is stored after an entry."""
    due = channels.next_due(channel)
    return ChannelRow(
        id=channel.id,
        seq=entry.seq,
        head=entry.hash,
        next_due=iso(due) if due is not None else None,
        created_at=created_at,
        updated_at=at,
        closed_at=None if is_open else at,
        state=encode(channel).decode(),
    )


def member_rows(channel: Channel) -> dict[str, MemberRow]:
    """Its members as they are stored, but for their capacities, of which no event speaks."""
    turn = channel.turn
    return {
        member.agent_id: MemberRow(
            channel_id=channel.id,
            agent_id=member.agent_id,
            state=member.state.value,
            busy=int(member.busy),
            sole=0,
            turn=turn.number if turn is not None and turn.agent_id == member.agent_id else None,
        )
        for member in channel.members
    }


def log_row(channel_id: str, seq: int, told: Told) -> LogRow | None:
    """A message or a notice as it is stored; None for what is neither."""
    match told.event:
        case ev.MessagePosted() as e:
            return LogRow(
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
                at=iso(told.at),
            )
        case Noticed() as e:
            return LogRow(
                channel_id=channel_id,
                seq=seq,
                kind="notice",
                number=None,
                message_id="",
                code=e.code,
                author=ENGINE,
                human=0,
                text=e.text,
                recipient=None,
                at=iso(told.at),
            )
        case _:
            return None


def unknown_channel(channel_id: str) -> Refusal:
    told = f"there is no channel '{channel_id[:200]}'"
    return Refusal(code="unknown_channel", message=told, hint="look at the list of channels")
