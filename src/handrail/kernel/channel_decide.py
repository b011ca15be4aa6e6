"""What a channel answers to a command: `decide(channel, command, now)`.

Theory of operation. First the deadline that has passed is applied, whoever calls; only what is
known of agents elsewhere, and of clocks that stood still, comes before that. Then the command is
checked against the state that this leaves, and either refused or made of moves
(channel_moves.py). So a decision may carry a timeout's events and the refusal of the answer that
came after it.

Rules of this file:
1. Bad input is refused, never raised: unknown agents, old tokens, wrong states, impossible seconds,
   empty texts. A refusal names who, what and where; its hint says what to do.
2. All checks of a command come before its first move, so a refusal leaves nothing behind.
3. A turn's token decides: an answer with an old one, or with none for a turn that has just expired,
   is refused, and the refusal names both turns as the evidence.
4. What already is so is no error: to add, pause, disable or post the same again gives no events.
   What the lifecycle's table does not allow is one, also the second time.

Not here: who may send what (the server's roles), the moves themselves, the table.
"""

from datetime import datetime
from typing import TypeAlias, assert_never

from handrail.kernel import channel_actions as actions
from handrail.kernel import channel_events as ev
from handrail.kernel import channel_moves as moves
from handrail.kernel.channel import (
    Channel,
    HumanMode,
    Turn,
    available,
    config_errors,
    find,
    human_waits,
    queue,
)
from handrail.kernel.channel_moves import Draft
from handrail.kernel.decision import Decision, Refusal
from handrail.kernel.lifecycle import PROPERTIES, Trigger

ChannelDecision: TypeAlias = Decision[ev.ChannelEvent, ev.ChannelEffect]


def decide(channel: Channel, command: ev.ChannelCommand, now: datetime) -> ChannelDecision:
    """What becomes of a command at this moment."""
    assert now.tzinfo is not None, "time is aware, in UTC"
    draft = Draft(channel, now)
    if isinstance(command, ev.PushClocks):
        return _push(draft, command)
    # Who is busy elsewhere is known before a turn passes to anybody, also by a deadline.
    expired = None if isinstance(command, ev.SetBusy) else moves.expire(draft)
    expiry = len(draft.events)
    refusal = _apply(draft, command, expired)
    assert refusal is None or len(draft.events) == expiry, "a refusal changes nothing"
    return Decision(events=tuple(draft.events), effects=tuple(draft.effects), refusal=refusal)


def _push(draft: Draft, command: ev.PushClocks) -> ChannelDecision:
    """Before any deadline is looked at: it may not have passed after all."""
    if draft.channel.turn is not None and command.seconds > 0:
        draft.record(ev.ClocksPushed(seconds=command.seconds))
    return Decision(events=tuple(draft.events))


def _apply(draft: Draft, command: ev.ChannelCommand, expired: Turn | None) -> Refusal | None:
    match command:
        case ev.AddMember():
            return actions.add(draft, command)
        case ev.PostMessage():
            return _post(draft, command)
        case ev.Configure() | ev.Pause() | ev.Unpause() | ev.Rest() | ev.Tick() | ev.PushClocks():
            return _apply_room(draft, command)
        case ev.CompleteTurn() | ev.RequestWait() | ev.Resume() | ev.Override() | ev.GrantTurn():
            return _apply_turn(draft, command, expired)
        case ev.Respond():
            return _respond(draft, command, expired)
        case (
            ev.RemoveMember()
            | ev.TakeOffline()
            | ev.BringOnline()
            | ev.Disable()
            | ev.Enable()
            | ev.SetBusy()
        ):
            return actions.about_member(draft, command)
        case _:
            assert_never(command)


def _apply_turn(draft: Draft, command: ev.TurnCommand, expired: Turn | None) -> Refusal | None:
    member = actions.known(draft, command.agent_id)
    if isinstance(member, Refusal):
        return member
    match command:
        case ev.CompleteTurn(turn=token):
            late = actions.late(draft, member.agent_id, token, expired)
            return late or actions.complete(draft, member)
        case ev.RequestWait(turn=token):
            late = actions.late(draft, member.agent_id, token, expired)
            return late or actions.wait(draft, member, command)
        case ev.Resume(turn=token):
            late = actions.late(draft, member.agent_id, token, expired)
            return late or actions.resume(draft, member, command)
        case ev.Override():
            return actions.override(draft, member, command)
        case ev.GrantTurn():
            return actions.grant(draft, member)
        case _:
            assert_never(command)


# ---- the channel itself


def _apply_room(draft: Draft, command: ev.RoomCommand) -> Refusal | None:
    match command:
        case ev.Configure():
            return _configure(draft, command)
        case ev.Rest():
            return _rest(draft, command)
        case ev.Pause():
            if not draft.channel.paused:
                draft.record(ev.Paused())
        case ev.Unpause():
            if draft.channel.paused:
                draft.record(ev.Unpaused())
                moves.advance(draft)
        case ev.Tick() | ev.PushClocks():
            pass
        case _:
            assert_never(command)
    return None


