"""Channels, turns and messages as they are shown: over HTTP, to workers, on the page."""

from datetime import datetime
from typing import Literal

import msgspec

from handrail.engine.channel_work import turn_id
from handrail.kernel.channel import Channel, Turn, TurnConfig, TurnOrder, active, find, queue
from handrail.kernel.channel_evolve import Disposition
from handrail.kernel.channel_moves import pick
from handrail.kernel.lifecycle import PROPERTIES, AgentState, Receiving
from handrail.kernel.shown import Shown
from handrail.store.channels import ChannelRow, LogRow
from handrail.store.port import moment


class TurnShown(Shown):
    """The turn in progress. It runs until `timeout_at`, or is paused until `wait_until`."""

    agent_id: str
    number: int
    granted_at: datetime
    timeout_at: datetime | None
    wait_until: datetime | None
    seconds_left: float
    """While it is paused: what it has left when it is resumed."""
    interrupted: bool
    """Paused by a person."""


class MemberView(Shown):
    agent_id: str
    state: AgentState
    timeout_seconds: float | None = msgspec.field(name="timeoutSeconds")
    """None: the channel's default."""
    priority: int
    enabled: bool
    busy: bool
    """It works elsewhere: its turn passes, its position stays."""


class ChannelView(Shown):
    """A channel. `queue` is the turn queue by position, who has the turn included; `active` is who
    may respond now."""

    id: str
    turn_config: TurnConfig = msgspec.field(name="turnConfig")
    active: str | None
    turn: TurnShown | None
    queue: tuple[str, ...]
    next: str | None
    """Who has the turn after this one; None if a person says so, or nobody else is there."""
    states: dict[str, AgentState]
    members: tuple[MemberView, ...]
    paused: bool
    resting: str
    """Why it rests; empty while it does not."""
    messages: int
    turns: int
    position: int
    """For `after`: what is said from now on."""
    created_at: datetime
    updated_at: datetime


class MessageView(Shown):
    """What was said, or (a notice) what the channel was told. `id` is for `after`."""

    id: int
    kind: Literal["message", "notice"]
    author: str
    human: bool
    text: str
    to: str | None
    code: str
    """Of a notice."""
    at: datetime


class Posted(MessageView):
    """`disposition`: it has reached an agent, waits for its turn to do so, or was only logged."""

    disposition: Disposition


class TurnView(Shown, kw_only=True):
    """A turn as its agent is given it: with all that was said since its last one."""

    id: str
    kind: Literal["turn"] = "turn"
    channel_id: str
    agent_id: str
    turn: int
    granted_at: datetime
    timeout_at: datetime | None
    messages: tuple[MessageView, ...]
    position: int
    """For `after`: what is said from now on."""


def shown_channel(row: ChannelRow, channel: Channel) -> ChannelView:
    return ChannelView(
        id=channel.id,
        turn_config=channel.config,
        active=active(channel),
        turn=_turn(channel.turn),
        queue=tuple(member.agent_id for member in queue(channel)),
        next=_next(channel),
        states={member.agent_id: member.state for member in channel.members},
        members=tuple(
            MemberView(
                agent_id=member.agent_id,
                state=member.state,
                timeout_seconds=member.timeout_seconds,
                priority=member.priority,
                enabled=member.enabled,
                busy=member.busy,
            )
            for member in channel.members
        ),
        paused=channel.paused,
        resting=channel.resting,
        messages=channel.message_count,
        turns=channel.turns,
        position=row.seq,
        created_at=moment(row.created_at),
        updated_at=moment(row.updated_at),
    )


def _next(channel: Channel) -> str | None:
    alone = channel.turn is not None and len(queue(channel)) == 1
    choice = None if alone or channel.config.order is TurnOrder.MANUAL else pick(channel)
    return None if choice is None else choice.member.agent_id


def _turn(turn: Turn | None) -> TurnShown | None:
    if turn is None:
        return None
    return TurnShown(
        agent_id=turn.agent_id,
        number=turn.number,
        granted_at=turn.granted_at,
        timeout_at=turn.timeout_at,
        wait_until=turn.wait_until,
        seconds_left=turn.seconds_left,
        interrupted=turn.interrupted,
    )


def shown_message(row: LogRow) -> MessageView:
    return MessageView(
        id=row.seq,
        kind="message" if row.kind == "message" else "notice",
        author=row.author,
        human=bool(row.human),
        text=row.text,
        to=row.recipient,
        code=row.code,
        at=moment(row.at),
    )


def shown_turn(row: ChannelRow, channel: Channel, turn: Turn, said: list[LogRow]) -> TurnView:
    """`said` is all that its agent had not seen; its own is left out."""
    return TurnView(
        id=turn_id(channel.id, turn.number),
        channel_id=channel.id,
        agent_id=turn.agent_id,
        turn=turn.number,
        granted_at=turn.granted_at,
        timeout_at=turn.timeout_at,
        messages=tuple(shown_message(one) for one in said if not is_own(one, turn.agent_id)),
        position=row.seq,
    )


def is_own(row: LogRow, agent_id: str) -> bool:
    return row.author == agent_id and not row.human


def sees(channel: Channel, agent_id: str, row: LogRow) -> bool:
    """Whether a line has reached a member. Who observes sees everything; to the active agent
    messages are delivered, at once or not before its next turn."""
    member = find(channel, agent_id)
    if member is None or PROPERTIES[member.state].receives is Receiving.NO:
        return False
    if row.number is None or PROPERTIES[member.state].receives is Receiving.OBSERVES:
        return True
    return row.number <= member.seen or is_own(row, agent_id)
