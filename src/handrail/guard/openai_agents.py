"""Guard the OpenAI Agents SDK: an agent with its handoffs, watched through run hooks.

    team = guarded(triage)
    await team.run("my invoice is wrong")

The SDK's own hooks report agents, handoffs, model calls and tools; the caller's hooks are called as
well. An agent that is a tool of another has a run of its own, with the same configuration but
without the hooks: the input of its model reveals it. It gets the turn, and gives it back. A resumed
run begins in the middle: no start hook is called for a tool that goes on, and the model of a nested
agent may come first. So every hook updates the recorder's view of the run, and a state says before
the run starts which agent has it and what was used. An error in the guard's own bookkeeping is
logged and goes no further: the SDK would report it to the model as a failure of a tool that has
done its work. The SDK's own `max_turns` stays in force. A session is the thread of its runs.

What a stop leaves: the SDK's `RunErrorDetails` (new items, raw responses, last agent), as
`partial`.
"""

import inspect
import logging
from collections.abc import AsyncIterator, Generator
from contextlib import aclosing, contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

from handrail.guard.adapter import RunWatch, import_framework, watching, watching_stream
from handrail.guard.approvals import ASKS_PER_RUN_MAX, ask_person, ask_person_async, is_yes
from handrail.guard.errors import StoppedError
from handrail.guard.prices import ModelCall
from handrail.guard.run import Guard

log = logging.getLogger("handrail.guard")

NO_TOKENS = (0, 0, 0, 0, 0)

EXTRA = "openai-agents"
TOOL_FAILURE_PREFIX = "An error occurred while running the tool"
"""How the SDK's message to a model about a failed tool begins."""
INPUT_FILTER_OPTION = "call_model_input_filter"
CALL_ITEM, OUTPUT_ITEM = "function_call", "function_call_output"


class GuardedOpenAIAgent:
    """The first agent of a team, with a guard around the team's run."""

    def __init__(self, agent: Any, guard: Guard, name: str) -> None:
        self.agent, self.guard, self.name = agent, guard, name

    async def run(self, run_input: Any, **options: Any) -> Any:
        """Like `Runner.run(agent, run_input)`; raises `Stopped` when a rule ends the run."""
        runner = import_framework("agents", EXTRA).Runner
        with watching(self.guard, self.name, run_input, _thread(options)) as watch:
            recorder, options = _watched_options(options, watch)
            try:
                with recorder.recording_run(self.agent, run_input):
                    watch.partial = await runner.run(self.agent, run_input, **options)
                for _ in range(ASKS_PER_RUN_MAX):
                    interruptions = watch.partial.interruptions
                    replies = [
                        await ask_person_async(watch, _question_text(item))
                        for item in interruptions
                    ]
                    if not replies or None in replies:
                        break
                    state = _apply_replies(watch.partial, replies)
                    with recorder.recording_run(self.agent, state):
                        watch.partial = await runner.run(self.agent, state, **options)
            except Exception as error:
                watch.partial = getattr(error, "run_data", None)
                raise
        return watch.partial

    def run_sync(self, run_input: Any, **options: Any) -> Any:
        """Like `Runner.run_sync(agent, run_input)`; raises `Stopped` when a rule ends the run."""
        runner = import_framework("agents", EXTRA).Runner
        with watching(self.guard, self.name, run_input, _thread(options)) as watch:
            recorder, options = _watched_options(options, watch)
            try:
                with recorder.recording_run(self.agent, run_input):
                    watch.partial = runner.run_sync(self.agent, run_input, **options)
                for _ in range(ASKS_PER_RUN_MAX):
                    replies = [
                        ask_person(watch, _question_text(item))
                        for item in watch.partial.interruptions
                    ]
                    if not replies or None in replies:
                        break
                    state = _apply_replies(watch.partial, replies)
                    with recorder.recording_run(self.agent, state):
                        watch.partial = runner.run_sync(self.agent, state, **options)
            except Exception as error:
                watch.partial = getattr(error, "run_data", None)
                raise
        return watch.partial

    def run_streamed(self, run_input: Any, **options: Any) -> "GuardedStream":
        """Like `Runner.run_streamed(agent, run_input)`; it begins with `stream_events()`, which
        raises `Stopped` when a rule ends the run.
        """
        return GuardedStream(self, run_input, options)


class GuardedStream:
    """A streamed run. Once it has begun, all attributes of the SDK's result are available on it."""

    def __init__(
        self, guarded_agent: GuardedOpenAIAgent, run_input: Any, options: dict[str, Any]
    ) -> None:
        self._guarded_agent, self._run_input, self._options = guarded_agent, run_input, options
        self._result: Any = None

    async def stream_events(self) -> AsyncIterator[Any]:
        guarded_agent, runner = self._guarded_agent, import_framework("agents", EXTRA).Runner
        with watching_stream(
            guarded_agent.guard, guarded_agent.name, self._run_input, _thread(self._options)
        ) as watch:
            recorder, options = _watched_options(self._options, watch)
            with watch.as_current(), recorder.recording_run(guarded_agent.agent, self._run_input):
                watch.partial = runner.run_streamed(guarded_agent.agent, self._run_input, **options)
            self._result = watch.partial
            stream: Any = watch.iterate_async(self._result.stream_events())
            async with aclosing(stream) as pieces:
                try:
                    async for piece in pieces:
                        yield piece
                except GeneratorExit:  # otherwise the SDK would wait for the run to end
                    self._result.cancel()
                    raise
                finally:
                    recorder.count_remaining_tokens()

    def __getattr__(self, name: str) -> Any:
        if self._result is None:
            message = f"a streamed run has no '{name}' before it has begun"
            raise AttributeError(f"{message}; iterate over stream_events() first")
        return getattr(self._result, name)


