"""Guard Pydantic AI: agents, watched by a capability that each of their runs gets.

    helper = guarded(agent)
    await helper.run("what is the weather?")

A guarded agent is a `WrapperAgent` of the framework: it runs, streams and iterates as the agent
does, and what the guard does not change is the agent's own. A single agent is guarded as it stands:
its model calls and tools are the steps of one turn. Agents that hand over to each other do so in a
program of the user's own; `watching` is around it, and every guarded agent that runs inside it
takes the turn:

    with watching(Guard(), "two agents"):
        while not done:
            result = await guarded(agents[name]).run(task)

An agent that another agent's tool runs gets the turn, and gives it back. The server that records
the run asks for tools' approvals, inside the run and in streams, too; without a server the
framework decides what a request for an approval means.

What a stop leaves: the messages so far, as `partial`.
"""

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import Any, cast

from handrail.guard.adapter import (
    RunWatch,
    import_framework,
    to_text,
    watching,
    watching_agent_stream,
)
from handrail.guard.approvals import (
    ASKS_PER_RUN_MAX,
    TOOL_OPTIONS,
    ask_person_async,
    is_yes,
    refusal_reason,
)
from handrail.guard.framework_versions import require_version
from handrail.guard.prices import ModelCall
from handrail.guard.run import Guard
from handrail.guard.tool_calls import declares_effect

EXTRA = "pydantic-ai"

__all__ = ["GuardedPydanticAgent", "guarded", "watching"]


class GuardedPydanticAgent:
    """An agent with a guard around its runs. Streams and `run_sync` are made of these two calls."""

    OWN_ATTRIBUTES = frozenset({"run_guard", "run_name"})
    wrapped: Any

    def __init__(self, agent: Any, guard: Guard | None, name: str) -> None:
        super().__init__(agent)  # pyright: ignore[reportCallIssue] - of the framework's wrapper
        self.run_guard, self.run_name = guard, name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in self.OWN_ATTRIBUTES or name == "wrapped":
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        return getattr(self.wrapped, name)

    def __setattr__(self, name: str, value: object) -> None:
        if name in self.OWN_ATTRIBUTES or "wrapped" not in self.__dict__:
            object.__setattr__(self, name, value)
        else:
            setattr(self.wrapped, name, value)

    async def __aenter__(self) -> Any:
        await self.wrapped.__aenter__()
        return self

    async def run(self, user_prompt: Any = None, *, infer_name: bool = True, **options: Any) -> Any:
        """Like `agent.run(user_prompt)`; raises `Stopped` when a rule ends the run."""
        if infer_name:
            self._infer_own_name()
        with self._watching(user_prompt, options) as recorder, recorder.as_current():
            result = await self.wrapped.run(
                user_prompt, infer_name=False, **recorder.with_capability(options)
            )
            recorder.set_partial(result)
        return result

    @asynccontextmanager
    async def iter(
        self, user_prompt: Any = None, *, infer_name: bool = True, **options: Any
    ) -> AsyncGenerator[Any]:
        """Like `agent.iter(user_prompt)`; raises `Stopped` when a rule ends the run."""
        with self._watching(user_prompt, options) as recorder:
            options = recorder.with_capability(options)
            async with self.wrapped.iter(user_prompt, infer_name=infer_name, **options) as run:
                yield run
                recorder.record_streamed_answer(run)

    def to_web(self, *args: Any, **options: Any) -> Any:
        """Like `agent.to_web()`; each message runs this guarded agent."""
        agent_class = cast("Any", type(self.wrapped))
        return agent_class.to_web(self, *args, **options)

    def _infer_own_name(self) -> None:
        """Name an agent without a name after the caller's variable, as the framework does."""
        frame = inspect.currentframe()
        if self.wrapped.name is None and frame is not None:
            self._infer_name(frame.f_back)

    def _watching(
        self, user_prompt: Any, options: dict[str, Any]
    ) -> "AbstractContextManager[_NodeRecorder]":
        name = self.run_name or self.wrapped.name or "agent"
        return _recording(self.run_guard, name, user_prompt, functools.partial(_thread, options))


def guarded(agent: Any, guard: Guard | None = None, *, name: str = "") -> GuardedPydanticAgent:
    require_version(EXTRA)
    return _wrapper_class()(agent, guard, name)


@functools.cache
def _wrapper_class() -> Any:
    """Make the class of guarded agents; this works only where the framework is installed."""
    base = import_framework("pydantic_ai.agent", EXTRA).WrapperAgent
    name = GuardedPydanticAgent.__name__
    return type(name, (GuardedPydanticAgent, base), {"__module__": __name__})


def _thread(options: dict[str, Any]) -> str:
    """Return the id of the conversation: as the caller names it, or as its messages do."""
    conversation_id = options.get("conversation_id")
    if conversation_id:
        return "" if conversation_id == "new" else conversation_id
    messages: Any = options.get("message_history") or ()
    ids = (getattr(message, "conversation_id", None) for message in reversed(messages))
    return next(filter(None, ids), "")


_active_watch: ContextVar[RunWatch | None] = ContextVar("handrail_pydantic_ai", default=None)
"""The watched run that the agent in this context belongs to."""


