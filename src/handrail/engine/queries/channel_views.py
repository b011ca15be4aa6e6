"""Channels, turns and messages as they are shown: over HTTP, to workers, on the page."""

from handrail.engine.commit.channel_change import turn_id
from handrail.kernel.agent_lifecycle import PROPERTIES, Receiving
from handrail.kernel.channel.state import (
    Channel,
    ChannelTurn,
    TurnOrder,
    active_agent_id,
    find_member,
    turn_queue,
)
from handrail.kernel.channel.turns import pick_next
from handrail.store.rows import ChannelLogRow, ChannelRow, parse_iso
from handrail.views.channels import ActiveTurnView, ChannelView, MemberView, MessageView, TurnView


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
