"""Commands about one agent of a channel: add, remove, connect or lose it, and its turn.

Theory of operation. Each function takes a decision builder and a command, checks the command
against the builder's state, and returns a refusal, or makes its moves (turns.py) and returns None.

The rules of decide.py, the caller, hold here too: refuse and never raise, check before the first
move, let the turn number decide, accept repetitions.

Not here: messages and the channel's settings (decide.py), the moves, the table.
"""

from collections.abc import Callable
from typing import Any, cast

from handrail.kernel.agent_lifecycle import (
    LOST_TRIGGERS,
    AgentState,
    Trigger,
    is_in_queue,
    transition,
)
from handrail.kernel.channel import events as ev
from handrail.kernel.channel import turns
from handrail.kernel.channel.state import (
    MEMBERS_MAX,
    TURN_SECONDS_MAX,
    WAITS_PER_TURN_MAX,
    ChannelTurn,
    Member,
    find_member,
    is_valid_seconds,
    turn_queue,
)
from handrail.kernel.channel.turns import ChannelDecisionBuilder
from handrail.kernel.decision import Refusal

_OVERRIDES = {
    AgentState.ACTIVE: Trigger.OVERRIDE_TO_ACTIVE,
    AgentState.QUEUED: Trigger.OVERRIDE_TO_QUEUED,
}


# ---- checks


def describe_agent(builder: ChannelDecisionBuilder, agent_id: str) -> str:
    """Return the agent's name and channel, for messages."""
    return f"agent {agent_id!r} in channel {builder.channel.id!r}"


def require_member(builder: ChannelDecisionBuilder, agent_id: str) -> Member | Refusal:
    """Return the member, or a refusal of an unknown name."""
    member = find_member(builder.channel, agent_id)
    if member is not None:
        return member
    return Refusal(
        code="unknown_agent",
        message=f"{describe_agent(builder, agent_id)} is not a member",
        hint="add it to the channel first",
    )


def _check_transition(
    builder: ChannelDecisionBuilder, member: Member, trigger: Trigger
) -> Refusal | None:
    """Return a refusal if the table does not have this transition."""
    target = transition(member.state, trigger, describe_agent(builder, member.agent_id))
    return target if isinstance(target, Refusal) else None


def check_turn_number(
    builder: ChannelDecisionBuilder,
    agent_id: str,
    turn_number: int | None,
    expired: ChannelTurn | None,
) -> Refusal | None:
    """Return a refusal if the answer belongs to a turn that is over."""
    turn = builder.channel.turn
    now_held = "nobody holds the turn"
    if turn is not None:
        now_held = f"turn {turn.number} is held by {turn.agent_id!r}"
    is_over = expired is not None and expired.agent_id == agent_id
    if expired is not None and is_over and turn_number in (None, expired.number):
        return Refusal(
            code="turn_expired",
            message=(
                f"{describe_agent(builder, agent_id)}: turn {expired.number} ran out; "
                f"{now_held} now"
            ),
            hint="wait for the next turn; ask for a longer timeout if this happens often",
        )
    if turn_number is None or (
        turn is not None and (turn.number, turn.agent_id) == (turn_number, agent_id)
    ):
        return None
    return Refusal(
        code="stale_turn",
        message=(
            f"{describe_agent(builder, agent_id)} answered for turn {turn_number}, but {now_held}"
        ),
        hint="send the number of the turn that was granted to you last, and only while you hold it",
    )


def _check_seconds(
    builder: ChannelDecisionBuilder, agent_id: str, seconds: float | None
) -> Refusal | None:
    if seconds is None or is_valid_seconds(seconds):
        return None
    return Refusal(
        code="bad_seconds",
        message=(
            f"{describe_agent(builder, agent_id)}: {seconds} seconds is not a valid "
            "duration of a turn or a wait"
        ),
        hint=f"give more than 0 and at most {TURN_SECONDS_MAX:.0f} seconds",
    )


# ---- members


def add_member(builder: ChannelDecisionBuilder, command: ev.AddMember) -> Refusal | None:
    """Assign an agent, at the end of the queue; if it is assigned already, change its settings."""
    channel, existing = builder.channel, find_member(builder.channel, command.agent_id)
    refusal = _check_seconds(builder, command.agent_id, command.timeout_seconds)
    refusal = refusal or _check_addable(builder, command, existing)
    if refusal is not None:
        return refusal
    seconds, priority = command.timeout_seconds, command.priority
    if seconds is None and existing is not None:
        seconds = existing.timeout_seconds
    if priority is None:
        priority = 0 if existing is None else existing.priority
    if existing is not None and existing.assigned:
        if (seconds, priority) != (existing.timeout_seconds, existing.priority):
            builder.record(
                ev.MemberChanged(
                    agent_id=existing.agent_id, timeout_seconds=seconds, priority=priority
                )
            )
        return None
    builder.record(
        ev.MemberAdded(
            agent_id=command.agent_id,
            timeout_seconds=seconds,
            priority=priority,
            busy=command.busy,
        )
    )
    if existing is not None and existing.state is AgentState.OFFLINE:
        builder.apply_trigger(command.agent_id, Trigger.AGENT_STARTS)
    builder.apply_trigger(command.agent_id, Trigger.ASSIGNED)
    if not turn_queue(channel):
        turns.wake(builder, "the first agent is back")
    turns.advance(builder)
    return None


