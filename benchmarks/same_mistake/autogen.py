"""AutoGen: a Swarm of agents that answer with handoff messages."""

import asyncio
import json
import logging

from autogen_agentchat.agents import BaseChatAgent
from autogen_agentchat.base import Response
from autogen_agentchat.conditions import TextMentionTermination
from autogen_agentchat.messages import (
    HandoffMessage,
    TextMessage,
    ToolCallExecutionEvent,
    ToolCallRequestEvent,
)
from autogen_agentchat.teams import Swarm
from autogen_core import FunctionCall
from autogen_core.models import FunctionExecutionResult, RequestUsage

from benchmarks.same_mistake.scenes import Script
from handrail import Guard
from handrail.guard import autogen as adapter

logging.getLogger("autogen_core").setLevel(logging.CRITICAL)
DISTRIBUTION = "autogen-agentchat"
LIMIT = "none"


class Stub(BaseChatAgent):
    def __init__(self, script: Script, name: str) -> None:
        super().__init__(name, "an agent")
        self.script = script

    @property
    def produced_message_types(self):
        return (HandoffMessage, TextMessage)

    async def on_messages(self, messages, cancellation_token) -> Response:
        return [one async for one in self.on_messages_stream(messages, cancellation_token)][-1]

    async def on_messages_stream(self, messages, cancellation_token):
        script = self.script
        used = RequestUsage(prompt_tokens=0, completion_tokens=script.answer())
        if section := script.wants_to_save(self.name):
            for event in saved(self.name, section):
                yield event
        to = script.next()
        if to:
            message = HandoffMessage(
                content=script.text(), target=to, source=self.name, models_usage=used
            )
        else:
            message = TextMessage(content="DONE", source=self.name, models_usage=used)
        yield Response(chat_message=message)

    async def on_reset(self, cancellation_token) -> None: ...


def saved(name: str, section: int):
    call = FunctionCall(id=f"c{section}", name="save", arguments=json.dumps({"section": section}))
    yield ToolCallRequestEvent(content=[call], source=name)
    done = FunctionExecutionResult(
        call_id=call.id, name="save", content=f"section {section} is saved", is_error=False
    )
    yield ToolCallExecutionEvent(content=[done], source=name)


def team(script: Script) -> Swarm:
    names = sorted(script.scene.agents, key=lambda name: name != script.agent(0))
    agents = [Stub(script, name) for name in names]
    return Swarm(agents, termination_condition=TextMentionTermination("DONE"))


def bare(script: Script) -> str:
    return str(asyncio.run(team(script).run(task="begin")).stop_reason)


def guarded(script: Script, guard: Guard) -> str:
    return str(asyncio.run(adapter.guarded(team(script), guard).run(task="begin")).stop_reason)
