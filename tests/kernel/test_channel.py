"""The channel: turn-taking as the specification says it, sentence by sentence."""

from datetime import UTC, datetime, timedelta
from typing import get_args

import msgspec
import pytest
from msgspec.structs import replace

from handrail.kernel.agent_lifecycle import LOG_NAMES, AgentState
from handrail.kernel.channel import decide as deciding
from handrail.kernel.channel import events as ev
from handrail.kernel.channel import members
from handrail.kernel.channel.decide import decide
from handrail.kernel.channel.evolve import Disposition, disposition, evolve
from handrail.kernel.channel.state import (
    MEMBERS_MAX,
    RECENT_MESSAGES_MAX,
    TURN_SECONDS_MAX,
    WAITS_PER_TURN_MAX,
    Channel,
    ChannelTurn,
    HumanMode,
    Member,
    TurnConfig,
    TurnOrder,
    active_agent_id,
    check_invariants,
    find_member,
    next_due,
)
from handrail.kernel.decision import Refusal

START = datetime(2026, 2, 4, 21, 0, tzinfo=UTC)
HANDLED_BEFORE = {ev.PushChannelClocks, ev.Respond}
"""Commands that `decide` handles itself."""


def test_every_command_has_exactly_one_handler():
    of_members = {*get_args(ev.MemberCommand), *get_args(ev.TurnCommand)} - HANDLED_BEFORE
    assert members.HANDLERS.keys() == of_members
    of_channels = {*get_args(ev.ChannelCommand)} - of_members - HANDLED_BEFORE
    assert deciding.HANDLERS.keys() == of_channels


class Room:
    """A channel with its clock, its log, and what each agent has been handed."""

    def __init__(self, *agents: str, **settings: object) -> None:
        config = msgspec.convert(settings, TurnConfig)
        self.channel = Channel(id="reviews", config=config)
        self.now = START
        self.events: list[ev.ChannelEvent] = []
        self.effects: list[ev.ChannelEffect] = []
        self.posted: list[ev.MessagePosted] = []
        self.inbox: dict[str, list[str]] = {}
        self.ids = 0
        for agent in agents:
            self.add(agent)

    def send(self, command: ev.ChannelCommand) -> Refusal | None:
        """Decide, keep what comes of it, and see that nothing is broken."""
        decision = decide(self.channel, command, self.now)
        self.events, self.effects = list(decision.events), list(decision.effects)
        for event in decision.events:
            self.channel = evolve(self.channel, event)
            if isinstance(event, ev.MessagePosted):
                self.posted.append(event)
        for effect in decision.effects:
            if not isinstance(effect, ev.PostNotice):
                new = self.posted[effect.after : effect.upto]
                texts = [m.text for m in new if m.author != effect.agent_id]
                self.inbox.setdefault(effect.agent_id, []).extend(texts)
        assert check_invariants(self.channel) == []
        return decision.refusal

    def do(self, command: ev.ChannelCommand) -> "Room":
        assert self.send(command) is None
        return self

    def refused(self, command: ev.ChannelCommand, code: str) -> Refusal:
        before = self.channel
        refusal = self.send(command)
        assert refusal is not None, "was not refused"
        assert refusal.code == code
        assert refusal.hint
        assert (self.channel, self.events, self.effects) == (before, [], [])
        return refusal

    def add(self, agent: str, **more: object) -> "Room":
        return self.do(msgspec.convert({"agent_id": agent, "online": True} | more, ev.AddMember))

    def human(self, text: str, to: str | None = None) -> Disposition:
        self.ids += 1
        self.do(ev.PostMessage(message_id=f"h{self.ids}", author="ann", text=text, to=to))
        return disposition(self.posted[-1], self.events)

    def say(self, agent: str, text: str) -> "Room":
        self.ids += 1
        return self.do(ev.Respond(message_id=f"a{self.ids}", agent_id=agent, text=text))

    def done(self, agent: str) -> "Room":
        return self.do(ev.CompleteTurn(agent_id=agent, turn=self.token))

    def crash(self, agent: str) -> "Room":
        return self.do(ev.TakeOffline(agent_id=agent, detail="heartbeats missed"))

    def later(self, seconds: float) -> "Room":
        self.now += timedelta(seconds=seconds)
        return self

    def tick(self, seconds: float) -> "Room":
        return self.later(seconds).do(ev.ChannelTick())

    @property
    def token(self) -> int:
        assert self.channel.turn is not None
        return self.channel.turn.number

    @property
    def active(self) -> str | None:
        return active_agent_id(self.channel)

    @property
    def states(self) -> dict[str, str]:
        return {m.agent_id: m.state.value for m in self.channel.members}

    @property
    def moved(self) -> list[tuple[str, str, str, str]]:
        """The last decision's transitions."""
        return [
            (e.agent_id, e.from_.value, e.to.value, LOG_NAMES[e.trigger])
            for e in self.events
            if isinstance(e, ev.Transitioned)
        ]

    @property
    def notices(self) -> list[str]:
        return [e.code for e in self.effects if isinstance(e, ev.PostNotice)]

    @property
    def warnings(self) -> list[tuple[str, str]]:
        return [(e.code, e.message) for e in self.events if isinstance(e, ev.ChannelWarned)]


# ---- T2, T3: the table and the one who is active


@pytest.mark.requirement("T2", "T3")
def test_the_first_agent_assigned_is_active_and_the_others_queue():
    room = Room("a")
    assert room.moved == [
        ("a", "IDLE", "QUEUED", "assigned"),
        ("a", "QUEUED", "ACTIVE", "turn granted"),
    ]
    room.add("b")
    assert room.moved == [("b", "IDLE", "QUEUED", "assigned")]
    assert room.states == {"a": "ACTIVE", "b": "QUEUED"}
    assert room.active == "a"


@pytest.mark.requirement("T3")
def test_the_turn_goes_round_and_only_one_is_active():
    room = Room("a", "b", "c")
    order: list[str] = []
    for _ in range(7):
        holder = room.active
        assert holder is not None
        order.append(holder)
        room.say(holder, "hello").done(holder)
    assert order == ["a", "b", "c", "a", "b", "c", "a"]
    assert list(room.states.values()).count("ACTIVE") == 1


