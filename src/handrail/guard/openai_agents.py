"""Guard the OpenAI Agents SDK: an agent with its handoffs, watched through run hooks.

    team = guarded(triage)
    await team.run("my invoice is wrong")

The SDK's own hooks report agents, handoffs, model calls and tools; the caller's hooks are called as
well. An agent that is a tool of another has a run of its own, with the same configuration but
without the hooks: the input of its model reveals it. It gets the turn, and gives it back. A resumed
run begins in the middle: no start hook is called for a tool that goes on, and the model of a nested
agent may come first. So every hook updates the recorder's view of the run, and a state says before
the run starts which agent has it and what was used. The SDK's own `max_turns` stays in force. A
session is the thread of its runs.

A streamed run is the SDK's own result with its own events, and ends for the guard with the SDK's
task. A stop is an error of the SDK's, too. A server that records the run asks people in streams,
too: the run goes on in the same stream, and the result becomes that of the run that went on.

What a stop leaves: the SDK's `RunErrorDetails` (new items, raw responses, last agent), as
`partial`.
"""

import inspect
from asyncio import CancelledError
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import ExitStack, aclosing, contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

from handrail.guard.adapter import RunWatch, import_framework, watching, watching_stream
from handrail.guard.approvals import (
    ASKS_PER_RUN_MAX,
    TOOL_OPTIONS,
    ask_person,
    ask_person_async,
    is_yes,
    refusal_reason,
)
from handrail.guard.errors import StoppedError
from handrail.guard.framework_object import FrameworkObject
from handrail.guard.framework_versions import require_version
from handrail.guard.prices import ModelCall
from handrail.guard.run import Guard
from handrail.guard.tool_calls import declares_effect

NO_TOKENS = (0, 0, 0, 0, 0)

EXTRA = "openai-agents"
TOOL_FAILURE_PREFIX = "An error occurred while running the tool"
"""How the SDK's message to a model about a failed tool begins."""
MCP_ANNOTATIONS = "_mcp_annotations"
"""Where the SDK keeps what an MCP server says of a tool, in versions that do."""
INPUT_FILTER_OPTION = "call_model_input_filter"
CALL_ITEM, OUTPUT_ITEM = "function_call", "function_call_output"


