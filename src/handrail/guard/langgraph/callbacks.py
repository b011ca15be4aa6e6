"""The callbacks by which the guard watches graphs, as LangChain calls them.

`RunCallbacks` belongs to one run: a guarded graph adds it to its configuration. `AnyRunCallbacks`
is what `Guard.callback` returns: the outermost chain that it hears of is a run, with all inside it.
"""

import functools
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, cast
from uuid import UUID

from handrail.guard.adapter import RunWatch, import_framework, to_text, watching_stream
from handrail.guard.errors import StoppedError, exception_text
from handrail.guard.langgraph.framework import (
    EXTRA,
    Config,
    absorbing_start,
    bubble_up_type,
    graph_stop_error,
    model_call,
)
from handrail.guard.langgraph.nodes import NodeTracker, ToolNodes
from handrail.guard.run import Guard
from handrail.guard.tool_calls import declares_effect
from handrail.kernel.definition.reader import is_mapping

STEP_TAG = "graph:step:"
HANDLED_KINDS = ("chain", "llm", "agent")
"""Kinds of callbacks; those of tools belong to agents."""
FINDINGS_KEPT = 1_000
"""Findings of the tasks of one superstep that are remembered."""
IGNORED_KINDS = ("retriever", "retry", "custom_event")


@functools.cache
def callback_type(base: type) -> Any:
    """Make the class of callbacks; this works only where the framework is installed.

    Of a graph handler LangGraph also reports interrupts.
    """
    framework_base = import_framework("langgraph.callbacks", EXTRA).GraphCallbackHandler
    attributes = {"raise_error": True, "run_inline": True}
    attributes |= {f"ignore_{kind}": False for kind in HANDLED_KINDS}
    attributes |= {f"ignore_{kind}": True for kind in IGNORED_KINDS}
    return type("HandrailGuard", (base, framework_base), attributes)


def find_callbacks(*configs: Config) -> "RunCallbacks | AnyRunCallbacks | None":
    """Return the guard's callbacks of a run that goes on, in any of the configurations or in that
    of the node or tool that calls; None if there are none.
    """
    ambient = import_framework("langchain_core.runnables.config", EXTRA).var_child_runnable_config
    for config in (*configs, ambient.get()):
        callbacks: Any = config.get("callbacks") if is_mapping(config) else None
        handlers: Any = getattr(callbacks, "handlers", callbacks)
        for handler in cast("list[Any]", handlers) if type(handlers) is list else ():
            if isinstance(handler, RunCallbacks | AnyRunCallbacks) and not handler.is_over:
                return handler
    return None


def find_watch() -> RunWatch | None:
    """Return the watched run that the calling node or tool belongs to."""
    callbacks = find_callbacks()
    if not isinstance(callbacks, AnyRunCallbacks):
        return callbacks.watch if callbacks is not None else None
    ambient = import_framework("langchain_core.runnables.config", EXTRA).var_child_runnable_config
    run = callbacks.runs.get(getattr(ambient.get().get("callbacks"), "parent_run_id", None))
    return run.callbacks.watch if run is not None else None


