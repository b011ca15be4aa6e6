"""What is asked about one agent of a channel: to add, remove, lose or find it, and its turn.

Theory of operation. Each function takes a draft and a command, checks the command against the
draft's state, and either returns a refusal or makes its moves (channel_moves.py) and returns None.

Rules of this file are those of channel_decide.py, which calls it: refuse and never raise, check
before the first move, let the token decide, take what already is so for done.

Not here: messages and the channel's own settings (channel_decide.py), the moves, the table.
"""

from typing import assert_never

from handrail.kernel import channel_events as ev
from handrail.kernel import channel_moves as moves
from handrail.kernel.channel import (
    MEMBERS_MAX,
    SECONDS_MAX,
    WAITS_PER_TURN_MAX,
    Member,
    Turn,
    find,
    queue,
    seconds_valid,
)
from handrail.kernel.channel_moves import Draft
from handrail.kernel.decision import Refusal
from handrail.kernel.lifecycle import LOST, AgentState, Trigger, in_queue, transition

_OVERRIDES = {
    AgentState.ACTIVE: Trigger.OVERRIDE_TO_ACTIVE,
    AgentState.QUEUED: Trigger.OVERRIDE_TO_QUEUED,
}


# ---- checks


def who(draft: Draft, agent_id: str) -> str:
    """An agent by name and place, for messages."""
    return f"agent {agent_id!r} in channel {draft.channel.id!r}"


def known(draft: Draft, agent_id: str) -> Member | Refusal:
    """The member, or the refusal of a name that is none."""
    member = find(draft.channel, agent_id)
    if member is not None:
        return member
    return Refusal(
        code="unknown_agent",
        message=f"{who(draft, agent_id)} is not a member",
        hint="add it to the channel first",
    )


def _barred(draft: Draft, member: Member, trigger: Trigger) -> Refusal | None:
    """The table's refusal, if it has no such cell."""
    target = transition(member.state, trigger, who(draft, member.agent_id))
    return target if isinstance(target, Refusal) else None


def late(draft: Draft, agent_id: str, token: int | None, expired: Turn | None) -> Refusal | None:
    """The refusal of an answer that belongs to a turn which is over."""
    turn = draft.channel.turn
    now_held = "nobody holds the turn"
    if turn is not None:
        now_held = f"turn {turn.number} is held by {turn.agent_id!r}"
    over = expired is not None and expired.agent_id == agent_id
    if expired is not None and over and token in (None, expired.number):
        return Refusal(
            code="turn_expired",
            message=f"{who(draft, agent_id)}: turn {expired.number} ran out; {now_held} now",
            hint="wait for the next turn; ask for a longer timeout if this happens often",
        )
    if token is None or (turn is not None and (turn.number, turn.agent_id) == (token, agent_id)):
        return None
    return Refusal(
        code="stale_turn",
        message=f"{who(draft, agent_id)} answered for turn {token}, but {now_held}",
        hint="send the number of the turn that was granted to you last, and only while you hold it",
    )


def _bad_seconds(draft: Draft, agent_id: str, seconds: float | None) -> Refusal | None:
    if seconds is None or seconds_valid(seconds):
        return None
    return Refusal(
        code="bad_seconds",
        message=f"{who(draft, agent_id)}: {seconds} is no duration for a turn or a wait",
        hint=f"give more than 0 and at most {SECONDS_MAX:.0f} seconds",
    )


# ---- members


def add(draft: Draft, command: ev.AddMember) -> Refusal | None:
    """Assign an agent, at the end of the queue; for one that is assigned, change its settings."""
    channel, old = draft.channel, find(draft.channel, command.agent_id)
    refusal = _bad_seconds(draft, command.agent_id, command.timeout_seconds)
    refusal = refusal or _not_addable(draft, command, old)
    if refusal is not None:
        return refusal
    seconds, priority = command.timeout_seconds, command.priority
    if seconds is None and old is not None:
        seconds = old.timeout_seconds
    if priority is None:
        priority = 0 if old is None else old.priority
    if old is not None and old.assigned:
        if (seconds, priority) != (old.timeout_seconds, old.priority):
            draft.record(
                ev.MemberChanged(agent_id=old.agent_id, timeout_seconds=seconds, priority=priority)
            )
        return None
    draft.record(
        ev.MemberAdded(
            agent_id=command.agent_id,
            timeout_seconds=seconds,
            priority=priority,
            busy=command.busy,
        )
    )
    if old is not None and old.state is AgentState.OFFLINE:
        draft.move(command.agent_id, Trigger.AGENT_STARTS)
    draft.move(command.agent_id, Trigger.ASSIGNED)
    if not queue(channel):
        moves.wake(draft, "the first agent is back")
    moves.advance(draft)
    return None