@pytest.mark.requirement("T2")
@pytest.mark.parametrize("agent", ["b", "idle", "offline"])
@pytest.mark.parametrize(
    "command",
    [
        ev.CompleteTurn(agent_id=""),
        ev.RequestWait(agent_id=""),
        ev.ResumeTurn(agent_id=""),
        ev.OverrideWait(agent_id="", to=AgentState.ACTIVE),
        ev.OverrideWait(agent_id="", to=AgentState.QUEUED),
    ],
    ids=lambda command: type(command).__name__,
)
def test_what_the_table_does_not_allow_is_refused_and_named(
    agent: str, command: ev.CompleteTurn | ev.RequestWait | ev.ResumeTurn | ev.OverrideWait
):
    room = Room("a", "b", "idle", "offline")
    room.crash("idle").crash("offline").do(ev.BringOnline(agent_id="idle"))
    refusal = room.refused(replace(command, agent_id=agent), "transition_refused")
    assert f"agent {agent!r} in channel 'reviews' is" in refusal.message


@pytest.mark.requirement("T2")
@pytest.mark.parametrize("agent", ["a", "idle", "offline"])
def test_the_turn_is_granted_to_queued_agents_only(agent: str):
    room = Room("a", "b", "idle", "offline")
    room.crash("idle").crash("offline").do(ev.BringOnline(agent_id="idle"))
    room.refused(ev.GrantTurn(agent_id=agent), "transition_refused")


@pytest.mark.requirement("T2")
def test_resuming_or_overriding_an_active_agent_is_refused():
    room = Room("a", "b")
    room.refused(ev.ResumeTurn(agent_id="a", human=True), "transition_refused")
    room.refused(ev.OverrideWait(agent_id="a", to=AgentState.QUEUED), "transition_refused")
    room.refused(ev.OverrideWait(agent_id="a", to=AgentState.OFFLINE), "bad_target")


@pytest.mark.requirement("T2")
@pytest.mark.parametrize(
    "command",
    [
        ev.RemoveMember(agent_id="x"),
        ev.TakeOffline(agent_id="x"),
        ev.BringOnline(agent_id="x"),
        ev.Disable(agent_id="x"),
        ev.Enable(agent_id="x"),
        ev.SetBusy(agent_id="x", busy=True),
        ev.CompleteTurn(agent_id="x"),
        ev.GrantTurn(agent_id="x"),
        ev.Respond(agent_id="x", message_id="1", text="hi"),
        ev.PostMessage(author="ann", message_id="1", text="hi", to="x"),
    ],
    ids=lambda command: type(command).__name__,
)
def test_an_unknown_agent_is_refused_by_name(command: ev.ChannelCommand):
    refusal = Room("a").refused(command, "unknown_agent")
    assert "'x'" in refusal.message
    assert "'reviews'" in refusal.message


@pytest.mark.requirement("T2")
def test_only_the_active_agent_may_respond():
    room = Room("a", "b")
    refusal = room.refused(ev.Respond(agent_id="b", message_id="1", text="hi"), "not_active")
    assert refusal.message == "agent 'b' in channel 'reviews' is QUEUED and may not respond"


@pytest.mark.requirement("T2")
def test_disabled_agents_are_offline_until_they_are_enabled():
    room = Room("a", "b").do(ev.Disable(agent_id="a"))
    assert room.moved == [
        ("a", "ACTIVE", "OFFLINE", "disabled"),
        ("b", "QUEUED", "ACTIVE", "turn granted"),
    ]
    room.refused(ev.BringOnline(agent_id="a"), "agent_disabled")
    room.refused(ev.AddMember(agent_id="a", online=True), "agent_disabled")
    assert room.do(ev.Disable(agent_id="a")).events == []
    room.do(ev.Enable(agent_id="a"))
    assert room.moved == [("a", "OFFLINE", "IDLE", "enabled")]
    assert room.do(ev.Enable(agent_id="a")).events == []


@pytest.mark.requirement("T2")
def test_disabling_an_offline_agent_is_no_transition():
    room = Room("a", "b").crash("b").do(ev.Disable(agent_id="b"))
    assert room.moved == []
    room.refused(ev.BringOnline(agent_id="b"), "agent_disabled")


# ---- T4: crash


@pytest.mark.requirement("T4")
def test_a_crash_in_the_turn_is_logged_and_the_turn_advances():
    room = Room("a", "b").crash("a")
    assert room.moved == [
        ("a", "ACTIVE", "OFFLINE", "agent crashes"),
        ("b", "QUEUED", "ACTIVE", "turn granted"),
    ]
    text = "agent 'a' in channel 'reviews' was ACTIVE: agent crashes in turn 1; heartbeats missed"
    assert room.warnings == [("agent_lost", text)]
    assert room.notices == ["agent_disconnected"]
    notice = next(e for e in room.effects if isinstance(e, ev.PostNotice))
    assert notice.text == "⚠️ a disconnected, skipping turn"


@pytest.mark.requirement("T4")
def test_the_notice_of_a_crash_is_optional():
    assert Room("a", "b", announceDisconnects=False).crash("a").notices == []


@pytest.mark.requirement("T4")
def test_an_agent_that_returns_is_idle_and_not_queued():
    room = Room("a", "b").crash("a").do(ev.BringOnline(agent_id="a"))
    assert room.moved == [("a", "OFFLINE", "IDLE", "agent starts")]
    room.say("b", "hello").done("b")
    assert room.states == {"a": "IDLE", "b": "IDLE"}
    assert room.human("anyone?") is Disposition.DELIVERED
    assert room.states == {"a": "IDLE", "b": "ACTIVE"}


@pytest.mark.requirement("T4")
def test_a_queued_agent_that_disconnects_leaves_the_queue_quietly():
    room = Room("a", "b").do(ev.TakeOffline(agent_id="b"))
    assert room.moved == [("b", "QUEUED", "OFFLINE", "agent disconnects")]
    assert (room.notices, room.active) == ([], "a")
    assert room.do(ev.TakeOffline(agent_id="b")).events == []


@pytest.mark.requirement("T4")
def test_a_waiting_agent_that_disconnects_gives_up_the_turn():
    room = Room("a", "b").do(ev.RequestWait(agent_id="a")).crash("a")
    assert room.moved[0] == ("a", "WAITING", "OFFLINE", "agent disconnects")
    assert room.active == "b"


@pytest.mark.requirement("T4")
def test_bringing_an_agent_online_that_is_online_changes_nothing():
    assert Room("a").do(ev.BringOnline(agent_id="a")).events == []


