"""Channels over HTTP: every promise about turns, as agents and people see it."""

import asyncio
import json
from typing import Any

import pytest
from tests.server.captured_log import capture_log
from tests.server.harness import (
    CEO,
    OPERATOR,
    PLAIN,
    WORKER,
    ServerHarness,
    expect_json,
    expect_problem,
)
from tests.server.http_agents import HttpAgent, register_agent, wait_for_long_polls

from handrail.engine.services.channels import MESSAGE_CHARS_MAX, TURN_CHARS_MAX
from handrail.kernel.agent_lifecycle import TRANSITIONS, AgentState, Trigger

ROOM = "/channels/reviews"


class Seat(HttpAgent):
    """An agent in the channel `reviews`."""

    async def turn(self) -> dict[str, Any]:
        turn = await self.claim()
        assert turn["kind"] == "turn"
        return turn

    async def say(self, text: str, **more: Any) -> Any:
        return await self.http.post(f"{ROOM}/messages", json={"text": text, **more})

    async def act(self, action: str, **more: Any) -> Any:
        body = {"agent_id": self.name, "action": action, **more}
        return await self.http.post(f"{ROOM}/turn", json=body)

    async def done(self, turn: dict[str, Any]) -> dict[str, Any]:
        return expect_json(await self.act("complete", turn=turn["turn"]))

    async def reads(self) -> list[str]:
        return [
            one["text"] for one in expect_json(await self.http.get(f"{ROOM}/messages"))["items"]
        ]


async def room(harness: ServerHarness, *agents: str, **config: Any) -> tuple[Seat, ...]:
    """The channel `reviews` with these agents."""
    body = {"id": "reviews", "turnConfig": config}
    expect_json(await harness.operator.post("/channels", json=body), 201)
    return tuple([await member(harness, agent) for agent in agents])


async def member(harness: ServerHarness, name: str, **more: Any) -> Seat:
    seat = Seat(name, (await register_agent(harness, name, WORKER)).http)
    body = {"agent_id": name, **more}
    expect_json(await harness.operator.post(f"{ROOM}/members", json=body), 201)
    return seat


async def shown(harness: ServerHarness) -> dict[str, Any]:
    return expect_json(await harness.viewer.get(ROOM))


async def log(harness: ServerHarness, kind: str = "message") -> list[str]:
    items = expect_json(await harness.viewer.get(f"{ROOM}/messages"))["items"]
    return [
        one["text"] if kind == "message" else one["code"] for one in items if one["kind"] == kind
    ]


async def posted(harness: ServerHarness, text: str, **more: Any) -> dict[str, Any]:
    return expect_json(await harness.ceo.post(f"{ROOM}/messages", json={"text": text, **more}), 201)


async def ordered(
    harness: ServerHarness, action: str, agent: str = "", **more: Any
) -> dict[str, Any]:
    body = {"action": action, "agent_id": agent, **more}
    return expect_json(await harness.operator.post(f"{ROOM}/turn", json=body))


async def passes(harness: ServerHarness, seconds: float, *alive: Seat) -> None:
    """Time passes; those who are alive say so."""
    while seconds > 0:
        harness.clock.advance(min(30, seconds))
        seconds -= 30
        for seat in alive:
            await harness.engine.agents.heartbeat(seat.name)
        await harness.engine.tick()


# Channels and members


@pytest.mark.requirement("T11")
async def test_a_channel_has_the_settings_of_the_specification_by_their_names(
    harness: ServerHarness,
):
    answer = await harness.operator.post("/channels", json={"id": "reviews"})
    assert expect_json(answer, 201)["turnConfig"] == {
        "defaultTimeoutSeconds": 60,
        "humanInterruptMode": "inject",
        "announceTimeouts": True,
        "announceDisconnects": True,
        "autoDetectTurnEnd": False,
        "autoDetectSilenceSeconds": 10,
        "waitTimeoutSeconds": 300,
        "maxAgentTurns": 50,
        "order": "round_robin",
    }
    body = {"turnConfig": {"defaultTimeoutSeconds": 5, "humanInterruptMode": "queue"}}
    changed = expect_json(await harness.operator.put(ROOM, json=body))["turnConfig"]
    assert (changed["defaultTimeoutSeconds"], changed["humanInterruptMode"]) == (5, "queue")
    assert changed["maxAgentTurns"] == 50
    for wrong in ({"defaultTimeoutSeconds": 0}, {"humanInterruptMode": "shout"}, {"colour": 1}):
        expect_problem(
            await harness.operator.put(ROOM, json={"turnConfig": wrong}), 422, "bad_body"
        )


