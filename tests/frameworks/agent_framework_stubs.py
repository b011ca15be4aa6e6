"""Agent Framework without a network: stub models, executors and workflows for its tests."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from itertools import pairwise
from typing import Any

import pytest
from agent_framework import (
    Agent,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    Executor,
    FunctionInvocationLayer,
    Message,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowRunResult,
    handler,
    response_handler,
)

from handrail import Guard, Stopped
from handrail.kernel.run.events import HandedOff

logging.getLogger("agent_framework").setLevel(logging.CRITICAL)

PATTERN = ("planner -> coder", "coder -> planner")

Says = Callable[[int], str | list[Content]]
"""What a model answers when it is asked for the nth time: a text, or calls of tools."""


class Model(FunctionInvocationLayer, ChatMiddlewareLayer, BaseChatClient):
    """Says what it is told to, and tells what it used."""

    def __init__(self, says: Says, tokens: int = 10) -> None:
        super().__init__()
        self.says, self.tokens, self.asked = says, tokens, 0
        self.given: list[int] = []
        """How many messages it was asked with, without nudges."""

    def _inner_get_response(self, *, messages, stream, options, **more):
        self.asked += 1
        self.given.append(sum("The stop rule" not in message.text for message in messages))
        said, usage = self.says(self.asked), {"total_token_count": self.tokens}
        contents = [Content.from_text(said)] if isinstance(said, str) else said

        async def pieces():
            for content in (*contents, Content.from_usage(usage)):
                yield ChatResponseUpdate(role="assistant", contents=[content])

        async def answer() -> ChatResponse:
            return ChatResponse(messages=[Message("assistant", contents)], usage_details=usage)

        return self._build_response_stream(pieces()) if stream else answer()


def says(text: str) -> Says:
    return lambda n: text


def calls(tool: str, *given: dict[str, Any], n: int = 0) -> list[Content]:
    """One answer of a model that calls a tool once for each of `given`."""
    return [
        Content.from_function_call(f"c{n}.{number}", tool, arguments=one)
        for number, one in enumerate(given)
    ]


def agent(name: str, said: Says, tokens: int = 10, **more: Any) -> Agent:
    return Agent(Model(said, tokens), name=name, **more)


class Node(Executor):
    """Sends on what it is given; `last` is an output instead."""

    def __init__(self, name: str) -> None:
        super().__init__(id=name)
        self.ran = 0

    @handler
    async def one(self, given: str, context: WorkflowContext[str, str]) -> None:
        self.ran += 1
        context.set_state("last", self.id)
        if given == "last":
            await context.yield_output(f"{self.id} is done")
        else:
            await context.send_message(given)

    @handler
    async def several(self, given: list[str], context: WorkflowContext[str, str]) -> None:
        await self.one(given[0], context)


class Asks(Executor):
    """Asks for something of a type, and yields what it is answered."""

    def __init__(self, kind: type, times: int = 1, name: str = "clerk") -> None:
        super().__init__(id=name)
        self.kind, self.times = kind, times
        self.heard: list[Any] = []

    @handler
    async def go(self, given: str, context: WorkflowContext[str, str]) -> None:
        await context.request_info("may I?", self.kind)

    @response_handler
    async def text(self, asked: str, said: str, context: WorkflowContext[str, str]) -> None:
        await self.hear(said, context)

    @response_handler
    async def decision(self, asked: str, said: bool, context: WorkflowContext[str, str]) -> None:
        await self.hear(said, context)

    @response_handler
    async def figure(self, asked: str, said: int, context: WorkflowContext[str, str]) -> None:
        await self.hear(said, context)

    async def hear(self, said: Any, context: WorkflowContext[str, str]) -> None:
        self.heard.append(said)
        if len(self.heard) < self.times:
            await context.request_info("and again?", self.kind)
        else:
            await context.yield_output(f"heard {said}")


def nodes(*names: str) -> list[Node]:
    return [Node(name) for name in names]


def ring(*team: Any, **more: Any) -> Workflow:
    """Each sends to the next, and the last to the first."""
    builder = WorkflowBuilder(start_executor=team[0], **more)
    for one, other in zip(team, (*team[1:], team[0]), strict=True):
        builder.add_edge(one, other)
    return builder.build()


def line(*team: Any, **more: Any) -> Workflow:
    """Each sends to the next."""
    builder = WorkflowBuilder(start_executor=team[0], **more)
    for one, other in pairwise(team):
        builder.add_edge(one, other)
    return builder.build()


def handoffs(guard: Guard) -> list[tuple[str, str]]:
    return [(e.source, e.target) for e in guard.last.events if isinstance(e, HandedOff)]


def checks(guard: Guard) -> list[list[str]]:
    """The tools that were called, step by step."""
    told = [event.result for event in guard.last.events if hasattr(event, "result")]
    return [[one.command.split()[0] for one in result.evidence.checks] for result in told]


def tokens(guard: Guard) -> int:
    return guard.last.report().usage.tokens


async def stopped(run: Coroutine[Any, Any, Any]) -> Stopped:
    with pytest.raises(Stopped) as caught:
        await run
    return caught.value


def run(what: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(what)


def look(where: str) -> str:
    """Looks there."""
    return f"found at {where}"


def miss(where: str) -> str:
    """Looks there."""
    raise ValueError("not there")


def invoked(result: WorkflowRunResult) -> list[str]:
    return [event.executor_id for event in result if event.type == "executor_invoked"]
