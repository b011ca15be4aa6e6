"""A framework's pause for a person is a question in the inbox; the answer lets it go on."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from agent_framework import Agent as MicrosoftAgent
from agent_framework import (
    FunctionTool,
    InMemoryCheckpointStorage,
    WorkflowBuilder,
    WorkflowExecutor,
)
from agent_framework import tool as microsoft_tool
from autogen_agentchat.agents import BaseChatAgent, UserProxyAgent
from autogen_agentchat.base import Response
from autogen_agentchat.conditions import TextMentionTermination
from autogen_agentchat.messages import TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat
from benchmarks.same_mistake import autogen, openai_agents, strands
from benchmarks.same_mistake.scenes import SCENES, Script
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import interrupt
from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import DeltaToolCall, FunctionModel
from strands import Agent as StrandsAgent
from strands import tool as strands_tool
from strands.hooks import BeforeToolCallEvent
from strands.multiagent import Swarm
from tests.client.live_server import Server
from tests.frameworks.agent_framework_stubs import Asks, Model, checks, nodes
from tests.frameworks.agent_framework_stubs import calls as microsoft_calls
from tests.frameworks.test_langgraph import State
from tests.frameworks.test_openai_agents_approvals import Team
from tests.patience import PATIENCE

from agents import Agent as OpenAiAgent
from agents import ModelResponse as OpenAiResponse
from agents import Usage, function_tool
from handrail import Guard, Stopped
from handrail.client.clients import Client
from handrail.guard import agent_framework as guard_agent_framework
from handrail.guard import langgraph as guard_langgraph
from handrail.guard import pydantic_ai as guard_pydantic_ai
from handrail.guard import server_recorder

PAUSE = 0.05


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


@contextmanager
def somebody(server: Server, *answers: str | tuple[str, str]) -> Iterator[list[str]]:
    """Answers what is asked: by a text, by a decision for `approve` and `reject`, or by a choice
    that is offered (`choose reject`), as the page's buttons do; in turn, or the question that has
    this text. What was asked is in the list."""
    asked: list[str] = []
    token, over = server.token("ceo", "ann"), threading.Event()

    def answer() -> None:
        with Client(server.url, token) as client:
            left = list(answers)
            while left and not over.wait(PAUSE):
                for one in client.approvals.list(status="open").items:
                    chosen = next(a for a in left if type(a) is str or a[0] in one.question)
                    left.remove(chosen)
                    said = chosen if type(chosen) is str else chosen[1]
                    asked.append(one.question)
                    if said.startswith("choose "):
                        choice = said.removeprefix("choose ")
                        assert choice in one.options
                        client.approvals.answer(one.id, choice)
                    elif said in ("approve", "reject"):
                        client.approvals.answer(one.id, decision=said)
                    else:
                        client.approvals.answer(one.id, said)

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


def run_streamed(agent: Any, text: str) -> Any:
    async def stream() -> Any:
        result = agent.run_streamed(text)
        async for _ in result.stream_events():
            pass
        return result

    return asyncio.run(stream())


SDK_CALLS = {
    "run": lambda agent, text: asyncio.run(agent.run(text)),
    "run_sync": lambda agent, text: agent.run_sync(text),
    "run_streamed": run_streamed,
}


@pytest.mark.parametrize("call", SDK_CALLS.values(), ids=SDK_CALLS)
@pytest.mark.parametrize("depth", [0, 1], ids=["plain", "inside an agent that is a tool"])
@pytest.mark.parametrize(("choice", "payments"), [("approve", [5]), ("reject", [])])
def test_a_choice_in_the_inbox_lets_a_tool_of_openai_agents_run_once_or_not_at_all(
    server, guard, call, depth, choice, payments
):
    team = Team(depth=depth)
    with somebody(server, f"choose {choice}") as questions:
        result = call(openai_agents.adapter.guarded(team.agents[0], guard), "go")
    assert len(questions) == 1
    assert team.payments == payments
    assert ("payment 1 of 5" in result.final_output) == bool(payments)
    assert guard.last.report().terminal_status == "done_success"


@pytest.mark.parametrize("shape", [{}, {"depth": 2}, {"parallel": 2}])
def test_a_person_in_the_inbox_lets_a_nested_tool_pay_exactly_once(server, guard, shape):
    team, times = Team(**shape), shape.get("parallel", 1)
    with somebody(server, *["approve"] * times) as questions:
        result = asyncio.run(openai_agents.adapter.guarded(team.agents[0], guard).run("go"))
    payer = team.agents[-1].name
    assert questions == [f'{payer} wants to call pay({{"euros": 5}})'] * times
    assert team.payments == [5] * times
    assert result.final_output == " and ".join(f"payment {n + 1} of 5" for n in range(times))
    assert guard.last.report().usage.tokens == result.context_wrapper.usage.total_tokens


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


@pytest.mark.parametrize("streamed", [False, True])
def test_a_pydantic_agent_asks_inside_its_run_and_each_tool_runs_once(server, guard, streamed):
    calls = iter([ToolCallPart("pay", {"euros": 5}, "a"), ToolCallPart("pay", {"euros": 7}, "b")])

    def answer(messages, info) -> ModelResponse:
        return ModelResponse(list(calls) or [TextPart("paid")])

    async def stream(messages, info):
        response = answer(messages, info)
        for index, part in enumerate(response.parts):
            yield (
                part.content
                if isinstance(part, TextPart)
                else {index: DeltaToolCall(part.tool_name, part.args_as_json_str())}
            )

    agent = Agent(FunctionModel(answer, stream_function=stream), name="clerk")
    paid = []

    @agent.tool_plain(requires_approval=True)
    def pay(euros: int) -> str:
        paid.append(euros)
        return f"{euros} paid"

    async def run() -> str:
        guarded = guard_pydantic_ai.guarded(agent, guard)
        if not streamed:
            return (await guarded.run("pay both")).output
        async with guarded.run_stream_events("pay both") as events:
            async for _ in events:
                pass
        return events.result.output

    with somebody(server, "ok", "no") as asked:
        assert asyncio.run(run()) == "paid"
    assert paid == [5]
    assert len(asked) == 2


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


def test_a_stream_of_strands_goes_on_after_a_person_s_answer(server, guard):
    saved = []

    @strands_tool
    def save(section: int) -> str:
        """Saves a section."""
        saved.append(section)
        return f"section {section} is saved"

    def approve(event: BeforeToolCallEvent) -> None:
        if event.tool_use["name"] == "save":
            event.interrupt("approval", reason="may it be saved?")

    model = SavesOnce(Script(SCENES[0]), "writer")
    writer = StrandsAgent(name="writer", model=model, tools=[save], callback_handler=None)
    writer.hooks.add_callback(BeforeToolCallEvent, approve)

    async def results() -> list[str]:
        stream = strands.adapter.guarded(writer, guard).stream_async("write")
        return [piece["result"].stop_reason async for piece in stream if "result" in piece]

    with somebody(server, "yes") as asked:
        assert asyncio.run(results()) == ["end_turn"]
    assert asked == ["approval: may it be saved?"]
    assert saved == [1]


class Writer(BaseChatAgent):
    """An agent that wants to know more, until it is told to ship."""

    produced_message_types = (TextMessage,)

    async def on_messages(self, messages, cancellation_token):
        text = "done" if messages[-1].content == "ship it" else "may it be shipped?"
        return Response(chat_message=TextMessage(content=text, source=self.name))

    async def on_reset(self, cancellation_token): ...


def test_a_user_proxy_of_autogen_asks_in_the_inbox_instead_of_the_terminal(server, guard):
    person = UserProxyAgent("person")
    terminal = person.input_func
    ends = TextMentionTermination("done", sources=["writer"])
    team = RoundRobinGroupChat([Writer("writer", "writes"), person], termination_condition=ends)

    async def run() -> list[str]:
        result = await autogen.adapter.guarded(team, guard).run(task="write")
        return [message.content for message in result.messages if message.type == "TextMessage"]

    with somebody(server, "ship it") as asked:
        said = asyncio.run(run())
    assert said == ["write", "may it be shipped?", "ship it", "done"]
    assert asked == ["person is asked: may it be shipped?"]
    assert person.input_func is terminal


def test_nobody_in_time_for_a_user_proxy_of_autogen_ends_the_run(server, guard):
    guard.answer_seconds = 1
    person = UserProxyAgent("person")
    team = RoundRobinGroupChat([Writer("writer", "writes"), person], max_turns=9)
    with pytest.raises(Stopped) as caught:
        asyncio.run(autogen.adapter.guarded(team, guard).run(task="write"))
    assert caught.value.stop.rule == "human_deadline"
    assert len(caught.value.partial.messages) >= 2


def asked_of(guard: Guard | None, executor, name: str = "asking workflow", **options):
    """What comes of a workflow whose executor asks people."""
    team = WorkflowBuilder(start_executor=executor).build()
    ours = guard_agent_framework.guarded(team, guard, name=name)
    return asyncio.run(ours.run("pay it", **options))


@pytest.mark.parametrize(
    ("kind", "said", "heard"),
    [
        (str, "only today", "only today"),
        (str, "approve", "yes"),
        (bool, "approve", True),
        (bool, "yes", True),
        (bool, "not today", False),
    ],
)
def test_a_request_of_agent_framework_is_answered_with_what_a_person_says(
    server, guard, kind, said, heard
):
    clerk = Asks(kind)
    with somebody(server, said) as asked:
        result = asked_of(guard, clerk)
    assert asked == ["may I?"]
    assert clerk.heard == [heard]
    assert result.get_outputs() == [f"heard {heard}"]
    assert guard.last.report().terminal_status == "done_success"
    assert guard.last.unrecorded == 0


def test_people_are_asked_as_often_as_a_workflow_asks_up_to_ten_times(server, guard):
    clerk = Asks(str, times=12)
    with somebody(server, *"abcdefghijkl") as asked:
        result = asked_of(guard, clerk)
    assert clerk.heard == list("abcdefghij")
    assert asked == ["may I?", *["and again?"] * 9]
    assert len(result.get_request_info_events()) == 1


def test_a_request_that_comes_out_of_a_sub_workflow_is_answered_there(server, guard):
    clerk = Asks(str)
    inner = WorkflowBuilder(start_executor=clerk).build()
    outer = WorkflowExecutor(inner, id="team", propagate_request=True, allow_direct_output=True)
    with somebody(server, "fine"):
        assert asked_of(guard, outer).get_outputs() == ["heard fine"]
    assert clerk.heard == ["fine"]


def test_questions_out_of_a_sub_workflow_are_no_loop(server, guard):
    clerk = Asks(str, times=6)
    inner = WorkflowBuilder(start_executor=clerk).build()
    outer = WorkflowExecutor(inner, id="team", propagate_request=True, allow_direct_output=True)
    with somebody(server, *"abcdef"):
        assert asked_of(guard, outer).get_outputs() == ["heard f"]
    assert clerk.heard == list("abcdef")


def test_after_an_answer_agent_framework_goes_on_from_there(server, guard):
    class Hears(Asks):
        async def hear(self, said, context) -> None:
            await context.send_message(said)

    first, second, planner, coder = nodes("first", "second", "planner", "coder")
    clerk = Hears(str)
    builder = WorkflowBuilder(start_executor=first).add_edge(first, second).add_edge(second, clerk)
    builder.add_edge(clerk, planner).add_edge(planner, coder).add_edge(coder, planner)
    ours = guard_agent_framework.guarded(builder.build(), guard, name="a loop after an answer")
    with somebody(server, "go on"), pytest.raises(Stopped) as caught:
        asyncio.run(ours.run("pay it"))
    assert caught.value.stop.pattern == ("planner -> coder", "coder -> planner")
    assert planner.ran + coder.ran == 2 * 3, "also the first of them are counted"


def test_a_checkpoint_that_agent_framework_goes_on_from_is_not_restored_again(server, guard):
    clerk, storage = Asks(str, times=2), InMemoryCheckpointStorage()
    team = WorkflowBuilder(start_executor=clerk, checkpoint_storage=storage).build()

    async def all_of_it():
        await team.run("pay it")
        ours = guard_agent_framework.guarded(team, guard, name="from a checkpoint")
        return await ours.run(checkpoint_id=team.get_last_checkpoint_id())

    with somebody(server, "a", "b"):
        assert asyncio.run(all_of_it()).get_outputs() == ["heard b"]


def test_after_an_answer_agent_framework_has_the_tools_and_the_storage_of_the_call(server, guard):
    done: list[int] = []

    @microsoft_tool(approval_mode="always_require")
    def pay(euros: int) -> str:
        """Pays."""
        done.append(euros)
        return f"{euros} paid"

    model = Model(lambda n: microsoft_calls("pay", {"euros": 5}) if n == 1 else "well then")
    storage = InMemoryCheckpointStorage()
    with somebody(server, "approve"):
        clerk = MicrosoftAgent(model, name="clerk")
        asked_of(guard, clerk, tools=[pay], checkpoint_storage=storage)
    assert done == [5]
    (last,) = [one for one in storage._checkpoints.values() if one.iteration_count == 2]
    assert not last.pending_request_info_events


@pytest.mark.parametrize(
    ("said", "paid"), [("approve", [5]), ("not on a Sunday", []), ("reject", [])]
)
def test_a_tool_of_agent_framework_runs_if_a_person_allows_it(server, guard, said, paid):
    done: list[int] = []

    @microsoft_tool(approval_mode="always_require")
    def pay(euros: int) -> str:
        """Pays."""
        done.append(euros)
        return f"{euros} paid"

    model = Model(lambda n: microsoft_calls("pay", {"euros": 5}) if n == 1 else "well then")
    clerk = MicrosoftAgent(model, name="clerk", tools=[pay])
    with somebody(server, said) as asked:
        if said == "reject":
            with pytest.raises(Stopped) as caught:
                asked_of(guard, clerk)
            assert caught.value.stop.rule == "closed"
            (event,) = caught.value.partial.get_request_info_events()
            assert event.data.function_call.name == "pay"
        else:
            result = asked_of(guard, clerk)
            assert [one.text for one in result.get_outputs()] == ["well then"]
    assert asked == ['clerk wants to call pay({"euros":5})']
    assert done == paid
    assert model.asked == (1 if said == "reject" else 2)
    assert [one for one in checks(guard) if one] == [["pay"]] * len(paid)


def test_what_nobody_can_be_asked_of_is_the_workflow_s_own_result(server, guard):
    for recorded, kind in ((None, str), (guard, int)):
        clerk = Asks(kind)
        team = WorkflowBuilder(start_executor=clerk).build()
        said = kind(7)

        async def twice(team=team, recorded=recorded, said=said) -> list[str]:
            ours = guard_agent_framework.guarded(team, recorded, name="own result")
            (event,) = (await ours.run("pay it")).get_request_info_events()
            return (await ours.run(responses={event.request_id: said})).get_outputs()

        assert asyncio.run(twice()) == ["heard 7"]
        assert clerk.heard == [said]


def test_after_a_rejection_a_tool_of_agent_framework_can_be_asked_for_again(server, guard):
    done: list[int] = []

    @microsoft_tool(approval_mode="always_require")
    def pay(euros: int) -> str:
        """Pays."""
        done.append(euros)
        return f"{euros} paid"

    model = Model(lambda n: microsoft_calls("pay", {"euros": n}, n=n) if n < 3 else "well then")
    clerk = MicrosoftAgent(model, name="clerk", tools=[pay])
    team = WorkflowBuilder(start_executor=clerk).build()

    async def twice():
        ours = guard_agent_framework.guarded(team, guard, name="asked again")
        with pytest.raises(Stopped):
            await ours.run("pay it")
        return await ours.run("pay it after all")

    with somebody(server, "reject", "approve"):
        result = asyncio.run(twice())
    assert [one.text for one in result.get_outputs()] == ["well then"]
    assert done == [2]


def test_a_tool_that_is_only_declared_is_not_asked_of_people(server, guard):
    schema = {"type": "object", "properties": {}}
    pay = FunctionTool(name="pay", description="-", func=None, input_model=schema)
    model = Model(lambda n: microsoft_calls("pay", {}))
    with somebody(server, "approve") as asked:
        result = asked_of(guard, MicrosoftAgent(model, name="clerk", tools=[pay]))
    (event,) = result.get_request_info_events()
    assert (event.data.type, asked) == ("function_call", [])


def test_a_stream_of_agent_framework_ends_with_its_request(server, guard):
    async def streamed():
        team = WorkflowBuilder(start_executor=Asks(str)).build()
        stream = guard_agent_framework.guarded(team, guard, name="streamed").run("go", stream=True)
        kinds = [event.type async for event in stream]
        return kinds, await stream.get_final_response()

    kinds, result = asyncio.run(streamed())
    assert kinds.count("request_info") == 1
    assert len(result.get_request_info_events()) == 1
    assert guard.last.report().terminal_status == "done_success"