def _not_addable(draft: Draft, command: ev.AddMember, old: Member | None) -> Refusal | None:
    name = who(draft, command.agent_id)
    if not command.agent_id.strip():
        return Refusal(code="no_agent", message=f"{name} has no name", hint="name the agent")
    if old is not None and old.assigned:
        return None
    if old is not None and not old.enabled:
        return Refusal(code="agent_disabled", message=f"{name} is disabled", hint="enable it first")
    if not command.online:
        return Refusal(
            code="agent_offline",
            message=f"{name} is OFFLINE and cannot be assigned",
            hint="start the agent, then add it to the channel",
        )
    if old is None and len(draft.channel.members) >= MEMBERS_MAX:
        return Refusal(
            code="channel_full",
            message=f"{name}: the channel has {MEMBERS_MAX} members already",
            hint="remove members, or open another channel",
        )
    return None


def about_member(draft: Draft, command: ev.MemberCommand) -> Refusal | None:
    """Remove a member, or take note of what happened to it elsewhere."""
    member = known(draft, command.agent_id)
    if isinstance(member, Refusal):
        return member
    match command:
        case ev.RemoveMember():
            _remove(draft, member)
        case ev.TakeOffline(detail=detail):
            _take_offline(draft, member, detail)
        case ev.BringOnline():
            return _bring_online(draft, member)
        case ev.Disable():
            _set_enabled(draft, member, enabled=False)
        case ev.Enable():
            _set_enabled(draft, member, enabled=True)
        case ev.SetBusy(busy=busy):
            if busy is not member.busy:
                draft.record(ev.BusyChanged(agent_id=member.agent_id, busy=busy))
                moves.advance(draft)
        case _:
            assert_never(command)
    return None


def _remove(draft: Draft, member: Member) -> None:
    ordered = ""
    if in_queue(member.state):
        ordered = moves.leave(draft, member.agent_id, Trigger.REMOVED)
    draft.record(ev.MemberRemoved(agent_id=member.agent_id))
    moves.advance(draft, ordered)


def _take_offline(draft: Draft, member: Member, detail: str) -> None:
    if member.state is AgentState.OFFLINE:
        return
    before, trigger, agent_id = draft.channel, LOST[member.state], member.agent_id
    turn = before.turn
    holds = turn is not None and turn.agent_id == agent_id
    text = f"{who(draft, agent_id)} was {member.state.value}: {trigger.value}"
    text += f" in turn {turn.number}" if turn is not None and holds else ""
    text += f"; {detail}" if detail else ""
    draft.record(ev.Warned(code="agent_lost", agent_id=agent_id, message=text))
    ordered = moves.leave(draft, agent_id, trigger)
    if holds and before.config.announce_disconnects:
        sign = "\N{WARNING SIGN}\N{VARIATION SELECTOR-16}"
        notice = f"{sign} {agent_id} disconnected, skipping turn"
        draft.perform(ev.PostNotice(code="agent_disconnected", text=notice))
    moves.announce_empty(draft, before)
    moves.advance(draft, ordered)


def _set_enabled(draft: Draft, member: Member, *, enabled: bool) -> None:
    if enabled is member.enabled:
        return
    draft.record(ev.EnabledChanged(agent_id=member.agent_id, enabled=enabled))
    if enabled:
        draft.move(member.agent_id, Trigger.ENABLED)
        return
    before = draft.channel
    ordered = moves.leave(draft, member.agent_id, Trigger.DISABLED)
    moves.announce_empty(draft, before)
    moves.advance(draft, ordered)


