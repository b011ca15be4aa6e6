"""What the guard adds to a framework's own steps: LangGraph and AutoGen, bare and under guard, in
turn.

Shapes, each with stub models and the guard's defaults: two nodes, or agents, that do nothing but
count or say a word; an agent that calls a tool 20 times with a short answer; and the same with an
answer of 20 kB, each different from the others. And the guard alone: a tool call with a result of
20 kB.

Two nodes that only count are the worst case of LangGraph: their step is so short that the callback
by which a guard learns of it counts. So they are also measured with a callback handler that does
nothing, which is the least that watching can cost.
"""

import asyncio
import time
from collections.abc import Callable
from functools import cache
from itertools import count
from typing import Annotated, Any, TypedDict

from benchmarks.measure import Prepare, Run
from handrail import Guard

STEPS = 20
SHORT_CHARS, LONG_CHARS = 60, 20_000
TWO_NODES, EMPTY_HANDLER = "LangGraph, two nodes", " with an empty handler"
LONG_TEXT = "".join(
    f"line {n} of a long page about trees, and what grows there\n" for n in range(400)
)


def page(number: int, chars: int) -> str:
    """An answer of a tool: so many characters, another one for each number."""
    return f"page {number}: {LONG_TEXT[number : number + chars]}"


def contenders() -> dict[str, Prepare]:
    """Each shape bare and under guard; ModuleNotFoundError without the frameworks."""
    shapes: dict[str, Callable[..., Prepare]] = {
        TWO_NODES: langgraph(two_nodes),
        "LangGraph, small results": langgraph(lambda: react(SHORT_CHARS)),
        "LangGraph, 20 kB results": langgraph(lambda: react(LONG_CHARS)),
        "AutoGen, two agents": autogen(autogen_pair),
        "AutoGen, small results": autogen(lambda steps: autogen_caller(steps, SHORT_CHARS)),
        "AutoGen, 20 kB results": autogen(lambda steps: autogen_caller(steps, LONG_CHARS)),
    }
    found = {
        f"{name}{suffix}": shape(is_guarded=is_guarded)
        for name, shape in shapes.items()
        for suffix, is_guarded in (("", False), (" under guard", True))
    }
    return {**found, TWO_NODES + EMPTY_HANDLER: langgraph(heard_nodes)(is_guarded=False)}


def measured(repeats: int) -> dict[str, float]:
    """CPU µs per step of each shape, the least of so many runs in turn: other work on the machine
    only ever adds to it."""
    shapes = contenders()
    least: dict[str, float] = {}
    for _ in range(repeats + 1):  # the first warms up
        for name, make in shapes.items():
            run = make(STEPS)
            start = time.process_time()
            steps = run()
            cost = (time.process_time() - start) / STEPS * 1e6
            if steps != STEPS:
                raise RuntimeError(f"{name}: {steps} steps instead of {STEPS}")
            least[name] = min(cost, least.get(name, cost))
    return least


def langgraph(shape: Callable[[], Any]) -> Callable[..., Prepare]:
    def prepare(*, is_guarded: bool) -> Prepare:
        def ready(steps: int) -> Run:
            graph, limit = shape(), {"recursion_limit": 10 * steps + 10}
            if is_guarded:
                from handrail.guard.langgraph import guarded

                graph = guarded(graph, Guard())

            def run() -> int:
                return graph.invoke({"made": 0, "goal": steps, "messages": []}, limit)["made"]

            return run

        return ready

    return prepare


@cache
def two_nodes() -> Any:
    from langgraph.graph import END, START, StateGraph

    class State(TypedDict, total=False):
        made: int
        goal: int
        notes: str

    def count(state: State) -> State:
        return {"made": state["made"] + 1, "notes": f"note {state['made'] * 7919 % 1_000}"}

    builder = StateGraph(State)
    for name, other in (("a", "b"), ("b", "a")):
        builder.add_node(name, count)
        builder.add_conditional_edges(
            name,
            lambda state, other=other: END if state["made"] >= state["goal"] else other,
            [other, END],
        )
    builder.add_edge(START, "a")
    return builder.compile()


@cache
def heard_nodes() -> Any:
    """The two nodes, with a handler that takes the callbacks of chains and does nothing."""
    from langgraph.callbacks import GraphCallbackHandler

    class EmptyHandler(GraphCallbackHandler):
        run_inline = True

        def on_chain_start(self, *about: Any, **more: Any) -> None: ...

        def on_chain_end(self, *about: Any, **more: Any) -> None: ...

    return two_nodes().with_config(callbacks=[EmptyHandler()])


