"""Channels, turns and messages as they are shown: over HTTP, to workers, on the page."""

from datetime import datetime
from typing import Literal

import msgspec

from handrail.engine.commit.channel_change import turn_id
from handrail.kernel.agent_lifecycle import PROPERTIES, AgentState, Receiving
from handrail.kernel.channel.evolve import Disposition
from handrail.kernel.channel.state import (
    Channel,
    ChannelTurn,
    TurnConfig,
    TurnOrder,
    active_agent_id,
    find_member,
    turn_queue,
)
from handrail.kernel.channel.turns import pick_next
from handrail.store.channels import ChannelLogRow, ChannelRow
from handrail.store.engine_store import parse_iso
from handrail.views.view_types import View


class ActiveTurnView(View):
    """The turn in progress. It runs until `timeout_at`, or is paused until `wait_until`."""

    agent_id: str
    number: int
    granted_at: datetime
    timeout_at: datetime | None
    wait_until: datetime | None
    seconds_left: float
    """While the turn is paused: seconds left when it is resumed."""
    interrupted: bool
    """Whether a person paused it."""


class MemberView(View):
    agent_id: str
    state: AgentState
    timeout_seconds: float | None = msgspec.field(name="timeoutSeconds")
    """None: the channel's default."""
    priority: int
    enabled: bool
    busy: bool
    """Whether it works elsewhere: its turn passes, its position stays."""


class ChannelView(View):
    """A channel. `queue` is the turn queue by position, with the holder of the turn; `active` is
    the agent that may respond now."""

    id: str
    turn_config: TurnConfig = msgspec.field(name="turnConfig")
    active: str | None
    turn: ActiveTurnView | None
    queue: tuple[str, ...]
    next: str | None
    """The agent with the next turn; None if a person decides, or no other agent is there."""
    states: dict[str, AgentState]
    members: tuple[MemberView, ...]
    paused: bool
    resting: str
    """Why the channel rests; empty while it does not."""
    messages: int
    turns: int
    position: int
    """For `after`: the messages from now on."""
    created_at: datetime
    updated_at: datetime


class MessageView(View):
    """A message, or a notice to the channel. `id` is for `after`."""

    id: int
    kind: Literal["message", "notice"]
    author: str
    human: bool
    text: str
    to: str | None
    code: str
    """The code of a notice."""
    at: datetime


class PostedMessage(MessageView):
    """`disposition`: the message has reached an agent, waits for its turn to do so, or was only
    logged."""

    disposition: Disposition


class TurnView(View, kw_only=True):
    """A turn as its agent gets it: with all messages since its last one."""

    id: str
    kind: Literal["turn"] = "turn"
    channel_id: str
    agent_id: str
    turn: int
    granted_at: datetime
    timeout_at: datetime | None
    messages: tuple[MessageView, ...]
    position: int
    """For `after`: the messages from now on."""


def channel_view(row: ChannelRow, channel: Channel) -> ChannelView:
    return ChannelView(
        id=channel.id,
        turn_config=channel.config,
        active=active_agent_id(channel),
        turn=_active_turn_view(channel.turn),
        queue=tuple(member.agent_id for member in turn_queue(channel)),
        next=_next_agent(channel),
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
        created_at=parse_iso(row.created_at),
        updated_at=parse_iso(row.updated_at),
    )


def _next_agent(channel: Channel) -> str | None:
    is_alone = channel.turn is not None and len(turn_queue(channel)) == 1
    choice = None if is_alone or channel.config.order is TurnOrder.MANUAL else pick_next(channel)
    return None if choice is None else choice.member.agent_id


def _active_turn_view(turn: ChannelTurn | None) -> ActiveTurnView | None:
    if turn is None:
        return None
    return ActiveTurnView(
        agent_id=turn.agent_id,
        number=turn.number,
        granted_at=turn.granted_at,
        timeout_at=turn.timeout_at,
        wait_until=turn.wait_until,
        seconds_left=turn.seconds_left,
        interrupted=turn.interrupted,
    )


def message_view(row: ChannelLogRow) -> MessageView:
    return MessageView(
        id=row.seq,
        kind="message" if row.kind == "message" else "notice",
        author=row.author,
        human=bool(row.human),
        text=row.text,
        to=row.recipient,
        code=row.code,
        at=parse_iso(row.at),
    )


def turn_view(
    row: ChannelRow, channel: Channel, turn: ChannelTurn, messages: list[ChannelLogRow]
) -> TurnView:
    """Build the view of a turn. `messages` are all that its agent has not seen; its own are left
    out."""
    return TurnView(
        id=turn_id(channel.id, turn.number),
        channel_id=channel.id,
        agent_id=turn.agent_id,
        turn=turn.number,
        granted_at=turn.granted_at,
        timeout_at=turn.timeout_at,
        messages=tuple(
            message_view(message)
            for message in messages
            if not is_own_message(message, turn.agent_id)
        ),
        position=row.seq,
    )


def is_own_message(row: ChannelLogRow, agent_id: str) -> bool:
    return row.author == agent_id and not row.human


def can_see(channel: Channel, agent_id: str, row: ChannelLogRow) -> bool:
    """Whether a message or notice has reached a member. An observer sees everything; the active
    agent gets messages at once, or not before its next turn."""
    member = find_member(channel, agent_id)
    if member is None or PROPERTIES[member.state].receives is Receiving.NO:
        return False
    if row.number is None or PROPERTIES[member.state].receives is Receiving.OBSERVES:
        return True
    return row.number <= member.seen or is_own_message(row, agent_id)
