"""What the guard adds to a framework's own steps: LangGraph bare and under guard, in turn.

Three shapes, each with stub models and the guard's defaults: two nodes that do nothing but count,
an agent that calls a tool 20 times with a short answer, and the same with an answer of 20 kB, each
different from the others. And the guard alone: a tool call with a result of 20 kB.
"""

import time
from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, TypedDict

from benchmarks.measure import Prepare, Run
from handrail import Guard

STEPS = 20
SHORT_CHARS, LONG_CHARS = 60, 20_000
LONG_TEXT = "".join(
    f"line {n} of a long page about trees, and what grows there\n" for n in range(400)
)


def contenders() -> dict[str, Prepare]:
    """Return each shape bare and under guard; ModuleNotFoundError without LangGraph."""
    shapes: dict[str, Callable[[], Any]] = {
        "two nodes": two_nodes,
        "small results": lambda: react(SHORT_CHARS),
        "20 kB results": lambda: react(LONG_CHARS),
    }
    return {
        f"{name}{suffix}": prepare(shape, is_guarded=is_guarded)
        for name, shape in shapes.items()
        for suffix, is_guarded in (("", False), (" under guard", True))
    }


def measured(repeats: int) -> dict[str, float]:
    """CPU µs per step of each shape, the least of so many runs in turn: other work on the machine
    only ever adds to it."""
    shapes = contenders()
    least: dict[str, float] = {}
    for _ in range(repeats + 1):  # the first warms up
        for name, make in shapes.items():
            run = make(STEPS)
            start = time.process_time()
            run()
            cost = (time.process_time() - start) / STEPS * 1e6
            least[name] = min(cost, least.get(name, cost))
    return least


def prepare(shape: Callable[[], Any], *, is_guarded: bool) -> Prepare:
    def ready(steps: int) -> Run:
        graph, limit = shape(), {"recursion_limit": 10 * steps + 10}
        if is_guarded:
            from handrail.guard.langgraph import guarded

            graph = guarded(graph, Guard())

        def run() -> int:
            return graph.invoke({"made": 0, "goal": steps, "messages": []}, limit)["made"]

        return run

    return ready


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
        return f"page {number}: {LONG_TEXT[number : number + result_chars]}"

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


def tool_call_us(calls: int = 200) -> float:
    """CPU µs of one tool call with a new result of 20 kB, told to a guard."""
    results = [f"page {n}: {LONG_TEXT[n : n + LONG_CHARS]}" for n in range(calls)]
    with Guard().run("benchmark", profile="observed") as run:
        start = time.process_time()
        for n, result in enumerate(results):
            run.called("agent", "look", {"number": n % 7}, result)
        return (time.process_time() - start) / calls * 1e6
