"""A run that is cancelled, or whose stream is left, does not stand in the way of the next one."""

import asyncio
from typing import Any

import pytest
from autogen_agentchat.agents import BaseChatAgent
from autogen_agentchat.base import Response
from autogen_agentchat.messages import TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import CancellationToken, SingleThreadedAgentRuntime
from tests.frameworks.agent_framework_stubs import agent, line, says
from tests.patience import PATIENCE

from handrail import Guard, Stopped, StopRules
from handrail.guard.agent_framework import guarded as microsoft
from handrail.guard.autogen import guarded as autogen

TURNS = 6


class Echo(BaseChatAgent):
    """Answers once its gate is open; its first turn has begun when `is_asked` is set."""

    produced_message_types = (TextMessage,)

    def __init__(self, name: str) -> None:
        super().__init__(name, "repeats")
        self.is_asked, self.gate, self.turns = asyncio.Event(), asyncio.Event(), 0

    async def on_messages(self, messages, cancellation_token):
        self.turns += 1
        self.is_asked.set()
        await self.gate.wait()
        return Response(chat_message=TextMessage(content=f"{self.turns}", source=self.name))

    async def on_reset(self, cancellation_token) -> None: ...


async def leave(team: Any, first: Echo, way: str) -> None:
    """Leave the team's run in the first turn."""
    token = CancellationToken()
    if way == "stream":
        messages = team.run_stream(task="go", cancellation_token=token)
        await anext(messages)
        await first.is_asked.wait()
        first.gate.set()
        await messages.aclose()
        return
    run = asyncio.create_task(team.run(task="go", cancellation_token=token))
    await first.is_asked.wait()
    for _ in range(20):
        await asyncio.sleep(0)  # lets the run read what there is, until it waits
    token.cancel() if way == "token" else run.cancel()
    await asyncio.sleep(0)  # lets the run hear of it before the first agent answers
    first.gate.set()
    with pytest.raises(asyncio.CancelledError):
        await run


def make_team(owner: str, **guard_limits: Any) -> tuple[Any, Echo, Any]:
    """Return a guarded team, its first agent, and the runtime of the caller's."""
    runtime = None
    if "caller" in owner:  # one that an error of any kind would end
        runtime = SingleThreadedAgentRuntime(ignore_unhandled_exceptions=False)
        runtime.start()
    first, second = Echo("first"), Echo("second")
    second.gate.set()
    own_runtime = None if "nested" in owner else runtime
    team = RoundRobinGroupChat([first, second], max_turns=TURNS, runtime=own_runtime)
    if "nested" in owner:
        team = RoundRobinGroupChat([team], max_turns=1, runtime=runtime)
    rules = StopRules(profile="observed", monologue_limit=None, **guard_limits)
    return autogen(team, Guard(rules)), first, runtime


OWNERS = ("the team", "the caller", "the team, nested", "the caller, nested")
"""Whose runtime it is; with a nested team, the inner one has its own."""


@pytest.mark.parametrize(
    ("owner", "way"),
    [("the team", "token"), *((owner, way) for owner in OWNERS for way in ("task", "stream"))],
)
def test_an_autogen_team_can_be_run_again_after_a_run_that_was_left(owner, way):
    async def leave_and_run() -> Any:
        async with asyncio.timeout(PATIENCE):
            team, first, runtime = make_team(owner)
            await leave(team, first, way)
            if runtime is None:
                assert first.turns == 1, "nobody would see what the team does then"
            result = await team.run(task="again")
            if runtime is not None:
                await runtime.stop_when_idle()
            return result

    assert "Maximum number of turns" in asyncio.run(leave_and_run()).stop_reason


def test_an_autogen_team_can_be_run_again_after_a_token_on_a_runtime_of_the_callers():
    """Of such a runtime, AutoGen takes its own token for an error."""

    async def cancel_and_run() -> Any:
        async with asyncio.timeout(PATIENCE):
            runtime = SingleThreadedAgentRuntime()
            runtime.start()
            first = Echo("first")
            team = autogen(RoundRobinGroupChat([first], max_turns=TURNS, runtime=runtime))
            await leave(team, first, "token")
            return await team.run()

    assert "Maximum number of turns" in asyncio.run(cancel_and_run()).stop_reason


@pytest.mark.parametrize("owner", OWNERS)
def test_an_autogen_team_can_be_run_again_after_a_stop(owner):
    async def stop_and_run() -> str:
        async with asyncio.timeout(PATIENCE):
            team, first, runtime = make_team(owner, max_steps=3)
            first.gate.set()
            with pytest.raises(Stopped):
                await team.run(task="go")
            result = await team.wrapped.run(task="again")
            if runtime is not None:
                await runtime.stop_when_idle()
            return result.stop_reason

    assert "Maximum number of turns" in asyncio.run(stop_and_run())


def test_a_stream_of_agent_framework_that_is_dropped_leaves_its_workflow_free_at_once():
    async def drop_and_run() -> tuple[int, int]:
        workflow = line(*(agent(name, says(name)) for name in "abc"))
        team = microsoft(workflow)
        whole = len([event async for event in team.run("go", stream=True)])
        stream = team.run("go", stream=True)
        await anext(stream)
        del stream
        successor = team.run("go", stream=True)
        assert workflow._active_run() is successor
        await asyncio.sleep(0)  # now the event loop closes the stream that was dropped
        assert workflow._active_run() is successor
        return whole, len([event async for event in successor])

    whole, again = asyncio.run(drop_and_run())
    assert again == whole
