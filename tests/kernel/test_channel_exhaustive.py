"""The channel explored: every state that three agents and a human can reach, and random long lives.

The exploration goes breadth first from three agents in a channel, through every command in every
state, and visits states that behave alike once (`shape`): all that eight steps lead to, of what
agents, a person, crashes, timeouts and late answers do. In each step it checks what must never
happen, and from each new state that the turn moves on when nobody acts at all. HANDRAIL_LONG=1 goes
on until no step leads anywhere new. The Hypothesis machine then sends whatever it likes, garbage
included, at any time.
"""

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from handrail.kernel.agent_lifecycle import TRANSITIONS, AgentState, Trigger
from handrail.kernel.channel import events as ev
from handrail.kernel.channel.decide import ChannelDecision, decide
from handrail.kernel.channel.evolve import evolve
from handrail.kernel.channel.state import (
    Channel,
    HumanMode,
    TurnConfig,
    TurnOrder,
    check_invariants,
    find_member,
    has_unread_human_message,
    next_due,
    turn_queue,
)

START = datetime(2026, 2, 4, 21, 0, tzinfo=UTC)
AGENTS = ("a", "b", "c")
LONG = os.environ.get("HANDRAIL_LONG") == "1"
ALL = 100

# Belongs to the lease of a dispatch, which no channel has.
NOT_IN_CHANNELS = {(AgentState.ACTIVE, Trigger.RESULT)}


def fold(channel: Channel, decision: ChannelDecision) -> Channel:
    for event in decision.events:
        channel = evolve(channel, event)
    return channel


def replayed(events: tuple[ev.ChannelEvent, ...]) -> list[ev.ChannelEvent]:
    """The events as a store gives them back."""
    return msgspec.json.decode(msgspec.json.encode(events), type=list[ev.ChannelEvent])


def shape(channel: Channel, now: datetime) -> tuple[object, ...]:
    """What the channel's behaviour depends on: no absolute numbers, no absolute times."""
    turn = channel.turn

    def ahead(at: datetime | None) -> float | None:
        return None if at is None else (at - now).total_seconds()

    return (
        tuple(
            (
                m.agent_id,
                m.state,
                m.assigned,
                m.enabled,
                m.busy,
                m.silent,
                m.seen < channel.message_count,
                m.served < channel.cycle,
            )
            for m in channel.members
        ),
        turn
        and (
            turn.agent_id,
            ahead(turn.timeout_at),
            ahead(turn.wait_until),
            turn.seconds_left,
            turn.interrupted,
            turn.quiet,
            ahead(turn.quiet_since),
        ),
        bool(channel.resting),
        bool(channel.rest_ordered),
        channel.paused,
        has_unread_human_message(channel),
        # The default, 50, is out of an exploration's reach: there the count makes no difference.
        channel.agent_turns if channel.config.max_agent_turns < 50 else 0,
    )