# ---- T5: timeout and tokens


@pytest.mark.requirement("T5")
def test_a_turn_that_times_out_is_queued_and_comes_again_in_the_next_cycle():
    room = Room("a", "b", "c").later(59.9).do(ev.ChannelTick())
    assert room.events == []
    room.tick(0.1)
    assert room.moved == [
        ("a", "ACTIVE", "QUEUED", "timeout"),
        ("b", "QUEUED", "ACTIVE", "turn granted"),
    ]
    assert room.notices == ["turn_timed_out"]
    notice = next(e for e in room.effects if isinstance(e, ev.PostNotice))
    assert notice.text == "⏱️ a turn timed out"
    room.say("b", "x").done("b").done("c")
    assert room.active == "a"
    assert [m.agent_id for m in room.channel.members] == ["a", "b", "c"]


@pytest.mark.requirement("T5")
def test_the_timeout_is_the_agents_own_and_its_notice_optional():
    room = Room("a", announceTimeouts=False).add("b").add("a", timeout_seconds=5)
    room.done("a").done("b").human("again")
    assert next_due(room.channel) == room.now + timedelta(seconds=5)
    room.tick(5)
    assert (room.active, room.notices) == ("b", [])
    assert next_due(room.channel) == room.now + timedelta(seconds=60)


@pytest.mark.requirement("T5", "T3")
def test_a_late_turn_complete_does_not_end_the_next_agents_turn():
    room = Room("a", "b").tick(60)
    refusal = room.refused(ev.CompleteTurn(agent_id="a", turn=1), "stale_turn")
    assert refusal.message == (
        "agent 'a' in channel 'reviews' answered for turn 1, but turn 2 is held by 'b'"
    )
    assert room.active == "b"
    # Nor when the turn is its own again.
    room.human("go on")
    room.done("b")
    room.refused(ev.CompleteTurn(agent_id="a", turn=1), "stale_turn")
    assert (room.active, room.token) == ("a", 3)


@pytest.mark.requirement("T5")
def test_a_token_of_somebody_else_is_refused():
    room = Room("a", "b")
    room.refused(ev.CompleteTurn(agent_id="b", turn=1), "stale_turn")
    room.crash("a").crash("b")
    refusal = room.refused(ev.CompleteTurn(agent_id="a", turn=1), "stale_turn")
    assert refusal.message.endswith("but nobody holds the turn")


@pytest.mark.requirement("T5")
@pytest.mark.parametrize("token", [1, None])
@pytest.mark.parametrize(
    "command",
    [
        ev.CompleteTurn(agent_id="a"),
        ev.RequestWait(agent_id="a"),
        ev.Respond(agent_id="a", message_id="1", text="done!"),
    ],
    ids=lambda command: type(command).__name__,
)
@pytest.mark.parametrize("others", [[], ["b"]], ids=["alone", "with others"])
def test_who_answers_after_the_deadline_finds_the_timeout_and_is_refused(
    token: int | None,
    command: ev.CompleteTurn | ev.RequestWait | ev.Respond,
    others: list[str],
):
    room = Room("a", *others)
    room.human("hello")
    room.later(60)
    refusal = room.send(replace(command, turn=token))
    assert refusal is not None
    assert refusal.code == "turn_expired"
    assert "turn 1 ran out" in refusal.message
    assert room.moved[0] == ("a", "ACTIVE", "QUEUED", "timeout")
    assert room.posted[-1].text == "hello"


@pytest.mark.requirement("T5")
def test_turn_numbers_grow_over_the_channels_life():
    room = Room("a", "b")
    seen = [room.token]
    seen.append(room.tick(60).token)
    seen.append(room.crash("b").add("b").token)
    seen.append(room.do(ev.RemoveMember(agent_id="a")).token)
    seen.append(room.do(ev.RemoveMember(agent_id="b")).add("c").token)
    assert seen == [1, 2, 3, 4, 5]


# ---- T6: a human message in a turn


@pytest.mark.requirement("T6")
def test_inject_is_the_default_and_reaches_the_active_agent_at_once():
    room = Room("a", "b")
    assert room.human("use the new format") is Disposition.DELIVERED
    assert room.effects == [ev.DeliverMessages(agent_id="a", turn=1, after=0, upto=1)]
    assert room.active == "a"
    room.done("a")
    assert room.inbox == {"a": ["use the new format"], "b": ["use the new format"]}


@pytest.mark.requirement("T6")
def test_queue_holds_the_message_until_the_turn_ends():
    room = Room("a", "b", humanInterruptMode="queue")
    assert room.human("later") is Disposition.QUEUED
    assert (room.effects, room.active) == ([], "a")
    room.done("a")
    assert room.inbox == {"a": [], "b": ["later"]}
    room.say("b", "noted").done("b")
    assert room.inbox["a"] == ["later", "noted"]


@pytest.mark.requirement("T6", "T14")
def test_queue_gives_a_solo_agent_the_message_in_a_turn_of_its_own():
    room = Room("a", humanInterruptMode="queue")
    room.human("later")
    room.done("a")
    assert room.moved == [
        ("a", "ACTIVE", "IDLE", "TURN_COMPLETE"),
        ("a", "IDLE", "QUEUED", "assigned"),
        ("a", "QUEUED", "ACTIVE", "turn granted"),
    ]
    assert (room.inbox["a"], room.token) == (["later"], 2)


@pytest.mark.requirement("T6")
def test_queue_is_not_forgotten_when_a_solo_turn_times_out():
    room = Room("a", humanInterruptMode="queue")
    room.human("later")
    room.tick(60)
    assert (room.inbox["a"], room.active) == (["later"], "a")


def interrupted() -> Room:
    room = Room("a", "b", humanInterruptMode="interrupt").later(20)
    assert room.human("stop a moment") is Disposition.QUEUED
    return room


@pytest.mark.requirement("T6")
def test_interrupt_pauses_the_turn_and_stops_its_timer():
    room = interrupted()
    assert room.moved == [("a", "ACTIVE", "WAITING", "human_interrupt")]
    assert next_due(room.channel) == room.now + timedelta(seconds=300)
    assert (room.active, room.inbox["a"]) == (None, [])


