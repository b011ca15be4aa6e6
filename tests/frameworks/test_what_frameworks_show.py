"""What adapters see of teams beside models and tools, and the frameworks' own limits.

With the guard's defaults: the good ones end by themselves, the others are stopped at the tenth
repetition at the latest.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import mcp.types
import pytest
from agents.mcp import MCPServer
from agents.memory import SQLiteSession
from agents.tool import function_tool
from autogen_agentchat.agents import AssistantAgent, BaseChatAgent, CodeExecutorAgent
from autogen_agentchat.base import Response
from autogen_agentchat.conditions import TextMentionTermination
from autogen_agentchat.messages import TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import FunctionCall
from autogen_core.code_executor import CodeExecutor, CodeResult
from autogen_core.models import RequestUsage
from autogen_core.tools import FunctionTool
from benchmarks.same_mistake.scenes import SCENES, Script
from openai.types.responses import ResponseFunctionToolCall
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from strands import Agent as StrandsAgent
from strands.multiagent import GraphBuilder
from tests.frameworks import agent_framework_stubs as af
from tests.frameworks.test_adapters import Says
from tests.frameworks.test_real_teams import Client, SdkModel, StrandsModel, sdk_calls, search

from agents import Agent
from handrail import Guard, LoopDetected, NoProgress, Stopped
from handrail.guard.adapter import watching
from handrail.guard.agent_framework import guarded as agent_framework
from handrail.guard.autogen import guarded as autogen
from handrail.guard.openai_agents import guarded as openai
from handrail.guard.pydantic_ai import guarded as pydantic
from handrail.guard.strands import guarded as strands
from handrail.kernel.run.events import Reported
from handrail.kernel.stop.findings import FindingKind, StepFinding

pytestmark = pytest.mark.filterwarnings("ignore:No approval function set")

Text = Callable[[int], str]
"""What an agent says when it has the turn for the nth time."""


def findings(guard: Guard) -> list[StepFinding]:
    assert guard.last is not None
    return [
        finding
        for event in guard.last.events
        if isinstance(event, Reported)
        for finding in event.result.evidence.findings
    ]


def effects(guard: Guard) -> set[tuple[str, bool]]:
    return {(finding.tool, finding.effect) for finding in findings(guard) if finding.tool}


def destructive(name: str) -> mcp.types.Tool:
    return mcp.types.Tool(
        name=name,
        inputSchema={"type": "object", "properties": {}},
        annotations=mcp.types.ToolAnnotations(destructiveHint=name == "wipe"),
    )


# AutoGen


class McpToolAdapter(FunctionTool):
    """Like the one of autogen-ext: it keeps what the server says of the tool."""

    def __init__(self, name: str) -> None:
        async def call() -> str:
            return f"{name} is done"

        super().__init__(call, "does it", name=name)
        self._tool = destructive(name)


def test_a_tool_that_mcp_calls_destructive_is_an_effect_of_an_assistant() -> None:
    def says(number: int) -> Any:
        names = ("wipe", "look")
        if number > len(names):
            return "TERMINATE"
        return [FunctionCall(id=f"c{number}", name=names[number - 1], arguments="{}")]

    guard, tools = Guard(), [McpToolAdapter("wipe"), McpToolAdapter("look")]
    agent = AssistantAgent("cleaner", Client(says), tools=tools, max_tool_iterations=3)
    asyncio.run(autogen(agent, guard).run(task="go"))
    assert effects(guard) == {("wipe", True), ("look", False)}


class Speaker(BaseChatAgent):
    """Gives plain messages, without a model."""

    def __init__(self, name: str, text: Text) -> None:
        super().__init__(name, "speaks")
        self.text, self.turns = text, 0

    @property
    def produced_message_types(self):
        return (TextMessage,)

    async def on_messages(self, messages, cancellation_token) -> Response:
        self.turns += 1
        return Response(chat_message=TextMessage(content=self.text(self.turns), source=self.name))

    async def on_reset(self, cancellation_token) -> None: ...


class MultimodalWebSurfer(Speaker):
    """Like the one of autogen-ext: it has a model, and shows the page that an action led to."""

    async def on_messages(self, messages, cancellation_token) -> Response:
        response = await super().on_messages(messages, cancellation_token)
        response.chat_message.models_usage = RequestUsage(prompt_tokens=5, completion_tokens=5)
        return response


def assistant(name: str, text: Text) -> AssistantAgent:
    return AssistantAgent(name, Client(text))


def run_team(agents: list[Any], guard: Guard, **options: Any) -> Any:
    team = RoundRobinGroupChat(agents, **options)
    return asyncio.run(autogen(team, guard).run(task="write about trees"))


def test_the_writer_and_critic_of_the_quickstart_end_by_approval_in_round_four() -> None:
    drafts = ("oak", "oak and elm", "oak, elm and ash", "oak, elm, ash and fir")
    writer = assistant("primary", lambda n: f"A short poem about {drafts[n - 1]}.")
    critic = assistant("critic", lambda n: "APPROVE" if n == 4 else f"More trees, please: {n}.")
    result = run_team(
        [writer, critic], Guard(), termination_condition=TextMentionTermination("APPROVE")
    )
    assert len(result.messages) == 9


def test_a_team_whose_tools_are_agents_is_not_idle() -> None:
    """An orchestrator says the same again and again, while every visit brings a new page."""
    guard = Guard()
    boss = assistant("orchestrator", lambda n: "Please scroll down to see more of the page.")
    surfer = MultimodalWebSurfer("surfer", lambda n: f"page {chr(96 + n)} " + "of the story " * n)
    result = run_team([boss, surfer], guard, max_turns=24)
    assert len(result.messages) == 25
    calls = [finding for finding in findings(guard) if finding.kind is FindingKind.CALL]
    assert {finding.tool for finding in calls} == {"surfer"}
    assert guard.last is not None
    assert guard.last.report().usage.tokens == 12 * 20


@pytest.mark.parametrize(
    "answer",
    [
        lambda n: "The page shows 3 results, as before.",
        lambda n: "Web surfing error:\n\nTimeoutError: the page did not load",
    ],
    ids=["the same page", "the same error"],
)
def test_a_surfer_that_shows_the_same_again_is_stopped(answer: Text) -> None:
    boss = assistant("orchestrator", lambda n: "Click the button.")
    surfer = MultimodalWebSurfer("surfer", answer)
    guard = Guard()
    with pytest.raises(Stopped) as caught:
        run_team([boss, surfer], guard)
    assert surfer.turns <= 7
    assert caught.value.stop.rule in ("oscillation", "no_change")


def test_an_error_that_a_surfer_gives_as_a_text_is_an_error() -> None:
    guard = Guard()
    boss = assistant("orchestrator", lambda n: f"Visit page {n}.")
    surfer = MultimodalWebSurfer("surfer", lambda n: "Web surfing error:\n\nTimeoutError: 30 s")
    with pytest.raises(NoProgress) as caught:
        run_team([boss, surfer], guard)
    assert caught.value.stop.rule == "same_error"
    assert surfer.turns <= 4


class Executor(CodeExecutor):
    """Runs no code, but says how it went."""

    def __init__(self, results: Callable[[int], CodeResult]) -> None:
        self.results, self.runs = results, 0

    async def execute_code_blocks(self, code_blocks, cancellation_token) -> CodeResult:
        self.runs += 1
        return self.results(self.runs)

    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    async def restart(self) -> None: ...


def code(text: str) -> str:
    return f"```python\n{text}\n```"


def test_what_a_code_executor_prints_is_a_finding() -> None:
    guard = Guard()
    coder = assistant("coder", lambda n: code(f"print({n})"))
    executor = Executor(lambda n: CodeResult(exit_code=0, output=f"{n} things"))
    result = run_team([coder, CodeExecutorAgent("terminal", executor)], guard, max_turns=20)
    assert len(result.messages) == 21
    calls = [finding for finding in findings(guard) if finding.kind is FindingKind.CALL]
    assert {finding.tool for finding in calls} == {"terminal"}
    assert not any(finding.failed for finding in calls)


def test_code_that_fails_in_the_same_way_is_stopped_and_silent_failures_are_not_alike() -> None:
    coder = assistant("coder", lambda n: code(f"import tree_{n}"))
    loud = Executor(lambda n: CodeResult(exit_code=1, output="ModuleNotFoundError: no trees"))
    with pytest.raises(NoProgress) as caught:
        run_team([coder, CodeExecutorAgent("terminal", loud)], Guard())
    assert caught.value.stop.rule == "same_error"
    guard, silent = Guard(), Executor(lambda n: CodeResult(exit_code=1, output=""))
    coder = assistant("coder", lambda n: code(f"grep {n}"))
    run_team([coder, CodeExecutorAgent("terminal", silent)], guard, max_turns=12)
    assert all(finding.failed for finding in findings(guard) if finding.tool == "terminal")


def test_an_executor_with_a_model_of_its_own_shows_what_it_ran() -> None:
    guard = Guard()
    client = Client(lambda n: code(f"print({n})") if n % 2 else f"it printed {n // 2}")
    executor = Executor(lambda n: CodeResult(exit_code=0, output=f"{n}"))
    agent = CodeExecutorAgent("analyst", executor, model_client=client)
    run_team([agent], guard, max_turns=3)
    assert executor.runs == 3
    calls = [finding for finding in findings(guard) if finding.kind is FindingKind.CALL]
    assert len(calls) == 3


def test_two_agents_without_a_model_that_say_the_same_are_stopped() -> None:
    speakers = [Speaker("a", lambda n: "after you"), Speaker("b", lambda n: "no, after you")]
    with pytest.raises((LoopDetected, NoProgress)):
        run_team(speakers, Guard())
    assert speakers[0].turns <= 10


def test_an_autogen_team_s_own_limit_stays_in_force() -> None:
    speaker = assistant("a", lambda n: f"thought {n}")
    result = run_team([speaker], Guard(), max_turns=3)
    assert len(result.messages) == 4
    assert "Maximum number of turns" in result.stop_reason


# OpenAI Agents


def sdk_agent(calls: int, **options: Any) -> Agent:
    @function_tool
    def look(place: str) -> str:
        """Look somewhere."""
        return f"a view of {place}, with many trees"

    def says(n: int) -> Any:
        if n > calls:
            return "done"
        call = ResponseFunctionToolCall(
            call_id=f"c{n}", name="look", arguments=f'{{"place": "{n}"}}', type="function_call"
        )
        return [call]

    return Agent(name="seeker", model=SdkModel(says), tools=[look], **options)


class ToolServer(MCPServer):
    """An MCP server, without its transport."""

    name = "tools"

    async def connect(self) -> None: ...

    async def cleanup(self) -> None: ...

    async def list_tools(self, run_context=None, agent=None) -> list[mcp.types.Tool]:
        return [destructive("wipe"), destructive("look")]

    async def call_tool(self, tool_name, arguments, meta=None) -> mcp.types.CallToolResult:
        return mcp.types.CallToolResult(content=[mcp.types.TextContent(type="text", text="done")])

    async def list_prompts(self) -> Any: ...

    async def get_prompt(self, name, arguments=None) -> Any: ...


def test_a_tool_that_mcp_calls_destructive_is_an_effect_of_an_openai_agent() -> None:
    def says(number: int) -> Any:
        names = ("wipe", "look")
        return sdk_calls(names[number - 1], number) if number <= len(names) else "done"

    guard = Guard()
    agent = Agent(name="cleaner", model=SdkModel(says), mcp_servers=[ToolServer()])
    asyncio.run(openai(agent, guard).run("go"))
    assert effects(guard) == {("wipe", True), ("look", False)}


def test_the_sdk_s_default_of_max_turns_stays_in_force() -> None:
    from agents import MaxTurnsExceeded

    assert asyncio.run(openai(sdk_agent(8)).run("look")).final_output == "done"
    with pytest.raises(MaxTurnsExceeded):
        asyncio.run(openai(sdk_agent(12)).run("look"))
    result = asyncio.run(openai(sdk_agent(12)).run("look", max_turns=20))
    assert result.final_output == "done"


def test_a_session_is_the_thread_of_an_openai_agent() -> None:
    guard, session = Guard(), SQLiteSession("chat 7")
    agent = Agent(name="helper", model=SdkModel(lambda n: "let me check that for you"))
    turns = 0
    with pytest.raises(Stopped):
        for turns in range(10):  # noqa: B007 - counted
            asyncio.run(openai(agent, guard).run("and now?", session=session))
    assert turns < 5
    for _ in range(10):
        asyncio.run(openai(agent, guard).run("and now?"))


# Pydantic AI


def test_pydantic_ai_s_own_request_limit_stays_in_force() -> None:
    from pydantic_ai import UsageLimitExceeded, UsageLimits

    numbers = iter(range(1_000))
    model = FunctionModel(
        lambda messages, info: ModelResponse([ToolCallPart("look", {"place": next(numbers)})])
    )
    agent = PydanticAgent(model, name="seeker")

    @agent.tool_plain
    def look(place: int) -> str:
        return f"a view of {place}"

    with pytest.raises(UsageLimitExceeded):
        asyncio.run(pydantic(agent).run("look", usage_limits=UsageLimits(request_limit=4)))
    assert next(numbers) == 4


def test_a_conversation_is_the_thread_of_a_pydantic_agent() -> None:
    guard = Guard()
    model = FunctionModel(lambda messages, info: ModelResponse([TextPart("let me check that")]))
    agent = pydantic(PydanticAgent(model, name="helper"), guard)
    with pytest.raises(Stopped):
        for _ in range(10):
            asyncio.run(agent.run("and now?", conversation_id="7"))
    history = []
    with pytest.raises(Stopped):
        for _ in range(10):
            result = asyncio.run(agent.run("and now?", message_history=history))
            history = result.all_messages()


# Strands


def test_a_strands_graph_s_own_limit_stays_in_force() -> None:
    builder = GraphBuilder()
    for name in "ab":
        agent = StrandsAgent(name=name, model=Says(Script(SCENES[0]), name), callback_handler=None)
        builder.add_node(agent, name)
    builder.add_edge("a", "b")
    builder.add_edge("b", "a")
    builder.set_entry_point("a")
    builder.set_max_node_executions(3)
    builder.reset_on_revisit(True)
    result = strands(builder.build())("go")
    assert result.status.value == "failed"
    assert len(result.execution_order) == 3


# Agent Framework


def test_the_limit_of_a_workflow_s_iterations_stays_in_force() -> None:
    from agent_framework.exceptions import WorkflowConvergenceException

    workflow = af.ring(*af.nodes("a", "b"), max_iterations=3)
    with pytest.raises(WorkflowConvergenceException):
        asyncio.run(agent_framework(workflow).run("go"))


# Nudges: before a rule ends the run, the model is told once, in names and figures only


SECRET = "the blue folder"
"""What tools and models say: no nudge quotes it."""


def nudged(inputs: list[str]) -> list[str]:
    """The inputs of a model that held a nudge."""
    return [text for text in inputs if "The stop rule" in text]


def assert_nudged(inputs: list[str], guard: Guard) -> None:
    assert nudged(inputs), "the model was told before the end"
    assert not nudged(inputs[:2]), "and not before there was a reason"
    assert guard.last is not None
    assert guard.last.stop is not None
    assert guard.last.stop.rule in ("no_change", "monologue", "oscillation", "same_error")


def test_an_openai_agent_is_nudged_in_the_input_of_its_model() -> None:
    guard, inputs = Guard(), list[str]()

    class Listening(SdkModel):
        async def get_response(self, *given, **options):
            inputs.append(str(options.get("input", given)))
            return await super().get_response()

    @function_tool
    def look() -> str:
        """Look."""
        return SECRET

    def says(n: int) -> Any:
        return [
            ResponseFunctionToolCall(
                call_id=f"c{n}", name="look", arguments="{}", type="function_call"
            )
        ]

    agent = Agent(name="seeker", model=Listening(says), tools=[look])
    with pytest.raises(Stopped):
        asyncio.run(openai(agent, guard).run("look", max_turns=30))
    assert_nudged(inputs, guard)


def test_a_pydantic_agent_is_nudged_by_an_enqueued_message() -> None:
    guard, inputs = Guard(), list[str]()

    def says(messages: Any, info: Any) -> ModelResponse:
        inputs.append(str(messages))
        return ModelResponse([ToolCallPart("look", {})])

    agent = PydanticAgent(FunctionModel(says), name="seeker")

    @agent.tool_plain
    def look() -> str:
        return SECRET

    with pytest.raises(Stopped):
        asyncio.run(pydantic(agent, guard).run("look"))
    assert_nudged(inputs, guard)


def test_a_nudge_does_not_keep_a_pydantic_agent_from_its_end() -> None:
    inputs = list[str]()

    def says(messages: Any, info: Any) -> ModelResponse:
        inputs.append(str(messages))
        part = TextPart("done") if nudged(inputs[-1:]) else ToolCallPart("look", {})
        return ModelResponse([part])

    agent = PydanticAgent(FunctionModel(says), name="seeker")

    @agent.tool_plain
    def look() -> str:
        return SECRET

    assert asyncio.run(pydantic(agent).run("look")).output == "done"
    assert len(nudged(inputs)) == 1


def test_a_strands_agent_is_nudged_in_the_last_message_to_its_model() -> None:
    guard, inputs = Guard(), list[str]()

    class Listening(StrandsModel):
        async def stream(self, messages, *given, **more):
            inputs.append(str(messages))
            async for piece in super().stream(messages, *given, **more):
                yield piece

    agent = StrandsAgent(
        name="seeker",
        model=Listening(lambda n: ("search", {"place": 7})),
        tools=[search],
        callback_handler=None,
    )
    with pytest.raises(Stopped):
        strands(agent, guard)("look")
    assert_nudged(inputs, guard)


def test_an_agent_of_agent_framework_is_nudged_in_the_messages_of_its_model() -> None:
    guard, inputs = Guard(), list[str]()

    class Listening(af.Model):
        def _inner_get_response(self, *, messages, **more):
            inputs.append(" ".join(message.text for message in messages))
            return super()._inner_get_response(messages=messages, **more)

    model = Listening(lambda n: af.calls("look", {"where": "here"}, n=n))
    agent = af.Agent(model, name="seeker", tools=[af.look])
    with pytest.raises(Stopped):
        asyncio.run(agent_framework(agent, guard).run("look"))
    assert_nudged(inputs, guard)


def test_an_assistant_of_autogen_is_nudged_in_its_context_between_its_turns() -> None:
    guard, inputs = Guard(), list[str]()

    class Listening(Client):
        async def create(self, messages, **more):
            inputs.append(str(messages))
            return await super().create(messages, **more)

    calls = [FunctionCall(id="c", name="look_around", arguments="{}")]
    agent = AssistantAgent("a", Listening(lambda n: calls), tools=[look_around])
    with pytest.raises(Stopped):
        run_team([agent], guard)
    assert_nudged(inputs, guard)


async def look_around() -> str:
    """Look."""
    return SECRET


def test_a_nudge_that_cannot_be_delivered_breaks_nothing(caplog: Any) -> None:
    with watching(Guard(), "team", "go") as watch:
        watch.activate("a")
        watch.run.nudge_text = "be quick"
        watch.deliver_nudge(lambda text: 1 / 0)
    assert "could not be delivered" in caplog.text
