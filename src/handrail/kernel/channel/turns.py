"""The moves of which a channel's decisions are made: grant, pause, resume, end, advance, expire.

Theory of operation. A `ChannelDecisionBuilder` collects one decision. It applies each recorded
event to its own copy of the channel at once, by `evolve`, so the next move sees the resulting
state, and replay equals live by construction. The caller's channel is never changed.

Rules of this file:
1. The caller has checked that a move is legal (decide.py, members.py). The asserts say so.
2. Only `end_turn` ends a turn; its caller then calls `advance` with the rest that was ordered in
   the turn.
3. The order of checks in `advance` is the policy: the turn is held; the channel rests; the queue is
   empty; a reason to rest; paused or manual; the next agent.

Not here: refusals (decide.py, members.py), the table of transitions (agent_lifecycle.py).
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from handrail.kernel.agent_lifecycle import Trigger, transition
from handrail.kernel.channel.events import (
    ChannelEffect,
    ChannelEvent,
    ChannelWarned,
    DeliverMessages,
    MessagesDelivered,
    NotifyTurn,
    PostNotice,
    Rested,
    Transitioned,
    TurnEnded,
    TurnGranted,
    TurnPaused,
    TurnResumed,
    Woken,
)
from handrail.kernel.channel.evolve import evolve
from handrail.kernel.channel.state import (
    Channel,
    ChannelTurn,
    Member,
    TurnOrder,
    dormant_members,
    find_member,
    has_available_members,
    has_unread_human_message,
    next_due,
    turn_queue,
)
from handrail.kernel.decision import Refusal, Value

SILENT_CYCLE_REASON = "a full cycle without a message"


class ChannelDecisionBuilder:
    """Collects one decision. `channel` is the state after the events so far."""

    __slots__ = ("channel", "effects", "events", "now")

    def __init__(self, channel: Channel, now: datetime) -> None:
        self.channel = channel
        self.now = now
        self.events: list[ChannelEvent] = []
        self.effects: list[ChannelEffect] = []

    def record(self, event: ChannelEvent) -> None:
        self.channel = evolve(self.channel, event)
        self.events.append(event)

    def add_effect(self, effect: ChannelEffect) -> None:
        self.effects.append(effect)

    def member(self, agent_id: str) -> Member:
        member = find_member(self.channel, agent_id)
        assert member is not None, f"{agent_id!r} is not a member"
        return member

    def turn(self) -> ChannelTurn:
        assert self.channel.turn is not None, "nobody holds the turn"
        return self.channel.turn

    def time_after(self, seconds: float) -> datetime:
        return self.now + timedelta(seconds=seconds)

    def apply_trigger(self, agent_id: str, trigger: Trigger) -> None:
        """Apply one transition of the table; a transition to the same state records no event."""
        state = self.member(agent_id).state
        target = transition(state, trigger)
        assert not isinstance(target, Refusal), target
        if target is not state:
            self.record(
                Transitioned(
                    agent_id=agent_id, from_=state, to=target, trigger=trigger, at=self.now
                )
            )


class NextTurn(Value, frozen=True, kw_only=True):
    """The next agent, the cycle, and the agents passed over because they are busy elsewhere."""

    member: Member
    cycle: int
    passed: tuple[str, ...] = ()


def pick_next(channel: Channel) -> NextTurn | None:
    """Return the first free agent, in the channel's order, without a turn in this cycle."""
    members: Sequence[Member] = turn_queue(channel)
    if channel.config.order is TurnOrder.PRIORITY:
        members = sorted(members, key=lambda m: -m.priority)  # stable: ties go by position
    # The second round starts the next cycle: no agent was served in it, so any free one is found.
    for cycle in (channel.cycle, channel.cycle + 1):
        left = [m for m in members if m.served < cycle]
        for index, member in enumerate(left):
            if not member.busy:
                return NextTurn(
                    member=member, cycle=cycle, passed=tuple(m.agent_id for m in left[:index])
                )
    return None