@pytest.mark.requirement("T6")
def test_an_interrupted_turn_resumes_with_the_message_when_the_human_resumes():
    room = interrupted().later(100)
    room.refused(ev.ResumeTurn(agent_id="a"), "interrupted_by_human")
    room.do(ev.ResumeTurn(agent_id="a", human=True))
    assert room.moved == [("a", "WAITING", "ACTIVE", "wait resolved")]
    assert (room.inbox["a"], room.token) == (["stop a moment"], 1)
    assert next_due(room.channel) == room.now + timedelta(seconds=40)


@pytest.mark.requirement("T6")
def test_an_interrupted_turn_resumes_with_the_message_after_the_wait_timeout():
    room = interrupted().tick(300)
    assert room.moved == [("a", "WAITING", "ACTIVE", "wait resolved")]
    assert (room.inbox["a"], room.token) == (["stop a moment"], 1)
    assert next_due(room.channel) == room.now + timedelta(seconds=40)


@pytest.mark.requirement("T6")
def test_an_answer_after_the_interruption_ran_out_counts_for_the_resumed_turn():
    room = interrupted().later(300).do(ev.CompleteTurn(agent_id="a", turn=1))
    assert room.active == "b"


@pytest.mark.requirement("T6")
@pytest.mark.parametrize(("to", "reader"), [("ACTIVE", "a"), ("QUEUED", "b")])
def test_an_interrupted_turn_ends_by_override(to: str, reader: str):
    room = interrupted().do(ev.OverrideWait(agent_id="a", to=AgentState(to)))
    assert room.active == reader
    assert room.inbox[reader] == ["stop a moment"]


@pytest.mark.requirement("T6")
def test_a_second_message_in_an_interruption_goes_with_the_first():
    room = interrupted()
    assert room.human("and another thing") is Disposition.QUEUED
    room.do(ev.ResumeTurn(agent_id="a", human=True))
    assert room.inbox["a"] == ["stop a moment", "and another thing"]


@pytest.mark.requirement("T6")
def test_parallel_goes_through_to_everybody_at_once():
    room = Room("a", "b", "c", humanInterruptMode="parallel").crash("c")
    assert room.human("all of you", to="b") is Disposition.DELIVERED
    assert room.inbox == {"a": ["all of you"], "b": ["all of you"]}
    room.done("a")
    assert (room.active, room.inbox["b"]) == ("b", ["all of you"])


@pytest.mark.requirement("T6", "T10")
@pytest.mark.parametrize("mode", ["queue", "interrupt", "inject"])
def test_a_waiting_agent_gets_the_message_when_it_resumes(mode: str):
    room = Room("a", "b", humanInterruptMode=mode).do(ev.RequestWait(agent_id="a"))
    assert room.human("here is your file") is Disposition.QUEUED
    assert room.inbox["a"] == []
    room.do(ev.ResumeTurn(agent_id="a", turn=1))
    assert room.inbox["a"] == ["here is your file"]


@pytest.mark.requirement("T6")
@pytest.mark.parametrize("mode", list(HumanMode))
def test_no_agent_gets_a_message_twice_or_misses_one(mode: HumanMode):
    room = Room("a", "b", humanInterruptMode=mode.value)
    expected: dict[str, list[str]] = {"a": [], "b": []}
    for n in range(6):
        room.human(f"h{n}")
        turn = room.channel.turn
        if turn is not None and turn.interrupted:
            room.do(ev.ResumeTurn(agent_id=turn.agent_id, human=True))
        holder = room.active
        assert holder is not None
        room.say(holder, f"{holder}{n}").done(holder)
        expected["a" if holder == "b" else "b"] += [f"h{n}", f"{holder}{n}"]
        expected[holder].append(f"h{n}")
    room.done(str(room.active))
    assert room.inbox == expected


# ---- T7: silence


@pytest.mark.requirement("T7")
def test_a_response_without_turn_complete_times_out_with_a_warning():
    room = Room("a", "b").say("a", "that is all").tick(60)
    warning = ("no_turn_complete", "Agent completed response without TURN_COMPLETE")
    assert room.warnings == [warning]
    assert room.moved[0] == ("a", "ACTIVE", "QUEUED", "timeout")


@pytest.mark.requirement("T7")
def test_silence_ends_the_turn_only_if_it_is_detected_and_the_agent_has_spoken():
    assert Room("a", "b").say("a", "x").tick(10).active == "a"
    assert Room("a", "b", autoDetectTurnEnd=True).tick(10).active == "a"
    room = Room("a", "b", autoDetectTurnEnd=True).later(30).say("a", "x").tick(9.9)
    assert room.active == "a"
    room.tick(0.1)
    assert room.moved[0] == ("a", "ACTIVE", "QUEUED", "TURN_COMPLETE")
    assert [code for code, _ in room.warnings] == ["no_turn_complete"]
    assert (room.active, room.notices) == ("b", [])


@pytest.mark.requirement("T7")
def test_silence_counts_from_the_last_message_and_not_through_a_pause():
    room = Room("a", "b", autoDetectTurnEnd=True, autoDetectSilenceSeconds=4).say("a", "x")
    room.later(3).say("a", "y").later(3)
    room.human("and?")
    room.later(3).do(ev.RequestWait(agent_id="a")).later(100).do(ev.ResumeTurn(agent_id="a"))
    assert next_due(room.channel) == room.now + timedelta(seconds=4)
    assert room.tick(3.9).active == "a"
    assert room.tick(0.1).active == "b"


@pytest.mark.requirement("T7")
def test_the_timeout_comes_first_if_it_is_earlier_than_the_silence():
    room = Room("a", "b", autoDetectTurnEnd=True).later(55).say("a", "x").tick(5)
    assert room.moved[0] == ("a", "ACTIVE", "QUEUED", "timeout")


# ---- T8: nobody there


@pytest.mark.requirement("T8")
def test_with_all_agents_offline_messages_are_logged_and_not_routed():
    room = Room("a", "b").crash("b").crash("a")
    assert room.notices == ["agent_disconnected", "no_agents"]
    assert room.human("hello?") is Disposition.LOGGED
    assert room.effects == []
    assert room.posted[-1].text == "hello?"


@pytest.mark.requirement("T8")
def test_the_first_agent_back_and_assigned_is_active_at_once():
    room = Room("a", "b").crash("a").crash("b")
    room.human("hello?")
    room.do(ev.BringOnline(agent_id="b"))
    assert (room.active, room.effects) == (None, [])
    room.add("b")
    assert (room.active, room.inbox["b"]) == ("b", [])
    assert room.human("there you are") is Disposition.DELIVERED


