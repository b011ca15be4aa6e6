"""A guarded team is still its framework's object: type, attributes, parameters and streams."""

import asyncio
import copy
from contextlib import suppress
from typing import Any

import agent_framework as microsoft
import pytest
from autogen_agentchat.agents import BaseChatAgent, SocietyOfMindAgent
from autogen_agentchat.base import Response
from autogen_agentchat.messages import TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat
from benchmarks.same_mistake import agent_framework, autogen, pydantic_ai, strands
from benchmarks.same_mistake.scenes import SCENES, Script
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai import RunContext, ToolDefinition
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import DeltaToolCall, FunctionModel
from pydantic_ai.models.test import TestModel
from strands import Agent as StrandsAgent
from strands.agent import AgentBase, AgentResult
from strands.multiagent import GraphBuilder, MultiAgentBase, Swarm
from strands.telemetry import EventLoopMetrics
from strands.types.content import Message
from tests.frameworks.test_real_teams import Client, assistant, run

from handrail import Guard, LoopDetected, NoProgress, Stopped
from handrail.guard.adapter import current_watch
from handrail.guard.agent_framework import guarded as agent_framework_team
from handrail.guard.autogen import guarded as autogen_team
from handrail.guard.pydantic_ai import guarded as pydantic
from handrail.guard.strands import guarded as strands_team

PAIR, LONG = SCENES[0], SCENES[3]


class RemoteAgent:
    """An agent of somebody's own: the three calls of the protocol, and nothing else."""

    def __init__(self, text: str) -> None:
        self.text, self.states = text, list[Any]()

    async def invoke_async(self, prompt=None, **options) -> AgentResult:
        self.states.append(options.get("invocation_state"))
        message: Message = {"role": "assistant", "content": [{"text": self.text}]}
        return AgentResult("end_turn", message, EventLoopMetrics(), {})

    def __call__(self, prompt=None, **options) -> AgentResult:
        return asyncio.run(self.invoke_async(prompt, **options))

    async def stream_async(self, prompt=None, **options):
        yield {"result": await self.invoke_async(prompt, **options)}


def review_graph(*agents: Any) -> Any:
    """A graph whose first agent has no end of questions to the second."""
    builder = GraphBuilder()
    for agent, name in zip(agents, ("writer", "reviewer"), strict=True):
        builder.add_node(agent, name)
    builder.add_edge("writer", "reviewer")
    builder.add_edge("reviewer", "writer")
    builder.set_entry_point("writer")
    builder.set_max_node_executions(40)
    return builder.build()


def test_a_guarded_strands_team_passes_for_the_team_itself():
    team = strands.swarm(Script(LONG))
    guarded = strands_team(team)
    assert isinstance(guarded, Swarm)
    assert isinstance(guarded, MultiAgentBase)
    assert guarded.id == team.id
    guarded.max_handoffs = 7
    assert team.max_handoffs == 7
    assert copy.copy(guarded).wrapped is team
    assert not hasattr(guarded, "no_such_attribute")
    assert "nodes" in dir(guarded)


def test_strands_takes_its_parameters_by_position_and_by_name():
    agent = RemoteAgent("done")
    team = strands_team(review_graph(agent, RemoteAgent("fine")))
    team.wrapped.max_node_executions = 2
    state = {"user": "ada"}
    team("go", state)
    team(task="go", invocation_state=state)
    asyncio.run(team.invoke_async("go", invocation_state=state))
    assert agent.states == [state, state, state]


def test_a_strands_agent_is_called_without_a_prompt():
    script = Script(SCENES[1])
    agent = StrandsAgent(name="a", model=strands.Stub(script, "a"), callback_handler=None)
    agent.messages.append({"role": "user", "content": [{"text": "go"}]})
    guarded = strands_team(agent)
    assert isinstance(guarded, AgentBase)
    assert guarded().stop_reason == "end_turn"
    assert guarded(prompt="go").stop_reason == "end_turn"


def test_agents_of_strands_without_hooks_are_seen_by_what_they_answer():
    guard = Guard()
    with pytest.raises(Stopped) as caught:
        strands_team(review_graph(RemoteAgent("please look"), RemoteAgent("no")), guard)("go")
    assert caught.value.stop.rule in ("repeated_pattern", "oscillation", "monologue")
    assert guard.last.report().totals.handoffs < 12