@contextmanager
def _recording(
    guard: Guard | None, name: str, user_prompt: Any, thread: Callable[[], str]
) -> Generator["_NodeRecorder"]:
    """Record an agent's part. The partial result is that of the outermost agent."""
    with watching_agent_stream(guard, name, user_prompt, thread) as (watch, chain):
        yield _NodeRecorder(watch, chain, sets_partial=_active_watch.get() is not watch)


class _NodeRecorder:
    """Maps nodes to steps and tool calls."""

    def __init__(self, watch: RunWatch, chain: tuple[str, ...], *, sets_partial: bool) -> None:
        self.watch, self.chain, self.sets_partial = watch, chain, sets_partial
        self.requested_calls: dict[str, Any] = {}
        """Calls that the model has requested."""
        self.effect_ids: set[str] = set()
        """Calls of tools that are declared to be destructive."""
        self.awaits_answer = False
        """Whether a model's answer is due."""
        self.asks = 0
        """How often a person was asked."""

    def with_capability(self, options: dict[str, Any]) -> dict[str, Any]:
        capabilities = [*(options.get("capabilities") or ()), _capability_class()(self)]
        return {**options, "capabilities": capabilities}

    @contextmanager
    def as_current(self) -> Generator[None]:
        """Make what runs inside the block part of this agent's part."""
        reset_token = _active_watch.set(self.watch)
        try:
            with self.watch.as_current(self.chain):
                yield
        finally:
            _active_watch.reset(reset_token)

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
            self.watch.begin_call()
            self.awaits_answer = True
        elif response is not None:
            self.requested_calls = {call.tool_call_id: call for call in response.tool_calls}
            if self.awaits_answer:
                self._record_answer(response)

    def record_streamed_answer(self, run: Any) -> None:
        """Record the last answer of `run_stream`, after which no node runs."""
        with self.watch.boundary:
            messages = run.all_messages() if self.awaits_answer else ()
            if messages and hasattr(messages[-1], "model_name"):
                self._record_answer(messages[-1])

    def _record_answer(self, response: Any) -> None:
        self.awaits_answer = False
        usage = response.usage
        call = ModelCall(
            model=response.model_name or "",
            provider=response.provider_name or "",
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cache_read_tokens=usage.cache_read_tokens,
            cache_write_tokens=usage.cache_write_tokens,
        )
        self.watch.record_answer(response.text or "", usage.total_tokens, call)

    def _record_tool_results(self, parts: Any) -> None:
        for part in parts if self.requested_calls else ():
            call_id = getattr(part, "tool_call_id", "")
            call = self.requested_calls.pop(call_id, None)
            if call is not None:
                error = None if part.outcome == "success" else part.content
                self.watch.record_tool_call(
                    call.tool_name,
                    call.args_as_dict(),
                    part.content,
                    error,
                    effect=call_id in self.effect_ids,
                )

    async def ask_approvals(self, requests: Any) -> Any:
        """Return people's answers to tools' requests for an approval; None if nobody answers."""
        if not requests.approvals or self.asks >= ASKS_PER_RUN_MAX:
            return None
        self.asks += 1
        approvals = dict[str, Any]()
        for call in requests.approvals:
            question = f"{self.watch.active_agent} wants to call {_call_text(call)}"
            reply = await ask_person_async(self.watch, question, TOOL_OPTIONS)
            self.watch.raise_if_stopped()
            if reply is None:
                return None
            denied_type = import_framework("pydantic_ai", EXTRA).ToolDenied
            reason = refusal_reason(reply)
            denied = denied_type(reason) if reason else denied_type()
            approvals[call.tool_call_id] = is_yes(reply) or denied
        return requests.build_results(approvals=approvals)


def _call_text(call: Any) -> str:
    return f"{call.tool_name}({to_text(call.args)})"


class _GuardCapability:
    """Records one run of an agent."""

    def __init__(self, recorder: _NodeRecorder) -> None:
        super().__init__()
        self.recorder = recorder

    async def before_node_run(self, context: Any, *, node: Any) -> Any:
        watch = self.recorder.watch
        with watch.boundary, self.recorder.as_current():
            self.recorder.record_node(node, context.messages)
        watch.raise_if_stopped()
        if getattr(node, "request", None) is not None:
            watch.deliver_nudge(context.enqueue)
        return node

    async def wrap_tool_execute(
        self, context: Any, *, call: Any, tool_def: Any, args: Any, handler: Callable[[Any], Any]
    ) -> Any:
        with self.recorder.watch.tool_boundary:
            metadata: dict[str, Any] = tool_def.metadata or {}
            if declares_effect(metadata.get("annotations")):
                self.recorder.effect_ids.add(call.tool_call_id)
            if tool_def.kind != "output":  # the run's last answer
                self.recorder.watch.begin_call(call.tool_name)
        self.recorder.watch.raise_if_stopped()
        with self.recorder.as_current():
            return await handler(args)

    async def handle_deferred_tool_calls(self, context: Any, *, requests: Any) -> Any:
        with self.recorder.watch.tool_boundary, self.recorder.as_current():
            return await self.recorder.ask_approvals(requests)
        self.recorder.watch.raise_if_stopped()
        return None


@functools.cache
def _capability_class() -> Any:
    """Make the class of the capability; this works only where the framework is installed."""
    base = import_framework("pydantic_ai.capabilities", EXTRA).AbstractCapability
    return type("HandrailGuard", (_GuardCapability, base), {})