def _check_addable(
    builder: ChannelDecisionBuilder, command: ev.AddMember, existing: Member | None
) -> Refusal | None:
    name = describe_agent(builder, command.agent_id)
    if not command.agent_id.strip():
        return Refusal(code="no_agent", message=f"{name} has no name", hint="name the agent")
    if existing is not None and existing.assigned:
        return None
    if existing is not None and not existing.enabled:
        return Refusal(code="agent_disabled", message=f"{name} is disabled", hint="enable it first")
    if not command.online:
        return Refusal(
            code="agent_offline",
            message=f"{name} is OFFLINE and cannot be assigned",
            hint="start the agent, then add it to the channel",
        )
    if existing is None and len(builder.channel.members) >= MEMBERS_MAX:
        return Refusal(
            code="channel_full",
            message=f"{name}: the channel has {MEMBERS_MAX} members already",
            hint="remove members, or open another channel",
        )
    return None


def _remove(builder: ChannelDecisionBuilder, member: Member, command: ev.RemoveMember) -> None:
    rest_reason = ""
    if is_in_queue(member.state):
        rest_reason = turns.leave_queue(builder, member.agent_id, Trigger.REMOVED)
    builder.record(ev.MemberRemoved(agent_id=member.agent_id))
    turns.advance(builder, rest_reason)


def _take_offline(builder: ChannelDecisionBuilder, member: Member, command: ev.TakeOffline) -> None:
    if member.state is AgentState.OFFLINE:
        return
    before, trigger, agent_id = builder.channel, LOST_TRIGGERS[member.state], member.agent_id
    turn = before.turn
    holds_turn = turn is not None and turn.agent_id == agent_id
    text = f"{describe_agent(builder, agent_id)} was {member.state.value}: {trigger.value}"
    text += f" in turn {turn.number}" if turn is not None and holds_turn else ""
    text += f"; {command.detail}" if command.detail else ""
    builder.record(ev.ChannelWarned(code="agent_lost", agent_id=agent_id, message=text))
    rest_reason = turns.leave_queue(builder, agent_id, trigger)
    if holds_turn and before.config.announce_disconnects:
        sign = "\N{WARNING SIGN}\N{VARIATION SELECTOR-16}"
        builder.add_effect(
            ev.PostNotice(
                code="agent_disconnected", text=f"{sign} {agent_id} disconnected, skipping turn"
            )
        )
    turns.announce_empty(builder, before)
    turns.advance(builder, rest_reason)


def _set_busy(builder: ChannelDecisionBuilder, member: Member, command: ev.SetBusy) -> None:
    if command.busy is not member.busy:
        builder.record(ev.BusyChanged(agent_id=member.agent_id, busy=command.busy))
        turns.advance(builder)


def _set_enabled(
    builder: ChannelDecisionBuilder, member: Member, command: ev.Enable | ev.Disable
) -> None:
    enabled = isinstance(command, ev.Enable)
    if enabled is member.enabled:
        return
    builder.record(ev.EnabledChanged(agent_id=member.agent_id, enabled=enabled))
    if enabled:
        builder.apply_trigger(member.agent_id, Trigger.ENABLED)
        return
    before = builder.channel
    rest_reason = turns.leave_queue(builder, member.agent_id, Trigger.DISABLED)
    turns.announce_empty(builder, before)
    turns.advance(builder, rest_reason)


def _bring_online(
    builder: ChannelDecisionBuilder, member: Member, command: ev.BringOnline
) -> Refusal | None:
    if member.state is not AgentState.OFFLINE:
        return None
    if not member.enabled:
        name = describe_agent(builder, member.agent_id)
        return Refusal(
            code="agent_disabled",
            message=f"{name} is disabled and stays OFFLINE",
            hint="enable it first",
        )
    builder.apply_trigger(member.agent_id, Trigger.AGENT_STARTS)
    return None


# ---- the turn