async def test_channels_are_made_listed_and_removed(harness: ServerHarness):
    (ada,) = await room(harness, "ada")
    expect_problem(
        await harness.operator.post("/channels", json={"id": "reviews"}), 409, "channel_exists"
    )
    (item,) = expect_json(await harness.viewer.get("/channels"))["items"]
    assert (item["id"], item["active"], item["queue"]) == ("reviews", "ada", ["ada"])
    agent = expect_json(await harness.viewer.get("/agents/ada"))
    assert (agent["state"], agent["channels"]) == ("ACTIVE", {"reviews": "ACTIVE"})
    assert agent["current_work"] == ["reviews.t1"]
    assert (await harness.operator.delete(ROOM)).status_code == 204
    expect_problem(await harness.viewer.get(ROOM), 404, "unknown_channel")
    assert expect_json(await harness.viewer.get("/channels"))["items"] == []
    expect_problem(await ada.act("complete"), 404, "unknown_channel")


async def test_who_may_not_is_refused(harness: ServerHarness):
    (ada,) = await room(harness, "ada")
    stranger = Seat("eve", (await register_agent(harness, "eve", WORKER)).http)
    expect_problem(await stranger.say("hello"), 403, "not_a_member")
    expect_problem(await stranger.http.get(f"{ROOM}/messages"), 403, "not_receiving")
    join = {"agent_id": "eve"}
    expect_problem(await stranger.http.post(f"{ROOM}/members", json=join), 403, "not_a_member")
    expect_problem(await ada.act("grant"), 403, "not_allowed")
    expect_problem(await ada.act("pause"), 403, "not_allowed")
    forged = {"agent_id": "ada", "action": "complete"}
    expect_problem(await stranger.http.post(f"{ROOM}/turn", json=forged), 403, "foreign_agent")
    expect_problem(await harness.ceo.post(f"{ROOM}/turn", json=forged), 403, "not_allowed")
    signed = {"text": "approved", "author": CEO}
    expect_problem(await ada.http.post(f"{ROOM}/messages", json=signed), 403, "forged_author")
    expect_problem(
        await harness.viewer.post(f"{ROOM}/messages", json={"text": "x"}), 403, "forbidden"
    )
    wrong = {"agent_id": "nobody"}
    expect_problem(await harness.operator.post(f"{ROOM}/members", json=wrong), 422, "unknown_agent")
    lost = {"text": "x", "to": "nobody"}
    expect_problem(await harness.ceo.post(f"{ROOM}/messages", json=lost), 422, "unknown_agent")


@pytest.mark.requirement("T9")
async def test_members_come_at_the_end_and_leave_with_their_turn(harness: ServerHarness):
    ada, bob = await room(harness, "ada", "bob")
    assert (await ada.turn())["turn"] == 1
    await member(harness, "cyd")
    assert (await shown(harness))["queue"] == ["ada", "bob", "cyd"]
    assert (await harness.operator.delete(f"{ROOM}/members/bob")).status_code == 204
    assert (await shown(harness))["queue"] == ["ada", "cyd"]
    assert (await ada.http.delete(f"{ROOM}/members/ada")).status_code == 204
    view = await shown(harness)
    assert (view["active"], view["queue"]) == ("cyd", ["cyd"])
    expect_problem(await ada.http.delete(f"{ROOM}/members/cyd"), 403, "foreign_agent")
    assert (await bob.claims()).status_code == 204


# Turns


@pytest.mark.requirement("T3", "T13")
async def test_a_claim_gives_the_turn_with_what_was_said_since(harness: ServerHarness):
    ada, bob = await room(harness, "ada", "bob")
    await posted(harness, "please look at #12", to="bob")
    turn = await ada.turn()
    assert (turn["channel_id"], turn["turn"], turn["id"]) == ("reviews", 1, "reviews.t1")
    assert turn["timeout_at"] == "2026-01-01T12:01:00Z"
    (message,) = turn["messages"]
    assert (message["author"], message["human"], message["to"]) == (CEO, True, "bob")
    said = expect_json(await ada.say("I see", turn=1), 201)
    assert (said["author"], said["human"]) == ("ada", False)
    assert (await bob.claims()).status_code == 204
    assert (await ada.done(turn))["active"] == "bob"
    second = await bob.turn()
    assert [one["text"] for one in second["messages"]] == ["please look at #12", "I see"]
    await bob.say("me too")
    await bob.done(second)
    assert [one["text"] for one in (await ada.turn())["messages"]] == ["me too"]