class Explorer:
    """One exploration. `wide` adds the people's commands, busy agents and disabled ones."""

    def __init__(self, config: TurnConfig, *, wide: bool) -> None:
        self.config = config
        self.wide = wide
        self.cells: set[tuple[AgentState, Trigger]] = set()
        self.visited: set[tuple[object, ...]] = set()
        self.settling: set[tuple[object, ...]] = set()

    def start(self) -> tuple[Channel, datetime]:
        channel = Channel(id="reviews", config=self.config)
        for agent in AGENTS:
            channel = self.step(channel, ev.AddMember(agent_id=agent, online=True), START)
        return channel, START

    def commands(self, channel: Channel) -> Iterator[ev.ChannelCommand]:
        token, number = channel.turns, channel.message_count + 1
        yield ev.PostMessage(message_id=f"m{number}", author="ann", text="hello")
        for agent in AGENTS:
            member = find_member(channel, agent)
            yield ev.CompleteTurn(agent_id=agent, turn=token)
            yield ev.CompleteTurn(agent_id=agent, turn=token - 1)
            yield ev.RequestWait(agent_id=agent, turn=token)
            yield ev.ResumeTurn(agent_id=agent, human=True)
            yield ev.TakeOffline(agent_id=agent)
            yield ev.AddMember(agent_id=agent, online=True)
            yield ev.RemoveMember(agent_id=agent)
            yield ev.Respond(agent_id=agent, turn=token, message_id=f"m{number}", text="hi")
            if self.wide:
                yield ev.BringOnline(agent_id=agent)
                yield ev.OverrideWait(agent_id=agent, to=AgentState.ACTIVE)
                yield ev.OverrideWait(agent_id=agent, to=AgentState.QUEUED)
                yield ev.GrantTurn(agent_id=agent)
                yield ev.SetBusy(agent_id=agent, busy=member is not None and not member.busy)
                yield ev.Disable(agent_id=agent)
                yield ev.Enable(agent_id=agent)
        if self.wide:
            yield ev.UnpauseChannel() if channel.paused else ev.PauseChannel()
            yield ev.Rest(reason="a rule fired")

    def run(self, depth: int) -> int:
        """Every state that so many steps lead to; how many steps led to the last new one."""
        channel, now = self.start()
        self.visited = {shape(channel, now)}
        frontier = [(channel, now)]
        for steps in range(depth):
            reached: list[tuple[Channel, datetime]] = []
            for channel, now in frontier:
                for after, then in self.successors(channel, now):
                    key = shape(after, then)
                    if key not in self.visited:
                        self.visited.add(key)
                        reached.append((after, then))
                        self.moves_on(after, then)
            if not reached:
                return steps
            frontier = reached
        return depth

    def successors(self, channel: Channel, now: datetime) -> Iterator[tuple[Channel, datetime]]:
        for command in self.commands(channel):
            after = self.step(channel, command, now)
            if after is not channel:
                yield after, now
        due = next_due(channel)
        if due is not None:
            ticked = self.step(channel, ev.ChannelTick(), due)
            yield ticked, due
            self.late(channel, ticked, due)

    def step(self, channel: Channel, command: ev.ChannelCommand, now: datetime) -> Channel:
        """One decision and everything that must hold of it."""
        decision = decide(channel, command, now)
        due = next_due(channel)
        if decision.refusal is not None and (due is None or now < due):
            assert not decision.events
            assert not decision.effects
            return channel
        if isinstance(command, ev.CompleteTurn):
            assert command.turn == channel.turns, "a turn was ended by an old token"
        after = self.replay(channel, decision)
        assert check_invariants(after) == []
        return after

    def replay(self, channel: Channel, decision: ChannelDecision) -> Channel:
        """Apply the events one by one and watch them."""
        seen = {m.agent_id: m.seen for m in channel.members}
        for event in decision.events:
            match event:
                case ev.Transitioned():
                    member = find_member(channel, event.agent_id)
                    assert member is not None
                    assert member.state is event.from_
                    assert TRANSITIONS[event.from_, event.trigger] is event.to
                    self.cells.add((event.from_, event.trigger))
                case ev.TurnGranted():
                    assert event.turn == channel.turns + 1
                case ev.MessagePosted():
                    assert event.number == channel.message_count + 1
                case ev.MemberAdded():
                    seen[event.agent_id] = channel.routed
                case _:
                    pass
            channel = evolve(channel, event)
        for effect in decision.effects:
            if isinstance(effect, ev.DeliverMessages | ev.NotifyTurn):
                # No gap is a message lost, no overlap one doubled.
                assert effect.after == seen[effect.agent_id]
                seen[effect.agent_id] = effect.upto
                assert effect.upto == channel.message_count
        return channel

    def late(self, channel: Channel, ticked: Channel, due: datetime) -> None:
        """The holder's answer at the deadline: the turn is over, or (interrupted) goes on."""
        turn = channel.turn
        assert turn is not None
        command = ev.CompleteTurn(agent_id=turn.agent_id, turn=turn.number)
        decision = decide(channel, command, due)
        if not turn.interrupted:
            assert decision.refusal is not None
            assert fold(channel, decision) == ticked

    def moves_on(self, channel: Channel, now: datetime) -> None:
        """When nobody acts, deadlines alone bring the channel to rest; no message stays behind."""
        path: list[tuple[object, ...]] = []
        for _ in range(3 * len(AGENTS) + self.config.max_agent_turns):
            due, key = next_due(channel), shape(channel, now)
            if key in self.settling:
                self.settling.update(path)
                return
            path.append(key)
            if due is None:
                break
            assert due > now
            decision = decide(channel, ev.ChannelTick(), due)
            assert decision.events, "a deadline passed and nothing happened"
            after = fold(channel, decision)
            assert after.turn is None or after.turn != channel.turn
            channel, now = after, due
        self.settling.update(path)
        assert channel.turn is None, "somebody holds the turn for ever"
        free = any(not m.busy for m in turn_queue(channel))
        granting = not channel.paused and self.config.order is not TurnOrder.MANUAL
        if free and granting and not channel.resting:
            assert not has_unread_human_message(channel)


