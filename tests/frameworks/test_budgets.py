"""Money and single tools have limits in every framework: the run is stopped, with the figure.

Each program asks a tool for something new at every step. Its model has a name and says what it
used, as models do in that framework. What was called is counted: the call is refused, not stopped
when it is over.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agent_framework import ChatResponse, Content, Message
from agents.tool import function_tool
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.teams import RoundRobinGroupChat
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
from handrail import Budget, BudgetSpent, Guard, LimitReached, ModelCall, StopRules
from handrail.guard import plain
from handrail.guard.agent_framework import guarded as agent_framework
from handrail.guard.autogen import guarded as autogen
from handrail.guard.langgraph import guarded as langgraph
from handrail.guard.openai_agents import guarded as openai
from handrail.guard.pydantic_ai import guarded as pydantic
from handrail.guard.strands import guarded as strands

INPUT, OUTPUT, CACHED, MODEL = 900, 100, 300, "house-model"
STEPS_MAX = 40
made: Counter[str] = Counter()
"""Calls that were made: of the `model`, and of the `tool`."""


@pytest.fixture(autouse=True)
def _nothing_was_called() -> None:
    made.clear()


def look(place: int) -> str:
    """Looks."""
    made["tool"] += 1
    return f"nothing in {place}"


def run_langgraph(guard: Guard) -> None:
    def answer(number: int) -> AIMessage:
        made["model"] += 1
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
        made["model"] += 1
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
        made["model"] += 1
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
        made["model"] += 1
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
        made["model"] += 1
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


def run_autogen_team(guard: Guard) -> None:
    """A team's messages reach the guard after its agents have gone on."""
    client = NamedClient(lambda n: calls("look", n, place=n))

    async def look_async(place: int) -> str:
        """Looks."""
        return look(place)

    look_async.__name__ = "look"
    agent = AssistantAgent("a", client, tools=[look_async], max_tool_iterations=STEPS_MAX)
    asyncio.run(autogen(RoundRobinGroupChat([agent]), guard).run(task="go"))


class NamedChatClient(af.Model):
    def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **more: Any) -> Any:
        self.asked += 1
        made["model"] += 1
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


def run_plain(guard: Guard) -> None:
    seek = plain.tool(look)

    def work() -> None:
        for number in range(STEPS_MAX):
            plain.nudge()
            made["model"] += 1
            call = ModelCall(
                model=MODEL,
                provider="house",
                input_tokens=INPUT,
                output_tokens=OUTPUT,
                cache_read_tokens=CACHED,
            )
            plain.used(text=f"look in {number}", call=call)
            seek(number)

    plain.guarded(work, guard)()


RUNS: list[Callable[[Guard], None]] = [
    run_langgraph,
    run_openai,
    run_strands,
    run_pydantic,
    run_autogen,
    run_autogen_team,
    run_agent_framework,
    run_plain,
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
    assert "0.0114 of 0.01 cost" in str(caught.value)
    assert made == {"model": 6, "tool": 5}


@every_framework
def test_no_call_begins_once_a_limit_is_reached_exactly(run: Callable[[Guard], None]) -> None:
    guard = Guard(StopRules(max_tokens=3 * (INPUT + OUTPUT)))
    with pytest.raises(BudgetSpent, match="3000 of 3000 tokens"):
        run(guard)
    assert made == {"model": 3, "tool": 2}


@every_framework
def test_a_shared_budget_refuses_the_call_with_the_figure(
    run: Callable[[Guard], None], tmp_path: Path
) -> None:
    record = f"sqlite:///{tmp_path / 'work.db'}"
    budget = Budget("support", per="day", cost=0.01)
    guard = Guard(budgets=[budget], prices={MODEL: (1.0, 10.0)}, record=record)
    with pytest.raises(BudgetSpent, match=r"the budget 'support' is spent: 0\.0114 of 0\.01 cost"):
        run(guard)
    assert made == {"model": 6, "tool": 5}
    with pytest.raises(BudgetSpent):
        run(guard)
    assert made["model"] == 6


@every_framework
def test_prices_see_the_models_name_and_what_came_from_a_cache(
    run: Callable[[Guard], None],
) -> None:
    seen: list[ModelCall] = []
    guard = Guard(StopRules(max_cost=2), prices=lambda call: seen.append(call) or 1.0)
    with pytest.raises(BudgetSpent):
        run(guard)
    is_autogen = run in (run_autogen, run_autogen_team)
    cached = 0 if is_autogen else CACHED  # its messages do not say
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
    assert "look was asked for 5 times" in str(caught.value)
    assert made == {"model": 5, "tool": 4}