class RunCallbacks:
    """Maps the callbacks of one run to records of the guard."""

    ignore_chat_model = False
    """True while nothing has to be settled before a model call, as most often. Code that sets it
    checks once more, and code that has something to settle clears it last: parallel nodes hide
    nothing.
    """

    is_over = False

    def __init__(self, watch: RunWatch, tool_nodes: ToolNodes) -> None:
        self.watch, self.tracker = watch, NodeTracker(watch, tool_nodes)
        self.subgraph_runs, self.undecided_nodes = (
            self.tracker.subgraph_runs,
            self.tracker.undecided_nodes,
        )
        self.tools: dict[UUID, tuple[str, object, Any]] = {}
        self.findings = _SuperstepFindings()
        self.interrupts: tuple[Any, ...] = ()
        """The interrupts of the outermost graph that nobody has answered yet."""

    def on_chain_start(
        self,
        serialized: object,
        inputs: object,
        *,
        tags: Sequence[str] | None = None,
        metadata: Any = None,
        **about: Any,
    ) -> None:
        for tag in tags or ():
            if tag.startswith(STEP_TAG):
                with self.watch.boundary:
                    self.tracker.begin_node(metadata, inputs, about)
                self.ignore_chat_model = True
                if (
                    self.watch.step_open
                    or self.undecided_nodes
                    or self.watch.stop is not None
                    or self.watch.run.call_limits.is_set
                ):
                    self.ignore_chat_model = False
                self._abort_if_stopped()

    def on_chain_end(self, _: object, *, run_id: UUID, **about: object) -> None:
        if self.subgraph_runs:
            self.subgraph_runs.pop(run_id, None)
        if run_id is self.tracker.outer_run_id:
            self.tracker.outer_run_id = None

    on_chain_error = on_chain_end

    def on_interrupt(self, event: Any) -> None:
        if event.run_id == self.tracker.outer_run_id:
            self.interrupts = event.interrupts

    def on_chat_model_start(self, *_: object, metadata: Any = None, **about: object) -> None:
        with self.watch.boundary:
            if self.undecided_nodes:
                self.tracker.decide_node(self.tracker.namespace_of(metadata), runs_tools=False)
            self.watch.begin_step()
            self.watch.begin_call()
        self._abort_if_stopped()

    on_llm_start = on_chat_model_start

    def on_llm_end(self, response: Any, **about: object) -> None:
        with self.watch.boundary:
            first = response.generations[0][0]
            message = getattr(first, "message", None)
            usage = getattr(message, "usage_metadata", None)
            if not usage and response.llm_output:  # else from the whole response
                usage = response.llm_output.get("token_usage")
            call = model_call(message, usage or {}, response.llm_output)
            tokens = (usage.get("total_tokens") or 0) if usage else 0
            self.watch.record_answer(first.text, tokens, call)
        self.ignore_chat_model = False

    def on_tool_start(
        self, serialized: Config, input_str: str, *, run_id: UUID, **about: Any
    ) -> None:
        with self.watch.tool_boundary:
            name = (serialized or {}).get("name") or about.get("name") or "tool"
            inputs, metadata = about.get("inputs"), about.get("metadata")
            self.tools[run_id] = (name, inputs if inputs is not None else input_str, metadata)
            if self.undecided_nodes:
                self.tracker.decide_node(self.tracker.namespace_of(metadata), runs_tools=True)
            self.watch.begin_call(name)
        self._abort_if_stopped()

    def on_tool_end(self, output: Any, *, run_id: UUID, **about: object) -> None:
        with self.watch.tool_boundary:
            self._record_tool_output(output, *self.tools.pop(run_id, ("tool", "", None)))
        self.ignore_chat_model = False

    def _record_tool_output(self, output: Any, name: str, inputs: object, metadata: Any) -> None:
        if not hasattr(output, "content") and getattr(output, "goto", ()):
            return  # a handoff, recorded when the other node begins
        tool_output = read_tool_output(output)
        is_failure = getattr(output, "status", "") == "error"
        if is_failure or self.findings.is_new(
            self.tracker.step.number, self.tracker.namespace_of(metadata), name, inputs, tool_output
        ):
            error = tool_output if is_failure else None
            effect = declares_effect(metadata)
            self.watch.record_tool_call(name, inputs, tool_output, error, effect=effect)

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **about: object) -> None:
        with self.watch.tool_boundary:
            name, inputs, metadata = self.tools.pop(run_id, ("tool", "", None))
            if isinstance(error, bubble_up_type()):
                self.watch.pause_call(name)
            else:
                message = f"{type(error).__name__}: {exception_text(error)}"
                effect = declares_effect(metadata)
                self.watch.record_tool_call(name, inputs, error=message, effect=effect)
        self.ignore_chat_model = False

    def _abort_if_stopped(self) -> None:
        """End the graph of a stopped run by an error that no `RetryPolicy` retries."""
        if self.watch.stop is not None:
            raise graph_stop_error(self.watch.stop, self.watch.run, self.watch.partial)

    def end(self) -> None:
        """Take no more callbacks: what a graph left running is no part of the run."""
        self.is_over = True
        for kind in (*HANDLED_KINDS, "chat_model"):
            setattr(self, f"ignore_{kind}", True)


class _SuperstepFindings:
    """Findings of a superstep: the same one by parallel tasks is no repetition, as none knew of the
    other. The same one again by one task is. As long as there is one task, nothing is compared.
    """

    def __init__(self) -> None:
        self.step, self.task = -1, ""
        self.found: list[tuple[object, ...]] = []
        """What the first task found."""
        self.finders: dict[int, str] = {}
        """By finding, the task that made it; filled when there is a second task."""

    def is_new(self, step: int, namespace: str, *finding: object) -> bool:
        """Return whether the finding is new; `step` is that of the outermost graph."""
        task, _, _ = namespace.partition("|")
        if step != self.step or len(self.found) + len(self.finders) >= FINDINGS_KEPT:
            self.step, self.task, self.found, self.finders = step, task, [], {}
        if task == self.task and not self.finders:
            self.found.append(finding)
            return True
        for earlier in self.found:
            self.finders.setdefault(_finding_hash(earlier), self.task)
        self.found = []
        return self.finders.setdefault(_finding_hash(finding), task) == task


def _finding_hash(finding: tuple[object, ...]) -> int:
    return hash(tuple(map(to_text, finding)))