def test_a_single_agent_of_strands_without_hooks_is_guarded_as_it_stands():
    guard = Guard()
    result = strands_team(RemoteAgent("done"), guard)("go")
    assert str(result) == "done\n"
    report = guard.last.report()
    assert (report.terminal_status, report.totals.steps) == ("done_success", 1)


def test_a_guarded_autogen_team_keeps_its_state_and_its_place_in_a_team():
    class Speaks(BaseChatAgent):
        produced_message_types = (TextMessage,)

        def __init__(self, name: str) -> None:
            super().__init__(name, "speaks")
            self.count = 0

        async def on_messages(self, messages, cancellation_token):
            self.count += 1
            return Response(chat_message=TextMessage(content=f"{self.count}", source=self.name))

        async def on_reset(self, cancellation_token): ...

    async def outer() -> tuple[Any, Any]:
        inner = autogen_team(RoundRobinGroupChat([Speaks("a")], max_turns=2, name="inner"))
        team = RoundRobinGroupChat([inner, Speaks("b")], max_turns=2)
        guarded = autogen_team(team)
        assert isinstance(guarded, RoundRobinGroupChat)
        result = await guarded.run(task="go")
        state = await guarded.save_state()
        await guarded.reset()
        await guarded.load_state(state)
        return result, state

    result, state = asyncio.run(outer())
    assert [message.source for message in result.messages] == ["user", "a", "a", "b"]
    assert state == {**state, "type": "TeamState"}


def test_a_guarded_workflow_takes_its_parameters_by_name_and_refuses_at_once():
    team = agent_framework_team(agent_framework.workflow(Script(LONG)))
    assert isinstance(team, microsoft.Workflow)
    with pytest.raises(ValueError, match="message"):
        team.run(stream=True)
    result = asyncio.run(team.run(message="go"))
    assert isinstance(result, microsoft.WorkflowRunResult)


def streaming_model(*names: str) -> FunctionModel:
    """A model that calls these tools one after the other, and then is done."""
    answers = [*names, ""]

    def part(messages: list[ModelMessage]) -> str:
        return answers[sum(isinstance(message, ModelResponse) for message in messages)]

    def answer(messages: list[ModelMessage], info: object) -> ModelResponse:
        name = part(messages)
        return ModelResponse([ToolCallPart(name, {}) if name else TextPart("done")])

    async def stream(messages: list[ModelMessage], info: object):
        name = part(messages)
        yield {0: DeltaToolCall(name, "{}", tool_call_id=f"c{len(messages)}")} if name else "done"

    return FunctionModel(answer, stream_function=stream)


async def by_iteration(agent: Any) -> Any:
    async with agent.iter("go") as run:
        async for _ in run:
            assert current_watch.get() is None, "what the caller does is no part of the run"
    return run.result.output


async def by_stream(agent: Any) -> Any:
    async with agent.run_stream(user_prompt="go") as stream:
        assert current_watch.get() is None
        return await stream.get_output()


async def by_events(agent: Any) -> Any:
    async with agent.run_stream_events("go") as events:
        async for _ in events:
            assert current_watch.get() is None
    return events.result.output


STREAMS = pytest.mark.parametrize("stream", [by_iteration, by_stream, by_events])


@STREAMS
def test_a_pydantic_agent_is_guarded_however_it_is_streamed(stream):
    agent = PydanticAgent(streaming_model("look", "look"), name="seeker")

    @agent.tool_plain
    def look() -> str:
        assert current_watch.get() is not None, "a tool is part of the run"
        return "nothing"

    guard = Guard()
    assert asyncio.run(stream(pydantic(agent, guard))) == "done"
    report = guard.last.report()
    assert (report.terminal_status, report.totals.steps) == ("done_success", 3)


@STREAMS
def test_a_loop_of_a_pydantic_agent_is_stopped_in_a_stream(stream):
    agent = PydanticAgent(streaming_model(*["look"] * 20), name="seeker")
    agent.tool_plain(lambda: "nothing", name="look")
    with pytest.raises(NoProgress) as caught:
        asyncio.run(stream(pydantic(agent)))
    assert len(caught.value.partial) > 4


