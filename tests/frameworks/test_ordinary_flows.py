"""Ordinary flows that end by themselves are not stopped; loops are. With the guard's defaults."""

import operator
from typing import Annotated, Any, TypedDict

import pytest

from handrail.guard.errors import StoppedError

pytest.importorskip("langgraph")

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages

from handrail.guard.langgraph import guarded


class Chat(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


class Plan(TypedDict):
    plan: list[str]
    past_steps: Annotated[list[str], operator.add]
    response: str


class Files(TypedDict):
    todo: list[str]
    done: Annotated[list[str], operator.add]


class Pipe(TypedDict, total=False):
    notes: Annotated[list[str], operator.add]


def invoke(graph: Any, state: dict[str, Any]) -> Any:
    return guarded(graph).invoke(state, {"recursion_limit": 500})


def reflection(rounds: int) -> Any:
    """LangGraph's tutorial: an essay is written, and criticised."""

    def generate(state: Chat) -> Chat:
        return {"messages": [AIMessage(f"essay, draft {len(state['messages'])}")]}

    def reflect(state: Chat) -> Chat:
        return {"messages": [HumanMessage(f"longer, point {len(state['messages'])}")]}

    def go_on(state: Chat) -> str:
        return END if len(state["messages"]) > 2 * rounds else "reflect"

    graph = StateGraph(Chat)
    graph.add_node("generate", generate)
    graph.add_node("reflect", reflect)
    graph.add_edge(START, "generate")
    graph.add_conditional_edges("generate", go_on, ["reflect", END])
    graph.add_edge("reflect", "generate")
    return graph.compile()


def plan_and_execute(steps: int) -> Any:
    def planner(state: Plan) -> dict[str, Any]:
        return {"plan": [f"look up part {chr(97 + n)}" for n in range(steps)]}

    def execute(state: Plan) -> dict[str, Any]:
        return {"past_steps": [f"did {state['plan'][0]}"]}

    def replan(state: Plan) -> dict[str, Any]:
        rest = state["plan"][1:]
        return {"plan": rest} if rest else {"response": "done"}

    graph = StateGraph(Plan)
    graph.add_node("planner", planner)
    graph.add_node("agent", execute)
    graph.add_node("replan", replan)
    graph.add_edge(START, "planner")
    graph.add_edge("planner", "agent")
    graph.add_edge("agent", "replan")
    graph.add_conditional_edges(
        "replan", lambda state: END if state.get("response") else "agent", ["agent", END]
    )
    return graph.compile()


def pipeline(nodes: int) -> Any:
    graph = StateGraph(Pipe)
    for n in range(nodes):
        graph.add_node(f"n{n}", lambda state, n=n: {"notes": [f"note {n}"]})
        graph.add_edge(f"n{n - 1}" if n else START, f"n{n}")
    graph.add_edge(f"n{nodes - 1}", END)
    return graph.compile()


def work_through(files: int) -> Any:
    graph = StateGraph(Files)
    graph.add_node("work", lambda state: {"todo": state["todo"][1:], "done": [state["todo"][0]]})
    graph.add_edge(START, "work")
    graph.add_conditional_edges(
        "work", lambda state: "work" if state["todo"] else END, ["work", END]
    )
    return graph.compile()


def supervisor(asks: int) -> Any:
    def boss(state: Chat) -> Chat:
        return {"messages": [AIMessage(f"please look into topic {len(state['messages'])}")]}

    def researcher(state: Chat) -> Chat:
        return {"messages": [AIMessage(f"about topic {len(state['messages'])} I found this")]}

    graph = StateGraph(Chat)
    graph.add_node("supervisor", boss)
    graph.add_node("researcher", researcher)
    graph.add_edge(START, "supervisor")
    graph.add_conditional_edges(
        "supervisor",
        lambda state: END if len(state["messages"]) > 2 * asks else "researcher",
        ["researcher", END],
    )
    graph.add_edge("researcher", "supervisor")
    return graph.compile()


START_CHAT = {"messages": [HumanMessage("write an essay")]}
START_FILES = {
    "todo": [f"file {chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(40)],
    "done": [],
}


@pytest.mark.parametrize(
    ("graph", "state"),
    [
        (reflection(3), START_CHAT),
        (reflection(6), START_CHAT),
        (plan_and_execute(4), {"plan": [], "past_steps": [], "response": ""}),
        (plan_and_execute(8), {"plan": [], "past_steps": [], "response": ""}),
        (plan_and_execute(15), {"plan": [], "past_steps": [], "response": ""}),
        (pipeline(25), {"notes": []}),
        (pipeline(60), {"notes": []}),
        (work_through(10), {"todo": START_FILES["todo"][:10], "done": []}),
        (work_through(40), START_FILES),
        (supervisor(12), START_CHAT),
    ],
)
def test_an_ordinary_flow_ends_by_itself(graph: Any, state: dict[str, Any]) -> None:
    guarded_result, bare_result = (
        invoke(graph, state),
        graph.invoke(state, {"recursion_limit": 500}),
    )
    assert _without_ids(guarded_result) == _without_ids(bare_result)


def _without_ids(state: dict[str, Any]) -> dict[str, Any]:
    """A message has a random id."""
    return {
        key: [getattr(item, "content", item) for item in value]
        if isinstance(value, list)
        else value
        for key, value in state.items()
    }


class Count(TypedDict, total=False):
    count: int
    notes: Annotated[list[str], operator.add]


def looping(update: Any) -> Any:
    graph = StateGraph(Count)
    graph.add_node("a", update)
    graph.add_node("b", lambda state: {})
    graph.add_edge(START, "a")
    graph.add_edge("a", "b")
    graph.add_edge("b", "a")
    return graph.compile()


@pytest.mark.parametrize(
    "update",
    [
        lambda state: {},
        lambda state: {"count": state.get("count", 0) + 1},
        lambda state: {"notes": ["the same"]},
    ],
    ids=["idle", "counter", "appends"],
)
def test_a_graph_that_only_turns_is_stopped_by_the_tenth_round(update: Any) -> None:
    with pytest.raises(StoppedError) as caught:
        invoke(looping(update), {"count": 0, "notes": []})
    run = caught.value.run
    assert sum(type(event).__name__ == "HandedOff" for event in run.events) <= 20
