"""A framework's pause for a person is a question in the inbox; the answer lets it go on."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from benchmarks.same_mistake import openai_agents, strands
from benchmarks.same_mistake.scenes import SCENES, Script
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import interrupt
from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from strands import Agent as StrandsAgent
from strands import tool as strands_tool
from strands.hooks import BeforeToolCallEvent
from strands.multiagent import Swarm
from tests.client.serving import Server
from tests.frameworks.test_langgraph import State
from tests.patience import PATIENCE

from agents import Agent as OpenAiAgent
from agents import ModelResponse as OpenAiResponse
from agents import Usage, function_tool
from handrail import Guard, Stopped
from handrail.client.clients import Client
from handrail.guard import langgraph as guard_langgraph
from handrail.guard import live
from handrail.guard import pydantic_ai as guard_pydantic_ai

PAUSE = 0.05


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Server]:
    database = f"sqlite:///{tmp_path_factory.mktemp('server') / 'work.db'}"
    with Server(database) as one:
        yield one


@pytest.fixture
def guard(server: Server, monkeypatch) -> Guard:
    monkeypatch.setattr(live, "END_SECONDS", PATIENCE)
    token = server.token("operator", "program")
    return Guard(record=server.url, token=token, answer_seconds=3 * PATIENCE)


@contextmanager
def somebody(server: Server, *answers: str) -> Iterator[list[str]]:
    """Answers what is asked, in turn: by a text, or by a button for `approve` and `reject`. What
    was asked is in the list."""
    asked: list[str] = []
    token, over = server.token("ceo", "ann"), threading.Event()

    def answer() -> None:
        with Client(server.url, token) as client:
            left = list(answers)
            while left and not over.wait(PAUSE):
                for one in client.approvals(status="open").items:
                    said = left.pop(0)
                    asked.append(one.question)
                    if said in ("approve", "reject"):
                        client.answer(one.id, decision=said)
                    else:
                        client.answer(one.id, said)

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        yield asked
    finally:
        over.set()
        thread.join(PATIENCE)


def asking_graph():
    graph = StateGraph(State)
    graph.add_node("ask", lambda state: {"seen": [interrupt("may I?")]})
    graph.add_node("more", lambda state: {"seen": [interrupt("and this?")]})
    graph.add_edge(START, "ask")
    graph.add_edge("ask", "more")
    return graph.compile(checkpointer=InMemorySaver())


THREAD = {"configurable": {"thread_id": "1"}}


def test_an_interrupt_of_langgraph_is_resumed_with_what_a_person_says(server, guard):
    team = guard_langgraph.guarded(asking_graph(), guard, name="asking graph")
    with somebody(server, "only today", "approve") as asked:
        assert team.invoke({"seen": []}, THREAD) == {"seen": ["only today", True]}
    assert asked == ["may I?", "and this?"]
    assert guard.last.report().terminal_status == "done_success"
    assert guard.last.unrecorded == 0


def test_it_is_so_in_an_event_loop_too(server, guard):
    team = guard_langgraph.guarded(asking_graph(), guard, name="asking graph")
    with somebody(server, "yes", "no, wait for Bob"):
        result = asyncio.run(team.ainvoke({"seen": []}, THREAD))
    assert result == {"seen": ["yes", "no, wait for Bob"]}


def test_a_rejection_closes_the_run_and_nobody_in_time_ends_it(server, guard):
    with somebody(server, "reject"), pytest.raises(Stopped) as caught:
        guard_langgraph.guarded(asking_graph(), guard, name="no").invoke({"seen": []}, THREAD)
    assert caught.value.stop.rule == "closed"
    assert caught.value.partial["__interrupt__"][0].value == "may I?"
    late = Guard(record=server.url, token=guard.token, answer_seconds=0.2)
    with pytest.raises(Stopped) as caught:
        guard_langgraph.guarded(asking_graph(), late, name="no").invoke({"seen": []}, THREAD)
    assert caught.value.stop.rule == "human_deadline"


class CallsOnce(openai_agents.Stub):
    """A model that calls a tool, and then says what came of it."""

    async def get_response(self, **given):
        said = [one for one in given["input"] if one.get("type") == "function_call_output"]
        results = [one["output"] for one in said]
        if results:
            output = openai_agents.said(results[-1])
        else:
            output = openai_agents.call(self.script, "pay", {"euros": 5})
        return OpenAiResponse(output=[output], usage=Usage(requests=1), response_id=None)


@pytest.mark.parametrize(
    ("said", "result"), [("approve", "5 paid"), ("not on a Sunday", "not on a Sunday")]
)
def test_a_tool_of_openai_agents_runs_if_a_person_allows_it(server, guard, said, result):
    @function_tool(needs_approval=True)
    def pay(euros: int) -> str:
        """Pays."""
        return f"{euros} paid"

    agent = OpenAiAgent(name="clerk", model=CallsOnce(Script(SCENES[0]), "clerk"), tools=[pay])
    with somebody(server, said) as asked:
        ended = asyncio.run(openai_agents.adapter.guarded(agent, guard).run("pay it"))
    assert ended.final_output == result
    assert asked == ['clerk wants to call pay({"euros": 5})']


@pytest.mark.parametrize(("said", "result"), [("ok", "5 paid"), ("not today", "not today")])
def test_a_tool_of_pydantic_ai_runs_if_a_person_allows_it(server, guard, said, result):
    def answer(messages, info) -> ModelResponse:
        found = [part.content for part in messages[-1].parts if part.part_kind == "tool-return"]
        part = TextPart(found[0]) if found else ToolCallPart("pay", {"euros": 5})
        return ModelResponse(parts=[part])

    agent = Agent(FunctionModel(answer), name="clerk", output_type=[str, DeferredToolRequests])

    @agent.tool_plain(requires_approval=True)
    def pay(euros: int) -> str:
        return f"{euros} paid"

    with somebody(server, said) as asked:
        ended = guard_pydantic_ai.guarded(agent, guard).run_sync("pay it")
    assert ended.output == result
    assert asked == ['clerk wants to call pay({"euros":5})']


class SavesOnce(strands.Stub):
    """A model that calls a tool once, and is done."""

    async def stream(self, messages, *given, **more):
        done = "toolResult" in messages[-1]["content"][0]
        yield {"messageStart": {"role": "assistant"}}
        use = {} if done else {"toolUse": {"name": "save", "toolUseId": "t1"}}
        said = {"text": "ok"} if done else {"toolUse": {"input": '{"section": 1}'}}
        yield {"contentBlockStart": {"start": use}}
        yield {"contentBlockDelta": {"delta": said}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn" if done else "tool_use"}}


def test_an_interrupt_of_strands_is_resumed_with_what_a_person_says(server, guard):
    heard = []

    @strands_tool
    def save(section: int) -> str:
        """Saves a section."""
        return f"section {section} is saved"

    def approve(event: BeforeToolCallEvent) -> None:
        if event.tool_use["name"] == "save":
            heard.append(event.interrupt("approval", reason="may it be saved?"))

    model = SavesOnce(Script(SCENES[0]), "writer")
    writer = StrandsAgent(name="writer", model=model, tools=[save], callback_handler=None)
    writer.hooks.add_callback(BeforeToolCallEvent, approve)
    with somebody(server, "this once") as asked:
        result = strands.adapter.guarded(Swarm([writer]), guard)("write")
    assert asked == ["approval: may it be saved?"]
    assert heard == ["this once"]
    assert result.status.value == "completed"