def read_tool_output(output: Any) -> object:
    """Return a tool's output, without the id of the call."""
    if hasattr(output, "content"):
        return output.content
    update: Any = getattr(output, "update", None)
    if not is_mapping(update):
        return output
    messages: list[Any] = update.get("messages") or []  # a change of the graph's state
    rest = {key: value for key, value in update.items() if key != "messages"}
    return [getattr(message, "content", message) for message in messages], rest


class _OpenRun:
    """A run that goes on, with all chains and tools in it that are not over."""

    def __init__(self, root_id: UUID, context: Any, callbacks: Any) -> None:
        self.root_id, self.context, self.callbacks = root_id, context, callbacks
        self.open_ids = {root_id}


class AnyRunCallbacks:
    """Hears of any number of runs, also at once."""

    ignore_chat_model = False
    is_over = False

    def __init__(self, guard: Guard, name: str) -> None:
        self.guard, self.name = guard, name
        self.runs: dict[UUID | None, _OpenRun] = {}
        """By the id of a chain or a tool inside of the run."""

    def on_chain_start(
        self,
        serialized: object,
        inputs: object,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: Any = None,
        **about: Any,
    ) -> None:
        run = self.runs.get(parent_run_id)
        if run is None:
            if find_callbacks() not in (None, self):
                return  # a part of a run that is watched already
            name = self.name or about.get("name") or "graph"
            thread = metadata.get("thread_id", "") if metadata else ""
            run = self._begin(run_id, name, inputs, thread)
        if run is None:
            return
        self._open(run, run_id)
        about |= {"run_id": run_id, "parent_run_id": parent_run_id, "metadata": metadata}
        run.callbacks.on_chain_start(serialized, inputs, **about)

    def on_chain_end(self, outputs: object, *, run_id: UUID, **about: object) -> None:
        self._close(run_id)

    def on_chain_error(self, error: BaseException, *, run_id: UUID, **about: object) -> None:
        self._close(run_id, error)

    def on_chat_model_start(
        self, *inputs: object, parent_run_id: UUID | None = None, **about: Any
    ) -> None:
        if (run := self.runs.get(parent_run_id)) is not None:
            run.callbacks.on_chat_model_start(*inputs, **about)

    on_llm_start = on_chat_model_start

    def on_llm_end(
        self, response: Any, *, parent_run_id: UUID | None = None, **about: object
    ) -> None:
        if (run := self.runs.get(parent_run_id)) is not None:
            run.callbacks.on_llm_end(response, **about)

    def on_tool_start(
        self,
        serialized: Config,
        input_str: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **about: Any,
    ) -> None:
        if (run := self.runs.get(parent_run_id)) is not None:
            self._open(run, run_id)
            run.callbacks.on_tool_start(serialized, input_str, run_id=run_id, **about)

    def on_tool_end(self, output: Any, *, run_id: UUID, **about: object) -> None:
        if (run := self._close(run_id)) is not None:
            run.callbacks.on_tool_end(output, run_id=run_id, **about)

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **about: object) -> None:
        if (run := self._close(run_id)) is not None:
            run.callbacks.on_tool_error(error, run_id=run_id, **about)

    def _begin(self, root_id: UUID, name: str, inputs: object, thread: object) -> _OpenRun | None:
        with absorbing_start(self.guard):
            context = watching_stream(self.guard, name, inputs, thread)
            return _OpenRun(root_id, context, RunCallbacks(context.__enter__(), ToolNodes(None)))
        return None

    def _open(self, run: _OpenRun, run_id: UUID) -> None:
        self.runs[run_id] = run
        run.open_ids.add(run_id)

    def _close(self, run_id: UUID, error: BaseException | None = None) -> _OpenRun | None:
        """End a chain or a tool, and the run if it was the outermost."""
        run = self.runs.pop(run_id, None)
        if run is None:
            return None
        run.open_ids.discard(run_id)
        run.callbacks.on_chain_end(None, run_id=run_id)
        if run_id == run.root_id:
            self._end(run, error)
        return run

    def _end(self, run: _OpenRun, error: BaseException | None) -> None:
        for open_id in run.open_ids:
            self.runs.pop(open_id, None)
        run.callbacks.end()
        if run.callbacks.watch.stop is None and isinstance(error, bubble_up_type()):
            error = None  # a pause, or a handoff to a graph outside
        try:
            if error is None:
                run.context.__exit__(None, None, None)
            else:
                with suppress(StoppedError):  # it is what ended the graph
                    run.context.__exit__(type(error), error, error.__traceback__)
        except StoppedError as stopped:
            raise graph_stop_error(stopped.stop, stopped.run, stopped.partial) from None
