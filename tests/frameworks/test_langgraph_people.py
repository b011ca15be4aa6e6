"""People in the loop of a graph: interrupts and LangChain's approvals, answered by a function or
through the inbox of a server, in every way that a graph is called.
"""

import asyncio
import json
from collections.abc import Iterator
from typing import TypedDict

import pytest
from langchain_core.messages import ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt
from pydantic import BaseModel
from tests.client.live_server import Server
from tests.frameworks.langgraph_agents import INPUT, Till, gated_agent, thread
from tests.frameworks.test_langgraph import Chat, State, asking
from tests.frameworks.test_people import somebody
from tests.patience import PATIENCE

from handrail import Guard, Stopped
from handrail.guard import server_recorder
from handrail.guard.langgraph import guarded

QUESTION = (
    'clerk wants to call pay({"euros":5})\n'
    "Answer with a yes to run it, or a JSON object of other arguments, or the reason why it must "
    "not run, or what to say in its place."
)


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Server]:
    database = f"sqlite:///{tmp_path_factory.mktemp('server') / 'work.db'}"
    with Server(database) as one:
        yield one


@pytest.fixture
def guard(server: Server, monkeypatch) -> Guard:
    monkeypatch.setattr(server_recorder, "FLUSH_SECONDS", PATIENCE)
    token = server.token("operator", "program")
    return Guard(record=server.url, token=token, answer_seconds=3 * PATIENCE)


def invoke(graph, given, config):
    return graph.invoke(given, config)


def ainvoke(graph, given, config):
    return asyncio.run(graph.ainvoke(given, config))


def invoke_v2(graph, given, config):
    return graph.invoke(given, config, version="v2").value


def stream(graph, given, config):
    for _ in graph.stream(given, config, stream_mode="messages"):
        pass
    return graph.get_state(config).values


def astream(graph, given, config):
    async def run():
        async for _ in graph.astream(given, config, version="v2"):
            pass

    asyncio.run(run())
    return graph.get_state(config).values


def astream_events(graph, given, config):
    async def run():
        async for _ in graph.astream_events(given, config, version="v2"):
            pass

    asyncio.run(run())
    return graph.get_state(config).values


def stream_events_v3(graph, given, config):
    return graph.stream_events(given, config, version="v3").output


CALLS = [invoke, ainvoke, invoke_v2, stream, astream, astream_events, stream_events_v3]


def tool_texts(result) -> list[str]:
    return [m.content for m in result["messages"] if isinstance(m, ToolMessage)]


@pytest.mark.filterwarnings("ignore:The v3 streaming protocol")
@pytest.mark.parametrize("call", CALLS)
def test_an_approved_tool_runs_exactly_once_however_the_agent_is_called(call):
    till, questions = Till(), []

    def answer(question: object) -> bool:
        questions.append(question)
        return True

    result = call(guarded(gated_agent(till, 5), answer=answer), INPUT, thread())
    assert till.payments == [5]
    assert questions == [QUESTION]
    assert result["messages"][-1].content == "well then"


ANSWERS = [
    ("yes", [5], "5 paid"),
    ("reject", [], "User rejected"),
    ("not on a Sunday", [], "not on a Sunday"),
    ('{"euros": 3}', [3], "3 paid"),
    ('{"name": "pay", "args": {"euros": 4}}', [4], "4 paid"),
    ('{"type": "respond", "message": "it was paid before"}', [], "it was paid before"),
]


@pytest.mark.parametrize("mode", ["batched", "per_call"])
@pytest.mark.parametrize(("said", "payments", "text"), ANSWERS)
def test_an_answer_approves_rejects_edits_or_responds(mode, said, payments, text):
    for answer in (said, json.loads(said) if said.startswith("{") else said):
        till = Till()
        team = guarded(gated_agent(till, 5, mode=mode), answer=lambda _, answer=answer: answer)
        result = team.invoke(INPUT, thread())
        assert till.payments == payments
        assert text in tool_texts(result)[0]