def _complete(
    builder: ChannelDecisionBuilder, member: Member, command: ev.CompleteTurn
) -> Refusal | None:
    """Complete the agent's turn."""
    refusal = _check_transition(builder, member, Trigger.TURN_COMPLETE)
    if refusal is None:
        turns.complete_turn(builder)
    return refusal


def _wait(
    builder: ChannelDecisionBuilder, member: Member, command: ev.RequestWait
) -> Refusal | None:
    """Pause the agent's turn at its request."""
    refusal = _check_transition(builder, member, Trigger.WAIT_REQUESTED)
    refusal = refusal or _check_seconds(builder, member.agent_id, command.seconds)
    if refusal is not None:
        return refusal
    turn = builder.turn()
    if turn.waits >= WAITS_PER_TURN_MAX:
        return Refusal(
            code="too_many_waits",
            message=f"{describe_agent(builder, member.agent_id)} has waited {turn.waits} times "
            f"in turn {turn.number}",
            hint="complete the turn; it comes again in the next cycle",
        )
    seconds = command.seconds
    if seconds is None:
        seconds = builder.channel.config.wait_timeout_seconds
    turns.pause_turn(builder, Trigger.WAIT_REQUESTED, seconds, command.reason)
    return None


def _resume(
    builder: ChannelDecisionBuilder, member: Member, command: ev.ResumeTurn
) -> Refusal | None:
    """Resume the turn with the time it had left."""
    if (refusal := _check_transition(builder, member, Trigger.WAIT_RESOLVED)) is not None:
        return refusal
    turn = builder.turn()
    if turn.interrupted and not command.human:
        return Refusal(
            code="interrupted_by_human",
            message=f"{describe_agent(builder, member.agent_id)}: turn {turn.number} was "
            "interrupted "
            "by a person",
            hint="a person resumes or overrides it; otherwise it resumes when the wait is over",
        )
    turns.resume_turn(builder, Trigger.WAIT_RESOLVED, turn.seconds_left)
    return None


def _override(
    builder: ChannelDecisionBuilder, member: Member, command: ev.OverrideWait
) -> Refusal | None:
    """End the wait for a person: the turn continues with a fresh timeout, or is over."""
    trigger = _OVERRIDES.get(command.to)
    if trigger is None:
        return Refusal(
            code="bad_target",
            message=(
                f"{describe_agent(builder, member.agent_id)} cannot be overridden to "
                f"{command.to.value}"
            ),
            hint="override to ACTIVE or to QUEUED",
        )
    if (refusal := _check_transition(builder, member, trigger)) is not None:
        return refusal
    if command.to is AgentState.ACTIVE:
        turns.resume_turn(builder, trigger, turns.turn_timeout_seconds(builder.channel, member))
    else:
        turns.advance(builder, turns.end_turn(builder, trigger))
    return None


def _grant(
    builder: ChannelDecisionBuilder, member: Member, command: ev.GrantTurn
) -> Refusal | None:
    """Grant the turn to an agent for a person, out of order or in manual order."""
    channel, name = builder.channel, describe_agent(builder, member.agent_id)
    is_dormant = member.assigned and member.state is AgentState.IDLE
    if (
        refusal := None if is_dormant else _check_transition(builder, member, Trigger.TURN_GRANTED)
    ) is not None:
        return refusal
    if channel.turn is not None:
        return Refusal(
            code="turn_held",
            message=f"{name} cannot have the turn: turn {channel.turn.number} is held by "
            f"{channel.turn.agent_id!r}",
            hint="wait for its end, or override or remove its holder",
        )
    if channel.paused:
        return Refusal(
            code="channel_paused",
            message=f"{name} cannot have the turn: the channel is paused",
            hint="unpause it first",
        )
    if member.busy:
        return Refusal(
            code="agent_busy",
            message=f"{name} cannot have the turn: it is busy elsewhere",
            hint="wait until it is done there",
        )
    if is_dormant:
        builder.apply_trigger(member.agent_id, Trigger.ASSIGNED)
    turns.wake(builder, "a person granted the turn")
    turns.grant_turn(builder, turns.NextTurn(member=member, cycle=channel.cycle))
    return None


HANDLERS = cast(
    "dict[type[object], Callable[[ChannelDecisionBuilder, Member, Any], Refusal | None]]",
    {
        ev.RemoveMember: _remove,
        ev.TakeOffline: _take_offline,
        ev.BringOnline: _bring_online,
        ev.Disable: _set_enabled,
        ev.Enable: _set_enabled,
        ev.SetBusy: _set_busy,
        ev.CompleteTurn: _complete,
        ev.RequestWait: _wait,
        ev.ResumeTurn: _resume,
        ev.OverrideWait: _override,
        ev.GrantTurn: _grant,
    },
)
