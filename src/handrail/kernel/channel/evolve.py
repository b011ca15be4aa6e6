"""Applies events to a channel, and derives dispositions from them.

Theory of operation. `evolve(channel, event)` is the only path from events to state: `decide` builds
its answer with it, the shell updates its copy with it, replay is a fold of it.

Rules of this file:
1. No policy: `evolve` never checks whether an event was right.
2. No clock: the events carry the times.

Not here: the events of a command (decide.py), the types of events (events.py).
"""

from collections.abc import Iterable
from datetime import timedelta
from enum import StrEnum
from typing import assert_never

from msgspec.structs import replace

from handrail.kernel.agent_lifecycle import AgentState, is_in_queue
from handrail.kernel.channel.events import (
    BusyChanged,
    ChannelClocksPushed,
    ChannelEvent,
    ChannelPaused,
    ChannelUnpaused,
    ChannelWarned,
    Configured,
    ControlEvent,
    EnabledChanged,
    MemberAdded,
    MemberChanged,
    MemberEvent,
    MemberRemoved,
    MessageEvent,
    MessagePosted,
    MessagesDelivered,
    Rested,
    RestOrdered,
    Transitioned,
    TurnEnded,
    TurnEvent,
    TurnGranted,
    TurnPaused,
    TurnResumed,
    Woken,
)
from handrail.kernel.channel.state import (
    RECENT_MESSAGES_MAX,
    Channel,
    ChannelTurn,
    Member,
    find_member,
)


class Disposition(StrEnum):
    """What became of a human message."""

    DELIVERED = "delivered"
    QUEUED = "queued"
    LOGGED = "logged"


def evolve(channel: Channel, event: ChannelEvent) -> Channel:
    """Return the channel after an event."""
    match event:
        case (
            Transitioned()
            | MemberAdded()
            | MemberChanged()
            | MemberRemoved()
            | EnabledChanged()
            | BusyChanged()
        ):
            return _evolve_member(channel, event)
        case TurnGranted() | TurnPaused() | TurnResumed() | TurnEnded() | ChannelClocksPushed():
            return _evolve_turn(channel, event)
        case MessagePosted() | MessagesDelivered():
            return _evolve_messages(channel, event)
        case (
            Configured() | ChannelPaused() | ChannelUnpaused() | RestOrdered() | Rested() | Woken()
        ):
            return _evolve_control(channel, event)
        case ChannelWarned():
            return channel
        case _:
            assert_never(event)


def _require_member(channel: Channel, agent_id: str) -> Member:
    member = find_member(channel, agent_id)
    assert member is not None, f"channel {channel.id!r} has no member {agent_id!r}"
    return member


def _require_turn(channel: Channel) -> ChannelTurn:
    assert channel.turn is not None, f"channel {channel.id!r}: nobody holds the turn"
    return channel.turn


def _replace_member(channel: Channel, member: Member) -> Channel:
    """Replace a member at its position."""
    return replace(
        channel,
        members=tuple(member if m.agent_id == member.agent_id else m for m in channel.members),
    )


def _clear_silence(channel: Channel) -> Channel:
    if not any(m.silent for m in channel.members):
        return channel
    return replace(channel, members=tuple(replace(m, silent=False) for m in channel.members))


def _evolve_member(channel: Channel, event: MemberEvent) -> Channel:
    match event:
        case MemberAdded():
            return _apply_added(channel, event)
        case MemberRemoved(agent_id=agent_id):
            return replace(
                channel, members=tuple(m for m in channel.members if m.agent_id != agent_id)
            )
        case MemberChanged(agent_id=agent_id, timeout_seconds=seconds, priority=priority):
            return _replace_member(
                channel,
                replace(
                    _require_member(channel, agent_id), timeout_seconds=seconds, priority=priority
                ),
            )
        case EnabledChanged(agent_id=agent_id, enabled=enabled):
            return _replace_member(
                channel, replace(_require_member(channel, agent_id), enabled=enabled)
            )
        case BusyChanged(agent_id=agent_id, busy=busy):
            return _replace_member(channel, replace(_require_member(channel, agent_id), busy=busy))
        case Transitioned(agent_id=agent_id, to=to):
            member = replace(_require_member(channel, agent_id), state=to)
            if to is AgentState.OFFLINE:
                # It leaves the queue for good: back online, it must be assigned again.
                member = replace(member, assigned=False, busy=False, silent=False)
            return _replace_member(channel, member)
        case _:
            assert_never(event)


def _apply_added(channel: Channel, event: MemberAdded) -> Channel:
    existing = find_member(channel, event.agent_id)
    other_members = tuple(m for m in channel.members if m.agent_id != event.agent_id)
    member = Member(
        agent_id=event.agent_id,
        state=AgentState.IDLE if existing is None else existing.state,
        assigned=True,
        busy=event.busy,
        timeout_seconds=event.timeout_seconds,
        priority=event.priority,
        # A new member gets no earlier messages, except those that still wait for a reader.
        seen=channel.routed,
        heard=channel.routed,
    )
    return replace(channel, members=(*other_members, member))