def turn_timeout_seconds(channel: Channel, member: Member) -> float:
    """Return how many seconds this agent's turn may last."""
    if member.timeout_seconds is not None:
        return member.timeout_seconds
    return channel.config.default_timeout_seconds


def grant_turn(builder: ChannelDecisionBuilder, next_turn: NextTurn) -> None:
    """Grant the turn, with all messages that the agent has not seen."""
    channel, agent_id = builder.channel, next_turn.member.agent_id
    number, upto, after = channel.turns + 1, channel.message_count, next_turn.member.seen
    timeout_at = builder.time_after(turn_timeout_seconds(channel, next_turn.member))
    builder.apply_trigger(agent_id, Trigger.TURN_GRANTED)
    builder.record(
        TurnGranted(
            agent_id=agent_id,
            turn=number,
            cycle=next_turn.cycle,
            passed=next_turn.passed,
            at=builder.now,
            timeout_at=timeout_at,
            after=after,
            upto=upto,
        )
    )
    builder.add_effect(
        NotifyTurn(agent_id=agent_id, turn=number, timeout_at=timeout_at, after=after, upto=upto)
    )


def deliver_messages(builder: ChannelDecisionBuilder, agent_id: str) -> None:
    """Deliver to an agent, now, the messages that it has not seen."""
    channel, after = builder.channel, builder.member(agent_id).seen
    turn, upto = channel.turn, channel.message_count
    if after == upto:
        return
    turn_number = turn.number if turn is not None and turn.agent_id == agent_id else None
    builder.record(MessagesDelivered(agent_id=agent_id, after=after, upto=upto))
    builder.add_effect(DeliverMessages(agent_id=agent_id, turn=turn_number, after=after, upto=upto))


def pause_turn(
    builder: ChannelDecisionBuilder, trigger: Trigger, seconds: float, reason: str = ""
) -> None:
    """ACTIVE to WAITING: stop the turn's timer and start the wait's."""
    turn = builder.turn()
    assert turn.timeout_at is not None, "the turn is paused already"
    builder.apply_trigger(turn.agent_id, trigger)
    builder.record(
        TurnPaused(
            agent_id=turn.agent_id,
            turn=turn.number,
            wait_until=builder.time_after(seconds),
            seconds_left=(turn.timeout_at - builder.now).total_seconds(),
            interrupted=trigger is Trigger.HUMAN_INTERRUPT,
            reason=reason,
        )
    )


def resume_turn(builder: ChannelDecisionBuilder, trigger: Trigger, seconds: float) -> None:
    """WAITING to ACTIVE: continue the turn for `seconds`, with the messages since."""
    turn = builder.turn()
    builder.apply_trigger(turn.agent_id, trigger)
    builder.record(
        TurnResumed(
            agent_id=turn.agent_id,
            turn=turn.number,
            at=builder.now,
            timeout_at=builder.time_after(seconds),
        )
    )
    deliver_messages(builder, turn.agent_id)


def end_turn(builder: ChannelDecisionBuilder, trigger: Trigger) -> str:
    """End the turn. Returns the reason of a rest ordered in it, for `advance`."""
    turn, rest_reason = builder.turn(), builder.channel.rest_ordered
    builder.apply_trigger(turn.agent_id, trigger)
    builder.record(
        TurnEnded(agent_id=turn.agent_id, turn=turn.number, trigger=trigger, quiet=turn.quiet)
    )
    return rest_reason


def complete_turn(builder: ChannelDecisionBuilder) -> None:
    """Complete the turn: its agent is QUEUED again, or IDLE if it is alone in the queue."""
    solo = len(turn_queue(builder.channel)) == 1
    rest_reason = end_turn(builder, Trigger.TURN_COMPLETE_SOLO if solo else Trigger.TURN_COMPLETE)
    if solo and has_unread_human_message(builder.channel):
        queue_dormant(builder)
    advance(builder, rest_reason)


def queue_dormant(builder: ChannelDecisionBuilder) -> None:
    """Put agents that completed alone back into the queue, because a message arrived."""
    for member in dormant_members(builder.channel):
        builder.apply_trigger(member.agent_id, Trigger.ASSIGNED)


