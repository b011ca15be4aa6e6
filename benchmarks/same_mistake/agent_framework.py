"""Microsoft Agent Framework: a workflow of executors that send each other messages."""

import asyncio
import logging

from agent_framework import (
    AgentExecutorResponse,
    AgentResponse,
    Content,
    Executor,
    Message,
    WorkflowBuilder,
    WorkflowContext,
    handler,
)

from benchmarks.same_mistake.scenes import Script
from handrail import Guard
from handrail.guard import agent_framework as adapter

logging.getLogger("agent_framework").setLevel(logging.CRITICAL)
DISTRIBUTION = "agent-framework-core"
LIMIT = "max_iterations, by default"


class Stub(Executor):
    def __init__(self, script: Script, name: str) -> None:
        super().__init__(id=name)
        self.script = script

    @handler
    async def go(self, given: str, context: WorkflowContext[AgentExecutorResponse, str]) -> None:
        await self.turn(context)

    @handler
    async def went(
        self, given: AgentExecutorResponse, context: WorkflowContext[AgentExecutorResponse, str]
    ) -> None:
        await self.turn(context)

    async def turn(self, context) -> None:
        script = self.script
        usage = {"total_token_count": script.answer()}
        contents = saved(section) if (section := script.wants_to_save(self.id)) else []
        messages = [Message("assistant", [*contents, Content.from_text(script.text())])]
        response = AgentResponse(messages=messages, usage_details=usage)
        answer = AgentExecutorResponse(
            executor_id=self.id, agent_response=response, full_conversation=messages
        )
        if to := script.next():
            await context.send_message(answer, target_id=to)
        else:
            await context.yield_output("done")


def saved(section: int) -> list[Content]:
    call = Content.from_function_call(f"c{section}", "save", arguments={"section": section})
    done = Content.from_function_result(f"c{section}", result=f"section {section} is saved")
    return [call, done]


def workflow(script: Script):
    made = {name: Stub(script, name) for name in script.scene.agents}
    far = {"max_iterations": script.far} if script.far else {}
    built = WorkflowBuilder(start_executor=made[script.agent(0)], **far)
    for one in made.values():
        for other in made.values():
            if one is not other:
                built.add_edge(one, other)
    return built.build()


def bare(script: Script) -> str:
    return str(asyncio.run(workflow(script).run("begin")).get_outputs())


def guarded(script: Script, guard: Guard) -> str:
    return str(asyncio.run(adapter.guarded(workflow(script), guard).run("begin")).get_outputs())
