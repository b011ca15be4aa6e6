"""What is particular to one framework or another, beside what they have in common."""

import asyncio
import importlib
from typing import TypedDict

import pytest
from autogen_agentchat.teams import RoundRobinGroupChat
from benchmarks.same_mistake import autogen, openai_agents, pydantic_ai, strands
from benchmarks.same_mistake.scenes import SCENES, Script
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from pydantic_ai import Agent, ModelRetry
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from strands import Agent as StrandsAgent
from strands.multiagent import GraphBuilder

from agents import RunHooks
from handrail import Guard, LoopDetected, NoProgress
from handrail.guard.detection import TeamInputError, wrap_team
from handrail.kernel.run.events import HandedOff

PAIR = SCENES[0]


def handoffs(guard: Guard) -> list[tuple[str, str]]:
    return [(e.source, e.target) for e in guard.last.events if isinstance(e, HandedOff)]


class Says(strands.Stub):
    """A model that answers in words only."""

    async def stream(self, messages, *given, **more):
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockStart": {"start": {}}}
        yield {"contentBlockDelta": {"delta": {"text": "ok"}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn"}}


def strands_graph(*ways: tuple[str, str], entry: str):
    builder = GraphBuilder()
    for name in sorted({name for way in ways for name in way}):
        agent = StrandsAgent(name=name, model=Says(Script(PAIR), name), callback_handler=None)
        builder.add_node(agent, name)
    for source, target in ways:
        builder.add_edge(source, target)
    builder.set_entry_point(entry)
    builder.set_max_node_executions(50)
    return builder


def test_a_node_of_a_strands_graph_is_handed_to_by_the_one_it_waited_for():
    guard = Guard()
    graph = strands_graph(("a", "b"), ("a", "c"), entry="a").build()
    result = strands.adapter.guarded(graph, guard)("go")
    assert result.status.value == "completed"
    assert sorted(handoffs(guard)) == [("a", "b"), ("a", "c")]


def test_a_strands_graph_that_goes_in_circles_is_stopped():
    builder = strands_graph(("a", "b"), ("b", "a"), entry="a")
    builder.reset_on_revisit(True)
    with pytest.raises(LoopDetected) as caught:
        strands.adapter.guarded(builder.build())("go")
    assert caught.value.stop.pattern == ("a -> b", "b -> a")


def test_hooks_of_strands_do_nothing_outside_a_guarded_call():
    swarm = strands.swarm(Script(PAIR))
    strands.adapter.guarded(swarm)
    assert len(swarm("go").node_history) == 20


def test_hooks_of_the_caller_are_called_as_well():
    class Theirs(RunHooks):
        seen: list[str] = []

        async def on_handoff(self, context, from_agent, to_agent) -> None:
            self.seen.append(to_agent.name)

    team, theirs = openai_agents.adapter.guarded(openai_agents.first(Script(PAIR))), Theirs()
    with pytest.raises(LoopDetected):
        asyncio.run(team.run("go", hooks=theirs))
    assert theirs.seen == ["coder", "planner", "coder", "planner", "coder"]


def test_a_limit_of_the_callers_own_is_kept():
    team = openai_agents.adapter.guarded(openai_agents.first(Script(PAIR)))
    with pytest.raises(Exception, match="Max turns"):
        asyncio.run(team.run("go", max_turns=2))


def test_an_agent_that_another_ones_tool_runs_gets_the_turn_and_gives_it_back():
    expert = pydantic_ai.adapter.guarded(
        Agent(FunctionModel(lambda messages, info: ModelResponse([TextPart("42")])), name="expert")
    )
    answers = iter([ToolCallPart("ask_expert", {}), TextPart("it is 42")])
    clerk = Agent(FunctionModel(lambda m, i: ModelResponse([next(answers)])), name="clerk")

    @clerk.tool_plain
    async def ask_expert() -> str:
        return (await expert.run("?")).output

    guard = Guard()
    result = asyncio.run(pydantic_ai.adapter.guarded(clerk, guard).run("?"))
    assert result.output == "it is 42"
    assert handoffs(guard) == [("clerk", "expert")]


def test_a_tool_that_asks_for_the_same_retry_is_a_failure():
    model = FunctionModel(lambda messages, info: ModelResponse([ToolCallPart("look", {})]))
    agent = Agent(model, name="seeker", retries=50)

    @agent.tool_plain
    def look() -> str:
        raise ModelRetry("not there")

    with pytest.raises(NoProgress) as caught:
        asyncio.run(pydantic_ai.adapter.guarded(agent).run("?"))
    assert caught.value.stop.rule == "same_error"
    assert len(caught.value.partial) > 2


def test_speakers_of_a_round_robin_hand_over_without_saying_so():
    script = Script(SCENES[0])

    class Speaks(autogen.Stub):
        async def on_messages(self, messages, cancellation_token):
            script.answer()
            text = autogen.TextMessage(content="hm", source=self.name)
            return autogen.Response(chat_message=text)

        async def on_messages_stream(self, messages, cancellation_token):
            yield await self.on_messages(messages, cancellation_token)

    team = RoundRobinGroupChat([Speaks(script, name) for name in script.scene.agents])

    async def twice() -> list[int]:
        found = []
        for _ in range(2):  # after a stop the team is as it was
            with pytest.raises(LoopDetected) as caught:
                await autogen.adapter.guarded(team).run(task="go")
            found.append(len(caught.value.partial.messages))
        return found

    assert asyncio.run(twice()) == [8, 8]


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("langgraph", "graph"),
        ("strands", "swarm"),
        ("openai_agents", "first"),
        ("autogen", "team"),
        ("agent_framework", "workflow"),
    ],
)
def test_a_team_of_any_framework_is_known_by_where_it_comes_from(name, made):
    module = importlib.import_module(f"benchmarks.same_mistake.{name}")
    guard = Guard()
    with pytest.raises(LoopDetected):
        wrap_team(getattr(module, made)(Script(PAIR)), guard, "theirs")("go")
    assert guard.last.name == "theirs"


def test_a_graph_is_begun_with_what_it_takes_and_with_a_thread_of_its_own():
    def node(state: dict) -> dict:
        return {"task": state["task"] + "!"}

    built = StateGraph(TypedDict("Task", {"task": str}))
    built.add_node(node)
    built.add_edge(START, "node")
    for checkpointer in (None, InMemorySaver()):
        start = wrap_team(built.compile(checkpointer=checkpointer), Guard(), "theirs")
        assert start('{"task": "ticket 1"}') == {"task": "ticket 1!"}
        with pytest.raises(TeamInputError, match=r"takes task, and no messages; .*JSON object"):
            start("ticket 1")
        with pytest.raises(TeamInputError, match="begins like a JSON object, but is none"):
            start('{"task": "ticket 1}')
