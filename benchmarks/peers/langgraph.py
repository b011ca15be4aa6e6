"""LangGraph without a checkpointer: nodes that hand over with `Command(goto=...)`."""

from collections.abc import Callable
from functools import cache
from typing import Any, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.types import Command

from benchmarks.peers import AGENTS, RING

DISTRIBUTION = "langgraph"


class State(TypedDict):
    made: int
    goal: int


def agent(target: str) -> Callable[[State], Command[Any]]:
    def node(state: State) -> Command[Any]:
        made = state["made"]
        if made == state["goal"]:
            return Command(goto=END)
        return Command(goto=target, update={"made": made + 1})

    return node


@cache
def graph() -> Any:
    builder = StateGraph(State)
    for name in AGENTS:
        builder.add_node(name, agent(RING[name]), destinations=(RING[name], END))
    builder.add_edge(START, AGENTS[0])
    return builder.compile()


def prepare(handoffs: int) -> Callable[[], int]:
    compiled = graph()
    limit = {"recursion_limit": handoffs + 10}

    def run() -> int:
        return compiled.invoke({"made": 0, "goal": handoffs}, limit)["made"]

    return run
