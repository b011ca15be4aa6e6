"""A guarded agent of the OpenAI Agents SDK: called as `Runner` is, with streams as the SDK's."""

import asyncio
from typing import Any

import pytest
from agents.lifecycle import AgentHooks
from agents.result import RunResultStreaming
from agents.tool import function_tool
from openai.types.responses import ResponseUsage
from tests.frameworks.test_real_teams import SdkModel, run, sdk_calls, seek

from agents import Agent, AgentsException, RunContextWrapper, Runner, UserError
from handrail import BudgetSpent, Guard, LimitReached, StopRules
from handrail.guard import framework_versions
from handrail.guard.openai_agents import guarded


def speaker(name: str = "a") -> Agent:
    return Agent(name=name, model=SdkModel(lambda n: "done"))


def seeker() -> Agent:
    return Agent(name="a", model=SdkModel(lambda n: sdk_calls("seek", n, place=n)), tools=[seek])


async def events_of(result: Any) -> int:
    return len([event async for event in result.stream_events()])


def test_arguments_have_the_sdks_names_by_position_and_by_keyword():
    seen: list[object] = []

    def instructions(context: RunContextWrapper, agent: Agent) -> str:
        seen.append(context.context)
        return ""

    agent = speaker()
    agent.instructions = instructions

    async def all_calls() -> None:
        team = guarded(agent)
        await team.run("go", context=1)
        await team.run(input="go", context=2)
        await events_of(team.run_streamed("go", 3))
        await events_of(team.run_streamed(input="go", context=4))

    run(all_calls())
    guarded(agent).run_sync(input="go", context=5)
    assert seen == [1, 2, 3, 4, 5]


def test_wrong_arguments_are_refused_at_once_and_as_the_sdk_does():
    async def wrong() -> None:
        team = guarded(speaker())
        with pytest.raises(TypeError, match="input"):
            await team.run()
        with pytest.raises(TypeError, match="unknown"):
            team.run_streamed("go", unknown=1)
        with pytest.raises(TypeError, match="RunHooks"):
            await team.run("go", hooks=AgentHooks())
        with pytest.raises(TypeError, match="RunHooks"):
            team.run_streamed("go", hooks=AgentHooks())

    run(wrong())


def test_a_guarded_agent_passes_for_the_agent():
    agent = speaker("triage")
    team = guarded(agent)
    assert isinstance(team, Agent)
    assert (team.name, team.tools, team.model) == ("triage", agent.tools, agent.model)
    team.instructions = "be brief"
    assert agent.instructions == "be brief"


def test_a_streamed_run_is_the_sdks_own_and_begins_at_once():
    agent, guard = speaker(), Guard()

    async def stream() -> None:
        result = guarded(agent, guard).run_streamed("go")
        assert type(result) is RunResultStreaming
        assert not result.is_complete
        await result.run_loop_task
        assert agent.model.asked == 1
        assert await events_of(result) > 0
        assert (result.final_output, result.is_complete) == ("done", True)

    run(stream())
    assert guard.last.report().terminal_status == "done_success"


def test_a_streamed_run_that_nobody_reads_ends_with_the_sdks_task():
    guard = Guard()

    async def stream() -> None:
        result = guarded(speaker(), guard).run_streamed("go")
        await result.run_loop_task

    asyncio.run(stream())  # waits for what the SDK closes after its task
    assert guard.last.report().terminal_status == "done_success"


def test_a_streamed_run_can_be_cancelled():
    agent, guard = seeker(), Guard()

    async def stream() -> None:
        result = guarded(agent, guard).run_streamed("go", max_turns=None)
        async for _ in result.stream_events():
            result.cancel()
        assert result.is_complete

    run(stream())
    assert agent.model.asked < 10
    assert guard.last.stop is not None


def test_a_stop_is_raised_from_the_events_with_the_result_so_far():
    agent, guard = seeker(), Guard(StopRules(max_steps=3))

    async def stream() -> None:
        result = guarded(agent, guard).run_streamed("go", max_turns=None)
        with pytest.raises(LimitReached) as caught:
            await events_of(result)
        assert caught.value.partial is result
        assert len(result.new_items) >= 6

    run(stream())
    assert agent.model.asked <= 4


def test_a_stop_by_the_last_answer_of_a_stream_is_raised_from_its_events():
    class MeasuredModel(SdkModel):
        async def stream_response(self, *positional, **named):
            async for event in super().stream_response():
                event.response.usage = ResponseUsage.model_construct(
                    input_tokens=1, output_tokens=1, total_tokens=2
                )
                yield event

    agent = Agent(name="a", model=MeasuredModel(lambda n: "done"))

    async def stream() -> None:
        result = guarded(agent, Guard(StopRules(max_tokens=1))).run_streamed("go")
        with pytest.raises(BudgetSpent):
            await events_of(result)
        assert result.final_output == "done"

    run(stream())


@pytest.mark.parametrize("call", ["run", "run_streamed"])
def test_a_stop_is_an_error_of_the_sdks_too(call):
    async def stop() -> None:
        result = getattr(guarded(seeker(), Guard(StopRules(max_steps=3))), call)("go")
        await (result if call == "run" else events_of(result))

    with pytest.raises(AgentsException) as caught:
        run(stop())
    assert isinstance(caught.value, LimitReached)
    assert caught.value.partial.new_items


def test_the_events_of_a_streamed_run_come_from_the_sdks_own_generator():
    """The SDK strips what an error shows of the program's data, frame by frame."""

    def fail(n: int) -> str:
        raise ValueError("secret")

    async def frames(start: Any) -> list[str]:
        with pytest.raises(ValueError, match="secret") as caught:
            await events_of(start("go"))
        return [entry.name for entry in caught.traceback]

    failing = Agent(name="a", model=SdkModel(fail))
    bare = run(frames(lambda text: Runner.run_streamed(failing, text)))
    assert run(frames(guarded(failing).run_streamed)) == bare


def test_an_error_of_the_program_whose_text_cannot_be_read_is_the_same_as_without_a_guard():
    class UnreadableError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("this error has no text")

    @function_tool(failure_error_function=None)
    def fail() -> str:
        """Fails."""
        raise UnreadableError

    def failing() -> Agent:
        return Agent(name="a", model=SdkModel(lambda n: sdk_calls("fail", n)), tools=[fail])

    errors = []
    for call in (lambda: Runner.run(failing(), "go"), lambda: guarded(failing()).run("go")):
        with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever the SDK makes of it
            run(call())
        errors.append(type(caught.value))
    assert errors[0] is errors[1]
    assert errors[0] in (UnreadableError, UserError, RuntimeError)


def test_a_version_that_the_adapter_does_not_know_is_refused_with_the_one_to_install(monkeypatch):
    framework_versions._version_problem.cache_clear()
    monkeypatch.setattr(framework_versions.metadata, "version", lambda name: "0.9.1")
    try:
        with pytest.raises(ImportError, match=r"openai-agents 0\.9\.1 .* needs >=0\.24"):
            guarded(speaker())
    finally:
        framework_versions._version_problem.cache_clear()