@pytest.mark.heavy
@pytest.mark.requirement("T3", "T4", "T5", "T6", "T9", "T10")
@pytest.mark.parametrize("mode", list(HumanMode))
def test_no_reachable_state_has_two_active_agents_an_old_token_or_a_lost_message(mode: HumanMode):
    explorer = Explorer(TurnConfig(human_interrupt_mode=mode), wide=False)
    steps = explorer.run(ALL if LONG else 8)
    assert len(explorer.visited) > 5_000
    assert not LONG or steps < ALL, "there is no state that more steps would lead to"


@pytest.mark.heavy
@pytest.mark.requirement("T2", "T7", "T11", "T13", "T14")
@pytest.mark.parametrize("order", list(TurnOrder))
def test_people_pauses_silence_and_busy_agents_break_nothing_in_any_order(order: TurnOrder):
    config = TurnConfig(order=order, auto_detect_turn_end=True, max_agent_turns=3)
    Explorer(config, wide=True).run(5 if LONG else 3)


@pytest.mark.heavy
@pytest.mark.requirement("T2")
def test_every_cell_of_the_table_is_reached_and_no_other():
    explorer = Explorer(TurnConfig(human_interrupt_mode=HumanMode.INTERRUPT), wide=True)
    explorer.run(4)
    staying = {cell for cell, to in TRANSITIONS.items() if cell[0] is to}
    assert explorer.cells == set(TRANSITIONS) - NOT_IN_CHANNELS - staying


# ---- random long lives

names = st.sampled_from([*AGENTS, "d", "", "x"])
maybe = st.sampled_from([None, 0, -1, 5.0, 1000.0, float("nan")])
modes = st.sampled_from(list(HumanMode))
orders = st.sampled_from(list(TurnOrder))
configs = st.builds(
    TurnConfig,
    default_timeout_seconds=st.sampled_from([30.0, 60.0, -1.0]),
    human_interrupt_mode=modes,
    announce_timeouts=st.booleans(),
    announce_disconnects=st.booleans(),
    auto_detect_turn_end=st.booleans(),
    wait_timeout_seconds=st.sampled_from([20.0, 300.0]),
    max_agent_turns=st.sampled_from([0, 2, 50]),
    order=orders,
)
tokens = st.one_of(st.none(), st.integers(-1, 1))