class GuardedOpenAIAgent(FrameworkObject):
    """The first agent of a team, with a guard around the team's runs. Their arguments are those of
    `Runner`, after the agent.
    """

    async def run(self, *args: Any, **options: Any) -> Any:
        """Like `Runner.run(agent, input)`; raises `Stopped` when a rule ends the run."""
        runner = _runner()
        run_input, options = self._bind(runner.run, args, options)
        with watching(self.run_guard, self.run_name, run_input, lambda: _thread(options)) as watch:
            recorder, options = _watched_options(options, watch)
            for asks_left in range(ASKS_PER_RUN_MAX, -1, -1):
                with recorder.recording_run(self.wrapped, run_input):
                    watch.partial = await runner.run(self.wrapped, run_input, **options)
                replies = [
                    await ask_person_async(watch, question, TOOL_OPTIONS)
                    for question in (_questions(watch) if asks_left else ())
                ]
                run_input = _resumed_state(watch, replies)
                if run_input is None:
                    break
        return watch.partial

    def run_sync(self, *args: Any, **options: Any) -> Any:
        """Like `Runner.run_sync(agent, input)`; raises `Stopped` when a rule ends the run."""
        runner = _runner()
        run_input, options = self._bind(runner.run_sync, args, options)
        with watching(self.run_guard, self.run_name, run_input, lambda: _thread(options)) as watch:
            recorder, options = _watched_options(options, watch)
            for asks_left in range(ASKS_PER_RUN_MAX, -1, -1):
                with recorder.recording_run(self.wrapped, run_input):
                    watch.partial = runner.run_sync(self.wrapped, run_input, **options)
                replies = [
                    ask_person(watch, question, TOOL_OPTIONS)
                    for question in (_questions(watch) if asks_left else ())
                ]
                run_input = _resumed_state(watch, replies)
                if run_input is None:
                    break
        return watch.partial

    def run_streamed(self, *args: Any, **options: Any) -> Any:
        """Like `Runner.run_streamed(agent, input)`, which begins at once; `stream_events()` of its
        result raises `Stopped` when a rule ends the run.
        """
        runner = _runner()
        run_input, options = self._bind(runner.run_streamed, args, options)
        with ExitStack() as stack:
            watch = stack.enter_context(
                watching_stream(self.run_guard, self.run_name, run_input, lambda: _thread(options))
            )
            recorder, options = _watched_options(options, watch)

            def start(start_input: Any) -> Any:
                with watch.as_current(), recorder.recording_run(self.wrapped, start_input):
                    return runner.run_streamed(self.wrapped, start_input, **options)

            watch.partial = result = start(run_input)
            stream = _GuardedStream(result, watch, recorder, start, stack.pop_all())
        with watch.boundary:
            if watch.run.recorder is not None:  # people can be asked
                result.stream_events = stream.stream_events
            result.run_loop_task.add_done_callback(stream.end_with_task)
        return result

    def _bind(
        self, call: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        """Return the input and the other arguments by name. Raises TypeError, as the call would."""
        bound = inspect.signature(call).bind(self.wrapped, *args, **options)
        names = [*bound.arguments]
        return bound.arguments[names[1]], {name: bound.arguments[name] for name in names[2:]}


class _GuardedStream:
    """The guard's side of a streamed run, from its start until the SDK has nothing more to do."""

    def __init__(
        self,
        result: Any,
        watch: RunWatch,
        recorder: "_HookRecorder",
        start: Callable[[Any], Any],
        run_exit: ExitStack,
    ) -> None:
        self._result, self._watch, self._recorder = result, watch, recorder
        self._start, self._run_exit = start, run_exit
        self._is_consumed = self._has_ended = False
        self._stop_error: StoppedError | None = None

    async def stream_events(self) -> AsyncIterator[Any]:
        self._is_consumed = True
        asks_left, source = ASKS_PER_RUN_MAX, self._result
        events_of: Callable[[Any], Any] = source.__class__.stream_events
        try:
            while True:
                stream: Any = self._watch.iterate_async(events_of(source))
                async with aclosing(stream) as pieces:
                    async for piece in pieces:
                        yield piece
                if self._has_ended or not asks_left:
                    break
                asks_left -= 1
                replies = [
                    await ask_person_async(self._watch, question, TOOL_OPTIONS)
                    for question in _questions(self._watch)
                ]
                state = _resumed_state(self._watch, replies)
                if state is None:
                    break
                source = self._start(state)
                self._adopt(source)
        except BaseException as error:
            self._end(error)
            raise
        self._end(None)
        if self._stop_error is not None:
            raise self._stop_error

    def _adopt(self, source: Any) -> None:
        """Make the result, which the caller has, that of the run that goes on: what the SDK sets in
        one is set in the other.
        """
        source.stream_events = self._result.stream_events
        self._result.__dict__ = source.__dict__

    def end_with_task(self, task: Any) -> None:
        """End the guarded run with the SDK's task, unless people may be asked then. A stop by what
        the task did last is an error of the SDK's result.
        """
        if not self._is_consumed:
            self._end(CancelledError() if task.cancelled() else task.exception())
            if self._stop_error is not None and self._result._stored_exception is None:
                self._result._stored_exception = self._stop_error

    def _end(self, error: BaseException | None) -> None:
        if self._has_ended:
            return
        self._has_ended = True
        self._recorder.count_remaining_tokens()
        try:
            self._run_exit.__exit__(
                type(error) if error else None, error, error.__traceback__ if error else None
            )
        except StoppedError as stop:
            self._stop_error = stop


def _runner() -> Any:
    return import_framework("agents", EXTRA).Runner


def _thread(options: dict[str, Any]) -> str:
    """Return the id of the conversation: of the session, or of the one that OpenAI keeps."""
    session = options.get("session")
    return getattr(session, "session_id", "") or options.get("conversation_id") or ""


def _questions(watch: RunWatch) -> list[str]:
    """Describe the tool calls that need an approval; nothing is asked if one cannot be read."""
    with watch.run.errors.absorbing("a question to a person could not be read"):
        return [_question_text(item) for item in watch.partial.interruptions]
    return []


def _question_text(item: Any) -> str:
    arguments = getattr(item.raw_item, "arguments", "")
    return f"{item.agent.name} wants to call {item.tool_name}({arguments})"


def _resumed_state(watch: RunWatch, replies: list[Any]) -> Any:
    """Return the run's state with people's answers: a yes lets the tool run, else it gets the
    reason. None if nobody was asked, or nobody answered.
    """
    if not replies or None in replies:
        return None
    with watch.run.errors.absorbing("people's answers could not be passed on"):
        state = watch.partial.to_state()
        for item, reply in zip(watch.partial.interruptions, replies, strict=True):
            if is_yes(reply):
                state.approve(item)
            else:
                state.reject(item, rejection_message=refusal_reason(reply) or None)
        return state
    return None


def guarded(agent: Any, guard: Guard | None = None, *, name: str = "") -> GuardedOpenAIAgent:
    require_version(EXTRA)
    return GuardedOpenAIAgent(agent, guard or Guard(), name or agent.name)


def _watched_options(
    options: dict[str, Any], watch: RunWatch
) -> tuple["_HookRecorder", dict[str, Any]]:
    """Return the recorder and the caller's options with its hooks among them; the SDK refuses hooks
    and a configuration of a wrong type by itself.
    """
    sdk = import_framework("agents", EXTRA)
    watch.framework_error = sdk.AgentsException
    recorder = _HookRecorder(watch)
    watched = dict(options)
    hooks = options.get("hooks")
    if hooks is None or isinstance(hooks, import_framework("agents.lifecycle", EXTRA).RunHooksBase):
        watched["hooks"] = _make_hooks(sdk.RunHooks, recorder, hooks)
    with watch.boundary:
        watched["run_config"] = _with_input_filter(options.get("run_config"), recorder)
    return recorder, watched


def _with_input_filter(caller_config: Any, recorder: "_HookRecorder") -> Any:
    """Return the caller's configuration, with a filter that reports every model call."""
    config: Any = {} if caller_config is None else caller_config
    is_object = hasattr(config, INPUT_FILTER_OPTION)  # otherwise a dictionary
    caller_filter: Any = (
        getattr(config, INPUT_FILTER_OPTION) if is_object else config.get(INPUT_FILTER_OPTION)
    )

    recorder.run_model = getattr(config, "model", None) if is_object else config.get("model")

    async def input_filter(data: Any) -> Any:
        with recorder.watch.boundary:
            recorder.on_model_input(data)
            recorder.watch.begin_call()
        recorder.watch.raise_if_stopped()
        filtered = caller_filter(data) if caller_filter is not None else data.model_data
        filtered = await filtered if inspect.isawaitable(filtered) else filtered
        items: list[Any] = []
        recorder.watch.deliver_nudge(lambda text: items.append({"role": "user", "content": text}))
        return replace(filtered, input=[*filtered.input, *items]) if items else filtered

    return (
        replace(config, **{INPUT_FILTER_OPTION: input_filter})
        if is_object
        else {**config, INPUT_FILTER_OPTION: input_filter}
    )


def _make_hooks(base: type[Any], recorder: "_HookRecorder", caller_hooks: Any) -> Any:
    """Make hooks that call the guard first, and then the caller's hooks."""

    class GuardHooks(base):
        pass

    def hook(name: str) -> Any:
        async def call_both(self: Any, *args: Any, **kwargs: Any) -> None:
            record = RECORDERS.get(name)
            if record is not None:
                is_tool = name in TOOL_HOOKS
                with recorder.watch.tool_boundary if is_tool else recorder.watch.boundary:
                    record(recorder, *args, **kwargs)
                if name != "on_tool_end":
                    recorder.watch.raise_if_stopped()
            if caller_hooks is not None:
                await getattr(caller_hooks, name)(*args, **kwargs)

        return call_both

    for name in (*RECORDERS, "on_agent_end"):
        setattr(GuardHooks, name, hook(name))
    return GuardHooks()


_agent_chain: ContextVar[tuple[str, ...]] = ContextVar("handrail_openai_agents", default=())
"""The agent of this run, after the agents in whose tools it runs."""


class _HookRecorder:
    """Records what the hooks report."""

    def __init__(self, watch: RunWatch) -> None:
        self.watch = watch
        self.run_agent = ""
        """The agent that the run begins with."""
        self.agent = ""
        """The agent of the run; other agents at work are tools of it."""
        self.active_chains: set[tuple[str, ...]] = set()
        """Agents that are tools, each after the agents whose tool it is."""
        self.recorded_call_ids: set[str] = set()
        """Calls in runs of such agents."""
        self.usage: Any = None
        """The SDK's own usage object, of the run and of the agents that are tools in it."""
        self.counted_tokens = NO_TOKENS
        """Tokens of it that the guard has counted."""
        self.run_model: Any = None
        """The model that the caller's configuration sets for all agents."""
        self.model = ""
        """The model that was asked last."""

    @contextmanager
    def recording_run(self, default_agent: Any, run_input: Any) -> Generator[None]:
        """Record a run of the SDK inside the block.

        A resumed state has an agent and a usage already, and its first model call may be that of a
        nested agent.
        """
        with self.watch.boundary:
            agent = getattr(run_input, "_current_agent", None) or default_agent
            context = getattr(run_input, "_context", None)
            if context is not None:
                self._set_run(context, agent)
            self.run_agent = agent.name
        chain_before = _agent_chain.get()
        _agent_chain.set((self.run_agent,))
        try:
            yield
        except Exception as error:
            self.watch.partial = getattr(error, "run_data", None)
            raise
        finally:
            _agent_chain.set(chain_before)
            self.count_remaining_tokens()

    def count_remaining_tokens(self) -> None:
        """Count tokens of nested agents since the last hook: a run that pauses inside of them calls
        none.
        """
        with self.watch.tool_boundary:
            self._record_new_tokens()

    def _set_run(self, context: Any, agent: Any) -> None:
        """Set the run's agent and usage. Every hook has both; start hooks are not always called."""
        self.agent = agent.name
        if self.usage is None:  # otherwise the usage of an earlier run would count again
            self.counted_tokens = _token_counts(context.usage)
        self.usage = context.usage
        if not self.watch.active_agent:
            self.watch.activate(agent.name)

    def on_agent_start(self, context: Any, agent: Any) -> None:
        self._set_run(context, agent)

    def on_handoff(self, context: Any, from_agent: Any, to_agent: Any) -> None:
        self._set_run(context, from_agent)
        self.watch.activate(to_agent.name, source=from_agent.name)

    def on_model_start(self, context: Any, agent: Any, *_: object) -> None:
        self._set_run(context, agent)
        self.active_chains.clear()
        self.watch.resume(self.agent)

    def on_model_end(self, context: Any, agent: Any, response: Any) -> None:
        self._set_run(context, agent)
        self.watch.record_answer(_response_text(response), *self._take_new_tokens())

    def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        self._set_run(context, agent)
        self.watch.begin_call(tool.name)

    def on_tool_end(self, context: Any, agent: Any, tool: Any, result: object) -> None:
        self._set_run(context, agent)
        if self.watch.active_agent != self.agent:
            self.watch.record_answer("", *self._take_new_tokens())
            self.watch.resume(self.agent)
        is_failure = isinstance(result, str) and result.startswith(TOOL_FAILURE_PREFIX)
        arguments = getattr(context, "tool_arguments", "")
        error = result if is_failure else None
        effect = declares_effect(getattr(tool, MCP_ANNOTATIONS, None))
        self.watch.record_tool_call(tool.name, arguments, result, error, effect=effect)

    def on_model_input(self, data: Any) -> None:
        """Begin a step before a model call.

        Agents that are tools report nothing else, but the input of their model holds what their own
        tools returned.
        """
        name, chain = data.agent.name, _agent_chain.get()
        if name == self.agent and len(chain) < 2:
            _agent_chain.set((name,))
            self.model = _model_name(self.run_model or data.agent.model)
            self.watch.resume(name)
            return
        if chain[-1:] != (name,):
            chain = (*chain, name)
            _agent_chain.set(chain)
        if chain in self.active_chains:
            self._record_tool_outputs(name, data.model_data.input)
            self.watch.record_answer("", *self._take_new_tokens())
            self.watch.resume(name)
        else:
            self.active_chains.add(chain)
            self._skip_history(data.model_data.input)
            self._record_new_tokens()
            self.watch.activate(name, source=chain[-2] if len(chain) > 1 else self.agent)
        self.model = _model_name(self.run_model or data.agent.model)

    def _skip_history(self, items: Any) -> None:
        """Skip results that a nested agent brings along from before a pause, which that run
        recorded; those at the end have come since.
        """
        are_outputs = [item.get("type") == OUTPUT_ITEM for item in items]
        while are_outputs and are_outputs[-1]:
            are_outputs.pop()
        self.recorded_call_ids.update(
            item["call_id"] for item, old in zip(items, are_outputs, strict=False) if old
        )

    def _record_tool_outputs(self, agent: str, items: Any) -> None:
        calls = {item.get("call_id"): item for item in items if item.get("type") == CALL_ITEM}
        for item in items:
            call = calls.get(item.get("call_id"))
            if (
                item.get("type") != OUTPUT_ITEM
                or call is None
                or item["call_id"] in self.recorded_call_ids
            ):
                continue
            self.recorded_call_ids.add(item["call_id"])
            output = item["output"]
            error = output if str(output).startswith(TOOL_FAILURE_PREFIX) else None
            self.watch.record_tool_call(f"{agent}/{call['name']}", call["arguments"], output, error)

    def _record_new_tokens(self) -> None:
        tokens, call = self._take_new_tokens()
        if tokens:
            self.watch.record_answer("", tokens, call)

    def _take_new_tokens(self) -> tuple[int, ModelCall]:
        """Return tokens since the last call, those of agents that are tools included, as a call of
        the model that was asked last.
        """
        if self.usage is None:
            return 0, ModelCall()
        before, self.counted_tokens = self.counted_tokens, _token_counts(self.usage)
        tokens, input_tokens, output_tokens, cache_reads, cache_writes = (
            max(0, after - earlier)
            for earlier, after in zip(before, self.counted_tokens, strict=True)
        )
        return tokens, ModelCall(
            model=self.model,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            cache_read_tokens=cache_reads,
            cache_write_tokens=cache_writes,
        )


TOOL_HOOKS = ("on_tool_start", "on_tool_end")
RECORDERS: dict[str, Any] = {
    "on_agent_start": _HookRecorder.on_agent_start,
    "on_handoff": _HookRecorder.on_handoff,
    "on_llm_start": _HookRecorder.on_model_start,
    "on_llm_end": _HookRecorder.on_model_end,
    "on_tool_start": _HookRecorder.on_tool_start,
    "on_tool_end": _HookRecorder.on_tool_end,
}


def _response_text(response: Any) -> str:
    parts = (part for item in response.output for part in getattr(item, "content", None) or ())
    return "".join(getattr(part, "text", "") or "" for part in parts)


def _token_counts(usage: Any) -> tuple[int, int, int, int, int]:
    """Return all tokens, those of input and of output, and of input read from and written to a
    cache.
    """
    details = getattr(usage, "input_tokens_details", None)
    cache_reads = getattr(details, "cached_tokens", None) or 0
    cache_writes = getattr(details, "cache_write_tokens", None) or 0
    return usage.total_tokens, usage.input_tokens, usage.output_tokens, cache_reads, cache_writes


def _model_name(model: Any) -> str:
    """Return the name of an agent's model, which may be an object, or the SDK's default."""
    if model is None:
        return import_framework("agents.models.default_models", EXTRA).get_default_model()
    return model if isinstance(model, str) else str(getattr(model, "model", "") or "")
