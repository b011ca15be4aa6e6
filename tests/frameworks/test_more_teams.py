"""Teams whose answers are counted once each: without usage, as tools, and after an approval."""

from typing import Any

import pytest
from agents.tool import function_tool
from autogen_agentchat.agents import BaseChatAgent, UserProxyAgent
from autogen_agentchat.base import Response
from autogen_agentchat.conditions import TextMentionTermination
from autogen_agentchat.messages import TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.models import RequestUsage
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai import DeferredToolRequests
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.usage import RequestUsage as PydanticUsage
from strands.hooks import BeforeToolCallEvent
from strands.multiagent import GraphBuilder, Swarm
from tests.frameworks.test_real_teams import (
    Client,
    SdkModel,
    asking,
    assistant,
    autogen,
    calls,
    handoffs,
    look,
    openai,
    pydantic,
    run,
    sdk_calls,
    strand,
    strands_guarded,
)

from agents import Agent
from handrail import (
    BudgetSpent,
    Guard,
    LoopDetected,
    NoProgress,
    Stopped,
    StopRules,
)
from handrail.guard.adapter import watching

FREE = RequestUsage(prompt_tokens=0, completion_tokens=0)


def steps(guard: Guard) -> list[tuple[str, int]]:
    """Whose they were, and the tokens of each."""
    told = [event for event in guard.last.events if hasattr(event, "result")]
    return [(event.agent, event.result.usage.tokens) for event in told]


# AutoGen


class Plain(BaseChatAgent):
    """An agent of somebody's own."""

    produced_message_types = (TextMessage,)

    def __init__(self, name: str, usage: RequestUsage | None) -> None:
        super().__init__(name, "says little")
        self.usage, self.asked = usage, 0

    async def on_messages(self, messages, cancellation_token):
        self.asked += 1
        assert self.asked < 50, "nobody stops it"
        said = TextMessage(content="hm", source=self.name, models_usage=self.usage)
        return Response(chat_message=said)

    async def on_reset(self, cancellation_token) -> None: ...


@pytest.mark.parametrize("usage", [None, FREE], ids=["no usage", "usage of nothing"])
def test_answers_of_autogen_agents_that_tell_no_usage_are_steps(usage):
    team = RoundRobinGroupChat([Plain("a", usage)])
    with pytest.raises(Stopped) as caught:
        run(autogen(team, Guard(StopRules(max_steps=5))).run(task="go"))
    assert caught.value.stop.rule == "max_steps"


class FreeClient(Client):
    async def create(self, *given, **more):
        return (await super().create(*given, **more)).model_copy(update={"usage": FREE})


@pytest.mark.parametrize("client", [Client, FreeClient])
def test_a_summary_of_autogen_tools_is_no_other_answer(client):
    agent = assistant("a", lambda n: "", tools=[look])
    agent._model_client = client(lambda n: calls("look", n, place=f"room {'abc'[n - 1]}"))
    guard = Guard()
    run(autogen(RoundRobinGroupChat([agent], max_turns=3), guard).run(task="go"))
    assert steps(guard) == [("a", 10 if client is Client else 0)] * 3


def test_an_autogen_agent_named_user_is_an_agent_and_the_task_is_not_its_word():
    words = iter(["go on", "go on", "done"])
    person = UserProxyAgent("user", input_func=lambda prompt: next(words))
    ends = TextMentionTermination("done", sources=["user"])
    team = RoundRobinGroupChat([assistant("a", lambda n: "hm"), person], termination_condition=ends)
    guard = Guard()
    run(autogen(team, guard).run(task="begin"))
    assert handoffs(guard) == [("a", "user"), ("user", "a")] * 2 + [("a", "user")]
    alone = RoundRobinGroupChat([Plain("user", None)])
    with pytest.raises(Stopped):
        run(autogen(alone, Guard(StopRules(max_steps=5))).run(task="go"))


# Strands


def test_questions_to_one_strands_agent_in_one_answer_are_one_handoff():
    inner = strand("inner", lambda n: f"answer {n}")
    questions = [("inner", {"input": f"question {one}"}) for one in "abcd"]
    outer = strand("outer", lambda n: questions if n < 3 else "done", inner.as_tool())
    guard = Guard()
    assert str(strands_guarded(outer, guard)("go")).strip() == "done"
    assert handoffs(guard) == [("outer", "inner")] * 2, "one for each answer"


def test_a_strands_agent_that_is_refused_by_a_hook_of_theirs_can_still_be_in_a_loop():
    inner = strand("inner", lambda n: "hm")
    outer = strand("outer", lambda n: ("inner", {"input": "x"}), inner.as_tool())
    refused = []

    def refuse(event: Any) -> None:
        if not refused:
            event.cancel_tool = "not now"
            refused.append(event)

    outer.hooks.add_callback(BeforeToolCallEvent, refuse)
    guard = Guard()
    with pytest.raises(Stopped):
        strands_guarded(outer, guard)("go")
    assert len(handoffs(guard)) > 1


def test_a_strands_agent_has_the_name_it_has_in_the_team_that_runs():
    agent = strand("agent", lambda n: "ok")

    def graph(name: str) -> Any:
        builder = GraphBuilder()
        builder.add_node(agent, name)
        builder.set_max_node_executions(9)
        return builder.build()

    guard = Guard()
    first, second = (strands_guarded(graph(name), guard) for name in ("first", "second"))
    found = []
    for team in (first, second, strands_guarded(agent, guard), first):
        team("go")
        found += steps(guard)
    assert found == [("first", 10), ("second", 10), ("agent", 10), ("first", 10)]


# Pydantic AI


