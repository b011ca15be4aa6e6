"""A guarded graph is still the graph: its type, its attributes, and every way to call it."""

import asyncio
from contextlib import aclosing

import pytest
from langchain_core.runnables import Runnable, RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import RetryPolicy
from tests.frameworks.test_langgraph import State, asking, handoffs, ping_pong, two_in_a_row

from handrail import Guard, LoopDetected, StopRules
from handrail.guard.langgraph import guarded

EMPTY = {"seen": []}
FEW = {"recursion_limit": 60}


def thread(name: str = "1") -> dict:
    return {"configurable": {"thread_id": name}}


def test_a_guarded_graph_has_the_type_and_the_attributes_of_the_graph():
    graph = two_in_a_row()
    team = guarded(graph)
    assert isinstance(team, type(graph))
    assert isinstance(team, Runnable)
    assert set(dir(graph)) <= set(dir(team))
    assert team.nodes is graph.nodes
    assert team.get_graph().draw_mermaid() == graph.get_graph().draw_mermaid()
    team.checkpointer = saver = InMemorySaver()
    assert graph.checkpointer is saver


def drawn(stream) -> list:
    return list(stream)


def drawn_async(stream) -> list:
    async def run():
        return [piece async for piece in stream]

    return asyncio.run(run())


def log_of(team) -> list:
    return drawn_async(team.astream_log(EMPTY, FEW))


CALLS = {
    "invoke": lambda team: team.invoke(EMPTY, FEW),
    "invoke by names": lambda team: team.invoke(input=EMPTY, config=FEW),
    "invoke v2": lambda team: team.invoke(EMPTY, FEW, version="v2").value,
    "ainvoke": lambda team: asyncio.run(team.ainvoke(input=EMPTY, config=FEW)),
    "ainvoke v2": lambda team: asyncio.run(team.ainvoke(EMPTY, FEW, version="v2")).value,
    "batch": lambda team: team.batch([EMPTY, EMPTY], FEW),
    "abatch": lambda team: asyncio.run(team.abatch([EMPTY, EMPTY], FEW)),
    "stream": lambda team: drawn(team.stream(input=EMPTY, config=FEW)),
    "stream modes": lambda team: drawn(
        team.stream(EMPTY, FEW, stream_mode=["updates", "values"], subgraphs=True)
    ),
    "stream v2": lambda team: drawn(team.stream(EMPTY, FEW, version="v2")),
    "astream": lambda team: drawn_async(team.astream(input=EMPTY, config=FEW)),
    "astream v2": lambda team: drawn_async(team.astream(EMPTY, FEW, version="v2")),
    "astream_events": lambda team: [
        event["event"] for event in drawn_async(team.astream_events(EMPTY, FEW, version="v2"))
    ],
    "astream_log": lambda team: len(log_of(team)),
    "stream_events v3": lambda team: team.stream_events(EMPTY, FEW, version="v3").output,
    "transform": lambda team: drawn(team.transform(iter([EMPTY]), FEW)),
    "pipe": lambda team: (RunnableLambda(lambda given: given) | team).invoke(EMPTY, FEW),
    "with_config": lambda team: team.with_config(tags=["a"]).invoke(EMPTY, FEW),
    "with_retry": lambda team: team.with_retry(stop_after_attempt=2).invoke(EMPTY, FEW),
    "bind": lambda team: team.bind(stream_mode="updates").invoke(EMPTY, FEW),
}


@pytest.mark.filterwarnings("ignore:The v3 streaming protocol", "ignore:astream_log")
@pytest.mark.parametrize("name", CALLS)
def test_every_call_returns_what_the_graph_returns_and_is_stopped(name):
    call, guard = CALLS[name], Guard()
    assert call(guarded(two_in_a_row(), guard)) == call(two_in_a_row())
    assert guard.last.report().terminal_status == "done_success"
    assert handoffs(guard) == [("a", "b")]
    with pytest.raises(LoopDetected):
        call(guarded(ping_pong(), Guard()))


def test_the_state_of_a_guarded_graph_is_read_written_and_gone_back_to():
    team = guarded(asking())
    team.invoke(EMPTY, thread())
    assert team.get_state(thread()).next == ("ask",)
    team.update_state(thread(), {"seen": ["told"]}, as_node="ask")
    assert team.get_state(thread()).values == {"seen": ["told"]}
    first = list(team.get_state_history(thread()))[-1]
    assert team.invoke(None, first.config)["__interrupt__"][0].value == "may I?"