def _configure(draft: Draft, command: ev.Configure) -> Refusal | None:
    errors = config_errors(command.config)
    if errors:
        return Refusal(
            code="bad_config",
            message=f"turnConfig of channel {draft.channel.id!r}: " + "; ".join(errors),
            hint="correct these and send the whole turnConfig again",
        )
    if command.config != draft.channel.config:
        draft.record(ev.Configured(config=command.config))
        moves.expire(draft)  # a shorter clock may be due already
        moves.advance(draft)
    return None


def _rest(draft: Draft, command: ev.Rest) -> Refusal | None:
    channel = draft.channel
    if not command.reason.strip():
        return Refusal(
            code="no_reason",
            message=f"channel {channel.id!r} was told to rest without a reason",
            hint="name the rule that fired",
        )
    if channel.resting or channel.rest_ordered:
        return None
    if channel.turn is not None:
        # The table knows no way to take a turn away for this; the rest begins at its end.
        draft.record(ev.RestOrdered(reason=command.reason))
    elif queue(channel):
        moves.rest(draft, command.reason)
    return None


# ---- messages


def _bad_text(draft: Draft, author: str, message_id: str, text: str) -> Refusal | None:
    missing = [
        name
        for name, value in (("author", author), ("message id", message_id), ("text", text))
        if not value.strip()
    ]
    if not missing:
        return None
    return Refusal(
        code="empty_message",
        message=f"a message of {author!r} to channel {draft.channel.id!r} has no "
        + ", ".join(missing),
        hint="send a text, with its author and an id of its own",
    )


def _respond(draft: Draft, command: ev.Respond, expired: Turn | None) -> Refusal | None:
    member = actions.known(draft, command.agent_id)
    if isinstance(member, Refusal):
        return member
    refusal = _bad_text(draft, command.agent_id, command.message_id, command.text)
    if refusal is not None or command.message_id in draft.channel.recent:
        return refusal  # sent again because the answer was lost: also when the turn is over by now
    late = actions.late(draft, member.agent_id, command.turn, expired)
    if late is not None:
        return late
    if not PROPERTIES[member.state].responds:
        return Refusal(
            code="not_active",
            message=f"{actions.who(draft, member.agent_id)} is {member.state.value} "
            "and may not respond",
            hint="wait for the turn, then respond with its number",
        )
    _record(draft, command, author=command.agent_id, human=False, awaits_reader=False)
    moves.rouse(draft)
    return None


def _post(draft: Draft, command: ev.PostMessage) -> Refusal | None:
    channel = draft.channel
    refusal = _bad_text(draft, command.author, command.message_id, command.text)
    if refusal is not None or command.message_id in channel.recent:
        return refusal
    if command.to is not None and find(channel, command.to) is None:
        return Refusal(
            code="unknown_agent",
            message=f"a message of {command.author!r} is for {command.to!r}, which is not "
            f"a member of channel {channel.id!r}",
            hint="name a member, or leave `to` out",
        )
    # With an earlier message still on its way, this one goes with it, whoever reads them.
    routable = available(channel) or human_waits(channel)
    _record(draft, command, author=command.author, human=True, awaits_reader=routable)
    moves.rouse(draft)
    moves.wake(draft, f"message of {command.author!r}")
    _route(draft)
    return None


def _record(
    draft: Draft,
    command: ev.TalkCommand,
    *,
    author: str,
    human: bool,
    awaits_reader: bool,
) -> None:
    draft.record(
        ev.MessagePosted(
            number=draft.channel.message_count + 1,
            message_id=command.message_id,
            author=author,
            human=human,
            text=command.text,
            to=command.to,
            at=draft.now,
            awaits_reader=awaits_reader,
        )
    )


def _route(draft: Draft) -> None:
    """Bring a human message to the agents, as the channel's mode says."""
    config, turn = draft.channel.config, draft.channel.turn
    if turn is None:
        moves.advance(draft)
    running = turn is not None and turn.wait_until is None
    match config.human_interrupt_mode:
        case HumanMode.INJECT if turn is not None and running:
            moves.deliver(draft, turn.agent_id)
        case HumanMode.INTERRUPT if running:
            moves.pause_turn(draft, Trigger.HUMAN_INTERRUPT, config.wait_timeout_seconds)
        case HumanMode.PARALLEL:
            for member in queue(draft.channel):
                moves.deliver(draft, member.agent_id)
        case HumanMode.QUEUE | HumanMode.INJECT | HumanMode.INTERRUPT:
            pass  # it comes with the next turn, or when the paused one is resumed
        case _:
            assert_never(config.human_interrupt_mode)