def answer(*parts: Any) -> ModelResponse:
    return ModelResponse([*parts], usage=PydanticUsage(output_tokens=100))


def removing() -> PydanticAgent:
    """An agent that removes a file, if it is allowed to."""

    async def says(messages, info):
        done = any(part.part_kind == "tool-return" for part in messages[-1].parts)
        return answer(TextPart("done") if done else ToolCallPart("rm", {}, tool_call_id="c1"))

    kinds = [str, DeferredToolRequests]
    agent = PydanticAgent(FunctionModel(says), name="a", output_type=kinds)

    @agent.tool_plain(requires_approval=True)
    def rm() -> str:
        """Removes."""
        return "removed"

    return agent


def test_an_answer_of_a_pydantic_agent_counts_once_although_an_approval_goes_on_with_it():
    helper, guard = pydantic(removing()), Guard()
    with watching(guard, "two runs"):
        asked = helper.run_sync("?")
        allowed = asked.output.build_results(approvals={"c1": True})
        history = asked.all_messages()
        result = helper.run_sync(message_history=history, deferred_tool_results=allowed)
    assert result.output == "done"
    assert sum(tokens for _, tokens in steps(guard)) == 200
    checks = [
        check
        for event in guard.last.events
        if hasattr(event, "result")
        for check in event.result.evidence.checks
    ]
    assert len(checks) == 1, "the tool that was allowed is still evidence"


def test_what_a_stop_leaves_is_of_the_pydantic_agent_that_nobody_asked():
    async def searches(messages, info):
        return answer(ToolCallPart("search", {}))

    async def delegates(messages, info):
        return answer(ToolCallPart("ask", {}))

    inner = PydanticAgent(FunctionModel(searches), name="inner")
    outer = PydanticAgent(FunctionModel(delegates), name="outer")

    @inner.tool_plain
    def search() -> str:
        """Searches."""
        return "nothing"

    @outer.tool_plain
    async def ask() -> str:
        """Asks."""
        return (await pydantic(inner).run("the question of outer")).output

    with pytest.raises(Stopped) as caught:
        run(pydantic(outer).run("the question of the caller"))
    assert caught.value.partial[0].parts[0].content == "the question of the caller"


# OpenAI Agents


def test_a_budget_bounds_an_agent_that_is_a_tool_while_it_is_at_work():
    inner, outer = asking(
        lambda n: sdk_calls("seek", n, place=n), lambda n: sdk_calls("ask", n, input="x")
    )
    guard = Guard(StopRules(max_tokens=50))
    with pytest.raises(BudgetSpent):
        run(openai(outer, guard).run("go"))
    assert (inner.model.asked, outer.model.asked) == (4, 1)
    assert sum(tokens for _, tokens in steps(guard)) == 50


@function_tool(needs_approval=True)
def remove() -> str:
    """Removes."""
    return "removed"


def test_what_an_earlier_run_has_used_does_not_count_again_when_its_state_is_run():
    says = lambda n: sdk_calls("remove", n) if n == 1 else "done"  # noqa: E731 - one line says it
    agent, guard = Agent(name="a", model=SdkModel(says), tools=[remove]), Guard()
    state = run(openai(agent, guard).run("go")).to_state()
    assert steps(guard) == [("a", 10)]
    state.approve(state.get_interruptions()[0])
    assert run(openai(agent, guard).run(state)).final_output == "done"
    assert steps(guard) == [("a", 0), ("a", 10)], "the tool, and the answer after it"


def test_a_handoff_to_a_strands_agent_that_does_not_exist_is_a_failure():
    lost = strand("lost", lambda n: ("handoff_to_agent", {"agent_name": "nobody", "message": "x"}))
    with pytest.raises(NoProgress) as caught:
        strands_guarded(Swarm([lost, strand("other", lambda n: "done")]), Guard())("go")
    assert caught.value.stop.rule == "same_error"
    assert lost.model.asked == 3


# Agents that are tools of each other


def test_agents_of_the_sdk_that_are_tools_of_each_other_are_a_loop_and_ask_no_model_after_it():
    a = Agent(name="a", model=SdkModel(lambda n: sdk_calls("ask_b", n, input="x")))
    b = Agent(name="b", model=SdkModel(lambda n: sdk_calls("ask_a", n, input="x")))
    a.tools, b.tools = [b.as_tool("ask_b", "asks b")], [a.as_tool("ask_a", "asks a")]
    guard = Guard()
    with pytest.raises(LoopDetected):
        run(openai(a, guard).run("go"))
    assert handoffs(guard) == [("a", "b"), ("b", "a")] * 3
    assert (a.model.asked, b.model.asked) == (3, 3)


def test_pydantic_agents_that_ask_each_other_are_a_loop():
    asked: list[str] = []

    def says(name: str, tool: str) -> FunctionModel:
        def answer(messages, info):
            asked.append(name)
            assert len(asked) < 50, "nobody stops it"
            return ModelResponse(parts=[ToolCallPart(tool, {})])

        return FunctionModel(answer)

    a, b = PydanticAgent(says("a", "ask_b"), name="a"), PydanticAgent(says("b", "ask_a"), name="b")
    guard = Guard()
    first, second = pydantic(a, guard), pydantic(b, guard)

    @a.tool_plain
    async def ask_b() -> str:
        return (await second.run("x")).output

    @b.tool_plain
    async def ask_a() -> str:
        return (await first.run("x")).output

    with pytest.raises(LoopDetected):
        run(first.run("go"))
    assert handoffs(guard) == [("a", "b"), ("b", "a")] * 3
    assert asked == ["a", "b"] * 3
