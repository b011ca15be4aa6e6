"""CrewAI under guard, with stub models. It wants an environment of its own, with its own versions:

uv venv .venv-crewai
uv pip install --no-config --python .venv-crewai -e . crewai pytest hypothesis
.venv-crewai/bin/python -m pytest tests/frameworks/test_crewai.py
"""

import ast
import asyncio
import os
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from tempfile import gettempdir

import pytest

from handrail import Guard, LoopDetected, NoProgress, Stopped, StopRules
from handrail.guard.anything import around
from handrail.guard.crewai import guarded
from handrail.kernel.run.events import HandedOff

os.environ.update(
    CREWAI_DISABLE_TELEMETRY="true", CREWAI_TRACING_ENABLED="false", CREWAI_TESTING="true",
    OTEL_SDK_DISABLED="true", CREWAI_STORAGE_DIR=str(Path(gettempdir()) / "handrail-crewai"),
)  # fmt: skip
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of its own, when it is imported
    from crewai import Agent, Crew, Task
    from crewai.hooks import InterceptionPoint, get_hooks
    from crewai.llms.base_llm import BaseLLM
    from crewai.tools import tool

DOCS = Path(__file__).resolve().parents[2] / "docs"
DONE = "Thought: I now can give a great answer\nFinal Answer: {}"
pytestmark = pytest.mark.filterwarnings("ignore")


class Stub(BaseLLM):
    """Says what it is told to, for ten tokens."""

    says: Callable[[int], str]
    asked: int = 0

    def call(self, *given, **more):
        self.asked += 1
        usage = {"prompt_tokens": 4, "completion_tokens": 6, "total_tokens": 10}
        self._track_token_usage_internal(usage)
        return self.says(self.asked)

    def supports_function_calling(self) -> bool:
        return False


def stub(says: Callable[[int], str]) -> Stub:
    return Stub(model="stub", says=says)


def acts(action: str, **given: str) -> str:
    asked = ", ".join(f'"{name}": "{value}"' for name, value in given.items())
    return f"Thought: go on\nAction: {action}\nAction Input: {{{asked}}}\nObservation:"


def says(answer: str) -> Callable[[int], str]:
    return lambda number: DONE.format(answer)


def delegates(number: int) -> str:
    """To the coder, something else each time."""
    return acts("delegate_work_to_coworker", task=f"part {number}", context="-", coworker="coder")


def agent(role: str, says: Callable[[int], str], **more) -> Agent:
    return Agent(role=role, goal="g", backstory="b", llm=stub(says), max_iter=50, **more)


def crew(*agents: Agent, **more) -> Crew:
    tasks = [Task(description="do it", expected_output="it", agent=one) for one in agents]
    return Crew(agents=list(agents), tasks=tasks, **more)


def handoffs(guard: Guard) -> list[tuple[str, str]]:
    return [(e.source, e.target) for e in guard.last.events if isinstance(e, HandedOff)]


def test_when_nothing_fires_the_crew_s_own_result_comes_back():
    guard = Guard()
    team = crew(
        agent("planner", lambda n: DONE.format("a")), agent("coder", lambda n: DONE.format("b"))
    )
    assert guarded(team, guard).kickoff().raw == "b"
    assert handoffs(guard) == [("planner", "coder")]
    assert guard.last.report().usage.tokens == 20
    assert asyncio.run(guarded(team, guard).akickoff()).raw == "b"


def test_a_manager_that_delegates_for_ever_is_stopped_with_what_is_done():
    manager = agent("planner", delegates, allow_delegation=True)
    coder = agent("coder", says("ok"))
    team = Crew(
        agents=[manager, coder],
        tasks=[
            Task(description="first", expected_output="it", agent=coder),
            Task(description="then", expected_output="it", agent=manager),
        ],
    )
    with pytest.raises(LoopDetected) as caught:
        guarded(team).kickoff()
    assert caught.value.stop.pattern == ("planner -> coder",)
    assert [output.raw for output in caught.value.partial] == ["ok"]
    assert manager.llm.asked == 3
    manager.llm.asked = -100
    manager.llm.says = says("left in good order")
    assert team.kickoff().raw == "left in good order"


def test_a_tool_that_fails_the_same_way_is_a_failure_and_nothing_more_is_spent():
    @tool("look")
    def look(where: str) -> str:
        """Looks there."""
        raise ValueError("not there")

    seeker = agent("seeker", lambda n: acts("look", where="shelf"), tools=[look])
    with pytest.raises(NoProgress) as caught:
        guarded(crew(seeker)).kickoff()
    assert caught.value.stop.rule == "same_error"
    with pytest.raises(Stopped, match="budget"):
        rules = StopRules(max_tokens=25)
        guarded(crew(agent("seeker", delegates, tools=[look])), Guard(rules)).kickoff()


def test_hooks_are_registered_once_and_a_stream_is_refused():
    team = crew(agent("planner", says("a")))
    start = around(team, Guard(), "team")
    assert [start("go").raw, start("go").raw] == ["a", "a"]
    assert len(get_hooks(InterceptionPoint.PRE_MODEL_CALL)) == 1
    with pytest.raises(NotImplementedError, match="cannot be guarded"):
        guarded(crew(agent("planner", delegates), stream=True)).kickoff()


def test_the_example_of_the_page_prints_what_it_says(capsys: pytest.CaptureFixture[str]):
    (source,) = re.findall(r"```python\n(.*?)```", (DOCS / "guard-crewai.md").read_text(), re.S)
    model = stub(lambda n: delegates(n) if n % 2 else DONE.format("ok"))
    exec(compile(ast.parse(source), "guard-crewai.md", "exec"), {"model": model})
    said = re.findall(r"^ *#> (.*)$", source, flags=re.M)
    shown = [line for line in capsys.readouterr().out.splitlines() if line in said]
    assert shown == said