@pytest.mark.parametrize("mode", ["batched", "per_call"])
@pytest.mark.parametrize("said", ANSWERS)
def test_a_person_in_the_inbox_does_the_same(server, guard, mode, said):
    typed, payments, text = said
    if typed == "reject":
        return  # it closes the run
    till, clicked = Till(), "approve" if typed == "yes" else typed
    with somebody(server, clicked) as asked:
        result = guarded(gated_agent(till, 5, mode=mode), guard).invoke(INPUT, thread())
    assert asked == [QUESTION]
    assert till.payments == payments
    assert text in tool_texts(result)[0]
    assert guard.last.report().terminal_status == "done_success"
    assert guard.last.unrecorded == 0


@pytest.mark.filterwarnings("ignore:The v3 streaming protocol")
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    ("said", "payments", "text"),
    [
        ("choose approve", [5], "5 paid"),
        ("choose reject", [], "User rejected"),
        ('{"euros": 3}', [3], "3 paid"),
    ],
)
def test_a_choice_in_the_inbox_lets_the_tool_run_once_or_not_at_all(
    server, guard, call, said, payments, text
):
    till = Till()
    with somebody(server, said) as asked:
        result = call(guarded(gated_agent(till, 5), guard), INPUT, thread())
    assert len(asked) == 1
    assert till.payments == payments
    assert text in tool_texts(result)[0]


def test_a_person_who_rejects_in_the_inbox_closes_the_run_and_nothing_is_paid(server, guard):
    till = Till()
    with somebody(server, "reject"), pytest.raises(Stopped) as caught:
        guarded(gated_agent(till, 5), guard).invoke(INPUT, thread())
    assert caught.value.stop.rule == "closed"
    assert till.payments == []


@pytest.mark.parametrize("mode", ["batched", "per_call"])
def test_each_of_several_actions_is_a_question_of_its_own(server, guard, mode):
    till = Till()
    answers = [
        ('"euros":5}', "approve"),
        ('"euros":600}', "too much"),
        ('"euros":7}', '{"euros": 3}'),
    ]
    with somebody(server, *answers) as asked:  # calls beside each other ask in any order
        result = asyncio.run(
            guarded(gated_agent(till, 5, 600, 7, mode=mode), guard).ainvoke(INPUT, thread())
        )
    assert len(asked) == 3
    assert sorted(till.payments) == [3, 5]
    assert "too much" in " ".join(tool_texts(result))


def test_an_answer_may_be_langchains_own_for_all_actions():
    till, decisions = Till(), [{"type": "approve"}, {"type": "reject", "message": "no"}]
    team = guarded(gated_agent(till, 5, 6), answer=lambda _: {"decisions": decisions})
    team.invoke(INPUT, thread())
    assert till.payments == [5]


@pytest.mark.parametrize("call", CALLS[:2])
def test_an_answer_may_be_asynchronous_and_know_the_call(call):
    till = Till()

    async def answer(question) -> object:
        await asyncio.sleep(0)
        return {"euros": question.args["euros"] + 1} if question.name == "pay" else False

    call(guarded(gated_agent(till, 5), answer=answer), INPUT, thread())
    assert till.payments == [6]


def test_a_decision_that_is_not_allowed_is_asked_for_again(server, guard):
    till, allowed = Till(), {"allowed_decisions": ["approve", "reject"]}
    with somebody(server, '{"euros": 3}', "yes") as asked:
        guarded(gated_agent(till, 5, allowed=allowed), guard).invoke(INPUT, thread())
    assert till.payments == [5]
    assert asked[1] == (
        "'edit' is not allowed here. "
        'clerk wants to call pay({"euros":5})\n'
        "Answer with a yes to run it, or the reason why it must not run."
    )
    with pytest.raises(ValueError, match="has to mean one of: approve, reject"):
        guarded(gated_agent(till, 5, allowed=allowed), answer=lambda _: {"euros": 3}).invoke(
            INPUT, thread()
        )


def test_a_tool_that_a_person_answers_for_gets_the_text():
    till, allowed = Till(), {"allowed_decisions": ["respond"]}
    for said in ("yes", "it is 42"):
        team = guarded(gated_agent(till, 5, allowed=allowed), answer=lambda _, said=said: said)
        assert tool_texts(team.invoke(INPUT, thread())) == [said]
    assert till.payments == []


