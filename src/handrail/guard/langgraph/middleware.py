"""The guard as a middleware of LangChain's `create_agent`, which keeps the agent's own type.

    agent = create_agent(model, tools, middleware=[guard.middleware()])

Inside a guarded run it only delivers nudges, as the last message to the model. Else the agent's
call is a run of its own, and an agent that one of its tools calls is a part of it. The run is kept
in the agent's state, in a channel that is never stored: the call has no other place of its own.

A middleware does not see how a call ends that pauses, or fails in another middleware. Such a run is
on record as failed when the state is let go.
"""

import functools
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Annotated, Any, NotRequired, TypedDict
from weakref import finalize

from handrail.guard.adapter import RunWatch, current_watch, import_framework, watching_stream
from handrail.guard.errors import StoppedError, exception_text
from handrail.guard.langgraph.callbacks import find_watch, read_tool_output
from handrail.guard.langgraph.framework import (
    EXTRA,
    absorbing_start,
    bubble_up_type,
    graph_stop_error,
    model_call,
)
from handrail.guard.langgraph.interrupts import DEFAULT_NAME
from handrail.guard.run import Guard

LANGCHAIN = "langchain"
STATE_KEY = "handrail_call"
UNSEEN_END = "the agent paused, or failed where its middleware does not see it"


@functools.cache
def middleware_type() -> Any:
    """Make the class of the middleware; this works only where LangChain is installed."""
    types = import_framework("langchain.agents.middleware.types", LANGCHAIN)
    untracked = import_framework("langgraph.channels.untracked_value", EXTRA).UntrackedValue
    make_schema: Any = TypedDict
    field: Any = NotRequired[Annotated[Any, untracked, types.PrivateStateAttr]]
    state_schema = make_schema("GuardedAgentState", {STATE_KEY: field})
    return type(
        "HandrailMiddleware", (AgentHooks, types.AgentMiddleware), {"state_schema": state_schema}
    )


class _AgentCall:
    """One call of an agent; lives as long as the state of that call."""

    def __init__(self, watch: RunWatch, end: Callable[[], object]) -> None:
        self.watch, self._end = watch, end

    def end(self) -> None:
        """End the call, once."""
        end, self._end = self._end, bool
        end()


class AgentHooks:
    """What the middleware does before the model, around model and tools, and after the agent."""

    def __init__(self, guard: Guard, name: str) -> None:
        super().__init__()
        self.guard, self.agent_name = guard, name

    def before_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """Begin a run where none goes on."""
        with absorbing_start(self.guard):
            if find_watch() is None and state.get(STATE_KEY) is None:
                return {STATE_KEY: self._begin(state)}
        return None

    async def abefore_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        return self.before_model(state, runtime)

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Settle the step before, tell the model of a rule that is near, and record its answer."""
        response = handler(self._begin_step(request))
        self._record_answer(request, response)
        return response

    async def awrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        response = await handler(self._begin_step(request))
        self._record_answer(request, response)
        return response

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Record what a tool returns or raises."""
        with self._tool_call(request) as record:
            return record(handler(request))

    async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        with self._tool_call(request) as record:
            return record(await handler(request))

    def after_agent(self, state: Any, runtime: Any) -> None:
        """End the run that this agent's call began."""
        call = state.get(STATE_KEY)
        if call is not None:
            call.end()
            if call.watch.stop is not None:
                raise self._stop(call.watch, state, call)

    async def aafter_agent(self, state: Any, runtime: Any) -> None:
        self.after_agent(state, runtime)

    def _begin(self, state: Any) -> _AgentCall:
        """Begin a run, or a part of the run of the agent whose tool calls this one."""
        name = self._name()
        watch = current_watch.get()
        if watch is not None:
            callers = (watch.active_agent,)
            watch.enter_call(callers, name)
            return _AgentCall(watch, functools.partial(watch.leave_call, callers, name))
        config = import_framework("langgraph.config", EXTRA).get_config()
        messages = state.get("messages") or [""]
        task = getattr(messages[0], "content", messages[0])
        thread = config.get("configurable", {}).get("thread_id", "")
        context = watching_stream(self.guard, name, task, thread)
        watch = context.__enter__()
        watch.activate(name, source="")
        call = _AgentCall(watch, functools.partial(_end, context))
        finalize(call, _end_unseen, context, watch)
        return call

    def _name(self) -> str:
        """Return the name of this agent, as it was given to the middleware or to the agent."""
        metadata: Any = import_framework("langgraph.config", EXTRA).get_config().get("metadata")
        return self.agent_name or (metadata and metadata.get("lc_agent_name")) or DEFAULT_NAME

    def _stop(self, watch: RunWatch, state: Any, call: _AgentCall | None) -> StoppedError:
        if call is not None:
            watch.partial = {key: value for key, value in state.items() if key != STATE_KEY}
            call.end()
        assert watch.stop is not None, "it is stopped"
        return graph_stop_error(watch.stop, watch.run, watch.partial)

    def _begin_step(self, request: Any) -> Any:
        """Return the request with a nudge, if there is one; raise the stop, if there is one."""
        call: _AgentCall | None = request.state.get(STATE_KEY)
        outer_watch = find_watch()
        watch = call.watch if outer_watch is None and call is not None else outer_watch
        if watch is None:
            return request
        with watch.boundary:
            watch.begin_step()
            if outer_watch is None:  # else its callbacks hear of the call
                watch.begin_call()
        if watch.stop is not None:
            raise self._stop(watch, request.state, call)
        messages: list[Any] = []
        message_type = import_framework("langchain_core.messages", EXTRA).HumanMessage
        with watch.boundary:
            watch.deliver_nudge(lambda text: messages.append(message_type(text)))
        return request.override(messages=[*request.messages, *messages]) if messages else request

    def _record_answer(self, request: Any, response: Any) -> None:
        call = request.state.get(STATE_KEY)
        if call is None or find_watch() is not None:
            return
        watch: RunWatch = call.watch
        with watch.boundary:
            for message in getattr(response, "result", [response]):
                usage: Any = getattr(message, "usage_metadata", None) or {}
                tokens = usage.get("total_tokens") or 0
                watch.record_answer(str(message.text), tokens, model_call(message, usage))

    @contextmanager
    def _tool_call(self, request: Any) -> Generator[Callable[[Any], Any]]:
        call = request.state.get(STATE_KEY)
        if call is None or find_watch() is not None:
            yield lambda output: output
            return
        name, arguments = request.tool_call["name"], request.tool_call["args"]
        watch: RunWatch = call.watch

        def record(output: Any) -> Any:
            with watch.tool_boundary:
                content = read_tool_output(output)
                failure = content if getattr(output, "status", "") == "error" else None
                if not getattr(output, "goto", ()):  # else a handoff
                    watch.record_tool_call(name, arguments, content, failure)
            return output

        with watch.tool_boundary:
            watch.begin_call(name)
        if watch.stop is not None:
            raise self._stop(watch, request.state, call)
        try:
            with watch.as_current():
                yield record
        except Exception as error:
            with watch.tool_boundary:
                if isinstance(error, bubble_up_type()):
                    watch.pause_call(name)
                else:
                    message = f"{type(error).__name__}: {exception_text(error)}"
                    watch.record_tool_call(name, arguments, error=message)
            raise


def _end(context: Any) -> None:
    """End a run; its stop is raised by whoever ends it."""
    with suppress(StoppedError):
        context.__exit__(None, None, None)


def _end_unseen(context: Any, watch: RunWatch) -> None:
    """End a run that nobody ended."""
    if watch.run.stop is None:
        watch.run.fail(UNSEEN_END)
        _end(context)
