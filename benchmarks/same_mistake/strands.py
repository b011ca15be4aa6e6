"""Strands: a Swarm whose agents hand over with its own tool, with a stub model."""

import json
import logging

from strands import Agent, tool
from strands.models import Model
from strands.multiagent import Swarm

from benchmarks.same_mistake.scenes import Script
from handrail import Guard
from handrail.guard import strands as adapter

logging.getLogger("strands").setLevel(logging.CRITICAL)
DISTRIBUTION = "strands-agents"
LIMIT = "max_handoffs, max_iterations, by default"


class Stub(Model):
    def __init__(self, script: Script, name: str) -> None:
        self.script, self.name = script, name

    def update_config(self, **given): ...

    def get_config(self):
        return {"model_id": "stub"}

    def structured_output(self, *given, **more):
        raise NotImplementedError

    async def stream(self, messages, *given, **more):
        script = self.script
        tokens = script.answer()
        yield {"messageStart": {"role": "assistant"}}
        calls = []
        if not handed_over(messages):
            if section := script.wants_to_save(self.name):
                calls = [("save", {"section": section})]
            elif to := script.next():
                calls = [("handoff_to_agent", {"agent_name": to, "message": script.text()})]
        for name, arguments in calls:
            use = {"name": name, "toolUseId": f"t{script.steps}"}
            yield {"contentBlockStart": {"start": {"toolUse": use}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps(arguments)}}}}
            yield {"contentBlockStop": {}}
        if not calls:
            yield {"contentBlockStart": {"start": {}}}
            yield {"contentBlockDelta": {"delta": {"text": "ok"}}}
            yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if calls else "end_turn"}}
        usage = {"inputTokens": 0, "outputTokens": tokens, "totalTokens": tokens}
        yield {"metadata": {"usage": usage, "metrics": {"latencyMs": 0}}}


def handed_over(messages) -> bool:
    """Whether the last tool that this agent called was the one that hands over."""
    if "toolResult" not in messages[-1]["content"][0] or len(messages) < 2:
        return False
    uses = [part["toolUse"] for part in messages[-2]["content"] if "toolUse" in part]
    return any(use["name"] == "handoff_to_agent" for use in uses)


@tool
def save(section: int) -> str:
    """Saves a section."""
    return f"section {section} is saved"


def swarm(script: Script) -> Swarm:
    agents = [
        Agent(name=name, model=Stub(script, name), tools=[save], callback_handler=None)
        for name in script.scene.agents
    ]
    first = next(agent for agent in agents if agent.name == script.agent(0))
    far = {"max_handoffs": script.far, "max_iterations": script.far} if script.far else {}
    return Swarm(agents, entry_point=first, **far)


def bare(script: Script) -> str:
    result = swarm(script)("begin")
    return f"a result with status {result.status.value}"


def guarded(script: Script, guard: Guard) -> str:
    result = adapter.guarded(swarm(script), guard)("begin")
    return f"a result with status {result.status.value}"
