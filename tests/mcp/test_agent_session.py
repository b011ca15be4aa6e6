"""What an agent has in hand: alive while it works, and offered again when it goes away."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.engine.engines import run_async
from tests.mcp.in_process_agent import ManualTime, open_agent_session
from tests.patience import wait_until_async
from tests.server.harness import ASKS, PLAIN, WORKER, ServerHarness

from handrail.testing.clock import ManualClock

Played = Callable[[Callable[[ServerHarness], Awaitable[None]]], None]


@pytest.fixture
def play(tmp_path: Path) -> Played:
    """Plays a scene at a server with two definitions."""
    harness = ServerHarness(f"sqlite:///{tmp_path / 'work.db'}", ManualClock())

    async def opened(scene: Callable[[ServerHarness], Awaitable[None]]) -> None:
        async with harness.opened():
            await harness.define(PLAIN, ASKS)
            await scene(harness)

    return lambda scene: run_async(opened(scene))


async def work_of(harness: ServerHarness, agent: str = "coder-1") -> tuple[str, ...]:
    return (await harness.engine.agents.get(agent)).current_work


async def heard(harness: ServerHarness) -> bool:
    """Whether the server has heard of the agent since the clock was last moved."""
    return (await harness.engine.agents.get("coder-1")).last_seen == harness.clock.now()


async def run_of(harness: ServerHarness, bead: dict[str, Any]) -> str:
    return (await harness.engine.runs.state(bead["execution_id"])).status


def test_what_is_in_hand_is_kept_alive_while_the_agent_works_and_does_not_call(play: Played):
    async def scene(harness: ServerHarness) -> None:
        await harness.file("plain")
        async with open_agent_session(harness) as (agent, _):
            await agent.do("register", roles=[WORKER])
            await agent.claimed()
            held = await work_of(harness)
            for _ in range(3):  # twice as long as a lease
                harness.clock.advance(seconds=40)
                await wait_until_async(lambda: heard(harness))
                await harness.engine.tick()
                assert await work_of(harness) == held
            assert "accepted" in await agent.do("answer", outcome="success", text="done")

    play(scene)


def test_an_agent_whose_process_was_killed_loses_its_work_with_its_lease(play: Played):
    async def scene(harness: ServerHarness) -> None:
        await harness.file("plain")
        async with open_agent_session(harness) as (agent, seat):
            await agent.do("register", roles=[WORKER])
            await agent.claimed()
            await seat.end()  # no heartbeats any more, and no goodbye
            harness.clock.advance(seconds=61)
            await harness.engine.tick()
            assert await work_of(harness) == ()
            late = await agent.refused("answer", outcome="success", text="done")
            assert "call `claim`" in late

    play(scene)


def test_an_agent_that_goes_away_gives_back_what_it_has_in_hand_at_once(play: Played):
    async def scene(harness: ServerHarness) -> None:
        await harness.file("plain")
        async with open_agent_session(harness) as (agent, seat):
            await agent.do("register", roles=[WORKER])
            await agent.claimed()
            await seat.end("the agent went away")
            assert await work_of(harness) == ()
        async with open_agent_session(harness, "coder-2") as (other, _):
            await other.do("register", roles=[WORKER])
            assert "attempt 2" in await other.claimed()

    play(scene)


def test_an_agent_that_does_not_call_for_too_long_has_gone_away_and_hears_of_it(play: Played):
    async def scene(harness: ServerHarness) -> None:
        await harness.file("plain")
        time = ManualTime()
        async with open_agent_session(harness, clock=time) as (agent, seat):
            await agent.do("register", roles=[WORKER])
            await agent.claimed()
            time.now = 899
            assert "Go on" in await agent.do("progress")
            time.now += 901
            await wait_until_async(lambda: not seat.held)
            assert await work_of(harness) == ()
            again = await agent.do("claim", wait=0)
            assert "is over: you did not call for 900 seconds" in again
            assert "attempt 2" in again

    play(scene)


def test_an_agent_hears_that_its_run_has_ended_meanwhile(play: Played):
    async def scene(harness: ServerHarness) -> None:
        bead = await harness.file("plain")
        async with open_agent_session(harness) as (agent, seat):
            await agent.do("register", roles=[WORKER])
            await agent.claimed()
            body = {"action": "close", "reason": "not needed"}
            await harness.ceo.post(f"/executions/{bead['execution_id']}/override", json=body)
            await wait_until_async(lambda: not seat.held)
            assert "Stop working on it" in await agent.refused("progress")
            assert "nothing to do" in await agent.do("claim", wait=0)

    play(scene)


def test_an_answer_that_is_sent_twice_counts_once(play: Played):
    async def scene(harness: ServerHarness) -> None:
        bead = await harness.file("plain")
        async with open_agent_session(harness) as (agent, seat):
            await agent.do("register", roles=[WORKER])
            await agent.claimed()
            (name,) = seat.held
            said = {"outcome": "success", "text": "done", "dispatch_id": name}
            assert await agent.do("answer", **said) == await agent.do("answer", **said)
            other = await agent.refused("answer", **{**said, "text": "done otherwise"})
            assert "has ended" in other
        assert await run_of(harness, bead) == "ended"

    play(scene)


def test_what_is_yours_and_this_process_does_not_know_of_is_given_again(play: Played):
    async def scene(harness: ServerHarness) -> None:
        await harness.file("plain")
        async with open_agent_session(harness) as (agent, _):
            await agent.do("register", roles=[WORKER])
            first = await agent.claimed()
        async with open_agent_session(harness) as (agent, _):  # another process, the same agent
            assert await agent.claimed() == first
            assert "accepted" in await agent.do("answer", outcome="success", text="done")

    play(scene)


def test_an_agent_with_room_for_two_is_given_two_and_says_which_it_means(play: Played):
    async def scene(harness: ServerHarness) -> None:
        await harness.file("plain")
        await harness.file("plain")
        async with open_agent_session(harness) as (agent, seat):
            await agent.do("register", roles=[WORKER], capacity=2)
            assert await agent.claimed() != await agent.claimed()
            first, second = seat.held
            assert "say which" in await agent.refused("answer", outcome="success")
            assert "You have in hand" in await agent.do("claim", wait=0)
            await agent.do("answer", outcome="success", dispatch_id=first)
            assert second in await agent.do("progress")

    play(scene)


def test_to_register_again_with_work_in_hand_is_refused(play: Played):
    async def scene(harness: ServerHarness) -> None:
        await harness.file("plain")
        async with open_agent_session(harness) as (agent, _):
            assert "call `register`" in await agent.refused("claim", wait=0)
            await agent.do("register", roles=[WORKER])
            await agent.claimed()
            assert "finish it" in await agent.refused("register", roles=[WORKER])
            assert "given it back" in await agent.do("give_back", reason="I cannot")

    play(scene)


def test_an_agent_takes_its_turn_in_a_channel(play: Played):
    async def scene(harness: ServerHarness) -> None:
        async with open_agent_session(harness) as (agent, _):
            await agent.do("register", roles=[WORKER])
            await harness.operator.post("/channels", json={"id": "talk"})
            await harness.operator.post("/channels/talk/members", json={"agent_id": "coder-1"})
            await harness.operator.post("/channels/talk/messages", json={"text": "is it done?"})
            given = await agent.claimed()
            assert "is it done?" in given
            assert "still yours" in await agent.do("say", text="nearly", end_turn=False)
            await harness.operator.post("/channels/talk/messages", json={"text": "hurry"})
            heard = await agent.do("hear")
            assert "hurry" in heard
            assert "nearly" not in heard
            await agent.do("turn", action="wait", reason="the build")
            assert "Go on" in await agent.do("turn", action="resume")
            assert "has gone on" in await agent.do("say", text="done")
            assert "no turn in a channel" in await agent.refused("say", text="and more")
        said = (await harness.viewer.get("/channels/talk/messages")).json()["items"]
        assert [one["text"] for one in said if one["author"] == "coder-1"] == ["nearly", "done"]

    play(scene)
