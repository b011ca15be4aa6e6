"""Pydantic AI under guard: agents, watched node by node as their runs are iterated.

    helper = guarded(agent)
    await helper.run("what is the weather?")

One agent alone is guarded as it stands: its model calls and tools are the steps of one turn.
Agents that hand over to each other do so in a program of somebody's own; `watching` is around it,
and every guarded agent that runs inside it takes the turn:

    with watching(Guard(), "two agents"):
        while not done:
            result = await guarded(agents[name]).run(task)

An agent that is run by another one's tool gets the turn, and gives it back. A tool that wants an
approval is asked for through the server that records the run; without one, and if it is deferred,
it ends the agent's run as ever, with what it wants as the result.

What a stop leaves: the messages so far, as `partial`.
"""

import asyncio
import functools
from collections.abc import Coroutine, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NoReturn

from handrail.guard import Guard
from handrail.guard.people import ASKS_MAX, ask_async, is_yes
from handrail.guard.watch import (
    Theirs,
    Watch,
    framework,
    joining,
    refuse_stream,
    text_of,
    watching,
)

EXTRA = "pydantic-ai"
LISTENS = "event_stream_handler"

__all__ = ["GuardedAgent", "guarded", "watching"]


class GuardedAgent:
    """An agent with a guard around its runs."""

    def __init__(self, agent: Theirs, guard: Guard | None, name: str) -> None:
        self.agent, self.guard, self.name = agent, guard, name

    async def run(self, given: Theirs = None, **options: Theirs) -> Theirs:
        """As `agent.run(given)`; raises `Stopped` when a rule ends the run."""
        with joining(self.guard, self.name, given) as watch, _part(watch) as told:
            result = await self._run(told, given, options)
            told.leaves(result)
            for _ in range(ASKS_MAX):
                wanted = _wanted(result)
                said = [await ask_async(watch, _question(watch, call)) for call in wanted]
                watch.check()
                if not said or None in said:
                    break
                allowed = options | _allowed(result, said)
                result = await self._run(told, None, allowed)
                told.leaves(result)
        return result

    async def _run(self, told: "_Told", given: Theirs, options: dict[str, Theirs]) -> Theirs:
        """To be iterated over costs least; somebody who listens to the stream cannot be, so the
        guard is a capability of that run."""
        told.begins()
        if options.get(LISTENS) or self.agent.event_stream_handler:
            capabilities = [*(options.get("capabilities") or ()), _capability()(told)]
            return await self.agent.run(given, **options | {"capabilities": capabilities})
        options = {name: option for name, option in options.items() if name != LISTENS}
        async with self.agent.iter(given, **options) as run:
            async for node in run:
                told.node(node, run.all_messages())
        return run.result

    def run_sync(self, given: Theirs = None, **options: Theirs) -> Theirs:
        """As `agent.run_sync(given)`; raises `Stopped` when a rule ends the run."""
        return _finished(self.run(given, **options))

    def run_stream(self, *given: Theirs, **options: Theirs) -> NoReturn:
        refuse_stream("agent.run_stream", "call `run`, or be guarded and not streamed")

    iter = run_stream_events = run_stream_sync = run_stream


def guarded(agent: Theirs, guard: Guard | None = None, *, name: str = "") -> GuardedAgent:
    return GuardedAgent(agent, guard, name or agent.name or "agent")


def _wanted(result: Theirs) -> list[Theirs]:
    """Tools that want an approval, if nothing else is waited for."""
    wanted = result.output
    kind = framework("pydantic_ai", EXTRA).DeferredToolRequests
    return [] if not isinstance(wanted, kind) or wanted.calls else wanted.approvals


def _question(watch: Watch, call: Theirs) -> str:
    return f"{watch.agent} wants to call {call.tool_name}({text_of(call.args)})"


def _allowed(result: Theirs, said: list[Theirs]) -> dict[str, Theirs]:
    """What people said, as options of the run that goes on."""
    denied = framework("pydantic_ai", EXTRA).ToolDenied
    approvals = {
        call.tool_call_id: is_yes(reply) or denied(reply.text)
        for call, reply in zip(result.output.approvals, said, strict=True)
    }
    results = result.output.build_results(approvals=approvals)
    return {"message_history": result.all_messages(), "deferred_tool_results": results}


def _finished(work: "Coroutine[Theirs, Theirs, Theirs]") -> Theirs:
    """In the current loop, as the agent's own `run_sync`: a model's connections belong to it."""
    try:
        loop = asyncio.get_event_loop()
    except RuntimeError:
        loop = None
    if loop is None or loop.is_closed():
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
    return loop.run_until_complete(work)


_at_work: ContextVar[Watch | None] = ContextVar("handrail_pydantic_ai", default=None)
"""The run that an agent has a part in here."""


@contextmanager
def _part(watch: Watch) -> Generator["_Told"]:
    """An agent's part. What a stop leaves is of the agent that nobody has asked."""
    asked = _at_work.get() is watch
    before = _at_work.set(watch)
    try:
        yield _Told(watch, keeps=not asked)
    finally:
        _at_work.reset(before)


class _Told:
    """From nodes to steps and tool calls."""

    def __init__(self, watch: Watch, *, keeps: bool) -> None:
        self.watch, self.keeps = watch, keeps
        self.begins()

    def begins(self) -> None:
        """A run of the agent's; after an approval it begins with what the model answered before."""
        self.asked: dict[str, Theirs] = {}
        """Calls that the model has asked for."""
        self.waits = False
        """Whether a model is to answer."""

    def leaves(self, partial: Theirs) -> None:
        if self.keeps:
            self.watch.partial = partial

    def node(self, node: Theirs, messages: Theirs) -> None:
        """A node that is about to run: a model is to be asked, or has answered."""
        self.leaves(messages)
        request, response = getattr(node, "request", None), getattr(node, "model_response", None)
        if request is not None:
            self._returned(request.parts)
            self.watch.step()
            self.waits = True
        elif response is not None:
            self.asked = {call.tool_call_id: call for call in response.tool_calls}
            if self.waits:
                self.watch.answered(text=response.text or "", tokens=response.usage.total_tokens)
            self.waits = False
        self.watch.check()

    def _returned(self, parts: Theirs) -> None:
        for part in parts if self.asked else ():
            call = self.asked.pop(getattr(part, "tool_call_id", ""), None)
            if call is not None:
                good = part.outcome == "success"
                failed = None if good else part.content
                self.watch.called(call.tool_name, call.args_as_dict(), part.content, failed)


class _Capability:
    """The same, told by the framework."""

    def __init__(self, told: _Told) -> None:
        super().__init__()
        self.told = told

    async def before_node_run(self, context: Theirs, *, node: Theirs) -> Theirs:
        self.told.node(node, context.messages)
        return node


@functools.cache
def _capability() -> Theirs:
    """The class of the capability; it can be made only where the framework is installed."""
    base = framework("pydantic_ai.capabilities", EXTRA).AbstractCapability
    return type("HandrailGuard", (_Capability, base), {})