@pytest.mark.requirement("T8")
def test_an_empty_channel_takes_messages_and_time():
    room = Room()
    assert room.human("first") is Disposition.LOGGED
    assert room.tick(1000).events == []
    assert room.do(ev.Rest(reason="budget")).events == []
    assert next_due(room.channel) is None


@pytest.mark.requirement("T8")
def test_the_notice_that_nobody_is_there_is_optional_and_comes_once():
    assert Room("a", announceDisconnects=False).crash("a").notices == []
    assert Room("a").do(ev.Disable(agent_id="a")).notices == ["no_agents"]
    assert Room("a").crash("a").do(ev.Disable(agent_id="a")).notices == []
    assert Room("a").do(ev.RemoveMember(agent_id="a")).notices == []


@pytest.mark.requirement("T8", "T6")
def test_a_message_that_was_queued_when_everybody_left_reaches_who_comes():
    room = Room("a", humanInterruptMode="queue")
    assert room.human("later") is Disposition.QUEUED
    room.crash("a")
    assert room.human("anyone?") is Disposition.QUEUED
    room.add("b")
    assert room.inbox["b"] == ["later", "anyone?"]


@pytest.mark.requirement("T8", "T14")
def test_the_first_agent_back_is_active_also_when_the_channel_rested():
    room = Room("a", "b").done("a").done("b")
    assert room.channel.resting
    room.crash("a").crash("b").add("a")
    assert room.active == "a"


@pytest.mark.requirement("T8", "T14")
def test_the_first_agent_back_is_active_also_when_the_last_turn_was_used_up():
    room = Room("a", maxAgentTurns=1).crash("a").add("a")
    assert room.active == "a"


@pytest.mark.requirement("T8")
def test_an_agent_that_is_not_online_cannot_be_assigned():
    room = Room("a").crash("a")
    room.refused(ev.AddMember(agent_id="b", online=False), "agent_offline")
    refusal = room.refused(ev.AddMember(agent_id="a", online=False), "agent_offline")
    assert refusal.message == "agent 'a' in channel 'reviews' is OFFLINE and cannot be assigned"
    room.add("a")
    assert room.moved[0] == ("a", "OFFLINE", "IDLE", "agent starts")


# ---- T9: the queue changes


@pytest.mark.requirement("T9")
def test_a_new_agent_comes_at_the_end_of_the_current_cycle():
    room = Room("a", "b", "c").say("a", "x").done("a").add("d")
    order = []
    for _ in range(4):
        order.append(room.active)
        room.say(str(room.active), "x").done(str(room.active))
    assert order == ["b", "c", "d", "a"]


@pytest.mark.requirement("T9")
def test_a_removed_queued_agent_just_leaves():
    room = Room("a", "b", "c").do(ev.RemoveMember(agent_id="b"))
    assert room.moved == [("b", "QUEUED", "IDLE", "removed from channel")]
    assert (room.active, room.token, list(room.states)) == ("a", 1, ["a", "c"])
    room.done("a")
    assert room.active == "c"


@pytest.mark.requirement("T9")
@pytest.mark.parametrize("waiting", [False, True])
def test_a_removed_agent_that_holds_the_turn_ends_it(waiting: bool):
    room = Room("a", "b")
    if waiting:
        room.do(ev.RequestWait(agent_id="a"))
    room.do(ev.RemoveMember(agent_id="a"))
    state = "WAITING" if waiting else "ACTIVE"
    assert room.moved == [
        ("a", state, "IDLE", "removed from channel"),
        ("b", "QUEUED", "ACTIVE", "turn granted"),
    ]
    assert list(room.states) == ["b"]
    room.refused(ev.RemoveMember(agent_id="a"), "unknown_agent")


@pytest.mark.requirement("T9")
def test_removing_an_offline_agent_is_no_transition():
    room = Room("a", "b").crash("b").do(ev.RemoveMember(agent_id="b"))
    assert (room.moved, list(room.states)) == ([], ["a"])


@pytest.mark.requirement("T9")
def test_a_member_is_added_once_and_its_settings_can_change():
    room = Room("a")
    assert room.add("a").events == []
    room.add("a", timeout_seconds=5, priority=2)
    assert room.events == [ev.MemberChanged(agent_id="a", timeout_seconds=5, priority=2)]
    assert room.add("a", priority=2).events == []
    room.crash("a").add("a")
    assert find_member(room.channel, "a") == replace(
        Member(agent_id="a", timeout_seconds=5, priority=2),
        state=AgentState.ACTIVE,
        assigned=True,
        served=1,
    )


@pytest.mark.requirement("T9")
def test_a_channel_has_a_bounded_number_of_members():
    room = Room()
    room.channel = replace(
        room.channel, members=tuple(Member(agent_id=f"m{n}") for n in range(MEMBERS_MAX))
    )
    room.refused(ev.AddMember(agent_id="one more", online=True), "channel_full")


# ---- T10: waiting


@pytest.mark.requirement("T10")
def test_waiting_keeps_the_turn_and_resumes_with_the_time_it_had():
    room = Room("a", "b").later(25).do(ev.RequestWait(agent_id="a", turn=1, reason="build runs"))
    assert room.moved == [("a", "ACTIVE", "WAITING", "wait requested")]
    assert room.states == {"a": "WAITING", "b": "QUEUED"}
    assert room.tick(299).events == []
    room.do(ev.ResumeTurn(agent_id="a", turn=1))
    assert room.moved == [("a", "WAITING", "ACTIVE", "wait resolved")]
    assert next_due(room.channel) == room.now + timedelta(seconds=35)


@pytest.mark.requirement("T10")
@pytest.mark.parametrize(("asked", "lasts"), [(None, 300), (7, 7)])
def test_a_wait_that_times_out_forfeits_the_turn(asked: float | None, lasts: float):
    room = Room("a", "b").do(ev.RequestWait(agent_id="a", seconds=asked)).tick(lasts)
    assert room.moved == [
        ("a", "WAITING", "QUEUED", "wait timeout"),
        ("b", "QUEUED", "ACTIVE", "turn granted"),
    ]
    room.refused(ev.ResumeTurn(agent_id="a", turn=1), "stale_turn")


@pytest.mark.requirement("T10")
def test_a_resume_after_the_waits_end_finds_the_turn_forfeited():
    room = Room("a", "b").do(ev.RequestWait(agent_id="a")).later(300)
    refusal = room.send(ev.ResumeTurn(agent_id="a"))
    assert refusal is not None
    assert refusal.code == "turn_expired"
    assert room.active == "b"


