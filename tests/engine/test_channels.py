"""Channels through the engine: turns are granted, taken, paused, lost, and never held twice."""

import asyncio
from collections import Counter
from typing import Any

import pytest
from tests.engine.engines import (
    DONE,
    ROLE,
    abandon_engine,
    chain,
    engine_to_abandon,
    manual_engine,
    node,
    refusal_code,
    register_worker,
    run_async,
)

from handrail.engine.audit.doctor import check_database
from handrail.engine.audit.verification import verify
from handrail.engine.commit.channel_change import CHANNEL_STREAM_PREFIX
from handrail.engine.engine import Engine
from handrail.kernel.agent_lifecycle import AgentState
from handrail.kernel.channel import events as ev
from handrail.kernel.channel.state import check_invariants
from handrail.store.urls import open_maintenance_store
from handrail.testing.clock import ManualClock
from handrail.views.channels import ChannelView, TurnView

pytest_plugins = ["tests.fixtures_postgres"]

ROOM = "reviews"


async def room(engine: Engine, *agents: str, channel: str = ROOM, **config: Any) -> ChannelView:
    """A channel with these agents, who have registered."""
    await engine.channels.open(channel, engine.channels.turn_config(config), by="olga")
    for agent in agents:
        if engine.store.agents.get(agent) is None:
            await engine.agents.register(agent, [ROLE])
        await engine.channels.join(channel, agent, by="olga")
    return await engine.channels.get(channel)


async def take(engine: Engine, agent: str) -> TurnView:
    found = await engine.claims.claim_next(agent)
    assert isinstance(found, TurnView), "it has a turn"
    return found


async def done(engine: Engine, turn: TurnView) -> ChannelView:
    command = ev.CompleteTurn(agent_id=turn.agent_id, turn=turn.turn)
    return await engine.channels.command(turn.channel_id, command, by=turn.agent_id)


async def alive(engine: Engine, *agents: str) -> None:
    for agent in agents:
        await engine.agents.heartbeat(agent)


def states(view: ChannelView) -> dict[str, str]:
    return {agent: state.value for agent, state in view.states.items()}


def sound(engine: Engine, channel: str = ROOM) -> None:
    """What is stored of the channel breaks no invariant of the kernel."""
    from handrail.engine.commit.channel_change import decode_channel

    row = engine.store.channels.load([channel])[channel]
    assert check_invariants(decode_channel(row.state)) == []


