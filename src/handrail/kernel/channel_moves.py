"""The moves of which a channel's decisions are made: grant, pause, resume, end, advance, expire.

Theory of operation. A `Draft` is one decision in the making. Each event it records is applied to
its own copy of the channel at once, by `evolve`, so the next move sees the state it will find, and
replay equals live by construction. The caller's channel is never touched.

Rules of this file:
1. A move is only made when it is legal; who asks for it has been checked (channel_decide.py). The
   asserts say so.
2. A turn ends in one place, `end_turn`; whoever ends one calls `advance` with the rest that was
   ordered in it.
3. The order of checks in `advance` is the policy: somebody holds the turn; the channel rests;
   nobody is there; a reason to rest; paused or manual; whoever is next.

Not here: refusals (channel_decide.py), the table of transitions (lifecycle.py).
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from handrail.kernel.channel import (
    Channel,
    Member,
    Turn,
    TurnOrder,
    available,
    dormant,
    find,
    human_waits,
    next_due,
    queue,
)
from handrail.kernel.channel_events import (
    ChannelEffect,
    ChannelEvent,
    Deliver,
    MessagesDelivered,
    NotifyTurn,
    PostNotice,
    Rested,
    Transitioned,
    TurnEnded,
    TurnGranted,
    TurnPaused,
    TurnResumed,
    Warned,
    Woken,
)
from handrail.kernel.channel_evolve import evolve
from handrail.kernel.decision import Refusal, Value
from handrail.kernel.lifecycle import Trigger, transition

SILENT_CYCLE = "a full cycle without a message"


class Draft:
    """One decision in the making: the channel as the events so far leave it."""

    __slots__ = ("channel", "effects", "events", "now")

    def __init__(self, channel: Channel, now: datetime) -> None:
        self.channel = channel
        self.now = now
        self.events: list[ChannelEvent] = []
        self.effects: list[ChannelEffect] = []

    def record(self, event: ChannelEvent) -> None:
        self.channel = evolve(self.channel, event)
        self.events.append(event)

    def perform(self, effect: ChannelEffect) -> None:
        self.effects.append(effect)

    def member(self, agent_id: str) -> Member:
        member = find(self.channel, agent_id)
        assert member is not None, f"{agent_id!r} is not a member"
        return member

    def turn(self) -> Turn:
        assert self.channel.turn is not None, "nobody holds the turn"
        return self.channel.turn

    def later(self, seconds: float) -> datetime:
        return self.now + timedelta(seconds=seconds)

    def move(self, agent_id: str, trigger: Trigger) -> None:
        """One transition by the table. From a state to itself is none, and is not logged."""
        state = self.member(agent_id).state
        target = transition(state, trigger)
        assert not isinstance(target, Refusal), target
        if target is not state:
            self.record(
                Transitioned(
                    agent_id=agent_id, from_=state, to=target, trigger=trigger, at=self.now
                )
            )


class Pick(Value, frozen=True, kw_only=True):
    """Who is next, in which cycle, and whose turn passes because they are busy elsewhere."""

    member: Member
    cycle: int
    passed: tuple[str, ...] = ()


def pick(channel: Channel) -> Pick | None:
    """Who is next: the first, in the channel's order, that had no turn in this cycle."""
    members: Sequence[Member] = queue(channel)
    if channel.config.order is TurnOrder.PRIORITY:
        members = sorted(members, key=lambda m: -m.priority)  # stable: ties go by position
    # The second round starts the next cycle: there nobody has been served, so it finds anyone free.
    for cycle in (channel.cycle, channel.cycle + 1):
        left = [m for m in members if m.served < cycle]
        for place, member in enumerate(left):
            if not member.busy:
                passed = tuple(m.agent_id for m in left[:place])
                return Pick(member=member, cycle=cycle, passed=passed)
    return None


def timeout_of(channel: Channel, member: Member) -> float:
    """How long this agent's turn may last, in seconds."""
    if member.timeout_seconds is not None:
        return member.timeout_seconds
    return channel.config.default_timeout_seconds


def grant(draft: Draft, choice: Pick) -> None:
    """Give the turn, with all that the agent has not seen."""
    channel, agent_id = draft.channel, choice.member.agent_id
    number, upto, after = channel.turns + 1, channel.message_count, choice.member.seen
    timeout_at = draft.later(timeout_of(channel, choice.member))
    draft.move(agent_id, Trigger.TURN_GRANTED)
    draft.record(
        TurnGranted(
            agent_id=agent_id,
            turn=number,
            cycle=choice.cycle,
            passed=choice.passed,
            at=draft.now,
            timeout_at=timeout_at,
            after=after,
            upto=upto,
        )
    )
    draft.perform(
        NotifyTurn(agent_id=agent_id, turn=number, timeout_at=timeout_at, after=after, upto=upto)
    )


def deliver(draft: Draft, agent_id: str) -> None:
    """Hand an agent what it has not seen, now."""
    channel, after = draft.channel, draft.member(agent_id).seen
    turn, upto = channel.turn, channel.message_count
    if after == upto:
        return
    token = turn.number if turn is not None and turn.agent_id == agent_id else None
    draft.record(MessagesDelivered(agent_id=agent_id, after=after, upto=upto))
    draft.perform(Deliver(agent_id=agent_id, turn=token, after=after, upto=upto))


