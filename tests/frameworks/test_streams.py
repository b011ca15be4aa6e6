"""Nothing is streamed past the guard. Streams of Pydantic AI: test_framework_objects.py."""

import asyncio
from typing import Any

import pytest
from benchmarks.same_mistake import agent_framework, autogen, openai_agents, strands
from benchmarks.same_mistake.scenes import SCENES, Script
from tests.frameworks.test_langgraph import ping_pong

from handrail import Guard, LoopDetected
from handrail.guard.adapter import current_watch
from handrail.guard.langgraph import guarded

PAIR, LONG = SCENES[0], SCENES[3]


class Streams(openai_agents.Stub):
    """A model that answers in one piece when it is asked to stream."""

    async def stream_response(self, *given, **more):
        from openai.types.responses import Response, ResponseCompletedEvent

        answer = await self.get_response()
        response = Response(
            id="r",
            created_at=0,
            model="stub",
            object="response",
            output=answer.output,
            tool_choice="none",
            tools=[],
            parallel_tool_calls=False,
        )
        yield ResponseCompletedEvent(
            response=response, type="response.completed", sequence_number=0
        )


def streamed(name: str, guard: Guard) -> Any:
    """A pair of agents that goes on for ever, as a stream of what it does."""
    script = Script(PAIR)
    if name == "langgraph":
        return guarded(ping_pong(), guard).astream({"seen": []})
    if name == "strands":
        return strands.adapter.guarded(strands.swarm(script), guard).stream_async("go")
    if name == "autogen":
        return autogen.adapter.guarded(autogen.team(script), guard).run_stream(task="go")
    if name == "agent_framework":
        team = agent_framework.adapter.guarded(agent_framework.workflow(script), guard)
        return team.run("go", stream=True)
    first = openai_agents.first(script)
    for agent in (first, *first.handoffs):
        agent.model = Streams(script, agent.name)
    return openai_agents.adapter.guarded(first, guard).run_streamed("go").stream_events()


async def drawn(stream: Any) -> int:
    count = 0
    async for _ in stream:
        assert current_watch.get() is None, "what the caller does is no part of the run"
        count += 1
    return count


@pytest.mark.parametrize(
    "name", ["langgraph", "strands", "autogen", "agent_framework", "openai_agents"]
)
def test_a_stream_is_stopped_like_any_other_run_and_leaves_nothing_running(name):
    guard = Guard()

    async def run() -> set[Any]:
        with pytest.raises(LoopDetected) as caught:
            await drawn(streamed(name, guard))
        assert len(caught.value.stop.pattern) == 2
        return asyncio.all_tasks() - {asyncio.current_task()}

    assert asyncio.run(run()) == set()
    assert guard.last.report().totals.handoffs == 6


def test_a_stream_without_an_event_loop_is_stopped_too():
    seen = []
    with pytest.raises(LoopDetected):
        for piece in guarded(ping_pong()).stream({"seen": []}):
            assert current_watch.get() is None
            seen.append(piece)
    assert len(seen) == 6


def test_a_stream_that_ends_by_itself_is_done_and_one_that_is_left_is_on_record_as_failed():
    guard = Guard()

    async def run(left_after: int) -> int:
        team = strands.adapter.guarded(strands.swarm(Script(LONG)), guard)
        stream, count = team.stream_async("go"), 0
        async for _ in stream:
            count += 1
            if count == left_after:
                await stream.aclose()
                break
        return count

    assert asyncio.run(run(0)) > 20
    assert guard.last.report().terminal_status == "done_success"
    asyncio.run(run(3))
    assert guard.last.stop.reason == "the stream was left before its end"