def _evolve_turn(channel: Channel, event: TurnEvent) -> Channel:
    match event:
        case TurnGranted():
            return _apply_granted(channel, event)
        case TurnPaused():
            turn = _require_turn(channel)
            return replace(
                channel,
                turn=replace(
                    turn,
                    timeout_at=None,
                    wait_until=event.wait_until,
                    seconds_left=event.seconds_left,
                    interrupted=event.interrupted,
                    waits=turn.waits + (0 if event.interrupted else 1),
                ),
            )
        case TurnResumed(at=at, timeout_at=timeout_at):
            turn = _require_turn(channel)
            return replace(
                channel,
                turn=replace(
                    turn,
                    timeout_at=timeout_at,
                    wait_until=None,
                    seconds_left=0.0,
                    interrupted=False,
                    # The pause does not count as silence.
                    quiet_since=None if turn.quiet_since is None else at,
                ),
            )
        case TurnEnded(agent_id=agent_id, quiet=quiet):
            member = _require_member(channel, agent_id)
            member = replace(member, silent=quiet, heard=member.seen)
            ended = replace(_replace_member(channel, member), turn=None, rest_ordered="")
            # An agent lost in its turn did not finish the cycle: for the others it starts again.
            return ended if is_in_queue(member.state) else _clear_silence(ended)
        case ChannelClocksPushed(seconds=seconds):
            return replace(
                channel, turn=_push_turn(_require_turn(channel), timedelta(seconds=seconds))
            )
        case _:
            assert_never(event)


def _push_turn(turn: ChannelTurn, by: timedelta) -> ChannelTurn:
    return replace(
        turn,
        timeout_at=turn.timeout_at + by if turn.timeout_at is not None else None,
        wait_until=turn.wait_until + by if turn.wait_until is not None else None,
        quiet_since=turn.quiet_since + by if turn.quiet_since is not None else None,
    )


def _apply_granted(channel: Channel, event: TurnGranted) -> Channel:
    turn = ChannelTurn(
        agent_id=event.agent_id,
        number=event.turn,
        granted_at=event.at,
        after=_require_member(channel, event.agent_id).heard,
        timeout_at=event.timeout_at,
    )
    for agent_id in event.passed:
        channel = _replace_member(
            channel, replace(_require_member(channel, agent_id), served=event.cycle)
        )
    return replace(
        _replace_member(
            channel,
            replace(_require_member(channel, event.agent_id), served=event.cycle, seen=event.upto),
        ),
        turn=turn,
        turns=event.turn,
        cycle=event.cycle,
        agent_turns=channel.agent_turns + 1,
        routed=event.upto,
    )


def _evolve_messages(channel: Channel, event: MessageEvent) -> Channel:
    match event:
        case MessagePosted():
            return _apply_posted(channel, event)
        case MessagesDelivered(agent_id=agent_id, upto=upto):
            return replace(
                _replace_member(channel, replace(_require_member(channel, agent_id), seen=upto)),
                routed=upto,
            )
        case _:
            assert_never(event)


def _apply_posted(channel: Channel, event: MessagePosted) -> Channel:
    number, turn = event.number, channel.turn
    if turn is not None:
        is_holder = event.author == turn.agent_id and not event.human
        restarts_silence = is_holder or turn.quiet_since is not None
        turn = replace(turn, quiet=False, quiet_since=event.at if restarts_silence else None)
    is_up_to_date = channel.routed == number - 1 and not event.awaits_reader
    return replace(
        _clear_silence(channel),
        turn=turn,
        message_count=number,
        routed=number if is_up_to_date else channel.routed,
        recent=(*channel.recent, event.message_id)[-RECENT_MESSAGES_MAX:],
        agent_turns=0 if event.human else channel.agent_turns,
        rest_ordered="" if event.human else channel.rest_ordered,
    )


def _evolve_control(channel: Channel, event: ControlEvent) -> Channel:
    match event:
        case Configured(config=config):
            return replace(channel, config=config)
        case ChannelPaused():
            return replace(channel, paused=True)
        case ChannelUnpaused():
            return replace(channel, paused=False)
        case RestOrdered(reason=reason):
            return replace(channel, rest_ordered=reason)
        case Rested(reason=reason):
            return replace(channel, resting=reason)
        case Woken():
            return replace(_clear_silence(channel), resting="", agent_turns=0)
        case _:
            assert_never(event)


def disposition(message: MessagePosted, events: Iterable[ChannelEvent]) -> Disposition:
    """Return how the decision that recorded a human message disposed of it."""
    if not message.awaits_reader:
        return Disposition.LOGGED
    reached = (e.upto for e in events if isinstance(e, MessagesDelivered | TurnGranted))
    arrived = any(upto >= message.number for upto in reached)
    return Disposition.DELIVERED if arrived else Disposition.QUEUED
