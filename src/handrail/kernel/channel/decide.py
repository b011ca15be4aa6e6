"""Decides a channel's commands: `decide(channel, command, now)`.

Theory of operation. `decide` first applies a deadline that has passed, whatever the command; only
`SetBusy` and `PushChannelClocks` come before that. Then it checks the command against the resulting
state, and either refuses it or carries it out by the moves of `turns.py`. So a decision may carry a
timeout's events and the refusal of the answer that came after it.

Rules of this file:
1. Bad input is refused, never raised: unknown agents, old turn numbers, wrong states, impossible
   seconds, empty texts. A refusal names who, what and where; its hint says what to do.
2. All checks of a command come before its first move, so a refusal leaves no events.
3. The turn number decides: an answer with an old number, or with none for a turn that has just
   expired, is refused, and the refusal names both turns as the evidence.
4. Repetition is not an error: to add, pause, disable or post the same again gives no events. A
   transition that the lifecycle's table does not allow is an error, also the second time.

Not here: who may send what (the server's roles), the moves themselves, the table.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeAlias, assert_never, cast

from handrail.kernel.agent_lifecycle import PROPERTIES, Trigger
from handrail.kernel.channel import events as ev
from handrail.kernel.channel import members, turns
from handrail.kernel.channel.state import (
    Channel,
    ChannelTurn,
    HumanMode,
    config_errors,
    find_member,
    has_available_members,
    has_unread_human_message,
    turn_queue,
)
from handrail.kernel.channel.turns import ChannelDecisionBuilder
from handrail.kernel.decision import Decision, Refusal

ChannelDecision: TypeAlias = Decision[ev.ChannelEvent, ev.ChannelEffect]


def decide(channel: Channel, command: ev.ChannelCommand, now: datetime) -> ChannelDecision:
    """Decide one command at this moment."""
    assert now.tzinfo is not None, "time is aware, in UTC"
    builder = ChannelDecisionBuilder(channel, now)
    if isinstance(command, ev.PushChannelClocks):
        return _push_clocks(builder, command)
    # A busy agent is recorded before any turn is granted, also by a deadline.
    expired = None if isinstance(command, ev.SetBusy) else turns.expire(builder)
    expired_count = len(builder.events)
    refusal = _apply_command(builder, command, expired)
    assert refusal is None or len(builder.events) == expired_count, "a refusal changes nothing"
    return Decision(events=tuple(builder.events), effects=tuple(builder.effects), refusal=refusal)


def _push_clocks(builder: ChannelDecisionBuilder, command: ev.PushChannelClocks) -> ChannelDecision:
    """Move the deadlines before they are checked: they may not have passed after all."""
    if builder.channel.turn is not None and command.seconds > 0:
        builder.record(ev.ChannelClocksPushed(seconds=command.seconds))
    return Decision(events=tuple(builder.events))


def _apply_command(
    builder: ChannelDecisionBuilder, command: ev.ChannelCommand, expired: ChannelTurn | None
) -> Refusal | None:
    if isinstance(command, ev.Respond):
        return _respond(builder, command, expired)
    if not isinstance(command, ev.MemberCommand | ev.TurnCommand):
        return HANDLERS[type(command)](builder, command)
    member = members.require_member(builder, command.agent_id)
    if isinstance(member, Refusal):
        return member
    refusal = None
    if isinstance(command, ev.CompleteTurn | ev.RequestWait | ev.ResumeTurn):
        refusal = members.check_turn_number(builder, member.agent_id, command.turn, expired)
    return refusal or members.HANDLERS[type(command)](builder, member, command)


# ---- the channel itself


def _pause(builder: ChannelDecisionBuilder, command: ev.PauseChannel) -> None:
    if not builder.channel.paused:
        builder.record(ev.ChannelPaused())


def _unpause(builder: ChannelDecisionBuilder, command: ev.UnpauseChannel) -> None:
    if builder.channel.paused:
        builder.record(ev.ChannelUnpaused())
        turns.advance(builder)


def _tick(builder: ChannelDecisionBuilder, command: ev.ChannelTick) -> None:
    """Do nothing: the deadlines were checked before."""


def _configure(builder: ChannelDecisionBuilder, command: ev.Configure) -> Refusal | None:
    errors = config_errors(command.config)
    if errors:
        return Refusal(
            code="bad_config",
            message=f"turnConfig of channel {builder.channel.id!r}: " + "; ".join(errors),
            hint="correct these and send the whole turnConfig again",
        )
    if command.config != builder.channel.config:
        builder.record(ev.Configured(config=command.config))
        turns.expire(builder)  # a shorter clock may be due already
        turns.advance(builder)
    return None


def _rest(builder: ChannelDecisionBuilder, command: ev.Rest) -> Refusal | None:
    channel = builder.channel
    if not command.reason.strip():
        return Refusal(
            code="no_reason",
            message=f"the order to rest in channel {channel.id!r} has no reason",
            hint="name the rule that fired",
        )
    if channel.resting or channel.rest_ordered:
        return None
    if channel.turn is not None:
        # The table has no transition that takes a turn away for a rest; the rest begins at its end.
        builder.record(ev.RestOrdered(reason=command.reason))
    elif turn_queue(channel):
        turns.rest(builder, command.reason)
    return None


# ---- messages


def _check_text(
    builder: ChannelDecisionBuilder, author: str, message_id: str, text: str
) -> Refusal | None:
    missing = [
        name
        for name, value in (("author", author), ("message id", message_id), ("text", text))
        if not value.strip()
    ]
    if not missing:
        return None
    return Refusal(
        code="empty_message",
        message=f"a message of {author!r} to channel {builder.channel.id!r} has no "
        + ", ".join(missing),
        hint="send a text, with its author and an id of its own",
    )


def _respond(
    builder: ChannelDecisionBuilder, command: ev.Respond, expired: ChannelTurn | None
) -> Refusal | None:
    member = members.require_member(builder, command.agent_id)
    if isinstance(member, Refusal):
        return member
    refusal = _check_text(builder, command.agent_id, command.message_id, command.text)
    if refusal is not None or command.message_id in builder.channel.recent:
        return refusal  # a resend after a lost response succeeds, also when the turn is over
    late_refusal = members.check_turn_number(builder, member.agent_id, command.turn, expired)
    if late_refusal is not None:
        return late_refusal
    if not PROPERTIES[member.state].responds:
        return Refusal(
            code="not_active",
            message=f"{members.describe_agent(builder, member.agent_id)} is {member.state.value} "
            "and may not respond",
            hint="wait for the turn, then respond with its number",
        )
    _record_message(builder, command, author=command.agent_id, human=False, awaits_reader=False)
    turns.queue_dormant(builder)
    return None


def _post_message(builder: ChannelDecisionBuilder, command: ev.PostMessage) -> Refusal | None:
    channel = builder.channel
    refusal = _check_text(builder, command.author, command.message_id, command.text)
    if refusal is not None or command.message_id in channel.recent:
        return refusal
    if command.to is not None and find_member(channel, command.to) is None:
        return Refusal(
            code="unknown_agent",
            message=f"a message of {command.author!r} is for {command.to!r}, which is not "
            f"a member of channel {channel.id!r}",
            hint="name a member, or leave `to` out",
        )
    # If an earlier message still waits for a reader, this one is delivered with it.
    _record_message(
        builder,
        command,
        author=command.author,
        human=True,
        awaits_reader=has_available_members(channel) or has_unread_human_message(channel),
    )
    turns.queue_dormant(builder)
    turns.wake(builder, f"message of {command.author!r}")
    _route_message(builder)
    return None


def _record_message(
    builder: ChannelDecisionBuilder,
    command: ev.MessageCommand,
    *,
    author: str,
    human: bool,
    awaits_reader: bool,
) -> None:
    builder.record(
        ev.MessagePosted(
            number=builder.channel.message_count + 1,
            message_id=command.message_id,
            author=author,
            human=human,
            text=command.text,
            to=command.to,
            at=builder.now,
            awaits_reader=awaits_reader,
        )
    )


def _route_message(builder: ChannelDecisionBuilder) -> None:
    """Deliver a human message according to the channel's `human_interrupt_mode`."""
    config, turn = builder.channel.config, builder.channel.turn
    if turn is None:
        turns.advance(builder)
    running = turn is not None and turn.wait_until is None
    match config.human_interrupt_mode:
        case HumanMode.INJECT if turn is not None and running:
            turns.deliver_messages(builder, turn.agent_id)
        case HumanMode.INTERRUPT if running:
            turns.pause_turn(builder, Trigger.HUMAN_INTERRUPT, config.wait_timeout_seconds)
        case HumanMode.PARALLEL:
            for member in turn_queue(builder.channel):
                turns.deliver_messages(builder, member.agent_id)
        case HumanMode.QUEUE | HumanMode.INJECT | HumanMode.INTERRUPT:
            pass  # delivered with the next turn, or when the paused turn resumes
        case _:
            assert_never(config.human_interrupt_mode)


HANDLERS = cast(
    "dict[type[ev.ChannelCommand], Callable[[ChannelDecisionBuilder, Any], Refusal | None]]",
    {
        ev.AddMember: members.add_member,
        ev.PostMessage: _post_message,
        ev.Configure: _configure,
        ev.Rest: _rest,
        ev.PauseChannel: _pause,
        ev.UnpauseChannel: _unpause,
        ev.ChannelTick: _tick,
    },
)
"""Commands that are about no member; `members.HANDLERS` has the others."""