@cache
def react(result_chars: int) -> Any:
    """An agent that calls a tool until it has made its steps."""
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage, AnyMessage
    from langchain_core.outputs import ChatGeneration, ChatResult
    from langchain_core.tools import tool
    from langgraph.graph import END, START, StateGraph
    from langgraph.graph.message import add_messages
    from langgraph.prebuilt import ToolNode

    class State(TypedDict):
        made: int
        goal: int
        messages: Annotated[list[AnyMessage], add_messages]

    class Stub(BaseChatModel):
        @property
        def _llm_type(self) -> str:
            return "stub"

        def _generate(self, messages: Any, *args: Any, **options: Any) -> ChatResult:
            call = {"name": "look", "args": {"number": len(messages)}, "id": f"c{len(messages)}"}
            answer = AIMessage("", tool_calls=[call])
            return ChatResult(generations=[ChatGeneration(message=answer)])

    @tool
    def look(number: int) -> str:
        """Look something up."""
        return page(number, result_chars)

    model = Stub()

    def agent(state: State) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])], "made": state["made"] + 1}

    builder = StateGraph(State)
    builder.add_node("agent", agent)
    builder.add_node("tools", ToolNode([look]))
    builder.add_edge(START, "agent")
    builder.add_conditional_edges(
        "agent",
        lambda state: END if state["made"] >= state["goal"] else "tools",
        ["tools", END],
    )
    builder.add_edge("tools", "agent")
    return builder.compile()


def autogen(shape: Callable[[int], tuple[Any, str]]) -> Callable[..., Prepare]:
    def prepare(*, is_guarded: bool) -> Prepare:
        def ready(steps: int) -> Run:
            team, counted_type = shape(steps)
            if is_guarded:
                from handrail.guard.autogen import guarded

                team = guarded(team, Guard())

            def run() -> int:
                messages = asyncio.run(team.run(task="look everything up")).messages
                return sum(type(message).__name__ == counted_type for message in messages[1:])

            return run

        return ready

    return prepare


@cache
def autogen_stub() -> Any:
    """A model client that answers with what a function makes of the number of its call."""
    from autogen_core.models import ChatCompletionClient, CreateResult, RequestUsage

    class Stub(ChatCompletionClient):
        model_info = capabilities = {
            "vision": False,
            "function_calling": True,
            "json_output": True,
            "family": "unknown",
            "structured_output": True,
        }

        def __init__(self, answer: Callable[[int], Any]) -> None:
            self.answer, self.numbers = answer, count()

        async def create(self, messages: Any, **options: Any) -> CreateResult:
            content = self.answer(next(self.numbers))
            reason = "stop" if isinstance(content, str) else "function_calls"
            usage = RequestUsage(prompt_tokens=4, completion_tokens=6)
            return CreateResult(finish_reason=reason, content=content, usage=usage, cached=False)

        def create_stream(self, *messages: Any, **options: Any) -> Any:
            raise NotImplementedError

        async def close(self) -> None: ...

        def actual_usage(self) -> RequestUsage:
            return RequestUsage(prompt_tokens=0, completion_tokens=0)

        total_usage = actual_usage

        def count_tokens(self, *messages: Any, **options: Any) -> int:
            return 0

        remaining_tokens = count_tokens

    return Stub


def autogen_pair(steps: int) -> tuple[Any, str]:
    """Two agents that take turns, each with other words."""
    from autogen_agentchat.agents import AssistantAgent
    from autogen_agentchat.teams import RoundRobinGroupChat

    agents = [
        AssistantAgent(name, autogen_stub()(lambda number, name=name: f"{name} notes {number}"))
        for name in ("ann", "bob")
    ]
    return RoundRobinGroupChat(agents, max_turns=steps), "TextMessage"


def autogen_caller(steps: int, result_chars: int) -> tuple[Any, str]:
    """An agent that calls a tool until it has made its steps."""
    from autogen_agentchat.agents import AssistantAgent
    from autogen_core import FunctionCall

    def look(number: int) -> str:
        """Look something up."""
        return page(number, result_chars)

    def call(number: int) -> Any:
        if number == steps:
            return "that is all"
        return [FunctionCall(id=f"c{number}", name="look", arguments=f'{{"number": {number}}}')]

    agent = AssistantAgent("ann", autogen_stub()(call), tools=[look], max_tool_iterations=steps + 1)
    return agent, "ToolCallExecutionEvent"


def tool_call_us(calls: int = 200) -> float:
    """CPU µs of one tool call with a new result of 20 kB, told to a guard."""
    results = [page(n, LONG_CHARS) for n in range(calls)]
    with Guard().run("benchmark", profile="observed") as run:
        start = time.process_time()
        for n, result in enumerate(results):
            run.called("agent", "look", {"number": n % 7}, result)
        return (time.process_time() - start) / calls * 1e6
