"""CrewAI without a network: stub models, agents, tasks and crews for its tests."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

from crewai import Agent, Crew, Task
from crewai.events import LLMCallCompletedEvent, LLMCallStartedEvent, crewai_event_bus
from crewai.events.types.llm_events import LLMCallType
from crewai.llms.base_llm import BaseLLM
from crewai.tools import tool
from tests.patience import PATIENCE

from handrail import Guard
from handrail.kernel.run.events import HandedOff

DONE = "Thought: I now can give a great answer\nFinal Answer: {}"

Says = Callable[[int], Any]
"""What a model answers when it is asked for the nth time: a text, or calls of tools."""


class Stub(BaseLLM):
    """Says what it is told to, and tells what it used."""

    says: Says
    native: bool = False
    asked: int = 0
    cost: Callable[[], int] = lambda: 10

    def call(self, messages, tools=None, *given, **more):
        self.asked += 1
        crewai_event_bus.emit(self, LLMCallStartedEvent(call_id="-"))
        usage = {"completion_tokens": self.cost()}
        said = self.says(self.asked)
        kind = LLMCallType.LLM_CALL
        crewai_event_bus.emit(
            self,
            LLMCallCompletedEvent(
                response=str(said), call_type=kind, call_id="-", usage=usage, model=self.model
            ),
        )
        return said

    async def acall(self, *given, **more):
        await asyncio.sleep(0)
        return self.call(*given, **more)

    def supports_function_calling(self) -> bool:
        return self.native


def acts(action: str, **given: object) -> str:
    return f"Thought: go on\nAction: {action}\nAction Input: {json.dumps(given)}\nObservation:"


def calls(name: str, *several: dict[str, object]) -> list[dict[str, Any]]:
    """As models call tools that can do it themselves."""
    return [
        {
            "id": f"{name}-{number}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(given)},
        }
        for number, given in enumerate(several)
    ]


def says(answer: str) -> Says:
    return lambda number: DONE.format(answer)


def delegates(number: int) -> str:
    """To the coder, something else each time."""
    return acts("delegate_work_to_coworker", task=f"part {number}", context="-", coworker="coder")


def agent(role: str, says: Says, *, native: bool = False, **more: Any) -> Agent:
    model = more.pop("llm", None) or Stub(model="stub", says=says, native=native)
    return Agent(role=role, goal="g", backstory="b", llm=model, max_iter=50, **more)


def task(one: Agent | None, **more: Any) -> Task:
    return Task(description="do it", expected_output="it", agent=one, **more)


def crew(*agents: Agent, **more: Any) -> Crew:
    return Crew(agents=list(agents), tasks=[task(one) for one in agents], **more)


def handoffs(guard: Guard) -> list[tuple[str, str]]:
    return [(e.source, e.target) for e in guard.last.events if isinstance(e, HandedOff)]


def run(work: Any) -> Any:
    """The result of the work; nothing that it has started is left when it is there."""

    async def alone() -> Any:
        result = await asyncio.wait_for(work, PATIENCE)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return result

    return asyncio.run(alone())


@tool("look")
def look(where: str) -> str:
    """Looks there."""
    return f"nothing in {where}"
