"""Guard Pydantic AI: agents, watched node by node as their runs are iterated.

    helper = guarded(agent)
    await helper.run("what is the weather?")

A single agent is guarded as it stands: its model calls and tools are the steps of one turn. Agents
that hand over to each other do so in a program of the user's own; `watching` is around it, and
every guarded agent that runs inside it takes the turn:

    with watching(Guard(), "two agents"):
        while not done:
            result = await guarded(agents[name]).run(task)

An agent that another agent's tool runs gets the turn, and gives it back. The server that records
the run asks for a tool's approval; without a server, and if the tool is deferred, the request ends
the agent's run and is its result, as without a guard.

What a stop leaves: the messages so far, as `partial`.
"""

import asyncio
import functools
from collections.abc import Coroutine, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NoReturn

from handrail.guard.adapter import (
    RunWatch,
    import_framework,
    refuse_stream,
    to_text,
    watching,
    watching_agent,
)
from handrail.guard.approvals import ASKS_PER_RUN_MAX, ask_person_async, is_yes
from handrail.guard.run import Guard

EXTRA = "pydantic-ai"
STREAM_HANDLER_OPTION = "event_stream_handler"

__all__ = ["GuardedPydanticAgent", "guarded", "watching"]


class GuardedPydanticAgent:
    """An agent with a guard around its runs."""

    def __init__(self, agent: Any, guard: Guard | None, name: str) -> None:
        self.agent, self.guard, self.name = agent, guard, name

    async def run(self, user_prompt: Any = None, **options: Any) -> Any:
        """Like `agent.run(user_prompt)`; raises `Stopped` when a rule ends the run."""
        with (
            watching_agent(self.guard, self.name, user_prompt, _thread(options)) as watch,
            _recording(watch) as recorder,
        ):
            result = await self._run(recorder, user_prompt, options)
            recorder.set_partial(result)
            for _ in range(ASKS_PER_RUN_MAX):
                calls = _requested_approvals(result)
                replies = [
                    await ask_person_async(watch, _question_text(watch, call)) for call in calls
                ]
                watch.raise_if_stopped()
                if not replies or None in replies:
                    break
                resume_options = options | _resume_options(result, replies)
                result = await self._run(recorder, None, resume_options)
                recorder.set_partial(result)
        return result

    async def _run(
        self, recorder: "_NodeRecorder", user_prompt: Any, options: dict[str, Any]
    ) -> Any:
        """Run the agent by iteration, which costs least.

        A run with a stream handler cannot be iterated; there the guard is a capability of the run.
        """
        recorder.begin_run()
        if options.get(STREAM_HANDLER_OPTION) or self.agent.event_stream_handler:
            capabilities = [*(options.get("capabilities") or ()), _capability_class()(recorder)]
            return await self.agent.run(user_prompt, **options | {"capabilities": capabilities})
        options = {
            name: option for name, option in options.items() if name != STREAM_HANDLER_OPTION
        }
        async with self.agent.iter(user_prompt, **options) as run:
            async for node in run:
                recorder.record_node(node, run.all_messages())
                recorder.deliver_nudge(node, run)
        return run.result

    def run_sync(self, user_prompt: Any = None, **options: Any) -> Any:
        """Like `agent.run_sync(user_prompt)`; raises `Stopped` when a rule ends the run."""
        return _run_until_complete(self.run(user_prompt, **options))

    def run_stream(self, *args: Any, **options: Any) -> NoReturn:
        refuse_stream("agent.run_stream", "call `run`, or be guarded and not streamed")

    iter = run_stream_events = run_stream_sync = run_stream


def guarded(agent: Any, guard: Guard | None = None, *, name: str = "") -> GuardedPydanticAgent:
    return GuardedPydanticAgent(agent, guard, name or agent.name or "agent")


def _thread(options: dict[str, Any]) -> str:
    """Return the id of the conversation: as the caller names it, or as its messages do."""
    conversation_id = options.get("conversation_id")
    if conversation_id:
        return "" if conversation_id == "new" else conversation_id
    messages: Any = options.get("message_history") or ()
    ids = (getattr(message, "conversation_id", None) for message in reversed(messages))
    return next(filter(None, ids), "")