def _bring_online(draft: Draft, member: Member) -> Refusal | None:
    if member.state is not AgentState.OFFLINE:
        return None
    if not member.enabled:
        name = who(draft, member.agent_id)
        return Refusal(
            code="agent_disabled",
            message=f"{name} is disabled and stays OFFLINE",
            hint="enable it first",
        )
    draft.move(member.agent_id, Trigger.AGENT_STARTS)
    return None


# ---- the turn


def complete(draft: Draft, member: Member) -> Refusal | None:
    """The agent says that it is done."""
    refusal = _barred(draft, member, Trigger.TURN_COMPLETE)
    if refusal is None:
        moves.complete_turn(draft)
    return refusal


def wait(draft: Draft, member: Member, command: ev.RequestWait) -> Refusal | None:
    """The agent pauses its turn."""
    refusal = _barred(draft, member, Trigger.WAIT_REQUESTED)
    refusal = refusal or _bad_seconds(draft, member.agent_id, command.seconds)
    if refusal is not None:
        return refusal
    turn = draft.turn()
    if turn.waits >= WAITS_PER_TURN_MAX:
        return Refusal(
            code="too_many_waits",
            message=f"{who(draft, member.agent_id)} has waited {turn.waits} times "
            f"in turn {turn.number}",
            hint="complete the turn; it comes again in the next cycle",
        )
    seconds = command.seconds
    if seconds is None:
        seconds = draft.channel.config.wait_timeout_seconds
    moves.pause_turn(draft, Trigger.WAIT_REQUESTED, seconds, command.reason)
    return None


def resume(draft: Draft, member: Member, command: ev.Resume) -> Refusal | None:
    """The turn goes on with the time it had left."""
    refusal = _barred(draft, member, Trigger.WAIT_RESOLVED)
    if refusal is not None:
        return refusal
    turn = draft.turn()
    if turn.interrupted and not command.human:
        return Refusal(
            code="interrupted_by_human",
            message=f"{who(draft, member.agent_id)}: turn {turn.number} was interrupted "
            "by a person",
            hint="a person resumes or overrides it; otherwise it resumes when the wait is over",
        )
    moves.resume_turn(draft, Trigger.WAIT_RESOLVED, turn.seconds_left)
    return None


def override(draft: Draft, member: Member, command: ev.Override) -> Refusal | None:
    """A person ends the wait: the turn goes on with a fresh timeout, or is over."""
    trigger = _OVERRIDES.get(command.to)
    if trigger is None:
        return Refusal(
            code="bad_target",
            message=f"{who(draft, member.agent_id)} cannot be overridden to {command.to.value}",
            hint="override to ACTIVE or to QUEUED",
        )
    refusal = _barred(draft, member, trigger)
    if refusal is not None:
        return refusal
    if command.to is AgentState.ACTIVE:
        moves.resume_turn(draft, trigger, moves.timeout_of(draft.channel, member))
    else:
        moves.advance(draft, moves.end_turn(draft, trigger))
    return None


def grant(draft: Draft, member: Member) -> Refusal | None:
    """A person gives the turn to an agent out of order, or in manual order."""
    channel, name = draft.channel, who(draft, member.agent_id)
    asleep = member.assigned and member.state is AgentState.IDLE
    refusal = None if asleep else _barred(draft, member, Trigger.TURN_GRANTED)
    if refusal is not None:
        return refusal
    if channel.turn is not None:
        return Refusal(
            code="turn_held",
            message=f"{name} cannot have the turn: turn {channel.turn.number} is held by "
            f"{channel.turn.agent_id!r}",
            hint="wait for its end, or override or remove its holder",
        )
    if channel.paused:
        message = f"{name} cannot have the turn: the channel is paused"
        return Refusal(code="channel_paused", message=message, hint="unpause it first")
    if member.busy:
        message = f"{name} cannot have the turn: it is busy elsewhere"
        return Refusal(code="agent_busy", message=message, hint="wait until it is done there")
    if asleep:
        draft.move(member.agent_id, Trigger.ASSIGNED)
    moves.wake(draft, "a person granted the turn")
    moves.grant(draft, moves.Pick(member=member, cycle=channel.cycle))
    return None