async def test_an_agent_says_so_much_in_a_turn_and_in_the_next_again(harness: ServerHarness):
    ada, bob = await room(harness, "ada", "bob")
    await posted(harness, "please look at #12")
    turn = await ada.turn()
    for _ in range(TURN_CHARS_MAX // MESSAGE_CHARS_MAX):
        expect_json(await ada.say("x" * MESSAGE_CHARS_MAX), 201)
    refused = expect_problem(await ada.say("y"), 422, "long_message")
    assert "complete the turn" in refused["detail"]
    await ada.done(turn)
    await bob.done(await bob.turn())
    await posted(harness, "and at #13")
    assert (await shown(harness))["active"] == "ada"
    expect_json(await ada.say("y"), 201)


@pytest.mark.requirement("T3")
async def test_a_late_complete_does_not_end_the_turn_of_the_next(harness: ServerHarness):
    ada, bob = await room(harness, "ada", "bob")
    old = await ada.turn()
    await passes(harness, 60, ada, bob)
    late = expect_problem(await ada.act("complete", turn=old["turn"]), 409, "stale_turn")
    assert "turn 2 is held by 'bob'" in late["detail"]
    expect_problem(await ada.say("too late", turn=old["turn"]), 409, "stale_turn")
    assert (await shown(harness))["active"] == "bob"
    kept = harness.engine.store.runs.list_notes("channel:reviews")[0]
    assert [(one.actor, one.code) for one in kept] == [("ada", "stale_turn")] * 2


async def test_a_claim_waits_for_a_turn(harness: ServerHarness):
    ada, bob = await room(harness, "ada", "bob")
    turn = await ada.turn()
    asked = asyncio.create_task(bob.claims(wait=10))
    read = asyncio.create_task(harness.viewer.get(f"{ROOM}/messages?wait=10"))
    await wait_for_long_polls(harness, 2)
    await ada.say("over to you")
    assert [one["text"] for one in expect_json(await read)["items"]] == ["over to you"]
    await ada.done(turn)
    assert expect_json(await asked)["turn"] == 2


@pytest.mark.requirement("T13")
async def test_an_agent_works_on_one_thing_at_a_time_runs_and_channels_alike(
    harness: ServerHarness,
):
    await harness.define(PLAIN)
    coder = await register_agent(harness, "coder-7", WORKER)
    await harness.file("plain")
    step = await coder.claim()
    assert step["kind"] == "step"
    await room(harness)
    expect_json(await harness.operator.post(f"{ROOM}/members", json={"agent_id": "coder-7"}), 201)
    view = await shown(harness)
    assert (view["active"], view["states"], view["members"][0]["busy"]) == (
        None,
        {"coder-7": "QUEUED"},
        True,
    )
    bob = await member(harness, "bob")
    assert (await shown(harness))["active"] == "bob", "its turn passes"
    expect_json(await coder.report(step))
    assert (await shown(harness))["queue"] == ["coder-7", "bob"], "its position is kept"
    turn = await bob.turn()
    await bob.say("hello")
    await bob.done(turn)
    await harness.file("plain")
    mine = await coder.claim()
    assert mine["kind"] == "turn"
    assert (await coder.claims(holding=[mine["id"]])).status_code == 204
    beat = await coder.beat(holding=[mine["id"], "reviews.t1"])
    assert (beat["state"], beat["held"], beat["ended"]) == ("ACTIVE", [mine["id"]], ["reviews.t1"])


@pytest.mark.requirement("T13")
async def test_an_agent_in_two_channels_holds_one_turn(harness: ServerHarness):
    ada, _ = await room(harness, "ada", "bob")
    expect_json(await harness.operator.post("/channels", json={"id": "plans"}), 201)
    joined = await harness.operator.post("/channels/plans/members", json={"agent_id": "ada"})
    assert expect_json(joined, 201)["active"] is None
    await ada.done(await ada.turn())
    for _ in range(100):
        await asyncio.sleep(0)
    await harness.engine.tick()
    assert expect_json(await harness.viewer.get("/channels/plans"))["active"] == "ada"


@pytest.mark.requirement("T5")
async def test_a_timeout_is_logged_announced_and_passes_the_turn(harness: ServerHarness):
    (ada,) = await room(harness, "ada")
    bob = await member(harness, "bob", timeoutSeconds=90)
    with capture_log("info") as lines:
        await passes(harness, 60, ada, bob)
    assert ("ada", "ACTIVE", "QUEUED", "timeout", "reviews") in lines.told(
        "state_transition", "agentId", "from", "to", "trigger", "channel"
    )
    view = await shown(harness)
    assert (view["active"], view["queue"]) == ("bob", ["ada", "bob"])
    assert await log(harness, "notice") == ["turn_timed_out"]
    await passes(harness, 60, ada, bob)
    assert (await shown(harness))["active"] == "bob", "its own timeout is longer"


@pytest.mark.requirement("T4")
async def test_a_crash_in_a_turn_passes_it_and_the_agent_comes_back_idle(harness: ServerHarness):
    ada, bob = await room(harness, "ada", "bob", defaultTimeoutSeconds=600)
    await ada.turn()
    with capture_log("info") as lines:
        await passes(harness, 90, bob)
    lost = ("ada", "ACTIVE", "OFFLINE", "agent crashes", "reviews")
    assert lost in lines.told("state_transition", "agentId", "from", "to", "trigger", "channel")
    ((code, agent, message),) = lines.told("channel_warned", "code", "agent", "message")
    assert (code, agent) == ("agent_lost", "ada")
    assert "in turn 1" in message
    view = await shown(harness)
    assert (view["active"], view["states"]["ada"]) == ("bob", "OFFLINE")
    assert await log(harness, "notice") == ["agent_disconnected"]
    await ada.beat()
    await harness.engine.tick()
    assert (await shown(harness))["states"]["ada"] == "IDLE"
    assert (await shown(harness))["queue"] == ["bob"]
    back = await ada.http.post(f"{ROOM}/members", json={"agent_id": "ada"})
    assert expect_json(back, 201)["queue"] == ["bob", "ada"]


@pytest.mark.requirement("T4")
async def test_an_agent_whose_line_was_cut_is_gone_before_its_lease_is_over(harness: ServerHarness):
    ada, bob = await room(harness, "ada", "bob", defaultTimeoutSeconds=600)
    await ada.turn()
    await harness.engine.agents.disconnected("ada")  # as its open connection does when it ends
    await passes(harness, 29, bob)
    assert (await shown(harness))["states"]["ada"] == "ACTIVE", "it may call again"
    await passes(harness, 2, bob)
    assert (await shown(harness))["states"] == {"ada": "OFFLINE", "bob": "ACTIVE"}


@pytest.mark.requirement("T4")
async def test_who_calls_again_after_its_line_was_cut_keeps_its_turn(harness: ServerHarness):
    ada, bob = await room(harness, "ada", "bob", defaultTimeoutSeconds=600)
    await ada.turn()
    await harness.engine.agents.disconnected("ada")  # as its open connection does when it ends
    expect_json(await ada.http.post("/agents/ada/heartbeat", json={}))
    await passes(harness, 55, bob)
    assert (await shown(harness))["states"]["ada"] == "ACTIVE"


async def test_a_dispatch_keeps_the_lease_that_it_was_told_though_the_line_was_cut(
    harness: ServerHarness,
):
    await harness.define(PLAIN)
    ada, bob = await room(harness, "ada", "bob", defaultTimeoutSeconds=600)
    await ada.done(await ada.turn())
    await harness.file("plain")
    assert (await ada.claim())["kind"] == "step"
    await harness.engine.agents.disconnected("ada")  # as its open connection does when it ends
    await passes(harness, 50, bob)
    assert len(expect_json(await harness.ceo.get("/agents/ada"))["current_work"]) == 1


@pytest.mark.requirement("T8")
async def test_with_everybody_gone_messages_are_logged_and_the_first_one_back_has_the_turn(
    harness: ServerHarness,
):
    ada, bob = await room(harness, "ada", "bob")
    await passes(harness, 90)
    assert set((await shown(harness))["states"].values()) == {"OFFLINE"}
    assert (await log(harness, "notice"))[-1] == "no_agents"
    assert (await posted(harness, "anybody?"))["disposition"] == "logged"
    assert (await ada.http.get(f"{ROOM}/messages")).status_code == 403, "it receives nothing"
    await bob.beat()
    await harness.engine.tick()
    expect_json(await harness.operator.post(f"{ROOM}/members", json={"agent_id": "bob"}), 201)
    assert (await shown(harness))["active"] == "bob"
    assert (await bob.turn())["messages"] == []


@pytest.mark.requirement("T6")
async def test_queue_a_persons_message_waits_for_the_end_of_the_turn(harness: ServerHarness):
    ada, bob = await room(harness, "ada", "bob", humanInterruptMode="queue")
    turn = await ada.turn()
    assert (await posted(harness, "wait"))["disposition"] == "queued"
    assert await ada.reads() == []
    await ada.done(turn)
    assert [one["text"] for one in (await bob.turn())["messages"]] == ["wait"]


@pytest.mark.requirement("T6")
async def test_inject_a_persons_message_reaches_the_active_agent_at_once(harness: ServerHarness):
    ada, bob = await room(harness, "ada", "bob")
    await ada.turn()
    asked = asyncio.create_task(ada.http.get(f"{ROOM}/messages?wait=10"))
    await wait_for_long_polls(harness)
    assert (await posted(harness, "use tabs"))["disposition"] == "delivered"
    assert [one["text"] for one in expect_json(await asked)["items"]] == ["use tabs"]
    assert (await shown(harness))["active"] == "ada"
    assert await bob.reads() == ["use tabs"], "whoever is queued observes"


@pytest.mark.requirement("T6")
async def test_parallel_a_persons_message_goes_through_to_everybody(harness: ServerHarness):
    ada, bob = await room(harness, "ada", "bob", humanInterruptMode="parallel")
    turn = await ada.turn()
    assert (await posted(harness, "lunch at 12", to="bob"))["disposition"] == "delivered"
    assert await ada.reads() == await bob.reads() == ["lunch at 12"]
    await ada.done(turn)
    assert [one["text"] for one in (await bob.turn())["messages"]] == ["lunch at 12"]


@pytest.mark.requirement("T6", "T10")
@pytest.mark.parametrize("how", ["resume", "override", "time"])
async def test_interrupt_a_person_pauses_the_turn_until_it_is_resumed(
    harness: ServerHarness, how: str
):
    ada, bob = await room(harness, "ada", "bob", humanInterruptMode="interrupt")
    turn = await ada.turn()
    await passes(harness, 30, ada, bob)
    assert (await posted(harness, "stop, read this"))["disposition"] == "queued"
    view = await shown(harness)
    assert (view["states"]["ada"], view["turn"]["interrupted"]) == ("WAITING", True)
    assert view["turn"]["timeout_at"] is None, "the turn's clock stands still"
    expect_problem(await ada.say("but"), 409, "not_active")
    expect_problem(await ada.act("resume", turn=turn["turn"]), 409, "interrupted_by_human")
    if how == "resume":
        await ordered(harness, "resume", "ada")
    elif how == "override":
        await ordered(harness, "override", "ada", to="ACTIVE")
    else:
        await passes(harness, 300, ada, bob)
    view = await shown(harness)
    assert (view["active"], view["turn"]["number"]) == ("ada", 1)
    assert [one["text"] for one in (await ada.turn())["messages"]] == ["stop, read this"]


@pytest.mark.requirement("T7")
async def test_who_never_says_that_it_is_done_is_ended_by_the_timeout_with_a_warning(
    harness: ServerHarness,
):
    ada, bob = await room(harness, "ada", "bob")
    await ada.turn()
    await ada.say("here is my answer")
    with capture_log("info") as lines:
        await passes(harness, 60, ada, bob)
    assert lines.told("channel_warned", "code", "message") == [
        ("no_turn_complete", "Agent completed response without TURN_COMPLETE")
    ]
    assert (await shown(harness))["active"] == "bob"


@pytest.mark.requirement("T7")
async def test_silence_ends_a_turn_where_that_is_switched_on(harness: ServerHarness):
    ada, bob = await room(harness, "ada", "bob", autoDetectTurnEnd=True)
    await ada.turn()
    await ada.say("here is my answer")
    await passes(harness, 10, ada, bob)
    assert (await shown(harness))["active"] == "bob"
    assert await log(harness, "notice") == []


@pytest.mark.requirement("T10")
async def test_a_wait_pauses_the_turn_and_goes_on_or_is_forfeited(harness: ServerHarness):
    ada, bob = await room(harness, "ada", "bob")
    turn = await ada.turn()
    expect_json(await ada.act("wait", turn=turn["turn"], seconds=120, reason="the build"))
    view = await shown(harness)
    assert (view["active"], view["states"]["ada"]) == (None, "WAITING")
    assert (await ada.claims()).status_code == 204, "it still has the turn"
    expect_json(await ada.act("resume", turn=turn["turn"]))
    assert (await shown(harness))["active"] == "ada"
    expect_json(await ada.act("wait", turn=turn["turn"], seconds=120))
    await passes(harness, 120, ada, bob)
    view = await shown(harness)
    assert (view["active"], view["states"]["ada"]) == ("bob", "QUEUED")
    second = await bob.turn()
    expect_json(await bob.act("wait", turn=second["turn"]))
    await ordered(harness, "override", "bob", to="QUEUED")
    assert (await shown(harness))["states"]["bob"] == "QUEUED"
    expect_problem(await ada.act("wait", seconds=-1), 422, "bad_body")


@pytest.mark.requirement("T14")
async def test_a_channel_rests_after_a_silent_cycle_and_wakes_for_a_person(harness: ServerHarness):
    ada, bob = await room(harness, "ada", "bob")
    await ada.done(await ada.turn())
    view = await bob.done(await bob.turn())
    assert (view["active"], view["resting"]) == (None, "a full cycle without a message")
    assert view["states"] == {"ada": "QUEUED", "bob": "QUEUED"}
    assert await log(harness, "notice") == ["resting"]
    assert (await ada.claims()).status_code == 204
    assert (await posted(harness, "go on"))["disposition"] == "delivered"
    assert [one["text"] for one in (await ada.turn())["messages"]] == ["go on"]


@pytest.mark.requirement("T14")
async def test_a_channel_rests_after_so_many_turns_without_a_person(harness: ServerHarness):
    seats = await room(harness, "ada", "bob", maxAgentTurns=3)
    view = {}
    for n in range(3):
        seat = seats[n % 2]
        turn = await seat.turn()
        await seat.say("blah")
        view = await seat.done(turn)
    assert view["resting"] == "3 agent turns without a human message"


async def test_a_paused_channel_grants_nothing_until_it_goes_on(harness: ServerHarness):
    ada, bob = await room(harness, "ada", "bob")
    turn = await ada.turn()
    await ordered(harness, "pause")
    view = await ada.done(turn)
    assert (view["active"], view["paused"]) == (None, True)
    expect_problem(
        await harness.operator.post(f"{ROOM}/turn", json={"action": "grant", "agent_id": "bob"}),
        409,
        "channel_paused",
    )
    assert (await ordered(harness, "unpause"))["active"] == "bob"
    assert (await bob.turn())["turn"] == 2


async def test_in_manual_order_a_person_picks(harness: ServerHarness):
    await room(harness, "ada", "bob", order="manual")
    assert (await shown(harness))["active"] is None
    assert (await ordered(harness, "grant", "bob"))["active"] == "bob"
    expect_problem(
        await harness.operator.post(f"{ROOM}/turn", json={"action": "grant"}), 422, "bad_body"
    )


async def test_in_order_of_priority_the_most_important_is_next(harness: ServerHarness):
    await room(harness, order="priority")
    await ordered(harness, "pause")
    for name, priority in (("ada", 1), ("bob", 9)):
        await member(harness, name, priority=priority)
    assert (await ordered(harness, "unpause"))["active"] == "bob"


async def test_the_same_key_says_it_once(harness: ServerHarness):
    await room(harness, "ada")
    for _ in range(2):
        answer = await harness.ceo.post(
            f"{ROOM}/messages", json={"text": "hello"}, headers={"Idempotency-Key": "k-1"}
        )
        assert answer.status_code == 201
    assert await log(harness) == ["hello"]


# The table


@pytest.mark.requirement("T1", "T2")
@pytest.mark.parametrize("state", list(AgentState))
@pytest.mark.parametrize(
    ("action", "trigger"),
    [
        ("complete", Trigger.TURN_COMPLETE),
        ("wait", Trigger.WAIT_REQUESTED),
        ("resume", Trigger.WAIT_RESOLVED),
        ("override ACTIVE", Trigger.OVERRIDE_TO_ACTIVE),
        ("override QUEUED", Trigger.OVERRIDE_TO_QUEUED),
        ("grant", Trigger.TURN_GRANTED),
        ("disable", Trigger.DISABLED),
        ("vanish", None),
        ("remove", Trigger.REMOVED),
        ("say", None),
    ],
)
async def test_every_cell_of_the_table(
    harness: ServerHarness, state: AgentState, action: str, trigger: Trigger | None
):
    """What a state takes and what it does not; a refusal changes nothing."""
    ada, bob = await room(harness, "ada", "bob", order="manual", defaultTimeoutSeconds=600)
    await _bring(harness, ada, bob, state)
    assert (await shown(harness))["states"]["ada"] == state
    before = harness.engine.store.channels.load(["reviews"])["reviews"]
    if action == "vanish":
        await passes(harness, 90, bob)
        assert (await shown(harness))["states"]["ada"] == "OFFLINE"
        return
    answer = await _try(harness, ada, action)
    if action == "say":
        assert answer.status_code == (201 if state is AgentState.ACTIVE else 409)
        return
    if action == "remove":
        assert answer.status_code == 204
        assert "ada" not in (await shown(harness))["states"]
        return
    assert trigger is not None
    target = TRANSITIONS.get((state, trigger))
    if target is None:
        refused = expect_problem(answer, 409, "transition_refused")
        assert f"agent 'ada' in channel 'reviews' is {state}" in refused["detail"]
        assert repr(trigger.value) in refused["detail"]
        assert harness.engine.store.channels.load(["reviews"])["reviews"] == before
    else:
        expect_json(answer)
        assert (await shown(harness))["states"]["ada"] == target


async def _bring(harness: ServerHarness, ada: Seat, bob: Seat, state: AgentState) -> None:
    if state in (AgentState.OFFLINE, AgentState.IDLE):
        await passes(harness, 90, bob)
    if state is AgentState.IDLE:
        await harness.engine.agents.heartbeat("ada")
        await harness.engine.tick()
    if state in (AgentState.ACTIVE, AgentState.WAITING):
        await ordered(harness, "grant", "ada")
    if state is AgentState.WAITING:
        expect_json(await ada.act("wait"))


async def _try(harness: ServerHarness, ada: Seat, action: str) -> Any:
    verb, _, to = action.partition(" ")
    match verb:
        case "complete" | "wait":
            return await ada.act(verb)
        case "say":
            return await ada.say("hello")
        case "disable":
            return await harness.ceo.patch("/agents/ada", json={"enabled": False})
        case "remove":
            return await harness.operator.delete(f"{ROOM}/members/ada")
        case _:
            body = {"action": verb, "agent_id": "ada", **({"to": to} if to else {})}
            return await harness.operator.post(f"{ROOM}/turn", json=body)


# The record


@pytest.mark.requirement("T12")
async def test_every_transition_is_a_line_of_the_log_as_the_specification_shows_it(
    harness: ServerHarness,
):
    ada, bob = await room(harness, "ada", "bob")
    turn = await ada.turn()
    with capture_log("info") as lines:
        await ada.done(turn)
    line = next(line for line in lines.text.splitlines() if "TURN_COMPLETE" in line)
    assert list(json.loads(line).items()) == [
        ("timestamp", "2026-01-01T12:00:00.000000Z"),
        ("event", "state_transition"),
        ("agentId", "ada"),
        ("from", "ACTIVE"),
        ("to", "QUEUED"),
        ("trigger", "TURN_COMPLETE"),
        ("channel", "reviews"),
    ]
    assert bob.name in lines.text


async def test_the_audit_says_who_did_what_in_a_channel(harness: ServerHarness):
    (ada,) = await room(harness, "ada")
    await posted(harness, "hello")
    items = expect_json(await harness.viewer.get("/audit?limit=100"))["items"]
    mine = [one for one in items if one.get("stream") == "channel:reviews"]
    acts = {(one["type"], one["actor"]) for one in mine}
    assert {("Opened", OPERATOR), ("MemberAdded", OPERATOR), ("MessagePosted", CEO)} <= acts
    verified = expect_json(await harness.viewer.get("/audit/verify"))
    assert verified["ok"], verified
    assert ada.name == "ada"


@pytest.mark.parametrize("name", ["a/b", ".", "..", "a\nb", ""])
async def test_a_channel_whose_id_cannot_be_an_address_is_refused(
    harness: ServerHarness, name: str
):
    answer = await harness.operator.post("/channels", json={"id": name})
    assert answer.status_code == 422
    assert expect_json(await harness.operator.get("/channels"))["items"] == []