@pytest.mark.requirement("T10")
def test_a_human_overrides_a_wait_to_active_with_a_fresh_timeout():
    room = Room("a", "b").later(50).do(ev.RequestWait(agent_id="a"))
    room.do(ev.OverrideWait(agent_id="a", to=AgentState.ACTIVE))
    assert room.moved == [("a", "WAITING", "ACTIVE", "human override")]
    assert (room.token, next_due(room.channel)) == (1, room.now + timedelta(seconds=60))


@pytest.mark.requirement("T10")
def test_a_human_overrides_a_wait_to_queued_and_the_turn_advances():
    room = Room("a", "b").do(ev.RequestWait(agent_id="a"))
    room.do(ev.OverrideWait(agent_id="a", to=AgentState.QUEUED))
    assert room.moved == [
        ("a", "WAITING", "QUEUED", "human override"),
        ("b", "QUEUED", "ACTIVE", "turn granted"),
    ]


@pytest.mark.requirement("T10")
def test_waits_in_one_turn_are_counted_and_bounded():
    room = Room("a", "b")
    for _ in range(WAITS_PER_TURN_MAX):
        room.do(ev.RequestWait(agent_id="a")).do(ev.ResumeTurn(agent_id="a"))
    refusal = room.refused(ev.RequestWait(agent_id="a"), "too_many_waits")
    assert "has waited 10 times in turn 1" in refusal.message


@pytest.mark.requirement("T10", "T5")
@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), TURN_SECONDS_MAX + 1])
def test_impossible_seconds_are_refused(seconds: float):
    room = Room("a")
    room.refused(ev.RequestWait(agent_id="a", seconds=seconds), "bad_seconds")
    add = ev.AddMember(agent_id="b", online=True, timeout_seconds=seconds)
    assert "agent 'b'" in room.refused(add, "bad_seconds").message


# ---- T11: settings


@pytest.mark.requirement("T11")
def test_the_turn_config_is_accepted_by_its_names():
    text = b"""{"defaultTimeoutSeconds": 60, "humanInterruptMode": "inject",
        "announceTimeouts": true, "announceDisconnects": true, "autoDetectTurnEnd": false,
        "autoDetectSilenceSeconds": 10}"""
    config = msgspec.json.decode(text, type=TurnConfig)
    assert config == TurnConfig()
    assert msgspec.to_builtins(config) == msgspec.json.decode(text) | {
        "waitTimeoutSeconds": 300.0,
        "maxAgentTurns": 50,
        "order": "round_robin",
    }
    with pytest.raises(msgspec.ValidationError, match="defaultTimeout"):
        msgspec.json.decode(b'{"defaultTimeout": 5}', type=TurnConfig)


@pytest.mark.requirement("T11")
def test_bad_settings_are_refused_all_at_once():
    bad = TurnConfig(default_timeout_seconds=-5, auto_detect_silence_seconds=0, max_agent_turns=0)
    message = Room("a").refused(ev.Configure(config=bad), "bad_config").message
    assert "defaultTimeoutSeconds is -5" in message
    assert "autoDetectSilenceSeconds is 0" in message
    assert "maxAgentTurns is 0" in message
    assert "waitTimeoutSeconds" not in message


@pytest.mark.requirement("T11")
def test_new_settings_hold_from_the_next_turn_on():
    room = Room("a", "b")
    config = TurnConfig(default_timeout_seconds=5)
    room.do(ev.Configure(config=config))
    assert next_due(room.channel) == room.now + timedelta(seconds=60)
    room.done("a")
    assert next_due(room.channel) == room.now + timedelta(seconds=5)
    assert room.do(ev.Configure(config=config)).events == []


@pytest.mark.requirement("T11")
def test_in_the_order_of_priority_the_highest_comes_first_and_each_once_a_cycle():
    room = Room(order="priority").add("low", priority=1).add("high", priority=9).add("mid")
    room.add("mid", priority=5).add("mid2", priority=5)
    order = []
    for _ in range(8):
        order.append(room.active)
        room.say(str(room.active), "x").done(str(room.active))
    assert order == ["low", "high", "mid", "mid2", "high", "mid", "mid2", "low"]


@pytest.mark.requirement("T11")
def test_in_manual_order_only_a_human_grants_turns():
    room = Room("a", "b", order="manual")
    assert room.active is None
    assert room.human("hello") is Disposition.QUEUED
    room.do(ev.GrantTurn(agent_id="b"))
    assert (room.active, room.inbox["b"]) == ("b", ["hello"])
    room.done("b")
    assert (room.active, room.states) == (None, {"a": "QUEUED", "b": "QUEUED"})
    room.do(ev.Configure(config=TurnConfig(order=TurnOrder.ROUND_ROBIN)))
    assert room.active == "a"


@pytest.mark.requirement("T11")
def test_a_turn_is_not_granted_over_somebodys_head():
    room = Room("a", "b", "c")
    refusal = room.refused(ev.GrantTurn(agent_id="c"), "turn_held")
    assert "turn 1 is held by 'a'" in refusal.message


@pytest.mark.requirement("T11")
def test_a_paused_channel_grants_no_turn_and_lets_the_one_in_progress_end():
    room = Room("a", "b").do(ev.PauseChannel())
    assert room.do(ev.PauseChannel()).events == []
    assert room.human("in the pause") is Disposition.DELIVERED
    room.done("a")
    assert room.states == {"a": "QUEUED", "b": "QUEUED"}
    assert room.human("more") is Disposition.QUEUED
    room.refused(ev.GrantTurn(agent_id="b"), "channel_paused")
    room.do(ev.UnpauseChannel())
    assert (room.active, room.inbox["b"]) == ("b", ["in the pause", "more"])
    assert room.do(ev.UnpauseChannel()).events == []


# ---- T13: busy elsewhere


@pytest.mark.requirement("T13")
def test_the_turn_of_a_busy_agent_passes_and_its_position_is_kept():
    room = Room("a", "b", "c").do(ev.SetBusy(agent_id="b", busy=True)).say("a", "x").done("a")
    assert room.active == "c"
    granted = next(e for e in room.events if isinstance(e, ev.TurnGranted))
    assert granted.passed == ("b",)
    # Free again in mid-cycle: its turn has passed, it comes in the next one.
    room.do(ev.SetBusy(agent_id="b", busy=False)).say("c", "x").done("c")
    assert room.active == "a"
    assert room.do(ev.SetBusy(agent_id="b", busy=False)).events == []
    room.done("a")
    assert room.active == "b"