def _requested_approvals(result: Any) -> list[Any]:
    """Return the tool calls that need an approval, if the run waits for nothing else."""
    requests = result.output
    request_type = import_framework("pydantic_ai", EXTRA).DeferredToolRequests
    return [] if not isinstance(requests, request_type) or requests.calls else requests.approvals


def _question_text(watch: RunWatch, call: Any) -> str:
    return f"{watch.active_agent} wants to call {call.tool_name}({to_text(call.args)})"


def _resume_options(result: Any, replies: list[Any]) -> dict[str, Any]:
    """Return people's replies as options of the run that goes on."""
    denied_type = import_framework("pydantic_ai", EXTRA).ToolDenied
    approvals = {
        call.tool_call_id: is_yes(reply) or denied_type(reply.text)
        for call, reply in zip(result.output.approvals, replies, strict=True)
    }
    results = result.output.build_results(approvals=approvals)
    return {"message_history": result.all_messages(), "deferred_tool_results": results}


def _run_until_complete(coroutine: "Coroutine[Any, Any, Any]") -> Any:
    """Run in the current loop, as the agent's own `run_sync`: a model's connections belong to
    it.
    """
    try:
        loop = asyncio.get_event_loop()
    except RuntimeError:
        loop = None
    if loop is None or loop.is_closed():
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
    return loop.run_until_complete(coroutine)


_active_watch: ContextVar[RunWatch | None] = ContextVar("handrail_pydantic_ai", default=None)
"""The watched run that the agent in this context belongs to."""


@contextmanager
def _recording(watch: RunWatch) -> Generator["_NodeRecorder"]:
    """Record an agent's part. The partial result is that of the outermost agent."""
    is_nested = _active_watch.get() is watch
    reset_token = _active_watch.set(watch)
    try:
        yield _NodeRecorder(watch, sets_partial=not is_nested)
    finally:
        _active_watch.reset(reset_token)


class _NodeRecorder:
    """Maps nodes to steps and tool calls."""

    def __init__(self, watch: RunWatch, *, sets_partial: bool) -> None:
        self.watch, self.sets_partial = watch, sets_partial
        self.begin_run()

    def begin_run(self) -> None:
        """Begin a run of the agent; after an approval it begins with the model's earlier answer."""
        self.requested_calls: dict[str, Any] = {}
        """Calls that the model has requested."""
        self.awaits_answer = False
        """Whether a model's answer is due."""

    def set_partial(self, partial: Any) -> None:
        if self.sets_partial:
            self.watch.partial = partial

    def record_node(self, node: Any, messages: Any) -> None:
        """Record a node that is about to run: a model is to be asked, or has answered."""
        self.set_partial(messages)
        request, response = getattr(node, "request", None), getattr(node, "model_response", None)
        if request is not None:
            self._record_tool_results(request.parts)
            self.watch.begin_step()
            self.awaits_answer = True
        elif response is not None:
            self.requested_calls = {call.tool_call_id: call for call in response.tool_calls}
            if self.awaits_answer:
                self.watch.record_answer(
                    text=response.text or "", tokens=response.usage.total_tokens
                )
            self.awaits_answer = False
        self.watch.raise_if_stopped()

    def deliver_nudge(self, node: Any, run: Any) -> None:
        """Add a nudge to the request that the node is about to make; `run` is the agent's run or
        its context.
        """
        if getattr(node, "request", None) is not None:
            self.watch.deliver_nudge(run.enqueue)

    def _record_tool_results(self, parts: Any) -> None:
        for part in parts if self.requested_calls else ():
            call = self.requested_calls.pop(getattr(part, "tool_call_id", ""), None)
            if call is not None:
                succeeded = part.outcome == "success"
                error = None if succeeded else part.content
                self.watch.record_tool_call(
                    call.tool_name, call.args_as_dict(), part.content, error
                )


class _GuardCapability:
    """Does the same as a capability, which the framework calls."""

    def __init__(self, recorder: _NodeRecorder) -> None:
        super().__init__()
        self.recorder = recorder

    async def before_node_run(self, context: Any, *, node: Any) -> Any:
        self.recorder.record_node(node, context.messages)
        self.recorder.deliver_nudge(node, context)
        return node


@functools.cache
def _capability_class() -> Any:
    """Make the class of the capability; this works only where the framework is installed."""
    base = import_framework("pydantic_ai.capabilities", EXTRA).AbstractCapability
    return type("HandrailGuard", (_GuardCapability, base), {})
