"""Money and single tools have limits in every framework: the run is stopped, with the figure.

Each program asks a tool for something new at every step. Its model has a name and says what it
used, as models do in that framework.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from agent_framework import ChatResponse, Content, Message
from agents.tool import function_tool
from autogen_agentchat.agents import AssistantAgent
from autogen_core import ComponentModel
from autogen_core.models import CreateResult, RequestUsage
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from openai.types.responses.response_usage import InputTokensDetails
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.messages import ModelResponse, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.usage import RequestUsage as PydanticUsage
from strands import Agent as StrandsAgent
from strands import tool as strands_tool
from tests.frameworks import agent_framework_stubs as af
from tests.frameworks.test_real_teams import Client, SdkModel, StrandsModel, calls, sdk_calls

from agents import Agent, Usage
from agents import ModelResponse as SdkResponse
from handrail import BudgetSpent, Guard, LimitReached, ModelCall, StopRules
from handrail.guard.agent_framework import guarded as agent_framework
from handrail.guard.autogen import guarded as autogen
from handrail.guard.langgraph import guarded as langgraph
from handrail.guard.openai_agents import guarded as openai
from handrail.guard.pydantic_ai import guarded as pydantic
from handrail.guard.strands import guarded as strands

INPUT, OUTPUT, CACHED, MODEL = 900, 100, 300, "house-model"
STEPS_MAX = 40


def look(place: int) -> str:
    """Looks."""
    return f"nothing in {place}"


def run_langgraph(guard: Guard) -> None:
    def answer(number: int) -> AIMessage:
        usage: Any = {
            "input_tokens": INPUT,
            "output_tokens": OUTPUT,
            "total_tokens": INPUT + OUTPUT,
            "input_token_details": {"cache_read": CACHED},
        }
        call: Any = {"name": "look", "args": {"place": number}, "id": f"c{number}"}
        metadata = {"model_name": MODEL, "model_provider": "house"}
        return AIMessage("", tool_calls=[call], usage_metadata=usage, response_metadata=metadata)

    model = GenericFakeChatModel(messages=iter(map(answer, range(STEPS_MAX))))
    graph: Any = StateGraph(MessagesState)
    graph.add_node("agent", lambda state: {"messages": [model.invoke(state["messages"])]})
    graph.add_node("tools", ToolNode([tool(look)]))
    graph.add_edge(START, "agent")
    graph.add_edge("agent", "tools")
    graph.add_edge("tools", "agent")
    langgraph(graph.compile(), guard).invoke({"messages": ["go"]}, {"recursion_limit": 99})


class NamedSdkModel(SdkModel):
    model = MODEL

    async def get_response(self, *given: Any, **more: Any) -> SdkResponse:
        response = await super().get_response(*given, **more)
        response.usage = Usage(
            requests=1,
            input_tokens=INPUT,
            output_tokens=OUTPUT,
            total_tokens=INPUT + OUTPUT,
            input_tokens_details=InputTokensDetails(cached_tokens=CACHED, cache_write_tokens=0),
        )
        return response


def run_openai(guard: Guard) -> None:
    model = NamedSdkModel(lambda n: sdk_calls("look", n, place=n))
    agent = Agent(name="a", model=model, tools=[function_tool(look)])
    asyncio.run(openai(agent, guard).run("go", max_turns=STEPS_MAX))


class NamedStrandsModel(StrandsModel):
    def get_config(self) -> Any:
        return {"model_id": MODEL}

    async def stream(self, messages: Any, *given: Any, **more: Any) -> Any:
        async for event in super().stream(messages, *given, **more):
            if "metadata" in event:
                event["metadata"]["usage"] = {
                    "inputTokens": INPUT - CACHED,
                    "outputTokens": OUTPUT,
                    "totalTokens": INPUT + OUTPUT,
                    "cacheReadInputTokens": CACHED,
                }
            yield event


def run_strands(guard: Guard) -> None:
    model = NamedStrandsModel(lambda n: ("look", {"place": n}))
    agent = StrandsAgent(name="a", model=model, tools=[strands_tool(look)], callback_handler=None)
    strands(agent, guard)("go")


def run_pydantic(guard: Guard) -> None:
    places = iter(range(STEPS_MAX))

    def answer(messages: Any, info: Any) -> ModelResponse:
        call = ToolCallPart("look", {"place": next(places)})
        usage = PydanticUsage(input_tokens=INPUT, output_tokens=OUTPUT, cache_read_tokens=CACHED)
        return ModelResponse([call], usage=usage)

    agent = PydanticAgent(FunctionModel(answer, model_name=MODEL), name="a", tools=[look])
    pydantic(agent, guard).run_sync("go")


class NamedClient(Client):
    """Has a configuration, as clients of providers have."""

    def dump_component(self) -> ComponentModel:
        return ComponentModel(provider="house.Client", config={"model": MODEL})

    async def create(self, *given: Any, **more: Any) -> CreateResult:
        usage = RequestUsage(prompt_tokens=INPUT, completion_tokens=OUTPUT)
        return (await super().create(*given, **more)).model_copy(update={"usage": usage})


def run_autogen(guard: Guard) -> None:
    client = NamedClient(lambda n: calls("look", n, place=n))

    async def look_async(place: int) -> str:
        """Looks."""
        return look(place)

    look_async.__name__ = "look"
    agent = AssistantAgent("a", client, tools=[look_async], max_tool_iterations=STEPS_MAX)
    asyncio.run(autogen(agent, guard).run(task="go"))


class NamedChatClient(af.Model):
    def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **more: Any) -> Any:
        self.asked += 1
        call = Content.from_function_call(f"c{self.asked}", "look", arguments={"place": self.asked})
        usage: Any = {
            "input_token_count": INPUT,
            "output_token_count": OUTPUT,
            "total_token_count": INPUT + OUTPUT,
            "cache_read_input_token_count": CACHED,
        }

        async def answer() -> ChatResponse:
            message = Message("assistant", [call])
            return ChatResponse(messages=[message], usage_details=usage, model=MODEL)

        return answer()


def run_agent_framework(guard: Guard) -> None:
    agent = af.Agent(NamedChatClient(af.says("")), name="a", tools=[look])
    asyncio.run(agent_framework(agent, guard).run("go"))


RUNS: list[Callable[[Guard], None]] = [
    run_langgraph,
    run_openai,
    run_strands,
    run_pydantic,
    run_autogen,
    run_agent_framework,
]
every_framework = pytest.mark.parametrize(
    "run", RUNS, ids=[run.__name__.removeprefix("run_") for run in RUNS]
)


@every_framework
def test_a_run_is_stopped_at_max_cost_with_the_figure(run: Callable[[Guard], None]) -> None:
    prices = {MODEL: (1.0, 10.0)}  # each call costs 0.0019
    guard = Guard(StopRules(max_cost=0.01), prices=prices)
    with pytest.raises(BudgetSpent) as caught:
        run(guard)
    stop = caught.value.stop
    assert (stop.rule, stop.limit_name, stop.limit) == ("budget", "max_cost", 0.01)
    assert stop.seen == pytest.approx(0.0114)
    assert guard.last is not None
    usage = guard.last.report().usage
    assert (usage.input_tokens, usage.output_tokens) == (6 * INPUT, 6 * OUTPUT)
    assert (usage.tokens, usage.unpriced_calls) == (6 * (INPUT + OUTPUT), 0)


@every_framework
def test_prices_see_the_models_name_and_what_came_from_a_cache(
    run: Callable[[Guard], None],
) -> None:
    seen: list[ModelCall] = []
    guard = Guard(StopRules(max_cost=2), prices=lambda call: seen.append(call) or 1.0)
    with pytest.raises(BudgetSpent):
        run(guard)
    cached = 0 if run is run_autogen else CACHED  # its messages do not say
    calls = {(call.model, call.input_tokens, call.output_tokens) for call in seen}
    assert calls == {(MODEL, INPUT, OUTPUT)}
    assert {call.cache_read_tokens for call in seen} == {cached}


@every_framework
def test_a_run_is_stopped_at_the_limit_of_a_tool(run: Callable[[Guard], None]) -> None:
    guard = Guard(StopRules(tool_limits={"look": 4}))
    with pytest.raises(LimitReached) as caught:
        run(guard)
    stop = caught.value.stop
    assert (stop.rule, stop.limit, stop.seen) == ("tool_limit", 4, 5)