def test_an_answer_that_does_not_fit_the_tool_is_asked_for_again(server, guard):
    till = Till()
    with somebody(server, '{"euros": "many"}', '{"euros": 3}') as asked:
        guarded(gated_agent(till, 5, mode="per_call"), guard).invoke(INPUT, thread())
    assert till.payments == [3]
    assert "does not fit" in asked[1]


def test_a_description_of_the_programs_own_is_a_part_of_the_question():
    allowed = {"allowed_decisions": ["approve"], "description": "Only below 10 euros."}
    questions: list[str] = []
    team = guarded(gated_agent(Till(), 5, allowed=allowed), answer=questions.append)
    with pytest.raises(ValueError, match="None"):
        team.invoke(INPUT, thread())
    assert questions[0].splitlines()[1:] == [
        "Only below 10 euros.",
        "Answer with a yes to run it.",
    ]


def two_questions():
    """Two nodes beside each other that ask a person each."""
    graph = StateGraph(State)
    for name in ("a", "b"):
        graph.add_node(name, lambda state, name=name: {"seen": [f"{name}: {interrupt(name)}"]})
        graph.add_edge(START, name)
    return graph.compile(checkpointer=InMemorySaver())


@pytest.mark.parametrize("call", CALLS[:5])
def test_several_interrupts_at_once_are_each_answered(call):
    team = guarded(two_questions(), answer=lambda question: question.upper())
    assert sorted(call(team, {"seen": []}, thread())["seen"]) == ["a: A", "b: B"]


@pytest.mark.parametrize(
    ("said", "heard"),
    [
        ("approve", True),
        ("only today", "only today"),
        ('{"days": 2}', {"days": 2}),
        ('{"days": ', '{"days": '),
    ],
)
def test_an_interrupt_is_answered_with_an_object_a_text_or_a_yes(server, guard, said, heard):
    with somebody(server, said):
        result = guarded(asking(), guard).invoke({"seen": []}, thread())
    assert result["seen"] == [heard]


@pytest.mark.parametrize("call", [stream, astream, astream_events, invoke_v2])
def test_people_are_asked_in_streams_and_by_every_version(server, guard, call):
    with somebody(server, "only today") as asked:
        assert call(guarded(asking(), guard), {"seen": []}, thread())["seen"] == ["only today"]
    assert asked == ["may I?"]
    assert guard.last.report().terminal_status == "done_success"


def test_what_an_answer_function_returns_for_an_interrupt_is_passed_on_as_it_is():
    for value in (None, False, '{"days": 2}', ["a"]):
        team = guarded(asking(), answer=lambda _, value=value: value)
        assert team.invoke({"seen": []}, thread())["seen"] == [value]


def test_an_answer_that_does_not_fit_the_schema_of_an_interrupt_is_asked_for_again(server, guard):
    class Days(BaseModel):
        days: int

    graph = StateGraph(TypedDict("Heard", {"heard": object}))
    graph.add_node("ask", lambda _: {"heard": interrupt("how long?", response_schema=Days)})
    graph.add_edge(START, "ask")
    with somebody(server, "long", '{"days": 2}') as asked:
        result = guarded(graph.compile(checkpointer=InMemorySaver()), guard).invoke({}, thread())
    assert result["heard"] == Days(days=2)
    assert asked[0] == "how long?"
    assert "does not fit" in asked[1]


def test_the_interrupts_of_a_graph_inside_are_those_of_the_graph_outside():
    till, guard = Till(), Guard()
    inner = guarded(gated_agent(till, 5).copy({"checkpointer": None}), guard, answer=lambda _: True)
    whole = StateGraph(Chat)
    whole.add_node("team", inner)
    whole.add_edge(START, "team")
    app = whole.compile(checkpointer=InMemorySaver())
    assert "__interrupt__" in app.invoke(INPUT, thread())
    assert guard.last.report().terminal_status == "done_success", "a pause is no failure"
    assert till.payments == []
    decisions = {"decisions": [{"type": "approve"}]}
    app.invoke(Command(resume=decisions), thread())
    assert till.payments == [5]