def outer_of(inner, **options):
    graph = StateGraph(State)
    graph.add_node("team", inner, **options)
    graph.add_edge(START, "team")
    return graph.compile()


def test_a_guarded_graph_is_a_subgraph():
    guard = Guard()
    app = outer_of(guarded(two_in_a_row(), guard, name="pair"))
    assert [name for name, _ in app.get_subgraphs()] == ["team"]
    assert "team\\3aa" in app.get_graph(xray=True).draw_mermaid()
    pieces = list(app.stream(EMPTY, stream_mode="updates", subgraphs=True))
    assert [path != () for path, _ in pieces] == [True, True, False]
    assert guard.last.name == "pair"


def test_a_stop_in_a_subgraph_is_neither_retried_nor_taken_for_an_error_of_a_tool():
    runs, guard = [], Guard()
    inner = ping_pong()

    class Counts(Guard):
        def run(self, *args, **options):
            runs.append(1)
            return guard.run(*args, **options)

    policy = RetryPolicy(max_attempts=3, initial_interval=0.001, retry_on=Exception)
    with pytest.raises(LoopDetected) as caught:
        outer_of(guarded(inner, Counts()), retry_policy=policy).invoke(EMPTY, FEW)
    assert len(runs) == 1
    assert caught.value.partial == {"seen": ["a", "b", "a", "b", "a", "b"]}


@pytest.mark.parametrize("as_node", [True, False])
def test_a_guarded_graph_inside_a_guarded_graph_is_a_part_of_its_run(as_node):
    inner_guard, outer_guard = Guard(StopRules(max_handoffs=0)), Guard()
    inner = guarded(two_in_a_row(), inner_guard)
    app = outer_of(inner if as_node else lambda state: inner.invoke(state))
    assert guarded(app, outer_guard).invoke(EMPTY)["seen"] == ["a", "b"]
    assert inner_guard.last is None
    assert handoffs(outer_guard) == [("team", "team/a"), ("team/a", "team/b")]


def test_what_a_graph_leaves_running_is_no_part_of_its_run():
    calls, guard = [], Guard()
    inner = guarded(two_in_a_row(), guard)

    async def run() -> None:
        over = asyncio.Event()

        async def later() -> None:
            await over.wait()
            calls.append(await inner.ainvoke(EMPTY))

        async def work(state: State) -> State:
            tasks.append(asyncio.create_task(later()))
            return {"seen": ["done"]}

        tasks: list[asyncio.Task] = []
        await guarded(outer_of(work), Guard(StopRules(max_steps=1))).ainvoke(EMPTY)
        over.set()
        await tasks[0]

    asyncio.run(run())
    assert calls == [{"seen": ["a", "b"]}]
    assert handoffs(guard) == [("a", "b")], "a run of its own"


def test_a_stream_that_is_left_early_cancels_its_nodes_before_it_returns():
    async def run() -> list[str]:
        seen: list[str] = []
        started = asyncio.Event()

        async def slow(state: State) -> State:
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                seen.append("cancelled")
            return state

        graph = StateGraph(State)
        graph.add_node("slow", slow)
        graph.add_node("fast", lambda state: {"seen": ["fast"]})
        graph.add_edge(START, "slow")
        graph.add_edge(START, "fast")
        async with aclosing(guarded(graph.compile()).astream(EMPTY)) as stream:
            async for _ in stream:
                await started.wait()
                break
        seen.append("left")
        return seen

    assert asyncio.run(run()) == ["cancelled", "left"]


def test_a_stream_starts_when_the_graphs_own_does():
    guard = Guard()
    stream = guarded(two_in_a_row(), guard).stream(EMPTY)
    assert guard.last is None
    next(stream)
    assert guard.last.stop is None
    stream.close()
    assert guard.last.stop.reason == "the stream was left before its end"


def test_an_error_of_the_graph_is_raised_as_it_is_and_when_it_is():
    bare, team = asking(), guarded(asking())
    for graph in (bare, team):
        with pytest.raises(ValueError, match="Checkpointer requires"):
            graph.invoke(EMPTY)


def test_a_run_is_called_as_the_graph_or_as_its_runs_are_in_traces():
    def name_of(graph) -> str:
        guard = Guard()
        guarded(graph, guard).invoke(EMPTY)
        return guard.last.name

    graph = two_in_a_row()
    assert name_of(graph) == "LangGraph"
    assert name_of(graph.with_config(run_name="refunds")) == "refunds"
    assert name_of(graph.copy({"name": "claims"})) == "claims"