def pause_turn(draft: Draft, trigger: Trigger, seconds: float, reason: str = "") -> None:
    """ACTIVE to WAITING: the turn's timer stops, the wait's begins."""
    turn = draft.turn()
    assert turn.timeout_at is not None, "the turn is paused already"
    draft.move(turn.agent_id, trigger)
    draft.record(
        TurnPaused(
            agent_id=turn.agent_id,
            turn=turn.number,
            wait_until=draft.later(seconds),
            seconds_left=(turn.timeout_at - draft.now).total_seconds(),
            interrupted=trigger is Trigger.HUMAN_INTERRUPT,
            reason=reason,
        )
    )


def resume_turn(draft: Draft, trigger: Trigger, seconds: float) -> None:
    """WAITING to ACTIVE: the turn goes on for so many seconds, with what was said meanwhile."""
    turn = draft.turn()
    draft.move(turn.agent_id, trigger)
    draft.record(
        TurnResumed(
            agent_id=turn.agent_id,
            turn=turn.number,
            at=draft.now,
            timeout_at=draft.later(seconds),
        )
    )
    deliver(draft, turn.agent_id)


def end_turn(draft: Draft, trigger: Trigger) -> str:
    """The turn is over. Returns the rest that was ordered in it, for `advance`."""
    turn, ordered = draft.turn(), draft.channel.rest_ordered
    draft.move(turn.agent_id, trigger)
    draft.record(
        TurnEnded(agent_id=turn.agent_id, turn=turn.number, trigger=trigger, quiet=turn.quiet)
    )
    return ordered


def complete_turn(draft: Draft) -> None:
    """The active agent is done: QUEUED again, or IDLE if nobody else is in the queue."""
    solo = len(queue(draft.channel)) == 1
    ordered = end_turn(draft, Trigger.TURN_COMPLETE_SOLO if solo else Trigger.TURN_COMPLETE)
    if solo and human_waits(draft.channel):
        rouse(draft)
    advance(draft, ordered)


def rouse(draft: Draft) -> None:
    """There is something to read: who completed alone joins the queue again."""
    for member in dormant(draft.channel):
        draft.move(member.agent_id, Trigger.ASSIGNED)


def wake(draft: Draft, reason: str) -> None:
    """A person acted: end the rest, or the count of turns that would bring it about at once."""
    channel = draft.channel
    if channel.resting or channel.agent_turns >= channel.config.max_agent_turns:
        draft.record(Woken(reason=reason))


def rest(draft: Draft, reason: str) -> None:
    """Nobody has the turn until a person says something."""
    draft.record(Rested(reason=reason))
    draft.perform(
        PostNotice(code="resting", text=f"\N{SLEEPING SYMBOL} The channel rests: {reason}")
    )


def _rest_reason(channel: Channel) -> str:
    """Why the channel should rest now.

    A human message that waits for a reader keeps it awake: the message has set the count of turns
    to 0, and nobody has been silent since.
    """
    if channel.agent_turns >= channel.config.max_agent_turns:
        return f"{channel.agent_turns} agent turns without a human message"
    # Who is busy elsewhere let its turn pass, so the cycle is full without it.
    free = [m for m in queue(channel) if not m.busy]
    return SILENT_CYCLE if free and all(m.silent for m in free) else ""


def advance(draft: Draft, ordered: str = "") -> None:
    """Give the turn to whoever is next, if nobody has it and somebody may."""
    channel = draft.channel
    if channel.turn is not None or channel.resting or not queue(channel):
        return
    reason = ordered or _rest_reason(channel)
    if reason:
        rest(draft, reason)
        return
    if channel.paused or channel.config.order is TurnOrder.MANUAL:
        return
    choice = pick(channel)
    if choice is not None:
        grant(draft, choice)


def leave(draft: Draft, agent_id: str, trigger: Trigger) -> str:
    """An agent leaves the queue, with its turn if it holds it. Returns the rest ordered in it."""
    turn = draft.channel.turn
    if turn is not None and turn.agent_id == agent_id:
        return end_turn(draft, trigger)
    draft.move(agent_id, trigger)
    return ""


def announce_empty(draft: Draft, before: Channel) -> None:
    """The last one is gone: messages are now logged and reach nobody."""
    emptied = available(before) and not available(draft.channel)
    if emptied and before.config.announce_disconnects:
        text = "\N{WARNING SIGN}\N{VARIATION SELECTOR-16} No agents available in this channel"
        draft.perform(PostNotice(code="no_agents", text=text))


def expire(draft: Draft) -> Turn | None:
    """Apply the deadline that has passed, if one has. Returns the turn that it ended.

    Once is enough: whatever follows a deadline has a deadline of its own, later than now.
    """
    turn, due = draft.channel.turn, next_due(draft.channel)
    if turn is None or due is None or draft.now < due:
        return None
    if turn.interrupted:
        # The agent asked for no pause and forfeits nothing by it.
        resume_turn(draft, Trigger.WAIT_RESOLVED, turn.seconds_left)
        return None
    if turn.wait_until is not None:
        advance(draft, end_turn(draft, Trigger.WAIT_TIMEOUT))
        return turn
    if turn.quiet_since is not None:
        text = "Agent completed response without TURN_COMPLETE"
        draft.record(Warned(code="no_turn_complete", agent_id=turn.agent_id, message=text))
    if turn.timeout_at is not None and draft.now >= turn.timeout_at:
        _time_out(draft, turn)
    else:
        complete_turn(draft)  # silence: the TURN_COMPLETE that the agent forgot
    return turn


def _time_out(draft: Draft, turn: Turn) -> None:
    if draft.channel.config.announce_timeouts:
        text = f"\N{STOPWATCH}\N{VARIATION SELECTOR-16} {turn.agent_id} turn timed out"
        draft.perform(PostNotice(code="turn_timed_out", text=text))
    advance(draft, end_turn(draft, Trigger.TIMEOUT))