@pytest.mark.requirement("T13")
def test_with_everyone_busy_the_turn_waits_for_the_first_who_is_free():
    room = Room().add("a", busy=True).add("b", busy=True)
    assert room.active is None
    assert room.human("hello") is Disposition.QUEUED
    room.refused(ev.GrantTurn(agent_id="b"), "agent_busy")
    room.do(ev.SetBusy(agent_id="b", busy=False))
    assert (room.active, room.inbox["b"]) == ("b", ["hello"])


@pytest.mark.requirement("T13")
def test_who_holds_the_turn_here_keeps_it_and_passes_the_next():
    room = Room("a", "b").do(ev.SetBusy(agent_id="a", busy=True))
    assert room.active == "a"
    room.say("a", "x").done("a").say("b", "y").done("b")
    assert room.active == "b"


@pytest.mark.requirement("T13", "T5")
def test_a_turn_that_runs_out_passes_over_who_has_become_busy_meanwhile():
    room = Room("a", "b", "c")
    room.now += timedelta(seconds=60)
    room.do(ev.SetBusy(agent_id="b", busy=True))
    assert room.active == "a", "what an agent does elsewhere ends no turn"
    room.do(ev.ChannelTick())
    assert room.active == "c"


@pytest.mark.requirement("T13")
def test_an_agent_that_crashed_is_not_busy_any_more():
    room = Room("a", "b").do(ev.SetBusy(agent_id="b", busy=True)).crash("b").add("b").done("a")
    assert room.active == "b"


# ---- T14: rest


@pytest.mark.requirement("T14")
def test_a_full_cycle_without_a_message_rests_the_channel_with_one_notice():
    room = Room("a", "b", "c").say("a", "x").done("a").done("b").done("c")
    assert room.active == "a"
    room.done("a")
    assert room.notices == ["resting"]
    assert room.states == {"a": "QUEUED", "b": "QUEUED", "c": "QUEUED"}
    assert room.channel.resting == "a full cycle without a message"
    assert room.tick(10_000).events == []
    assert room.add("d").effects == []


@pytest.mark.requirement("T14")
def test_the_next_human_message_grants_the_next_turn():
    room = Room("a", "b").done("a").done("b")
    assert room.human("go on") is Disposition.DELIVERED
    assert (room.active, room.inbox["a"]) == ("a", ["go on"])
    assert not room.channel.resting


@pytest.mark.requirement("T14")
def test_a_human_message_in_the_turn_makes_the_cycle_not_silent():
    room = Room("a", "b").done("a")
    room.human("hm")
    room.done("b").done("a")
    assert room.active == "b"


@pytest.mark.requirement("T14", "T4")
def test_a_cycle_in_which_an_agent_was_lost_is_not_a_full_one():
    room = Room("a", "b", "c").done("a").done("b").crash("c")
    assert room.active == "a"
    room.done("a").done("b")
    assert room.channel.resting


@pytest.mark.requirement("T14", "T13")
def test_a_cycle_is_full_without_those_who_are_busy_elsewhere():
    room = Room("a", "b").do(ev.SetBusy(agent_id="b", busy=True)).done("a")
    assert room.channel.resting


@pytest.mark.requirement("T14")
def test_fifty_agent_turns_without_a_human_message_rest_the_channel():
    room = Room("a", "b")
    for _ in range(50):
        holder = str(room.active)
        room.say(holder, "and you?").done(holder)
    assert (room.active, room.token if room.channel.turn else None) == (None, None)
    assert room.channel.resting == "50 agent turns without a human message"
    assert room.channel.turns == 50
    room.human("go on")
    assert room.channel.agent_turns == 1


@pytest.mark.requirement("T14")
def test_a_human_message_in_any_turn_begins_the_count_of_agent_turns_anew():
    room = Room("a", "b", maxAgentTurns=2).say("a", "x").done("a")
    room.human("keep going")
    room.say("b", "x").done("b").say("a", "x").done("a")
    assert room.active == "b"
    room.say("b", "x").done("b")
    assert room.channel.resting == "2 agent turns without a human message"


@pytest.mark.requirement("T14")
def test_a_rule_that_fires_in_a_turn_rests_the_channel_at_its_end():
    room = Room("a", "b").do(ev.Rest(reason="budget: 1000 tokens"))
    assert (room.active, room.effects) == ("a", [])
    assert room.do(ev.Rest(reason="pattern")).events == []
    room.say("a", "x").done("a")
    assert (room.channel.resting, room.notices) == ("budget: 1000 tokens", ["resting"])
    assert room.do(ev.Rest(reason="pattern")).events == []


@pytest.mark.requirement("T14")
def test_a_rule_that_fires_between_turns_rests_the_channel_at_once():
    room = Room().add("a", busy=True).do(ev.Rest(reason="pattern"))
    assert room.channel.resting == "pattern"
    room.refused(ev.Rest(reason=" "), "no_reason")


@pytest.mark.requirement("T14")
def test_a_human_message_takes_back_a_rest_that_has_not_begun():
    room = Room("a", "b").do(ev.Rest(reason="pattern"))
    room.human("no, go on")
    assert room.done("a").active == "b"


@pytest.mark.requirement("T14")
def test_a_human_who_grants_a_turn_ends_the_rest():
    room = Room("a", "b").done("a").done("b").do(ev.GrantTurn(agent_id="b"))
    assert (room.active, room.channel.resting) == ("b", "")


@pytest.mark.requirement("T14")
def test_a_message_to_a_channel_that_rests_and_is_paused_waits_for_the_pause_to_end():
    room = (
        Room("a", "b")
        .do(ev.PauseChannel())
        .done("a")
        .do(ev.UnpauseChannel())
        .done("b")
        .do(ev.PauseChannel())
    )
    assert room.channel.resting
    assert room.human("go on") is Disposition.QUEUED
    assert room.do(ev.UnpauseChannel()).active == "a"


