"""The OpenAI Agents SDK: agents with handoffs, with a stub model."""

import asyncio
import json

from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

from agents import Agent, Model, ModelResponse, Runner, Usage, function_tool, set_tracing_disabled
from benchmarks.same_mistake.scenes import Script
from handrail import Guard
from handrail.guard import openai_agents as adapter

set_tracing_disabled(True)
DISTRIBUTION = "openai-agents"
LIMIT = "max_turns, by default"
GUARDED_TURNS_MAX = 10_000
"""Out of reach: under guard the guard's rules are to decide."""


class Stub(Model):
    def __init__(self, script: Script, name: str) -> None:
        self.script, self.name = script, name

    async def get_response(self, *given, **more):
        script = self.script
        tokens = script.answer()
        if section := script.wants_to_save(self.name):
            output = call(script, "save", {"section": section})
        elif to := script.next():
            output = call(script, f"transfer_to_{to}", {})
        else:
            output = said("done")
        usage = Usage(requests=1, output_tokens=tokens, total_tokens=tokens)
        return ModelResponse(output=[output], usage=usage, response_id=None)

    def stream_response(self, *given, **more):
        raise NotImplementedError


def call(script: Script, name: str, arguments: dict) -> ResponseFunctionToolCall:
    return ResponseFunctionToolCall(
        call_id=f"c{script.steps}", name=name, arguments=json.dumps(arguments), type="function_call"
    )


def said(text: str) -> ResponseOutputMessage:
    part = ResponseOutputText(text=text, type="output_text", annotations=[])
    return ResponseOutputMessage(
        id="m", role="assistant", status="completed", type="message", content=[part]
    )


@function_tool
def save(section: int) -> str:
    """Saves a section."""
    return f"section {section} is saved"


def first(script: Script) -> Agent:
    agents = [
        Agent(name=name, model=Stub(script, name), tools=[save]) for name in script.scene.agents
    ]
    for agent in agents:
        agent.handoffs = [other for other in agents if other is not agent]
    return next(agent for agent in agents if agent.name == script.agent(0))


def bare(script: Script) -> str:
    far = {"max_turns": script.far} if script.far else {}
    return str(asyncio.run(Runner.run(first(script), "begin", **far)).final_output)


def guarded(script: Script, guard: Guard) -> str:
    team = adapter.guarded(first(script), guard)
    return str(asyncio.run(team.run("begin", max_turns=GUARDED_TURNS_MAX)).final_output)
