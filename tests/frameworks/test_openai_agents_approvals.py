"""Approvals inside agents that are tools: a guarded run does what the bare one does when resumed.

A resumed run of the SDK begins in the middle: no start hook is called for a tool that goes on, and
the first that the guard sees may be the model of a nested agent.
"""

import itertools
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from agents.tool import function_tool
from tests.frameworks.test_more_teams import steps
from tests.frameworks.test_real_teams import SdkModel, handoffs, run, sdk_calls

from agents import Agent, Runner, RunState
from handrail import BudgetSpent, Guard, NoProgress, StopRules
from handrail.guard.adapter import RunWatch
from handrail.guard.openai_agents import guarded

Start = Callable[[Any], Awaitable[Any]]
"""Runs a team with an input or a state, to its end or to its next approval."""


APPROVALS_MAX = 10
"""A team that pays again and again is a failure of the test, and not a test without an end."""


class PersistentModel(SdkModel):
    """Calls a tool, again while the tool fails, and then reports what the tool returned."""

    def __init__(self, tool: str, times: int = 1, **arguments: object) -> None:
        super().__init__(lambda n: sdk_calls(tool, n, times, **arguments))

    async def get_response(self, *positional, **named):
        items = named["input"] if "input" in named else positional[1]
        outputs = [item["output"] for item in items if item.get("type") == "function_call_output"]
        if outputs and not outputs[-1].startswith("An error"):
            report = " and ".join(outputs)
            return await SdkModel(lambda n: report).get_response()
        return await super().get_response()

    async def stream_response(self, *positional, **named):
        answer = await self.get_response(*positional, **named)
        async for event in SdkModel(lambda n: answer.output).stream_response():
            yield event


class Team:
    """Agents in a row, each a tool of the one before; the last one pays, after an approval."""

    def __init__(self, depth: int = 1, parallel: int = 1, *, nested_stream: bool = False) -> None:
        self.payments: list[int] = []
        self.approvals = 0
        numbers = itertools.count(1)

        @function_tool(needs_approval=True)
        def pay(euros: int) -> str:
            """Pays."""
            self.payments.append(euros)
            return f"payment {next(numbers)} of {euros}"

        self.agents = [Agent(name=f"payer-{depth}", model=PersistentModel("pay", euros=5))]
        self.agents[0].tools = [pay]
        for level in reversed(range(depth)):
            stream = (lambda event: None) if nested_stream else None
            tool = self.agents[0].as_tool("ask", "asks", on_stream=stream)
            model = PersistentModel("ask", parallel if level == 0 else 1, input="pay it")
            self.agents.insert(0, Agent(name=f"asker-{level}", model=model, tools=[tool]))

    async def approve_all(self, start: Start, *, serialized: bool = False) -> Any:
        """The result of the team's run; whatever waits for an approval is approved."""
        result = await start("go")
        while result.interruptions and self.approvals < APPROVALS_MAX:
            state = result.to_state()
            if serialized:
                document = json.loads(json.dumps(state.to_json()))
                state = await RunState.from_json(self.agents[0], document)
            for item in state.get_interruptions():
                self.approvals += 1
                state.approve(item)
            result = await start(state)
        return result

    def outcome(self, result: Any) -> dict[str, Any]:
        """Whatever a guard must not change."""
        outputs = [item.output for item in result.new_items if hasattr(item, "output")]
        return {
            "final output": result.final_output,
            "outputs of tools": outputs,
            "payments": self.payments,
            "approvals": self.approvals,
            "calls of models": [agent.model.asked for agent in self.agents],
            "tokens": result.context_wrapper.usage.total_tokens,
        }


def bare(agent: Agent) -> Start:
    return lambda given: Runner.run(agent, given)


def streamed(stream: Callable[[Any], Any]) -> Start:
    async def start(given: Any) -> Any:
        result = stream(given)
        async for _ in result.stream_events():
            pass
        return result

    return start


@function_tool(needs_approval=True)
def unlock() -> str:
    """Unlocks."""
    return "unlocked"


@function_tool
def look(place: int) -> str:
    """Looks."""
    return f"nothing in {place}"