@pytest.mark.requirement("T14", "T2")
def test_a_solo_agent_that_completes_is_idle_and_the_next_message_activates_it():
    room = Room("a").say("a", "hello").done("a")
    assert room.moved == [("a", "ACTIVE", "IDLE", "TURN_COMPLETE")]
    assert (room.channel.resting, room.notices) == ("", [])
    assert room.human("hi") is Disposition.DELIVERED
    assert room.moved == [
        ("a", "IDLE", "QUEUED", "assigned"),
        ("a", "QUEUED", "ACTIVE", "turn granted"),
    ]
    assert room.inbox["a"] == ["hi"]


@pytest.mark.requirement("T14")
def test_a_solo_agent_that_rests_is_queued_by_anothers_message_too():
    room = Room("a").done("a").add("b")
    assert room.states == {"a": "IDLE", "b": "ACTIVE"}
    room.say("b", "are you there?")
    assert room.moved == [("a", "IDLE", "QUEUED", "assigned")]
    room.done("b")
    assert (room.active, room.inbox["a"]) == ("a", ["are you there?"])


@pytest.mark.requirement("T14")
def test_a_solo_agent_that_is_idle_can_be_granted_the_turn():
    room = Room("a").done("a").do(ev.GrantTurn(agent_id="a"))
    assert room.active == "a"
    room.done("a").crash("a")
    assert room.moved == [("a", "IDLE", "OFFLINE", "agent stops")]


@pytest.mark.requirement("T14", "T5")
def test_a_solo_agent_that_is_silent_until_its_timeout_rests():
    room = Room("a").tick(60)
    assert (room.states, room.channel.resting) == (
        {"a": "QUEUED"},
        "a full cycle without a message",
    )


# ---- repetition, bad input, and the machine's own alarms


@pytest.mark.requirement("T6")
def test_the_same_message_twice_is_one_message():
    room = Room("a", "b")
    post = ev.PostMessage(message_id="m1", author="ann", text="hello")
    answer = ev.Respond(message_id="m2", agent_id="a", text="hi", turn=1)
    assert len(room.do(post).events) == 2
    assert room.do(post).events == []
    room.do(answer).done("a")
    assert room.do(answer).events == []  # also when the turn is over
    assert room.channel.message_count == 2
    for n in range(RECENT_MESSAGES_MAX + 5):
        room.human(f"{n}")
    assert len(room.channel.recent) == RECENT_MESSAGES_MAX


@pytest.mark.requirement("T6")
@pytest.mark.parametrize(
    ("command", "missing"),
    [
        (ev.PostMessage(message_id="1", author="ann", text=" \n"), "text"),
        (ev.PostMessage(message_id="", author="", text="x"), "author, message id"),
        (ev.Respond(message_id="1", agent_id="a", text=""), "text"),
    ],
)
def test_an_empty_message_is_refused(command: ev.ChannelCommand, missing: str):
    refusal = Room("a").refused(command, "empty_message")
    assert refusal.message.endswith(f"to channel 'reviews' has no {missing}")


@pytest.mark.requirement("T9")
def test_an_agent_without_a_name_is_refused():
    Room().refused(ev.AddMember(agent_id=" ", online=True), "no_agent")


@pytest.mark.requirement("T3")
@pytest.mark.parametrize(
    ("broken", "alarm"),
    [
        ({"turn": None}, "the turn and the members' states name different agents"),
        ({"turns": 7}, "the turn is not the last one granted"),
        ({"resting": "why"}, "it rests while somebody holds the turn"),
        ({"turn": None, "rest_ordered": "why"}, "a rest is ordered without a turn"),
        ({"routed": 7}, "somebody has seen a message that was not posted"),
        ({"a": {"state": AgentState.WAITING}}, "the turn's timer does not fit its agent's state"),
        ({"b": {"state": AgentState.ACTIVE}}, "more than one agent is ACTIVE"),
        ({"b": {"agent_id": "a"}}, "an agent is a member twice"),
        ({"b": {"assigned": False}}, "an agent is queued without being assigned"),
        ({"b": {"state": AgentState.OFFLINE}}, "an agent that is OFFLINE is assigned"),
        ({"b": {"enabled": False}}, "a disabled agent is not OFFLINE"),
        ({"b": {"seen": 1}}, "somebody has seen a message that was not posted"),
        (
            {"turn": None, "a": {"state": AgentState.QUEUED}},
            "somebody could have the turn and nobody has it",
        ),
    ],
)
def test_the_check_finds_what_must_never_be(broken: dict[str, object], alarm: str):
    channel = Room("a", "b").channel
    assert check_invariants(channel) == []
    for name, value in broken.items():
        if isinstance(value, dict):
            members = tuple(
                replace(m, **value) if m.agent_id == name else m for m in channel.members
            )
            channel = replace(channel, members=members)
        else:
            channel = replace(channel, **{name: value})
    assert f"channel 'reviews': {alarm}" in check_invariants(channel)


@pytest.mark.requirement("T3")
def test_the_check_finds_a_turn_of_a_stranger():
    turn = ChannelTurn(agent_id="x", number=0, granted_at=START, wait_until=START)
    channel = Channel(id="reviews", turn=turn)
    assert len(check_invariants(channel)) == 2


# ---- outages


def test_no_time_of_a_turn_is_used_up_while_nobody_could_look():
    room = Room("a", "b").later(3_600).do(ev.PushChannelClocks(seconds=3_590))
    assert room.active == "a"
    assert room.tick(49).active == "a"
    assert room.tick(1).active == "b"


def test_a_wait_and_a_silence_are_pushed_too():
    room = Room("a", "b", autoDetectTurnEnd=True).say("a", "hm")
    assert room.later(100).do(ev.PushChannelClocks(seconds=95)).tick(4).active == "a"
    room.do(ev.RequestWait(agent_id="a", seconds=10))
    assert room.later(100).do(ev.PushChannelClocks(seconds=95)).tick(4).states["a"] == "WAITING"
    assert room.tick(1).states["a"] == "QUEUED"


def test_clocks_are_not_pushed_where_none_runs():
    room = Room().do(ev.PushChannelClocks(seconds=5))
    assert room.events == []


def test_a_turn_comes_with_all_since_the_last_one_also_what_was_delivered_meanwhile():
    room = Room("a", "b", humanInterruptMode="parallel")
    room.human("one")
    room.done("a")
    turn = room.channel.turn
    assert turn is not None
    assert (turn.agent_id, turn.after) == ("b", 0)
    room.human("two")
    room.done("b")
    turn = room.channel.turn
    assert turn is not None
    assert (turn.agent_id, turn.after) == ("a", 1)
