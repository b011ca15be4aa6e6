"""The guard as a callback of LangChain's and as a middleware of `create_agent`: what it guards
keeps its type, and is stopped all the same.
"""

import asyncio
import gc

import pytest
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langgraph.errors import GraphRecursionError
from tests.frameworks.langgraph_agents import (
    INPUT,
    Till,
    asks,
    endless_model,
    gated_agent,
    model_of,
    paying_agent,
    thread,
    tool_call,
)
from tests.frameworks.test_langgraph import (
    agent_with_tools,
    asking,
    coding,
    handoffs,
    node_that,
    ping_pong,
    two_in_a_row,
)

from handrail import Budget, BudgetSpent, Guard, LoopDetected, NoProgress, StopRules
from handrail.guard.langgraph import guarded

EMPTY = {"seen": []}


def with_callback(graph, guard: Guard, **options):
    return graph.with_config(callbacks=[guard.callback(**options)])


def test_a_graph_with_the_callback_keeps_its_type_and_is_stopped_in_every_call():
    graph, guard = ping_pong(), Guard()
    watched = with_callback(graph, guard)
    assert type(watched) is type(graph)
    calls = (
        lambda: watched.invoke(EMPTY),
        lambda: graph.invoke(EMPTY, {"callbacks": [guard.callback()]}),
        lambda: asyncio.run(watched.ainvoke(EMPTY)),
        lambda: list(watched.stream(EMPTY)),
        lambda: watched.batch([EMPTY]),
        lambda: (RunnableLambda(lambda given: given) | watched).invoke(EMPTY),
    )
    for call in calls:
        with pytest.raises(LoopDetected) as caught:
            call()
        assert caught.value.partial == {"seen": ["a", "b", "a", "b", "a", "b"]}
        assert caught.value.run is guard.last
        assert guard.last.report().terminal_status == "aborted_stuck"


@pytest.mark.parametrize(
    "graph",
    [two_in_a_row, lambda: node_that(lambda state: coding().invoke(state, {"recursion_limit": 4}))],
)
def test_the_callback_sees_what_a_guarded_graph_shows(graph):
    by_callback, by_graph = Guard(), Guard()
    for guard, team in (
        (by_callback, with_callback(graph(), by_callback)),
        (by_graph, guarded(graph(), by_graph)),
    ):
        try:
            team.invoke(EMPTY)
        except GraphRecursionError:
            assert guard.last.stop.reason.startswith("GraphRecursionError")
    assert handoffs(by_callback) == handoffs(by_graph) != []
    assert by_callback.last.stop.rule == by_graph.last.stop.rule


def test_a_node_that_only_runs_tools_is_no_agent_for_the_callback_either():
    guard = Guard()
    watched = with_callback(agent_with_tools(list("abcdefgh")), guard)
    assert watched.invoke({"messages": ["go"]})["messages"][-1].content == "done"
    assert handoffs(guard) == []
    assert guard.last.report().usage.tokens == 16
    with pytest.raises(NoProgress) as caught:
        with_callback(agent_with_tools(["a"] * 9), guard).invoke({"messages": ["go"]})
    assert caught.value.stop.rule == "no_change"


def test_the_callback_tells_runs_apart_that_go_on_at_once():
    guard, runs = Guard(), []
    watched = with_callback(two_in_a_row(), guard)

    async def run() -> None:
        await asyncio.gather(*(watched.ainvoke(EMPTY) for _ in range(9)))

    begin = guard.run
    guard.run = lambda *args, **options: runs.append(begin(*args, **options)) or runs[-1]
    asyncio.run(run())
    assert len(runs) == 9
    assert handoffs(guard) == [("a", "b")]
    handler = guard.callback()
    two_in_a_row().invoke(EMPTY, {"callbacks": [handler]})
    assert handler.runs == {}, "nothing is kept of a run that is over"


@pytest.mark.parametrize("inner_form", [with_callback, guarded])
@pytest.mark.parametrize("outer_form", [with_callback, guarded])
def test_a_watched_graph_inside_a_watched_graph_is_one_run(outer_form, inner_form):
    inner_guard, outer_guard = Guard(StopRules(max_handoffs=0)), Guard()
    inner = inner_form(two_in_a_row(), inner_guard)
    app = outer_form(node_that(lambda state: inner.invoke(state)), outer_guard)
    assert app.invoke(EMPTY)["seen"] == ["a", "b"]
    assert inner_guard.last is None
    assert handoffs(outer_guard) == [("team", "team/a"), ("team/a", "team/b")]


def test_a_guarded_graph_that_is_given_the_callback_is_one_run():
    guard, other = Guard(), Guard()
    guarded(two_in_a_row(), other).invoke(EMPTY, {"callbacks": [guard.callback()]})
    assert (other.last, handoffs(guard)) == (None, [("a", "b")])