SHAPES = {
    "one level": {},
    "two levels": {"depth": 2},
    "three levels": {"depth": 3},
    "parallel calls": {"parallel": 3},
    "parallel calls, two levels": {"parallel": 2, "depth": 2},
    "a stream inside": {"nested_stream": True},
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("serialized", [False, True], ids=["live state", "serialized state"])
def test_an_approval_inside_an_agent_that_is_a_tool_pays_exactly_once(shape, serialized):
    alone, team = Team(**shape), Team(**shape)
    expected = run(alone.approve_all(bare(alone.agents[0]), serialized=serialized))
    result = run(team.approve_all(guarded(team.agents[0]).run, serialized=serialized))
    assert team.payments == [5] * shape.get("parallel", 1)
    assert team.outcome(result) == alone.outcome(expected)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_a_streamed_run_that_is_resumed_pays_exactly_once(shape):
    alone, team = Team(**shape), Team(**shape)
    first = alone.agents[0]
    expected = run(alone.approve_all(streamed(lambda given: Runner.run_streamed(first, given))))
    result = run(team.approve_all(streamed(guarded(team.agents[0]).run_streamed)))
    assert team.payments == [5] * shape.get("parallel", 1)
    assert team.outcome(result) == alone.outcome(expected)


@pytest.mark.parametrize("shape", [{}, {"depth": 2}], ids=["one level", "two levels"])
def test_a_run_without_a_loop_of_the_caller_pays_exactly_once(shape):
    team = Team(**shape)
    first = guarded(team.agents[0])
    state = first.run_sync("go").to_state()
    state.approve(state.get_interruptions()[0])
    assert first.run_sync(state).final_output == "payment 1 of 5"
    assert team.payments == [5]


def test_what_a_nested_agent_uses_after_an_approval_counts_once_and_is_one_handoff():
    team, guards = Team(), []

    async def start(given: Any) -> Any:
        guards.append(Guard())
        return await guarded(team.agents[0], guards[-1]).run(given)

    result = run(team.approve_all(start))
    before, after = guards
    assert handoffs(before) == handoffs(after) == [("asker-0", "payer-1")]
    used = [sum(tokens for _, tokens in steps(guard)) for guard in guards]
    assert used == [20, 20]
    assert sum(used) == result.context_wrapper.usage.total_tokens


def test_a_run_that_is_resumed_is_no_part_of_another_run_of_the_same_task():
    other, team, guard = Agent(name="other", model=SdkModel(lambda n: "ok")), Team(), Guard()

    async def start(given: Any) -> Any:
        await guarded(other).run("go")
        return await guarded(team.agents[0], guard).run(given)

    run(team.approve_all(start))
    assert handoffs(guard) == [("asker-0", "payer-1")]


def test_an_agent_that_is_asked_by_an_agent_that_it_asked_is_nested_after_an_approval_too():
    answers = [sdk_calls("unlock", 1), sdk_calls("ask_a", 2, input="x"), "the answer of b"]
    a = Agent(
        name="a", model=SdkModel(lambda n: sdk_calls("ask_b", n, input="x") if n == 1 else "ok")
    )
    b = Agent(name="b", model=SdkModel(lambda n: answers[n - 1]))
    a.tools, b.tools = [b.as_tool("ask_b", "asks b")], [a.as_tool("ask_a", "asks a"), unlock]
    state, guard = run(guarded(a).run("go")).to_state(), Guard()
    state.approve(state.get_interruptions()[0])
    assert run(guarded(a, guard).run(state)).final_output == "ok"
    assert (a.model.asked, b.model.asked) == (3, 3)
    assert handoffs(guard) == [("a", "b"), ("b", "a")]
    assert sum(tokens for _, tokens in steps(guard)) == 40


def calls_of_tools(guard: Guard) -> list[str]:
    results = [event.result for event in guard.last.events if hasattr(event, "result")]
    return [check.command for result in results for check in result.evidence.checks or ()]


def interrupted(says: Callable[[int], Any]) -> tuple[Agent, Agent, Any]:
    """An agent that is a tool, the agent that asks it, and their state after an approval; what the
    nested model answers from then on is `says`."""
    inner = Agent(
        name="inner",
        model=SdkModel(lambda n: sdk_calls("unlock", n) if n == 1 else says(n)),
        tools=[unlock, look],
    )
    tool = inner.as_tool("ask", "asks", max_turns=50)
    outer = Agent(
        name="outer", model=SdkModel(lambda n: sdk_calls("ask", n, input="x")), tools=[tool]
    )
    state = run(guarded(outer).run("go")).to_state()
    state.approve(state.get_interruptions()[0])
    return inner, outer, state


def test_a_loop_of_a_nested_agent_is_stopped_after_an_approval_too():
    inner, outer, state = interrupted(lambda n: sdk_calls("look", n, place=1))
    guard = Guard()
    with pytest.raises(NoProgress):
        run(guarded(outer, guard).run(state))
    assert inner.model.asked < 7
    assert outer.model.asked == 1
    assert handoffs(guard) == [("outer", "inner")]


def test_a_budget_bounds_a_nested_agent_after_an_approval_too():
    inner, outer, state = interrupted(lambda n: sdk_calls("look", n, place=n))
    guard = Guard(StopRules(max_tokens=50))
    with pytest.raises(BudgetSpent):
        run(guarded(outer, guard).run(state))
    assert (inner.model.asked, outer.model.asked) == (1 + 5, 1)
    assert sum(tokens for _, tokens in steps(guard)) == 50


def test_what_the_tools_of_a_nested_agent_returned_before_an_approval_is_not_told_again():
    answers = [sdk_calls("look", 1, place=1), sdk_calls("unlock", 2), sdk_calls("look", 3, place=3)]
    inner = Agent(
        name="inner",
        model=SdkModel(lambda n: answers[n - 1] if n <= len(answers) else "done"),
        tools=[unlock, look],
    )
    outer = Agent(
        name="outer",
        model=SdkModel(lambda n: sdk_calls("ask", n, input="x") if n == 1 else "done"),
        tools=[inner.as_tool("ask", "asks")],
    )
    guards = Guard(), Guard()
    state = run(guarded(outer, guards[0]).run("go")).to_state()
    state.approve(state.get_interruptions()[0])
    run(guarded(outer, guards[1]).run(state))
    assert [calls_of_tools(guard) for guard in guards] == [
        ["inner/look"],
        ["inner/unlock", "inner/look", "ask"],
    ]


@pytest.mark.parametrize("method", ["activate", "resume", "record_answer", "record_tool_call"])
def test_an_error_of_the_guards_own_bookkeeping_is_logged_and_changes_no_result(
    method, monkeypatch, caplog
):
    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("bookkeeping is broken")

    alone, team = Team(), Team()
    expected = run(alone.approve_all(bare(alone.agents[0])))
    monkeypatch.setattr(RunWatch, method, fails)
    result = run(team.approve_all(guarded(team.agents[0]).run))
    assert team.outcome(result) == alone.outcome(expected)
    assert "bookkeeping is broken" in caplog.text
