"""Teams as people build them: agents that are tools, parallel nodes, people, cancelled callers."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from agents.tool import function_tool
from autogen_agentchat.agents import AssistantAgent, UserProxyAgent
from autogen_agentchat.conditions import TextMentionTermination
from autogen_agentchat.teams import (
    DiGraphBuilder,
    GraphFlow,
    RoundRobinGroupChat,
    SelectorGroupChat,
    Swarm,
)
from autogen_core import CancellationToken, FunctionCall
from autogen_core.models import ChatCompletionClient, CreateResult, RequestUsage
from benchmarks.same_mistake import openai_agents, strands
from benchmarks.same_mistake.scenes import SCENES, Script
from openai.types.responses import ResponseFunctionToolCall
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.models.function import FunctionModel
from strands import Agent as StrandsAgent
from strands import tool as strands_tool
from strands.multiagent import GraphBuilder
from tests.frameworks.test_streams import Streams
from tests.patience import PATIENCE

from agents import Agent, Runner, Usage
from agents import ModelResponse as SdkResponse
from handrail import Guard, LoopDetected, NoProgress, StopRules
from handrail.guard.autogen import guarded as autogen
from handrail.guard.openai_agents import guarded as openai
from handrail.guard.pydantic_ai import guarded as pydantic
from handrail.guard.strands import guarded as strands_guarded
from handrail.kernel.run.events import HandedOff

Says = Callable[[int], Any]
"""What a stub model answers when it is asked for the nth time: a text, or calls of tools."""


def handoffs(guard: Guard) -> list[tuple[str, str]]:
    return [(e.source, e.target) for e in guard.last.events if isinstance(e, HandedOff)]


def run(work: Any) -> Any:
    """The result of the work; nothing that it has started is left when it is there."""

    async def alone() -> Any:
        result = await asyncio.wait_for(work, PATIENCE)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return result

    return asyncio.run(alone())


# AutoGen


class Client(ChatCompletionClient):
    """Waits for each answer in a way that a token can cancel, as clients of providers do."""

    model_info = capabilities = {
        "vision": False,
        "function_calling": True,
        "json_output": True,
        "family": "unknown",
        "structured_output": True,
    }

    def __init__(self, says: Says, pause: float = 0) -> None:
        self.says, self.pause, self.asked = says, pause, 0

    async def create(self, messages, *, cancellation_token=None, **more):
        waiting = asyncio.ensure_future(asyncio.sleep(self.pause))
        if cancellation_token is not None:
            cancellation_token.link_future(waiting)
        await waiting
        self.asked += 1
        content = self.says(self.asked)
        reason = "stop" if isinstance(content, str) else "function_calls"
        usage = RequestUsage(prompt_tokens=4, completion_tokens=6)
        return CreateResult(finish_reason=reason, content=content, usage=usage, cached=False)

    def create_stream(self, *given, **more):
        raise NotImplementedError

    async def close(self) -> None: ...

    def actual_usage(self):
        return RequestUsage(prompt_tokens=0, completion_tokens=0)

    total_usage = actual_usage

    def count_tokens(self, *given, **more) -> int:
        return 0

    remaining_tokens = count_tokens


def calls(name: str, number: int, **given: object) -> list[FunctionCall]:
    return [FunctionCall(id=f"c{number}", name=name, arguments=json.dumps(given))]


async def look(place: str) -> str:
    """Looks."""
    await asyncio.sleep(0)
    return f"nothing in {place}"


def assistant(name: str, says: Says, *, pause: float = 0, **more: Any) -> AssistantAgent:
    return AssistantAgent(name, Client(says, pause), **more)


def test_assistants_that_hand_over_in_circles_are_stopped_although_a_tool_is_running():
    names = "abcd"

    def hands_on(name: str) -> Says:
        to = names[(names.index(name) + 1) % 4]
        return lambda number: calls(f"transfer_to_{to}", number)

    team = Swarm([assistant(name, hands_on(name), handoffs=[*names]) for name in names])

    async def twice() -> list[int]:
        found, guard = [], Guard()
        for _ in range(2):
            with pytest.raises(LoopDetected) as caught:
                await autogen(team, guard).run(task="go")
            assert len(caught.value.stop.pattern) == 4
            found.append(len(handoffs(guard)))
        return found

    assert run(twice()) == [12, 12]


def test_one_assistant_alone_that_looks_for_the_same_is_stopped():
    agent = assistant(
        "a", lambda n: calls("look", n, place="x"), tools=[look], max_tool_iterations=50
    )
    with pytest.raises(NoProgress) as caught:
        run(autogen(agent).run(task="go"))
    assert caught.value.partial.stop_reason.startswith("no_change: ")


def test_parallel_nodes_of_a_graph_flow_go_on_with_the_turns_they_have():
    builder = DiGraphBuilder()
    first, last = assistant("first", lambda n: "go"), assistant("last", lambda n: "done")
    builder.add_node(first).add_node(last)
    for number in range(4):
        says = lambda n, number=number: calls("look", n, place=f"{number}.{n}") if n < 5 else "ok"  # noqa: E731
        worker = assistant(f"w{number}", says, tools=[look], max_tool_iterations=9)
        builder.add_node(worker).add_edge(first, worker).add_edge(worker, last)
    team = GraphFlow(builder.get_participants(), graph=builder.build())
    guard = Guard()
    assert run(autogen(team, guard).run(task="go")).messages[-1].source == "last"
    assert len(handoffs(guard)) == 5
    assert guard.last.report().usage.tokens == 220


def test_what_a_person_says_is_something_new_and_a_manager_is_no_agent():
    words = iter(["yes", "yes", "yes", "yes", "yes", "done"])
    person = UserProxyAgent("person", input_func=lambda prompt: next(words))
    chosen = iter(["a", "person"] * 9)
    team = SelectorGroupChat(
        [assistant("a", lambda n: "and now?"), person],
        model_client=Client(lambda n: next(chosen)),
        termination_condition=TextMentionTermination("done", sources=["person"]),
        emit_team_events=True,
    )
    guard = Guard()
    assert "done" in run(autogen(team, guard).run(task="go")).stop_reason
    assert handoffs(guard) == [("a", "person"), ("person", "a")] * 5 + [("a", "person")]


def test_a_stop_leaves_the_callers_token_alone_which_still_cancels_a_run():
    async def work() -> None:
        token = CancellationToken()
        with pytest.raises(LoopDetected):
            team = RoundRobinGroupChat([assistant(name, lambda n: "hm") for name in "ab"])
            await autogen(team).run(task="go", cancellation_token=token)
        assert not token.is_cancelled()
        slow = RoundRobinGroupChat([assistant("a", lambda n: "hm", pause=PATIENCE)])
        begun = asyncio.ensure_future(autogen(slow).run(task="go", cancellation_token=token))
        asyncio.get_running_loop().call_later(0.05, token.cancel)
        with pytest.raises(asyncio.CancelledError):
            await begun

    run(work())


def test_a_caller_who_is_cancelled_leaves_no_team_going_on():
    guard = Guard()

    async def work() -> None:
        def says(number: int) -> str:
            if number == 2:
                asyncio.get_running_loop().call_soon(begun.cancel)
            return "hm"

        team = RoundRobinGroupChat([assistant(name, says) for name in "ab"])
        begun = asyncio.ensure_future(autogen(team, guard).run(task="go"))
        with pytest.raises(asyncio.CancelledError):
            await begun

    run(work())
    assert guard.last.stop.rule == "agent_lost"


def test_a_stream_of_a_team_that_is_left_ends_the_team():
    team = RoundRobinGroupChat([assistant(name, lambda n: f"{n}") for name in "ab"])

    async def work() -> None:
        stream = autogen(team).run_stream(task="go")
        assert (await anext(stream)).source == "user"
        await stream.aclose()
        again = RoundRobinGroupChat([assistant("a", lambda n: "ok")], max_turns=1)
        assert len((await autogen(again).run(task="go")).messages) == 2

    run(work())


# OpenAI Agents


class SdkModel(Streams):
    """Answers in words, or calls a tool."""

    def __init__(self, says: Says) -> None:
        self.says, self.asked = says, 0

    async def get_response(self, *given, **more):
        self.asked += 1
        said = self.says(self.asked)
        output = [openai_agents.said(said)] if isinstance(said, str) else said
        return SdkResponse(
            output=output,
            usage=Usage(requests=1, output_tokens=10, total_tokens=10),
            response_id=None,
        )


def sdk_calls(name: str, number: int, times: int = 1, **given: object) -> list[Any]:
    return [
        ResponseFunctionToolCall(
            call_id=f"{name}-{number}-{one}",
            name=name,
            arguments=json.dumps(given),
            type="function_call",
        )
        for one in range(times)
    ]


@function_tool
def seek(place: int) -> str:
    """Seeks."""
    return f"nothing in {place}"


def asking(inner: Says, outer: Says) -> tuple[Agent, Agent]:
    """An agent, and one that has it as a tool."""
    asked = Agent(name="inner", model=SdkModel(inner), tools=[seek])
    tool = asked.as_tool("ask", "asks", max_turns=50)
    return asked, Agent(name="outer", model=SdkModel(outer), tools=[tool])


def test_a_loop_inside_an_agent_that_is_a_tool_is_stopped():
    inner, outer = asking(
        lambda n: sdk_calls("seek", n, place=1), lambda n: sdk_calls("ask", n, input="x")
    )
    guard = Guard()
    with pytest.raises(NoProgress) as caught:
        run(openai(outer, guard).run("go"))
    assert (inner.model.asked, outer.model.asked) == (4, 1)
    assert caught.value.partial.last_agent.name == "outer"
    assert handoffs(guard) == [("outer", "inner")]


def test_fifty_questions_to_an_agent_that_is_a_tool_are_one_handoff_and_all_tokens_count():
    _, outer = asking(
        lambda n: f"answer {n}", lambda n: sdk_calls("ask", n, 50, input="x") if n == 1 else "done"
    )
    guard, seen = Guard(), []

    def theirs(data: Any) -> Any:
        seen.append(data.agent.name)
        return data.model_data

    team = openai(outer, guard)
    result = run(team.run("go", run_config={"call_model_input_filter": theirs}))
    assert result.final_output == "done"
    assert guard.last.report().usage.tokens == result.context_wrapper.usage.total_tokens == 520
    assert handoffs(guard) == [("outer", "inner")]
    assert (seen.count("outer"), seen.count("inner")) == (2, 50)


def test_a_streamed_run_that_is_left_is_guarded_to_its_end_for_which_the_sdk_waits():
    def agent() -> Agent:
        model = SdkModel(lambda n: sdk_calls("seek", n, place=n))
        return Agent(name="a", model=model, tools=[seek])

    async def leave(start: Any) -> None:
        result = start("go")
        stream = result.stream_events()
        await anext(stream)
        await stream.aclose()
        assert result.run_loop_task.done()

    alone, team, guard = agent(), agent(), Guard(StopRules(max_steps=3))
    run(leave(lambda text: Runner.run_streamed(alone, text)))
    run(leave(openai(team, guard).run_streamed))
    assert (alone.model.asked, team.model.asked <= 4) == (10, True)
    assert guard.last.stop.rule == "max_steps"


# Strands


class StrandsModel(strands.Stub):
    """Answers in words, or calls a tool, or several."""

    def __init__(self, says: Says) -> None:
        super().__init__(Script(SCENES[0]), "")
        self.says, self.asked = says, 0

    async def stream(self, messages, *given, **more):
        self.asked += 1
        said = self.says(self.asked)
        yield {"messageStart": {"role": "assistant"}}
        if isinstance(said, str):
            yield {"contentBlockStart": {"start": {}}}
            yield {"contentBlockDelta": {"delta": {"text": said}}}
            yield {"contentBlockStop": {}}
        uses = [said] if isinstance(said, tuple) else said
        for number, (name, asked) in enumerate(() if isinstance(said, str) else uses):
            use = {"name": name, "toolUseId": f"t{self.asked}.{number}"}
            yield {"contentBlockStart": {"start": {"toolUse": use}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps(asked)}}}}
            yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn" if isinstance(said, str) else "tool_use"}}
        usage = {"inputTokens": 0, "outputTokens": 10, "totalTokens": 10}
        yield {"metadata": {"usage": usage, "metrics": {"latencyMs": 0}}}


@strands_tool
def search(place: int) -> str:
    """Searches."""
    return f"nothing in {place}"


def strand(name: str, says: Says, *tools: Any) -> StrandsAgent:
    return StrandsAgent(name=name, model=StrandsModel(says), tools=[*tools], callback_handler=None)


def test_a_loop_inside_a_strands_agent_that_is_a_tool_is_stopped_and_both_can_be_called_again():
    inner = strand("inner", lambda n: ("search", {"place": 1}), search)
    outer = strand("outer", lambda n: ("inner", {"input": "x"}), inner.as_tool())
    guard = Guard()
    team = strands_guarded(outer, guard)
    with pytest.raises(NoProgress):
        team("go")
    assert (inner.model.asked, outer.model.asked) == (4, 1)
    assert handoffs(guard) == [("outer", "inner")]
    assert guard.last.report().usage.tokens == 50
    outer.model.says = lambda n: "done"
    assert str(team("go")).strip() == str(outer("go")).strip() == "done"


def test_parallel_nodes_of_a_strands_graph_are_told_apart():
    builder = GraphBuilder()
    builder.add_node(strand("first", lambda n: "go"), "first")
    for number in range(4):
        says = lambda n, number=number: ("search", {"place": 9 * number + n}) if n < 4 else "ok"  # noqa: E731
        builder.add_node(strand(f"agent {number}", says, search), f"w{number}")
        builder.add_edge("first", f"w{number}")
    builder.set_entry_point("first")
    builder.set_max_node_executions(50)
    guard = Guard()
    strands_guarded(builder.build(), guard)("go")
    steps = [event.agent for event in guard.last.events if hasattr(event, "result")]
    assert [steps.count(f"w{number}") for number in range(4)] == [4, 4, 4, 4]


# Pydantic AI


def test_a_pydantic_agent_takes_what_its_own_run_takes_and_keeps_its_loop():
    loops, seen = [], []

    async def streamed(messages, info):
        loops.append(asyncio.get_running_loop())
        yield "ok"

    async def answer(messages, info):
        loops.append(asyncio.get_running_loop())
        return ModelResponse([TextPart("ok")])

    async def theirs(context, events):
        seen.extend([type(event).__name__ async for event in events])

    agent = PydanticAgent(FunctionModel(answer, stream_function=streamed), name="a")
    helper = pydantic(agent)
    assert [helper.run_sync("?").output for _ in range(2)] == ["ok", "ok"]
    assert helper.run_sync("?", event_stream_handler=theirs).output == "ok"
    assert "PartStartEvent" in seen
    assert len(set(loops)) == 1, "a provider's connections belong to the loop they were opened in"