def test_the_callback_names_a_run_and_records_how_it_ended():
    guard = Guard()
    with_callback(two_in_a_row(), guard, name="pair").invoke(EMPTY)
    assert guard.last.name == "pair"
    with_callback(two_in_a_row().copy({"name": "duo"}), guard).invoke(EMPTY)
    assert (guard.last.name, guard.last.report().terminal_status) == ("duo", "done_success")

    def broken(state: object) -> object:
        raise ZeroDivisionError("by zero")

    with pytest.raises(ZeroDivisionError):
        with_callback(node_that(broken), guard).invoke(EMPTY)
    assert guard.last.stop.reason.startswith("ZeroDivisionError")
    with_callback(asking(), guard).invoke(EMPTY, thread())
    assert guard.last.report().terminal_status == "done_success", "a pause is no failure"
    stream = with_callback(two_in_a_row(), guard).stream(EMPTY)
    next(stream)
    stream.close()
    assert guard.last.stop.reason == "the stream was left before its end"


FORMS = {
    "guarded": lambda agent, guard: guarded(agent, guard),
    "callback": with_callback,
    "middleware": lambda agent, guard: agent,
}


def calls_of(team, *args):
    yield lambda: team.invoke(*args)
    yield lambda: asyncio.run(team.ainvoke(*args))


@pytest.mark.parametrize("form", FORMS)
def test_a_model_of_an_agent_with_the_middleware_is_told_before_it_is_stopped(form):
    for number in range(2):
        till, model, guard = Till(), endless_model(), Guard()
        team = FORMS[form](paying_agent(till, model, guard.middleware()), guard)
        with pytest.raises(NoProgress) as caught:
            list(calls_of(team, INPUT, thread()))[number]()
        assert caught.value.stop.rule == "no_change"
        assert caught.value.stop.agent == "clerk"
        assert len(caught.value.partial["messages"]) == 1 + 2 * len(till.payments)
        assert guard.last.name == "clerk"
        assert guard.last.report().usage.tokens == 2 * len(model.requests)
        [nudge] = model.nudges
        assert "no_change" in nudge
        assert handoffs(guard) == []


@pytest.mark.parametrize("form", FORMS)
def test_no_model_is_called_once_a_shared_budget_is_spent(form):
    guard = Guard(budgets=[Budget("support", per="day", tokens=10)])
    with pytest.raises(BudgetSpent), guard.run("before") as run:
        run.result("a", usage={"tokens": 11})
    till, model = Till(), endless_model()
    middleware = [guard.middleware()] if form == "middleware" else []
    team = FORMS[form](paying_agent(till, model, *middleware), guard)
    for call in calls_of(team, INPUT, thread()):
        with pytest.raises(BudgetSpent):
            call()
    assert (model.requests, till.payments) == ([], [])


def test_an_agent_with_the_middleware_that_ends_is_on_record_as_done_and_told_nothing():
    till, guard = Till(), Guard()
    model = model_of(asks(tool_call(1, 5)), asks(tool_call(2, 6)), AIMessage("done"))
    agent = paying_agent(till, model, guard.middleware())
    assert agent.invoke(INPUT, thread())["messages"][-1].content == "done"
    assert (till.payments, model.nudges) == ([5, 6], [])
    assert guard.last.report().terminal_status == "done_success"
    assert guard.last.report().usage.tokens == 4
    assert "handrail_call" not in agent.get_state(thread()).values


def boss_with(worker, *middleware):
    @tool
    def ask(task: str) -> str:
        """Asks the worker."""
        return worker.invoke({"messages": [("user", task)]}, thread("2"))["messages"][-1].content

    class Desk:
        tool = ask

    model = model_of(
        asks({"name": "ask", "args": {"task": "pay"}, "id": "1"}), AIMessage("thank you")
    )
    return paying_agent(Desk, model, *middleware, name="boss")


def test_an_agent_that_a_tool_calls_is_a_part_of_the_run():
    till, inner_guard, guard = Till(), Guard(), Guard()
    model = model_of(asks(tool_call(1)), AIMessage("paid"))
    worker = paying_agent(till, model, inner_guard.middleware())
    boss = boss_with(worker, guard.middleware())
    assert boss.invoke(INPUT, thread())["messages"][-1].content == "thank you"
    assert inner_guard.last is None
    assert handoffs(guard) == [("boss", "clerk")]
    assert guard.last.report().terminal_status == "done_success"


def test_a_run_whose_end_a_middleware_does_not_see_is_on_record_as_failed():
    guard = Guard()

    class BrokenModel(type(endless_model())):
        def _generate(self, *args, **options):
            raise ZeroDivisionError("by zero")

    with pytest.raises(ZeroDivisionError):
        paying_agent(Till(), BrokenModel(), guard.middleware()).invoke(INPUT, thread())
    gc.collect()
    assert guard.last.stop.reason.startswith("the agent paused, or failed")


@pytest.mark.parametrize("form", ["guarded", "callback"])
def test_a_middleware_of_langchains_own_is_no_agent(form):
    guard, till = Guard(), Till()
    team = FORMS[form](gated_agent(till, 5), guard)
    assert "__interrupt__" in team.invoke(INPUT, thread())
    assert handoffs(guard) == []
    assert guard.last.report().totals.steps <= 1