def _thread(options: dict[str, Any]) -> str:
    """Return the id of the conversation: of the session, or of the one that OpenAI keeps."""
    session = options.get("session")
    return getattr(session, "session_id", "") or options.get("conversation_id") or ""


def _question_text(item: Any) -> str:
    """Describe the tool call that needs an approval."""
    arguments = getattr(item.raw_item, "arguments", "")
    return f"{item.agent.name} wants to call {item.tool_name}({arguments})"


def _apply_replies(result: Any, replies: list[Any]) -> Any:
    """Return the run's state with people's answers: a yes lets the tool run, else it gets the
    reason.
    """
    state = result.to_state()
    for item, reply in zip(result.interruptions, replies, strict=True):
        if is_yes(reply):
            state.approve(item)
        else:
            state.reject(item, rejection_message=reply.text)
    return state


def guarded(agent: Any, guard: Guard | None = None, *, name: str = "") -> GuardedOpenAIAgent:
    return GuardedOpenAIAgent(agent, guard or Guard(), name or agent.name)


def _watched_options(
    options: dict[str, Any], watch: RunWatch
) -> tuple["_HookRecorder", dict[str, Any]]:
    sdk = import_framework("agents", EXTRA)
    recorder = _HookRecorder(watch, sdk.AgentsException)
    return recorder, {
        **options,
        "hooks": _make_hooks(sdk.RunHooks, recorder, options.get("hooks")),
        "run_config": _with_input_filter(options.get("run_config"), recorder),
    }


def _with_input_filter(caller_config: Any, recorder: "_HookRecorder") -> Any:
    """Return the caller's configuration, with a filter that reports every model call."""
    config: Any = {} if caller_config is None else caller_config
    is_object = hasattr(config, INPUT_FILTER_OPTION)  # otherwise a dictionary
    caller_filter: Any = (
        getattr(config, INPUT_FILTER_OPTION) if is_object else config.get(INPUT_FILTER_OPTION)
    )

    recorder.run_model = getattr(config, "model", None) if is_object else config.get("model")

    async def input_filter(data: Any) -> Any:
        with recorder.logging_errors():
            recorder.on_model_input(data)
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
                with recorder.logging_errors():
                    record(recorder, *args, **kwargs)
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

    def __init__(self, watch: RunWatch, error: type[Exception]) -> None:
        self.watch, self.error = watch, error
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
        agent = getattr(run_input, "_current_agent", None) or default_agent
        context = getattr(run_input, "_context", None)
        with self.logging_errors():
            if context is not None:
                self._set_run(context, agent)
        reset_token = _agent_chain.set((agent.name,))
        try:
            yield
        finally:
            _agent_chain.reset(reset_token)
            self.count_remaining_tokens()

    def count_remaining_tokens(self) -> None:
        """Count tokens of nested agents since the last hook: a run that pauses inside of them calls
        none.
        """
        with self.logging_errors():
            self._record_new_tokens()

    @contextmanager
    def logging_errors(self) -> Generator[None]:
        """Log an error inside the block, unless it is the end of the run."""
        try:
            yield
        except (self.error, StoppedError):
            raise
        except Exception:
            log.exception("the guard could not record what the OpenAI Agents SDK did")

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
        self._abort_if_stopped()

    def on_model_start(self, context: Any, agent: Any, *_: object) -> None:
        self._set_run(context, agent)
        self.active_chains.clear()
        self.watch.resume(self.agent)
        self._abort_if_stopped()

    def on_model_end(self, context: Any, agent: Any, response: Any) -> None:
        self._set_run(context, agent)
        self.watch.record_answer(_response_text(response), *self._take_new_tokens())

    def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        self._set_run(context, agent)

    def on_tool_end(self, context: Any, agent: Any, tool: Any, result: object) -> None:
        self._set_run(context, agent)
        if self.watch.active_agent != self.agent:
            self.watch.record_answer("", *self._take_new_tokens())
            self.watch.resume(self.agent)
        is_failure = isinstance(result, str) and result.startswith(TOOL_FAILURE_PREFIX)
        arguments = getattr(context, "tool_arguments", "")
        self.watch.record_tool_call(tool.name, arguments, result, result if is_failure else None)

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
            self._abort_if_stopped()
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
        self._abort_if_stopped()

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

    def _abort_if_stopped(self) -> None:
        """Raise the stop as an error of the SDK's own kind, to which the SDK adds the partial
        run.
        """
        if self.watch.stop is not None:
            raise self.error(f"{self.watch.stop.rule}: {self.watch.stop.reason}")


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
