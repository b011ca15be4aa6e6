"""LangGraph: what nodes, tools, subgraphs, branches and interrupts come to."""

import asyncio
import operator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Event
from typing import Annotated, TypedDict

import pytest
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, RetryPolicy, Send, interrupt

from handrail import Guard, LimitReached, LoopDetected, NoProgress, StopRules
from handrail.guard.langgraph import guarded
from handrail.kernel.run.events import HandedOff


class State(TypedDict):
    seen: Annotated[list[str], operator.add]


class Chat(TypedDict):
    messages: Annotated[list, add_messages]


def handoffs(guard: Guard) -> list[tuple[str, str]]:
    return [(e.source, e.target) for e in guard.last.events if isinstance(e, HandedOff)]


def ping_pong(retry_policy=None, **compiled):
    graph = StateGraph(State)
    for name, to in (("a", "b"), ("b", "a")):
        graph.add_node(
            name,
            lambda state, name=name, to=to: Command(goto=to, update={"seen": [name]}),
            destinations=("a", "b"),
            retry_policy=retry_policy,
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


def test_a_refused_node_is_not_run_by_its_retry_policy():
    policy = RetryPolicy(max_attempts=3, initial_interval=0.001, retry_on=Exception)
    with pytest.raises(LoopDetected) as caught:
        guarded(ping_pong(policy)).invoke({"seen": []}, {"recursion_limit": 60})
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
    assert caught.value.stop.effects == ()


def test_a_tool_that_mcp_calls_destructive_is_listed_in_the_stop(monkeypatch):
    monkeypatch.setattr(look, "metadata", {"destructiveHint": True})
    with pytest.raises(NoProgress) as caught:
        guarded(agent_with_tools(["a"] * 9)).invoke({"messages": ["go"]})
    assert {call.tool for call in caught.value.stop.effects} == {"look"}


def fan_out(work, tasks: int):
    graph = StateGraph(State)
    graph.add_node("plan", lambda state: {"seen": []})
    graph.add_node("work", work)
    graph.add_edge(START, "plan")
    graph.add_conditional_edges("plan", lambda state: [Send("work", {})] * tasks, ["work"])
    return graph.compile()


def test_tasks_beside_each_other_that_find_the_same_do_not_repeat_each_other():
    model = GenericFakeChatModel(messages=iter([AIMessage("hm")] * 18))

    def work(state: State):
        model.invoke("first")
        look.invoke({"place": "the shop"})
        model.invoke("then")
        return {"seen": ["done"]}

    assert len(guarded(fan_out(work, 9)).invoke({"seen": []})["seen"]) == 9


def test_a_graph_inside_that_finds_the_same_each_time_it_is_run_repeats_itself():
    graph = StateGraph(Chat)
    graph.add_node("team", lambda state: agent_with_tools(["the shop"]).invoke({"messages": []}))
    graph.add_edge(START, "team")
    graph.add_edge("team", "team")
    with pytest.raises(NoProgress) as caught:
        guarded(graph.compile(), Guard(StopRules(repeat_limit=None))).invoke({"messages": []})
    assert caught.value.stop.rule == "no_change"


def test_tasks_beside_each_other_that_run_a_graph_each_hand_over_as_one_of_them():
    def work(state: State):
        inner = agent_with_tools(["the shop", "the yard", "the shed"])
        return {"seen": [inner.invoke({"messages": ["go"]})["messages"][-1].content]}

    one, five = Guard(), Guard()
    assert guarded(fan_out(work, 1), one).invoke({"seen": []})["seen"] == ["done"]
    assert guarded(fan_out(work, 5), five).invoke({"seen": []})["seen"] == ["done"] * 5
    assert handoffs(five) == handoffs(one)


def node_that(work):
    graph = StateGraph(State)
    graph.add_node("team", work)
    graph.add_edge(START, "team")
    return graph.compile()


def two_in_a_row():
    graph = StateGraph(State)
    graph.add_node("a", lambda state: {"seen": ["a"]})
    graph.add_node("b", lambda state: {"seen": ["b"]})
    graph.add_edge(START, "a")
    graph.add_edge("a", "b")
    return graph.compile()


def test_a_graph_that_is_called_again_and_again_inside_one_node_is_a_repeated_pattern():
    inner, calls = two_in_a_row(), []

    def work(state: State):
        for number in range(50):
            calls.append(number)
            inner.invoke({"seen": []})
        return {"seen": ["done"]}

    guard = Guard(StopRules(max_handoffs=1_000))
    with pytest.raises(LoopDetected) as caught:
        guarded(node_that(work), guard).invoke({"seen": []})
    assert caught.value.stop.rule == "repeated_pattern"
    assert handoffs(guard) == [("team", "team/a"), ("team/a", "team/b")] * 3
    assert len(calls) == 3


def test_two_calls_of_agents_in_one_node_are_two_handoffs_to_the_same_names():
    def work(state: State):
        for places in ("abcdef", "uvwxyz"):
            agent_with_tools([f"the {place} room" for place in places]).invoke({"messages": []})
        return {"seen": ["done"]}

    guard = Guard()
    assert guarded(node_that(work), guard).invoke({"seen": []})["seen"] == ["done"]
    assert handoffs(guard) == [("team", "team/agent")] * 2


def test_calls_of_a_graph_beside_each_other_in_one_node_hand_over_as_one_of_them():
    def begun(calls: int) -> Guard:
        gate = asyncio.Barrier(calls)

        async def wait(state: State):
            await gate.wait()
            return {"seen": ["waited"]}

        inner = StateGraph(State)
        inner.add_node("wait", wait)
        inner.add_edge(START, "wait")
        one = inner.compile()

        async def work(state: State):
            await asyncio.gather(*(one.ainvoke({"seen": []}) for _ in range(calls)))
            return {"seen": ["done"]}

        guard = Guard()
        asyncio.run(guarded(node_that(work), guard).ainvoke({"seen": []}))
        return guard

    assert handoffs(begun(9)) == handoffs(begun(1)) == [("team", "team/wait")]


def boss_of(ask):
    asked = AIMessage("", tool_calls=[{"name": ask.name, "args": {"task": "it"}, "id": "1"}])
    model = GenericFakeChatModel(messages=iter([asked, AIMessage("thank you")]))
    graph = StateGraph(Chat)
    graph.add_node("boss", lambda state: {"messages": [model.invoke(state["messages"])]})
    graph.add_node("tools", ToolNode([ask]))
    graph.add_edge(START, "boss")
    graph.add_conditional_edges(
        "boss", lambda s: "tools" if s["messages"][-1].tool_calls else END, ["tools", END]
    )
    graph.add_edge("tools", "boss")
    return graph.compile()


def test_an_agent_that_is_called_as_a_tool_goes_on_with_its_turn_after_its_own_tools():
    @tool
    def ask(task: str) -> str:
        """Asks."""
        worker = agent_with_tools([f"the {place} room" for place in "abcdefghijkl"])
        return worker.invoke({"messages": [task]})["messages"][-1].content

    guard = Guard()
    result = guarded(boss_of(ask), guard).invoke({"messages": ["go"]}, {"recursion_limit": 60})
    assert result["messages"][-1].content == "thank you"
    assert handoffs(guard) == [("boss", "tools/agent")]


def test_a_node_that_is_given_calls_of_tools_and_makes_none_is_an_agent():
    calls = [{"name": "to_the_other", "args": {}, "id": "1"}]

    @tool
    def ask(task: str) -> str:
        """Asks."""
        inner = StateGraph(Chat)
        for name, to in (("a", "b"), ("b", "a")):
            inner.add_node(name, lambda state: {"messages": [AIMessage("", tool_calls=calls)]})
            inner.add_edge(name, to)
        inner.add_edge(START, "a")
        return str(inner.compile().invoke({"messages": [task]}))

    guard = Guard()
    with pytest.raises(LoopDetected):
        guarded(boss_of(ask), guard).invoke({"messages": ["go"]})
    assert handoffs(guard)[:3] == [
        ("boss", "tools/a"),
        ("tools/a", "tools/b"),
        ("tools/b", "tools/a"),
    ]


def test_a_stop_is_logged_in_one_short_line(caplog):
    with pytest.raises(LoopDetected):
        guarded(ping_pong()).invoke({"seen": []})
    [said] = [record.getMessage() for record in caplog.records]
    assert said.endswith("LoopDetectedError('the guarded run is over: repeated_pattern')")


def test_a_tool_that_hands_over_is_no_evidence():
    def transfer(to: str):
        @tool(f"transfer_to_{to}")
        def hand(tool_call_id: Annotated[str, InjectedToolCallId]) -> Command:
            """Hands over."""
            said = ToolMessage("over to you", tool_call_id=tool_call_id)
            return Command(goto=to, graph=Command.PARENT, update={"messages": [said]})

        return hand

    graph = StateGraph(Chat)
    for name, to in (("a", "b"), ("b", "a")):
        calls = [[{"name": f"transfer_to_{to}", "args": {}, "id": f"{name}{n}"}] for n in range(30)]
        model = GenericFakeChatModel(messages=iter(AIMessage("", tool_calls=one) for one in calls))
        inner = StateGraph(Chat)
        inner.add_node(
            "agent", lambda state, model=model: {"messages": [model.invoke(state["messages"])]}
        )
        inner.add_node("tools", ToolNode([transfer(to)]))
        inner.add_edge(START, "agent")
        inner.add_edge("agent", "tools")
        graph.add_node(name, inner.compile(), destinations=(to,))
    graph.add_edge(START, "a")
    with pytest.raises(LoopDetected) as caught:
        guarded(graph.compile()).invoke({"messages": ["go"]}, {"recursion_limit": 400})
    assert caught.value.stop.rule == "repeated_pattern"


def test_a_tool_that_fails_the_same_way_three_times_ends_the_run():
    with pytest.raises(NoProgress) as caught:
        guarded(agent_with_tools(["nowhere"] * 9)).invoke({"messages": ["go"]})
    assert caught.value.stop.rule == "same_error"
    assert isinstance(caught.value.partial["messages"][-1], ToolMessage)


def coding(**compiled):
    """Coder and tester, for ever."""
    graph = StateGraph(State)
    graph.add_node("coder", lambda state: {"seen": ["coder"]})
    graph.add_node("tester", lambda state: {"seen": ["tester"]})
    graph.add_edge(START, "coder")
    graph.add_edge("coder", "tester")
    graph.add_edge("tester", "coder")
    return graph.compile(**compiled)


def test_a_loop_in_a_graph_inside_that_keeps_its_own_state_is_seen():
    graph = StateGraph(State)
    graph.add_node("plan", lambda state: {"seen": ["plan"]})
    graph.add_node("team", coding(checkpointer=True))
    graph.add_edge(START, "plan")
    graph.add_edge("plan", "team")
    guard, config = Guard(), {"configurable": {"thread_id": "1"}, "recursion_limit": 60}
    with pytest.raises(LoopDetected):
        guarded(graph.compile(checkpointer=InMemorySaver()), guard).invoke({"seen": []}, config)
    assert handoffs(guard)[:4] == [
        ("plan", "team"),
        ("team", "team/coder"),
        ("team/coder", "team/tester"),
        ("team/tester", "team/coder"),
    ]


def test_graphs_that_a_node_calls_by_callbacks_alone_go_on_as_one():
    inner = StateGraph(State)
    inner.add_node("read", lambda state: {"seen": ["read"]})
    inner.add_node("judge", lambda state: {"seen": ["judge"]})
    inner.add_edge(START, "read")
    inner.add_edge("read", "judge")
    per_document = inner.compile()

    def work(state: State, config: RunnableConfig) -> State:
        def one(_: int) -> object:
            return per_document.invoke({"seen": []}, {"callbacks": config["callbacks"]})

        with ThreadPoolExecutor(4) as pool:
            return {"seen": [str(found) for found in pool.map(one, range(40))]}

    graph = StateGraph(State)
    graph.add_node("work", work)
    graph.add_node("sum", lambda state: {"seen": ["sum"]})
    graph.add_edge(START, "work")
    graph.add_edge("work", "sum")
    guard = Guard()
    assert len(guarded(graph.compile(), guard).invoke({"seen": []})["seen"]) == 41
    assert handoffs(guard) == [("work", "read"), ("read", "judge"), ("work", "sum")]


class Counted(GenericFakeChatModel):
    """Says the same, and counts how often it was asked."""

    asked: list[int] = []

    def _generate(self, *given, **more):
        self.asked.append(1)
        return super()._generate(*given, **more)


def counted() -> Counted:
    return Counted(messages=iter([AIMessage("hm")] * 99), asked=[])


def test_what_a_node_did_before_its_first_model_is_settled_before_that_is_asked():
    @tool
    def look() -> str:
        """Looks it up."""
        raise OSError("connection refused")

    def work(state: State) -> State:
        for _ in range(9):
            with suppress(OSError):
                look.invoke({})
            model.invoke("go on")
        return {"seen": []}

    model, graph = counted(), StateGraph(State)
    graph.add_node("work", work)
    graph.add_edge(START, "work")
    with pytest.raises(NoProgress) as caught:
        guarded(graph.compile()).invoke({"seen": []})
    assert caught.value.stop.rule == "same_error"
    assert len(model.asked) == 2


def test_a_node_that_runs_while_another_one_is_refused_asks_its_model_no_more():
    def slow(state: State) -> State:
        for _ in range(1_000):
            if guard.last.stop is not None:
                break
            Event().wait(0.01)
        model.invoke("and now?")
        return {"seen": ["slow"]}

    model, guard, graph = counted(), Guard(StopRules(max_handoffs=1)), StateGraph(State)
    graph.add_node("plan", lambda state: {"seen": ["plan"]})
    graph.add_node("slow", slow)
    graph.add_node("too much", lambda state: {"seen": ["too much"]})
    graph.add_edge(START, "plan")
    graph.add_edge("plan", "slow")
    graph.add_edge("plan", "too much")
    with pytest.raises(LimitReached):
        guarded(graph.compile(), guard).invoke({"seen": []})
    assert guard.last.stop.rule == "max_handoffs"
    assert model.asked == []


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
    assert guard.last.stop.reason.startswith("ZeroDivisionError: [")


def test_rules_that_are_given_are_the_ones_that_count():
    guard = Guard(StopRules(max_handoffs=2))
    with pytest.raises(Exception, match="max_handoffs"):
        guarded(ping_pong(), guard).invoke({"seen": []})