def wake(builder: ChannelDecisionBuilder, reason: str) -> None:
    """A person acted: end the rest, or reset a count of turns that would cause it at once."""
    channel = builder.channel
    if channel.resting or channel.agent_turns >= channel.config.max_agent_turns:
        builder.record(Woken(reason=reason))


def rest(builder: ChannelDecisionBuilder, reason: str) -> None:
    """Rest: no agent gets the turn until a person acts."""
    builder.record(Rested(reason=reason))
    builder.add_effect(
        PostNotice(code="resting", text=f"\N{SLEEPING SYMBOL} The channel rests: {reason}")
    )


def _rest_reason(channel: Channel) -> str:
    """Return why the channel should rest now, or "".

    A human message that waits for a reader keeps the channel awake: it has set the count of turns
    to 0 and cleared every member's silence.
    """
    if channel.agent_turns >= channel.config.max_agent_turns:
        return f"{channel.agent_turns} agent turns without a human message"
    # Busy agents were passed over, so the cycle is full without them.
    free = [m for m in turn_queue(channel) if not m.busy]
    return SILENT_CYCLE_REASON if free and all(m.silent for m in free) else ""


def advance(builder: ChannelDecisionBuilder, rest_reason: str = "") -> None:
    """Grant the turn to the next agent if the turn is free and the channel may grant it."""
    channel = builder.channel
    if channel.turn is not None or channel.resting or not turn_queue(channel):
        return
    reason = rest_reason or _rest_reason(channel)
    if reason:
        rest(builder, reason)
        return
    if channel.paused or channel.config.order is TurnOrder.MANUAL:
        return
    next_turn = pick_next(channel)
    if next_turn is not None:
        grant_turn(builder, next_turn)


def leave_queue(builder: ChannelDecisionBuilder, agent_id: str, trigger: Trigger) -> str:
    """Remove an agent from the queue, ending its turn. Returns the rest ordered in that turn."""
    turn = builder.channel.turn
    if turn is not None and turn.agent_id == agent_id:
        return end_turn(builder, trigger)
    builder.apply_trigger(agent_id, trigger)
    return ""


def announce_empty(builder: ChannelDecisionBuilder, before: Channel) -> None:
    """Post a notice if the last agent left: messages are now only logged."""
    emptied = has_available_members(before) and not has_available_members(builder.channel)
    if emptied and before.config.announce_disconnects:
        text = "\N{WARNING SIGN}\N{VARIATION SELECTOR-16} No agents available in this channel"
        builder.add_effect(PostNotice(code="no_agents", text=text))


def expire(builder: ChannelDecisionBuilder) -> ChannelTurn | None:
    """Apply a deadline that has passed, if any. Returns the turn that it ended.

    One call is enough: the state after a deadline has a new deadline, later than now.
    """
    turn, due = builder.channel.turn, next_due(builder.channel)
    if turn is None or due is None or builder.now < due:
        return None
    if turn.interrupted:
        # The agent did not ask for the pause and forfeits no time.
        resume_turn(builder, Trigger.WAIT_RESOLVED, turn.seconds_left)
        return None
    if turn.wait_until is not None:
        advance(builder, end_turn(builder, Trigger.WAIT_TIMEOUT))
        return turn
    if turn.quiet_since is not None:
        builder.record(
            ChannelWarned(
                code="no_turn_complete",
                agent_id=turn.agent_id,
                message="Agent completed response without TURN_COMPLETE",
            )
        )
    if turn.timeout_at is not None and builder.now >= turn.timeout_at:
        _time_out_turn(builder, turn)
    else:
        complete_turn(builder)  # silence: the TURN_COMPLETE that the agent forgot
    return turn


def _time_out_turn(builder: ChannelDecisionBuilder, turn: ChannelTurn) -> None:
    if builder.channel.config.announce_timeouts:
        builder.add_effect(
            PostNotice(
                code="turn_timed_out",
                text=f"\N{STOPWATCH}\N{VARIATION SELECTOR-16} {turn.agent_id} turn timed out",
            )
        )
    advance(builder, end_turn(builder, Trigger.TIMEOUT))
