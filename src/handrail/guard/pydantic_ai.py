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

__all__ = ["GuardedAgent", "guarded", "watching"]


class GuardedAgent:
    """An agent with a guard around its runs."""

    def __init__(self, agent: Theirs, guard: Guard | None, name: str) -> None:
        self.agent, self.guard, self.name = agent, guard, name

    async def run(self, given: Theirs = None, **options: Theirs) -> Theirs:
        """As `agent.run(given)`, with the options of `agent.iter`; raises `Stopped` when a rule
        ends the run."""
        with joining(self.guard, self.name, given) as watch:
            result = await self._run(watch, given, options)
            for _ in range(ASKS_MAX):
                allowed = await _allowed(watch, result)
                if allowed is None:
                    break
                result = await self._run(watch, None, {**options, **allowed})
                watch.check()
        return result

    async def _run(self, watch: Watch, given: Theirs, options: dict[str, Theirs]) -> Theirs:
        told = _Told(watch)
        async with self.agent.iter(given, **options) as run:
            async for node in run:
                watch.partial = run.all_messages()
                told.node(node)
                watch.check()
        watch.partial = run.result
        return run.result

    def run_stream(self, *given: Theirs, **options: Theirs) -> NoReturn:
        refuse_stream("agent.run_stream", "call `run`, or be guarded and not streamed")

    iter = run_stream_events = run_stream_sync = run_stream

    def run_sync(self, given: Theirs = None, **options: Theirs) -> Theirs:
        """As `agent.run_sync(given)`; raises `Stopped` when a rule ends the run."""
        return asyncio.run(self.run(given, **options))


def guarded(agent: Theirs, guard: Guard | None = None, *, name: str = "") -> GuardedAgent:
    return GuardedAgent(agent, guard, name or agent.name or "agent")


async def _allowed(watch: Watch, result: Theirs) -> dict[str, Theirs] | None:
    """What people say to tools that want an approval, as options of the run that goes on; None if
    none wants one, or nobody can be asked."""
    deferred = framework("pydantic_ai", EXTRA)
    wanted = result.output
    if not isinstance(wanted, deferred.DeferredToolRequests) or wanted.calls:
        return None
    said: dict[str, Theirs] = {}
    for call in wanted.approvals:
        asks = f"{watch.agent} wants to call {call.tool_name}({text_of(call.args)})"
        reply = await ask_async(watch, asks)
        watch.check()
        if reply is None:
            return None
        said[call.tool_call_id] = is_yes(reply) or deferred.ToolDenied(reply.text)
    results = wanted.build_results(approvals=said)
    return {"message_history": result.all_messages(), "deferred_tool_results": results}


class _Told:
    """From nodes to steps and tool calls. `asked` are the calls that a model has asked for."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.asked: dict[str, Theirs] = {}

    def node(self, node: Theirs) -> None:
        """A node that is about to run: a model is to be asked, or has answered."""
        request, response = getattr(node, "request", None), getattr(node, "model_response", None)
        if request is not None:
            self._returned(request.parts)
            self.watch.step()
        elif response is not None:
            self.asked = {call.tool_call_id: call for call in response.tool_calls}
            self.watch.answered(text=response.text or "", tokens=response.usage.total_tokens)

    def _returned(self, parts: Theirs) -> None:
        for part in parts if self.asked else ():
            call = self.asked.pop(getattr(part, "tool_call_id", ""), None)
            if call is not None:
                good = part.outcome == "success"
                failed = None if good else part.content
                self.watch.called(call.tool_name, call.args_as_dict(), part.content, failed)