class ChannelLife(RuleBasedStateMachine):
    """Any command at any time. Beside the machine stands a replica, fed by stored events alone."""

    def __init__(self) -> None:
        super().__init__()
        self.channel = self.replica = Channel(id="reviews")
        self.now = START
        self.posted = 0
        self.inbox: dict[str, list[int]] = {}

    @initialize(mode=modes, members=st.integers(0, 3))
    def open(self, mode: HumanMode, members: int) -> None:
        self.channel = Channel(id="reviews", config=TurnConfig(human_interrupt_mode=mode))
        self.replica = self.channel
        for agent in AGENTS[:members]:
            self.send(ev.AddMember(agent_id=agent, online=True))

    def send(self, command: ev.ChannelCommand) -> None:
        before = self.channel
        again = msgspec.json.decode(msgspec.json.encode(command), type=ev.ChannelCommand)
        decision = decide(before, command, self.now)
        assert again == command or "nan" in repr(command)  # JSON has no such number
        after = fold(before, decision)
        if decision.refusal is not None:
            assert after == fold(before, decide(before, ev.ChannelTick(), self.now))
            assert decision.refusal.message
            assert decision.refusal.hint
        for event in replayed(decision.events):
            if isinstance(event, ev.MemberAdded):
                self.inbox[event.agent_id] = [self.replica.routed]
            self.replica = evolve(self.replica, event)
        self.channel = after
        self.receive(decision)
        self.repeat(command)

    def receive(self, decision: ChannelDecision) -> None:
        """What each agent gets is every message since it came, in order, once."""
        for effect in decision.effects:
            if isinstance(effect, ev.DeliverMessages | ev.NotifyTurn):
                got = self.inbox[effect.agent_id]
                got.extend(range(effect.after + 1, effect.upto + 1))
                assert got == list(range(got[0], self.channel.message_count + 1))

    def repeat(self, command: ev.ChannelCommand) -> None:
        """The same command a second time changes nothing, unless it names no turn."""
        tokenless = isinstance(
            command, ev.CompleteTurn | ev.RequestWait | ev.ResumeTurn | ev.Respond
        )
        if tokenless and command.turn is None:
            return
        assert fold(self.channel, decide(self.channel, command, self.now)) == self.channel

    @rule(seconds=st.sampled_from([0.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3600.0]))
    def pass_time(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        self.send(ev.ChannelTick())

    @rule(agent=names, online=st.booleans(), busy=st.booleans(), seconds=maybe)
    def add(self, agent: str, online: bool, busy: bool, seconds: float | None) -> None:
        self.send(ev.AddMember(agent_id=agent, online=online, busy=busy, timeout_seconds=seconds))

    @rule(agent=names, kind=st.sampled_from(["remove", "lose", "return", "disable", "enable"]))
    def member(self, agent: str, kind: str) -> None:
        commands: dict[str, ev.ChannelCommand] = {
            "remove": ev.RemoveMember(agent_id=agent),
            "lose": ev.TakeOffline(agent_id=agent),
            "return": ev.BringOnline(agent_id=agent),
            "disable": ev.Disable(agent_id=agent),
            "enable": ev.Enable(agent_id=agent),
        }
        self.send(commands[kind])

    @rule(agent=names, busy=st.booleans())
    def busy(self, agent: str, busy: bool) -> None:
        self.send(ev.SetBusy(agent_id=agent, busy=busy))

    @rule(holder=st.booleans(), agent=names, token=tokens)
    def complete(self, holder: bool, agent: str, token: int | None) -> None:
        turn = self.channel.turn
        agent = turn.agent_id if holder and turn is not None else agent
        number = None if token is None else self.channel.turns + token
        self.send(ev.CompleteTurn(agent_id=agent, turn=number))

    @rule(agent=names, token=tokens, seconds=maybe)
    def wait(self, agent: str, token: int | None, seconds: float | None) -> None:
        number = None if token is None else self.channel.turns + token
        self.send(ev.RequestWait(agent_id=agent, turn=number, seconds=seconds))

    @rule(agent=names, human=st.booleans())
    def resume(self, agent: str, human: bool) -> None:
        self.send(ev.ResumeTurn(agent_id=agent, human=human))

    @rule(agent=names, to=st.sampled_from(list(AgentState)))
    def override(self, agent: str, to: AgentState) -> None:
        self.send(ev.OverrideWait(agent_id=agent, to=to))

    @rule(agent=names)
    def grant(self, agent: str) -> None:
        self.send(ev.GrantTurn(agent_id=agent))

    @rule(text=st.sampled_from(["hello", ""]), to=st.sampled_from([None, "a", "x"]))
    def post(self, text: str, to: str | None) -> None:
        self.posted += 1
        self.send(ev.PostMessage(message_id=f"h{self.posted}", author="ann", text=text, to=to))

    @rule(agent=names, token=tokens)
    def respond(self, agent: str, token: int | None) -> None:
        self.posted += 1
        number = None if token is None else self.channel.turns + token
        self.send(ev.Respond(message_id=f"a{self.posted}", agent_id=agent, turn=number, text="x"))

    @rule(command=st.sampled_from([ev.PauseChannel(), ev.UnpauseChannel(), ev.Rest(reason="r")]))
    def room(self, command: ev.ChannelCommand) -> None:
        self.send(command)

    @rule(config=configs)
    def configure(self, config: TurnConfig) -> None:
        self.send(ev.Configure(config=config))

    @invariant()
    def nothing_is_broken(self) -> None:
        assert check_invariants(self.channel) == []

    @invariant()
    def replay_equals_live(self) -> None:
        assert self.replica == self.channel


ChannelLife.TestCase.settings = settings(
    max_examples=1000 if LONG else 150,
    stateful_step_count=60 if LONG else 40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


@pytest.mark.requirement("T2", "T3", "T12")
@pytest.mark.no_cover
class TestAnyLifeOfAChannelReplaysAndKeepsItsInvariants(ChannelLife.TestCase):
    pass