@pytest.mark.requirement("T3", "T9")
def test_turns_go_round_in_the_order_of_joining(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            view = await room(engine, "a", "b", "c")
            assert (view.active, view.queue) == ("a", ("a", "b", "c"))
            assert states(view) == {"a": "ACTIVE", "b": "QUEUED", "c": "QUEUED"}
            order: list[str] = []
            for _ in range(6):
                turn = await take(engine, view.active or "")
                order.append(turn.agent_id)
                await engine.channels.say(ROOM, turn.agent_id, "hm", turn=turn.turn)
                view = await done(engine, turn)
            assert "".join(order) == "abcabc"
            sound(engine)

    run_async(play())


@pytest.mark.requirement("T3")
def test_a_late_complete_ends_nobodys_turn_and_is_kept(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            await room(engine, "a", "b")
            turn = await take(engine, "a")
            clock.advance(60)
            await alive(engine, "a", "b")
            await engine.tick()
            assert (await engine.channels.get(ROOM)).active == "b"
            assert await refusal_code(done(engine, turn)) == "stale_turn"
            assert (await engine.channels.get(ROOM)).active == "b"
            kept = engine.store.runs.list_notes(CHANNEL_STREAM_PREFIX + ROOM)[0]
            assert [(one.actor, one.code) for one in kept] == [("a", "stale_turn")]

    run_async(play())


@pytest.mark.requirement("T5")
def test_a_turn_that_runs_out_goes_to_the_next_and_the_channel_is_told(
    url: str, clock: ManualClock
):
    async def play():
        async with manual_engine(url, clock) as engine:
            await room(engine, "a", "b")
            await engine.channels.join(ROOM, "b", by="olga", timeout_seconds=5)
            clock.advance(59)
            await engine.tick()
            assert (await engine.channels.get(ROOM)).active == "a"
            clock.advance(1)
            await alive(engine, "a", "b")
            await engine.tick()
            view = await engine.channels.get(ROOM)
            assert (view.active, view.queue) == ("b", ("a", "b"))
            clock.advance(5)
            await engine.tick()
            view = await engine.channels.get(ROOM)
            assert view.resting == "a full cycle without a message"
            notices = [one.code for one in await engine.channels.log(ROOM) if one.kind == "notice"]
            assert notices == ["turn_timed_out", "turn_timed_out", "resting"]

    run_async(play())


@pytest.mark.requirement("T4", "T8")
def test_an_agent_that_falls_silent_loses_its_turn_and_is_not_queued_when_it_is_back(
    url: str, clock: ManualClock
):
    async def play():
        async with manual_engine(url, clock, lease=60) as engine:
            await room(engine, "a", "b", defaultTimeoutSeconds=600)
            clock.advance(61)
            await alive(engine, "b")
            await engine.tick()
            view = await engine.channels.get(ROOM)
            assert states(view) == {"a": "OFFLINE", "b": "ACTIVE"}
            await alive(engine, "a")
            await engine.tick()
            assert states(await engine.channels.get(ROOM)) == {"a": "IDLE", "b": "ACTIVE"}
            clock.advance(61)
            await alive(engine, "a")
            await engine.tick()
            posted = await engine.channels.post(ROOM, "anybody?", by="ana")
            assert posted.disposition == "logged"
            view = await engine.channels.join(ROOM, "a", by="olga")
            assert view.active == "a"
            codes = [one.code for one in await engine.channels.log(ROOM) if one.kind == "notice"]
            assert codes == ["agent_disconnected", "agent_disconnected", "no_agents"]

    run_async(play())


@pytest.mark.requirement("T4")
def test_an_agent_that_registers_again_has_lost_its_turn(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            await room(engine, "a", "b")
            await engine.agents.register("a", [ROLE])
            view = await engine.channels.get(ROOM)
            assert states(view) == {"a": "IDLE", "b": "ACTIVE"}
            await engine.agents.register("b", [ROLE], key="same")
            await engine.channels.join(ROOM, "b", by="olga")
            await engine.agents.register("b", [ROLE], key="same")
            assert states(await engine.channels.get(ROOM))["b"] == "ACTIVE"
            await engine.agents.remove("b")
            assert states(await engine.channels.get(ROOM))["b"] == "OFFLINE"

    run_async(play())


def test_a_disabled_agent_is_offline_in_its_channels_until_it_is_enabled(
    url: str, clock: ManualClock
):
    async def play():
        async with manual_engine(url, clock) as engine:
            await room(engine, "a", "b")
            view = await engine.agents.enable("a", enabled=False)
            assert view.channels == {ROOM: "OFFLINE"}
            assert (await engine.channels.get(ROOM)).active == "b"
            assert (
                await refusal_code(engine.channels.join(ROOM, "a", by="olga")) == "agent_disabled"
            )
            view = await engine.agents.enable("a", enabled=True)
            assert view.channels == {ROOM: "IDLE"}

    run_async(play())


@pytest.mark.requirement("T13")
def test_an_agent_in_two_channels_has_one_turn_at_a_time(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            await room(engine, "a", "b")
            view = await room(engine, "a", "c", channel="plans")
            assert view.active == "c", "a is busy in the other channel, and its turn passes"
            assert view.queue == ("a", "c")
            turn = await take(engine, "a")
            assert turn.channel_id == ROOM
            view = await done(engine, turn)
            assert view.active == "b"
            turn = await take(engine, "c")
            await engine.channels.say("plans", "c", "hello", turn=turn.turn)
            view = await done(engine, turn)
            assert view.active == "a"
            assert [m.state for m in engine.store.channels.list_memberships("a") if m.turn] == [
                "ACTIVE"
            ]

    run_async(play())


@pytest.mark.requirement("T13", "T5")
def test_a_turn_that_runs_out_passes_over_who_is_busy_elsewhere(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            await room(engine, "a", "b", "c")
            plans = await room(engine, "b", channel="plans", defaultTimeoutSeconds=600)
            assert plans.active == "b"
            clock.advance(61)
            await alive(engine, "a", "b", "c")
            await engine.tick()
            assert (await engine.channels.get(ROOM)).active == "c"

    run_async(play())


@pytest.mark.requirement("T3", "T13")
def test_channels_decided_together_give_an_agent_no_more_turns_than_it_has_room_for(
    url: str, clock: ManualClock
):
    async def play():
        async with manual_engine(url, clock) as engine:
            await register_worker(engine, name="a", capacity=2)
            names = [f"c{n}" for n in range(5)]
            for name in names:
                await room(engine, "a", channel=name)
                await engine.channels.command(name, ev.PauseChannel(), by="olga")
            for name in names:
                if (turn := await engine.channels.turn_of(name, "a")) is not None:
                    await done(engine, turn)
            await asyncio.gather(*(engine.channels.post(name, "hello", by="ana") for name in names))
            await asyncio.gather(
                *(engine.channels.command(name, ev.UnpauseChannel(), by="ana") for name in names)
            )
            turns = [await engine.channels.turn_of(name, "a") for name in names]
            assert len(turns) - turns.count(None) == 2

    run_async(play())


@pytest.mark.requirement("T13")
def test_a_channel_whose_only_agent_was_busy_goes_on_when_it_is_free(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            await room(engine, "a", "b")
            view = await room(engine, "a", channel="plans")
            assert (view.active, view.members[0].busy) == (None, True)
            await done(engine, await take(engine, "a"))
            for _ in range(3):
                await engine.committer.wait_idle()
                await asyncio.sleep(0)
            await engine.tick()
            assert (await engine.channels.get("plans")).active == "a"

    run_async(play())


@pytest.mark.requirement("T13")
def test_a_dispatch_and_a_turn_are_the_same_active(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            await engine.define(chain(node("a")))
            await register_worker(engine, name="a")
            run = await engine.start("w")
            dispatch = await engine.claims.claim_next("a")
            assert dispatch is not None
            assert not isinstance(dispatch, TurnView)
            view = await room(engine, "a")
            assert (view.active, view.members[0].busy) == (None, True)
            await engine.dispatches.report(run.id, dispatch.fence, "a", DONE)
            await engine.tick()
            assert (await engine.channels.get(ROOM)).active == "a"
            second = await engine.start("w")
            found = await engine.claims.claim_next("a", holding=[])
            assert isinstance(found, TurnView)
            assert await engine.claims.claim_next("a", holding=[found.id]) is None
            agent = await engine.agents.get("a")
            assert (agent.state, agent.current_work) == (AgentState.ACTIVE, (found.id,))
            await done(engine, found)
            step = await engine.claims.claim_next("a", holding=[])
            assert not isinstance(step, TurnView)
            assert step is not None
            assert step.run.id == second.id

    run_async(play())


@pytest.mark.requirement("T13")
def test_an_agent_with_room_for_two_has_two_turns(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            await register_worker(engine, name="a", capacity=2)
            for name in ("one", "two", "three"):
                await room(engine, "a", channel=name)
            assert (await engine.channels.get("two")).active == "a"
            assert (await engine.channels.get("three")).active is None
            first = await take(engine, "a")
            second = await take(engine, "a")
            assert {first.channel_id, second.channel_id} == {"one", "two"}

    run_async(play())


@pytest.mark.requirement("T3", "T13")
def test_two_engines_that_grant_at_once_never_give_an_agent_two_turns(
    shared_url: str, clock: ManualClock
):
    async def play():
        async with manual_engine(shared_url, clock) as one, manual_engine(shared_url, clock) as two:
            for name in ("x", "y"):
                await room(one, channel=name, order="manual")
            await one.agents.register("a", [ROLE])
            for name in ("x", "y"):
                await one.channels.join(name, "a", by="olga")
            grant = ev.GrantTurn(agent_id="a")
            both = await asyncio.gather(
                one.channels.command("x", grant, by="ana"),
                two.channels.command("y", grant, by="ana"),
                return_exceptions=True,
            )
            assert Counter(isinstance(one, ChannelView) for one in both) == {True: 1, False: 1}
            held = [m for m in one.store.channels.list_memberships("a") if m.turn is not None]
            assert len(held) == 1

    run_async(play())


@pytest.mark.requirement("T6")
@pytest.mark.parametrize(
    ("mode", "became", "active_state", "active_sees", "other_sees"),
    [
        ("queue", "queued", "ACTIVE", [], ["stop!"]),
        ("interrupt", "queued", "WAITING", ["stop!"], ["stop!"]),
        ("inject", "delivered", "ACTIVE", ["stop!"], ["stop!"]),
        ("parallel", "delivered", "ACTIVE", ["stop!"], ["stop!"]),
    ],
)
def test_a_person_speaks_in_a_turn_as_the_mode_says(
    url: str,
    clock: ManualClock,
    mode: str,
    became: str,
    active_state: str,
    active_sees: list[str],
    other_sees: list[str],
):
    async def play():
        async with manual_engine(url, clock) as engine:
            await room(engine, "a", "b", humanInterruptMode=mode)
            turn = await take(engine, "a")
            assert turn.messages == ()
            posted = await engine.channels.post(ROOM, "stop!", by="ana")
            assert posted.disposition == became
            view = await engine.channels.get(ROOM)
            assert states(view)["a"] == active_state
            log = await engine.channels.log(ROOM, reader="a")
            assert [one.text for one in log] == active_sees
            if mode == "interrupt":
                assert (
                    await refusal_code(engine.channels.say(ROOM, "a", "but", turn=turn.turn))
                    == "not_active"
                )
                resumed = ev.ResumeTurn(agent_id="a", human=True)
                assert (
                    states(await engine.channels.command(ROOM, resumed, by="ana"))["a"] == "ACTIVE"
                )
                assert [m.text for m in (await take(engine, "a")).messages] == ["stop!"]
            await done(engine, turn)
            assert [m.text for m in (await take(engine, "b")).messages] == other_sees

    run_async(play())


@pytest.mark.requirement("T6")
def test_nothing_that_was_said_is_lost_or_given_twice(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            view = await room(engine, "a", "b", "c", humanInterruptMode="queue")
            got: dict[str, list[str]] = {"a": [], "b": [], "c": []}
            said: list[tuple[str, str]] = []
            for number in range(12):
                turn = await take(engine, view.active or "")
                got[turn.agent_id] += [one.text for one in turn.messages]
                said += [(turn.agent_id, f"{turn.agent_id}{number}"), ("ana", f"ana{number}")]
                await engine.channels.say(
                    ROOM, turn.agent_id, f"{turn.agent_id}{number}", turn=turn.turn
                )
                await engine.channels.post(ROOM, f"ana{number}", by="ana")
                view = await done(engine, turn)
            for agent, texts in got.items():
                missed = [text for author, text in said if author != agent]
                assert texts == missed[: len(texts)]
                assert len(missed) - len(texts) <= 6, "what came after its last turn"

    run_async(play())


def test_the_same_message_sent_again_is_said_once(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            await room(engine, "a", "b")
            first = await engine.channels.post(ROOM, "hello", by="ana", key="k1")
            again = await engine.channels.post(ROOM, "hello", by="ana", key="k1")
            assert again == first
            turn = await take(engine, "a")
            one = await engine.channels.say(ROOM, "a", "hi", turn=turn.turn, key="k1")
            await done(engine, turn)
            assert (
                await engine.channels.say(ROOM, "a", "hi", turn=turn.turn, key="k1")
            ).id == one.id
            assert len(await engine.channels.log(ROOM)) == 2

    run_async(play())


@pytest.mark.requirement("T7")
def test_silence_after_an_answer_ends_the_turn_where_that_is_wanted(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            await room(engine, "a", "b", autoDetectTurnEnd=True)
            turn = await take(engine, "a")
            clock.advance(9)
            await engine.channels.say(ROOM, "a", "done", turn=turn.turn)
            clock.advance(9.9)
            await engine.tick()
            assert (await engine.channels.get(ROOM)).active == "a"
            clock.advance(0.1)
            await engine.tick()
            assert (await engine.channels.get(ROOM)).active == "b"

    run_async(play())


@pytest.mark.requirement("T10")
def test_a_wait_keeps_the_turn_until_it_is_resolved_or_over(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            await room(engine, "a", "b")
            turn = await take(engine, "a")
            wait = ev.RequestWait(agent_id="a", turn=turn.turn, seconds=100, reason="the build")
            view = await engine.channels.command(ROOM, wait, by="a")
            assert (view.active, states(view)["a"]) == (None, "WAITING")
            clock.advance(50)
            await alive(engine, "a", "b")
            view = await engine.channels.command(
                ROOM, ev.ResumeTurn(agent_id="a", turn=turn.turn), by="a"
            )
            assert view.active == "a"
            await engine.channels.command(ROOM, wait, by="a")
            clock.advance(30)
            override = ev.OverrideWait(agent_id="a", to=AgentState.ACTIVE)
            assert (await engine.channels.command(ROOM, override, by="ana")).active == "a"
            await engine.channels.command(ROOM, wait, by="a")
            await alive(engine, "a", "b")
            clock.advance(50)
            await alive(engine, "a", "b")
            clock.advance(50)
            await engine.tick()
            view = await engine.channels.get(ROOM)
            assert (view.active, states(view)["a"]) == ("b", "QUEUED")

    run_async(play())


@pytest.mark.requirement("T14")
def test_a_channel_rests_after_so_many_turns_and_wakes_for_a_person(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            view = await room(engine, "a", "b", maxAgentTurns=4)
            for _ in range(4):
                turn = await take(engine, view.active or "")
                await engine.channels.say(ROOM, turn.agent_id, "go on", turn=turn.turn)
                view = await done(engine, turn)
            assert (view.active, view.resting) == (None, "4 agent turns without a human message")
            assert set(states(view).values()) == {"QUEUED"}
            assert await engine.claims.claim_next("a") is None
            posted = await engine.channels.post(ROOM, "more", by="ana")
            assert posted.disposition == "delivered"
            assert (await engine.channels.get(ROOM)).active == "a"

    run_async(play())


@pytest.mark.requirement("T11")
def test_the_installation_says_how_long_turns_and_waits_are_where_a_channel_does_not(
    url: str, clock: ManualClock
):
    async def play():
        async with manual_engine(url, clock, turn_timeout=7, wait_timeout=8) as engine:
            config = (await room(engine)).turn_config
            assert (config.default_timeout_seconds, config.wait_timeout_seconds) == (7, 8)
            config = (await room(engine, channel="b", defaultTimeoutSeconds=9)).turn_config
            assert (config.default_timeout_seconds, config.max_agent_turns) == (9, 50)
            wrong = engine.channels.turn_config({"maxAgentTurns": 0})
            assert await refusal_code(engine.channels.open("c", wrong, by="olga")) == "bad_config"

    run_async(play())


def test_priority_and_manual_orders(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            await room(engine, order="priority")
            for agent, priority in (("a", 1), ("b", 5), ("c", 3)):
                await engine.agents.register(agent, [ROLE])
                await engine.channels.join(ROOM, agent, by="olga", priority=priority)
            order: list[str] = []
            for _ in range(4):
                view = await engine.channels.get(ROOM)
                turn = await take(engine, view.active or "")
                order.append(turn.agent_id)
                await engine.channels.say(ROOM, turn.agent_id, "x", turn=turn.turn)
                await done(engine, turn)
            assert order == ["a", "b", "c", "b"], "a came first, alone; then by priority"
            view = await room(engine, "d", "e", channel="m", order="manual")
            assert view.active is None
            view = await engine.channels.command("m", ev.GrantTurn(agent_id="e"), by="ana")
            assert view.active == "e"
            assert await refusal_code(
                engine.channels.command("m", ev.GrantTurn(agent_id="d"), by="a")
            ) == ("turn_held")

    run_async(play())


def test_a_closed_channel_is_gone_and_may_be_opened_again(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            await room(engine, "a", "b")
            old = await take(engine, "a")
            await engine.channels.post(ROOM, "hello", by="ana")
            assert await refusal_code(engine.channels.open(ROOM, by="olga")) == "channel_exists"
            await engine.channels.close(ROOM, by="olga")
            assert await refusal_code(engine.channels.get(ROOM)) == "unknown_channel"
            assert await refusal_code(done(engine, old)) == "unknown_channel"
            assert (await engine.channels.list()).items == ()
            assert (await engine.agents.get("a")).channels == {}
            assert await refusal_code(engine.channels.close(ROOM, by="olga")) == "unknown_channel"
            view = await room(engine, "a")
            assert (view.turn and view.turn.number, view.paused) == (2, False)
            assert [one.text for one in await engine.channels.log(ROOM)] == ["hello"]
            assert await refusal_code(done(engine, old)) == "stale_turn"

    run_async(play())


def test_a_turn_survives_an_engine_that_dies_and_an_outage_costs_it_nothing(
    shared_url: str, clock: ManualClock
):
    async def play():
        engine = await engine_to_abandon(shared_url, clock)
        await room(engine, "a", "b")
        turn = await take(engine, "a")
        await engine.channels.post(ROOM, "hello", by="ana")
        clock.advance(20)
        await engine.tick()
        await abandon_engine(engine)
        clock.advance(hours=1)
        async with manual_engine(shared_url, clock) as again:
            await again.tick()
            view = await again.channels.get(ROOM)
            assert view.active == "a"
            found = await take(again, "a")
            assert (found.id, [m.text for m in found.messages]) == (turn.id, ["hello"])
            clock.advance(41)
            await alive(again, "a", "b")
            await again.tick()
            assert (await again.channels.get(ROOM)).active == "b"

    run_async(play())


def test_whoever_waits_for_work_is_given_a_turn_as_soon_as_it_is_granted(
    url: str, clock: ManualClock
):
    async def play():
        async with manual_engine(url, clock) as engine:
            await room(engine, "a", "b")
            first = await take(engine, "a")
            waiting = asyncio.create_task(engine.claims.claim_next("b", wait=10))
            log = asyncio.create_task(engine.channels.log(ROOM, wait=10))
            await asyncio.sleep(0)
            await engine.channels.say(ROOM, "a", "your turn", turn=first.turn)
            await done(engine, first)
            turn = await waiting
            assert isinstance(turn, TurnView)
            assert [one.text for one in turn.messages] == ["your turn"]
            assert [one.text for one in await log] == ["your turn"]

    run_async(play())


def test_the_record_of_a_channel_is_chained_and_checked(shared_url: str, clock: ManualClock):
    async def play():
        async with manual_engine(shared_url, clock) as engine:
            view = await room(engine, "a", "b")
            for _ in range(3):
                turn = await take(engine, view.active or "")
                await engine.channels.say(ROOM, turn.agent_id, "x", turn=turn.turn)
                view = await done(engine, turn)
            await room(engine, "a", channel="closed")
            await engine.channels.close("closed", by="olga")
            shown = [event for _, event in await engine.feed.read(limit=200)]
            mine = [event for event in shown if event.get("stream") == CHANNEL_STREAM_PREFIX + ROOM]
            assert [event["seq"] for event in mine] == list(range(1, len(mine) + 1))
            assert mine[0]["type"] == "Opened"
            assert mine[0]["actor"] == "olga"
            assert {event["actor"] for event in mine} == {"olga", "a", "b"}
        records = open_maintenance_store(shared_url)
        try:
            assert verify(records).findings == ()
            assert check_database(records, clock.now()) == []
        finally:
            records.close()

    run_async(play())
