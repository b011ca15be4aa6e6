"""LangGraph: what nodes, tools, subgraphs, branches and interrupts come to."""

import asyncio
import operator
from typing import Annotated, TypedDict

import pytest
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, Send, interrupt

from handrail import Guard, LoopDetected, NoProgress, StopRules
from handrail.guard.langgraph import guarded
from handrail.kernel.run.events import HandedOff


class State(TypedDict):
    seen: Annotated[list[str], operator.add]


class Chat(TypedDict):
    messages: Annotated[list, add_messages]


def handoffs(guard: Guard) -> list[tuple[str, str]]:
    return [(e.source, e.target) for e in guard.last.events if isinstance(e, HandedOff)]


def ping_pong(**compiled):
    graph = StateGraph(State)
    for name, to in (("a", "b"), ("b", "a")):
        graph.add_node(
            name,
            lambda state, name=name, to=to: Command(goto=to, update={"seen": [name]}),
            destinations=("a", "b"),
        )
    graph.add_edge(START, "a")
    return graph.compile(**compiled)


def test_a_stop_brings_the_state_that_the_refused_node_was_to_be_given():
    with pytest.raises(LoopDetected) as caught:
        guarded(ping_pong()).invoke({"seen": []})
    assert caught.value.partial == {"seen": ["a", "b", "a", "b", "a", "b"]}


def test_an_async_call_is_stopped_the_same_way():
    with pytest.raises(LoopDetected) as caught:
        asyncio.run(guarded(ping_pong()).ainvoke({"seen": []}))
    assert len(caught.value.partial["seen"]) == 6


def test_a_thread_stands_before_the_refused_node_after_a_stop():
    graph, config = ping_pong(checkpointer=InMemorySaver()), {"configurable": {"thread_id": "1"}}
    with pytest.raises(LoopDetected):
        guarded(graph).invoke({"seen": []}, config)
    state = graph.get_state(config)
    assert (state.next, len(state.values["seen"])) == (("a",), 6)


def test_nodes_of_one_superstep_are_handed_to_by_the_same_agent_each_name_once():
    graph = StateGraph(State)
    graph.add_node("plan", lambda state: {"seen": ["plan"]})
    graph.add_node("work", lambda state: {"seen": ["work"]})
    graph.add_node("join", lambda state: {"seen": ["join"]})
    graph.add_edge(START, "plan")
    graph.add_conditional_edges("plan", lambda s: [Send("work", s) for _ in range(9)], ["work"])
    graph.add_edge("work", "join")
    graph.add_edge("join", END)
    guard = Guard()
    assert guarded(graph.compile(), guard).invoke({"seen": []})["seen"].count("work") == 9
    assert handoffs(guard) == [("plan", "work"), ("work", "join")]


def test_nodes_of_a_subgraph_are_agents_of_their_own():
    inner = StateGraph(State)
    inner.add_node("write", lambda state: {"seen": ["write"]})
    inner.add_edge(START, "write")
    outer = StateGraph(State)
    outer.add_node("team", inner.compile())
    outer.add_node("check", lambda state: {"seen": ["check"]})
    outer.add_edge(START, "team")
    outer.add_edge("team", "check")
    guard = Guard()
    guarded(outer.compile(), guard).invoke({"seen": []})
    assert handoffs(guard) == [("team", "team/write"), ("team/write", "check")]


@tool
def look(place: str) -> str:
    """Looks."""
    if place == "nowhere":
        raise ValueError("no such place")
    return f"nothing in {place}"


def agent_with_tools(places: list[str]):
    def asked(number: int, place: str) -> AIMessage:
        call = {"name": "look", "args": {"place": place}, "id": f"c{number}"}
        usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
        return AIMessage("", tool_calls=[call], usage_metadata=usage)

    answers = [asked(number, place) for number, place in enumerate(places)]
    model = GenericFakeChatModel(messages=iter([*answers, AIMessage("done")]))

    def agent(state: Chat):
        return {"messages": [model.invoke(state["messages"])]}

    graph = StateGraph(Chat)
    graph.add_node("agent", agent)
    graph.add_node("tools", ToolNode([look], handle_tool_errors=True))
    graph.add_edge(START, "agent")
    graph.add_conditional_edges(
        "agent", lambda s: "tools" if s["messages"][-1].tool_calls else END, ["tools", END]
    )
    graph.add_edge("tools", "agent")
    return graph.compile()


def test_an_agent_that_comes_back_from_its_tools_goes_on_with_its_turn():
    guard = Guard()
    result = guarded(agent_with_tools(list("abcdefgh")), guard).invoke({"messages": ["go"]})
    assert result["messages"][-1].content == "done"
    assert handoffs(guard) == []
    assert guard.last.report().usage.tokens == 16


def test_a_tool_that_is_asked_the_same_and_says_the_same_is_no_progress():
    with pytest.raises(NoProgress) as caught:
        guarded(agent_with_tools(["a"] * 9)).invoke({"messages": ["go"]})
    assert caught.value.stop.rule == "no_change"


def test_a_tool_that_fails_the_same_way_three_times_ends_the_run():
    with pytest.raises(NoProgress) as caught:
        guarded(agent_with_tools(["nowhere"] * 9)).invoke({"messages": ["go"]})
    assert caught.value.stop.rule == "same_error"
    assert isinstance(caught.value.partial["messages"][-1], ToolMessage)


def asking():
    graph = StateGraph(State)
    graph.add_node("ask", lambda state: {"seen": [interrupt("may I?")]})
    graph.add_edge(START, "ask")
    return graph.compile(checkpointer=InMemorySaver())


def test_an_interrupt_is_the_graphs_own_result_if_nobody_answers():
    result = guarded(asking()).invoke({"seen": []}, {"configurable": {"thread_id": "1"}})
    assert result["__interrupt__"][0].value == "may I?"


def test_an_interrupt_is_answered_by_whoever_is_given_for_it():
    asked = []

    def answer(question: object) -> str:
        asked.append(question)
        return "you may"

    team = guarded(asking(), answer=answer)
    config = {"configurable": {"thread_id": "1"}}
    assert team.invoke({"seen": []}, config) == {"seen": ["you may"]}
    assert asked == ["may I?"]


def test_an_error_of_a_node_passes_through_and_is_on_record():
    def broken(state: State) -> State:
        raise ZeroDivisionError("by zero")

    graph = StateGraph(State)
    graph.add_node("broken", broken)
    graph.add_edge(START, "broken")
    guard = Guard()
    with pytest.raises(ZeroDivisionError):
        guarded(graph.compile(), guard).invoke({"seen": []})
    assert "by zero" in guard.last.stop.reason


def test_rules_that_are_given_are_the_ones_that_count():
    guard = Guard(StopRules(max_handoffs=2))
    with pytest.raises(Exception, match="max_handoffs"):
        guarded(ping_pong(), guard).invoke({"seen": []})
