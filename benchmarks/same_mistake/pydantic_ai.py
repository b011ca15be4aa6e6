"""Pydantic AI: two agents and a program's own loop between them, with a stub model."""

import asyncio

from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.usage import RequestUsage

from benchmarks.same_mistake.scenes import Script
from handrail import Guard
from handrail.guard import pydantic_ai as adapter

DISTRIBUTION = "pydantic-ai-slim"
LIMIT = "none between agents"


def agent(script: Script, name: str) -> Agent:
    def answer(messages, info) -> ModelResponse:
        usage = RequestUsage(output_tokens=script.answer())
        returned = any(isinstance(part, ToolReturnPart) for part in messages[-1].parts)
        section = 0 if returned else script.wants_to_save(name)
        part = ToolCallPart("save", {"section": section}) if section else TextPart(script.text())
        return ModelResponse(parts=[part], usage=usage)

    made = Agent(FunctionModel(answer), name=name)

    @made.tool_plain
    def save(section: int) -> str:
        return f"section {section} is saved"

    return made


async def team(script: Script, wrap) -> str:
    agents = {name: wrap(agent(script, name)) for name in script.scene.agents}
    name = script.agent(0)
    while name:
        await agents[name].run("go on")
        name = script.next()
    return "done"


def bare(script: Script) -> str:
    return asyncio.run(team(script, lambda made: made))


def guarded(script: Script, guard: Guard) -> str:
    with adapter.watching(guard, "team"):
        return asyncio.run(team(script, adapter.guarded))