def test_a_stream_of_a_pydantic_agent_without_an_event_loop_is_guarded_too():
    guard = Guard()
    agent = pydantic(PydanticAgent(streaming_model(), name="seeker"), guard)
    with suppress(RuntimeError):
        asyncio.get_event_loop()
    assert agent.run_stream_sync("go").get_output() == "done"
    assert guard.last.report().terminal_status == "done_success"


def test_a_stream_of_a_pydantic_agent_that_is_left_is_closed_at_once():
    agent = PydanticAgent(streaming_model("look"), name="seeker")
    agent.tool_plain(lambda: "nothing", name="look")
    guard = Guard()

    async def left() -> set[Any]:
        async with pydantic(agent, guard).run_stream_events("go") as events:
            async for _ in events:
                break
        return asyncio.all_tasks() - {asyncio.current_task()}

    assert asyncio.run(left()) == set()
    assert guard.last.report().terminal_status != "done_success"


def test_a_guarded_pydantic_agent_is_an_agent_of_the_framework():
    agent = PydanticAgent(TestModel(), name="helper")
    guarded = pydantic(agent)
    assert isinstance(guarded, AbstractAgent)

    @guarded.tool_plain
    def look() -> str:
        return "nothing"

    with guarded.override(model=streaming_model("look")):
        assert guarded.run_sync(user_prompt="go").output == "done"
    guarded.model = streaming_model()
    assert agent.model is guarded.model

    async def entered() -> Any:
        async with guarded as same:
            return same

    assert asyncio.run(entered()) is guarded


def test_a_pydantic_agent_is_named_after_the_caller_s_variable():
    guard = Guard()
    agent = pydantic(PydanticAgent(streaming_model()), guard)

    async def answered() -> None:
        night_clerk = agent
        await night_clerk.run("go")

    asyncio.run(answered())
    assert agent.name == "night_clerk"
    assert [step.agent for step in guard.last.report().steps] == ["night_clerk"]


def test_a_tool_that_mcp_calls_destructive_is_an_effect_of_a_pydantic_agent():
    agent = PydanticAgent(streaming_model("wipe"), name="cleaner")

    async def destructive(context: RunContext, definition: ToolDefinition) -> ToolDefinition:
        definition.metadata = {"annotations": {"destructiveHint": True}}
        return definition

    agent.tool_plain(lambda: "wiped", name="wipe", prepare=destructive)
    guard = Guard()
    seen = list[bool]()

    with pytest.MonkeyPatch.context() as patch:
        from handrail.guard.adapter import RunWatch

        record = RunWatch.record_tool_call
        patch.setattr(
            RunWatch,
            "record_tool_call",
            lambda *args, effect=False, **options: (
                seen.append(effect),
                record(*args, effect=effect, **options),
            ),
        )
        pydantic(agent, guard).run_sync("go")
    assert seen == [True]


def test_a_loop_is_stopped_whatever_the_object_passes_for():
    with pytest.raises(LoopDetected):
        strands_team(strands.swarm(Script(PAIR)))("begin")
    agents = {name: pydantic(pydantic_ai.agent(Script(PAIR), name)) for name in PAIR.agents}
    assert all(isinstance(agent, AbstractAgent) for agent in agents.values())
    assert isinstance(autogen_team(autogen.team(Script(PAIR))).name, str)


def test_an_autogen_agent_alone_returns_what_it_returns_without_a_guard():
    """The agent streams what the team inside of it says, and leaves it out of its response."""

    def team() -> SocietyOfMindAgent:
        inner = RoundRobinGroupChat([assistant("inner", lambda n: f"word {n}")], max_turns=2)
        return SocietyOfMindAgent("outer", team=inner, model_client=Client(lambda n: "all in all"))

    results = [run(one.run(task="go")) for one in (team(), autogen_team(team()))]
    assert [[m.to_text() for m in result.messages] for result in results] == [
        ["go", "all in all"],
        ["go", "all in all"],
    ]
