"""Guard LangGraph: a compiled graph, watched through callbacks, called as before.

    team = guarded(graph)
    team.invoke({"messages": [...]})

A node is an agent, and a node that follows another is a handoff, by whatever means: an edge, a
`Command`, a `Send`. Nodes of one superstep get the turn from the same agent, each name once. Nodes
of subgraphs are called "outer/inner", as often as the outer one calls them. A node that only runs
tools (`ToolNode`) is no agent: the agent that comes back after it goes on with its turn. A tool
that hands over is no evidence. A refused node does not run, nor is it retried.

What a stop leaves: the input state of the refused node, as `partial`; with a checkpointer, the
thread as it stood before that node.
"""

import functools
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from threading import RLock
from typing import Any, cast
from uuid import UUID

import msgspec

from handrail.guard.adapter import (
    RunWatch,
    current_watch,
    import_framework,
    to_text,
    watching,
    watching_stream,
)
from handrail.guard.approvals import ASKS_PER_RUN_MAX, ask_person, ask_person_async
from handrail.guard.run import Guard
from handrail.guard.tool_calls import declares_effect
from handrail.kernel.definition.reader import is_mapping
from handrail.kernel.run.state import Stop

EXTRA = "langgraph"
STEP_TAG = "graph:step:"
HANDLED_KINDS = ("chain", "llm", "agent")
"""Kinds of callbacks; those of tools belong to agents."""
SUPERSTEPS_KEPT = 1_000
"""Supersteps of a graph that are remembered: parallel tasks are not that far apart."""
DETACHED_PATH = "|"
"""The path of graphs that a node calls by callbacks alone, such as in threads of its own. Which of
them are parallel is unknown, so all count as one graph until the node is over.
"""
FINDINGS_KEPT = 1_000
"""Findings of the tasks of one superstep that are remembered."""
IGNORED_KINDS = ("retriever", "retry", "custom_event")

AnswerFunction = Callable[[object], object]
"""Maps the value of an interrupt to the value that the graph is resumed with."""
Config = Mapping[str, Any] | None


class GuardedGraph:
    """A compiled graph with a guard around it. Call the graph itself for all other methods."""

    def __init__(self, graph: Any, guard: Guard, name: str, answer: AnswerFunction | None) -> None:
        self.graph, self.guard, self.name, self.answer = graph, guard, name, answer

    def invoke(self, graph_input: object, config: Config = None, **options: Any) -> Any:
        """Like `graph.invoke`; raises `Stopped` when a rule ends the run."""
        with watching(self.guard, self.name, graph_input, self._thread(config)) as watch:
            configured = _watched_config(config, watch, self.graph)
            watch.partial = self.graph.invoke(graph_input, configured, **options)
            for interrupt in _interrupts(watch):
                answer = self._answer(interrupt) or _to_answer(ask_person(watch, interrupt.value))
                if answer is None:
                    break
                watch.partial = self.graph.invoke(
                    _resume_command(interrupt, answer), configured, **options
                )
        return watch.partial

    async def ainvoke(self, graph_input: object, config: Config = None, **options: Any) -> Any:
        """Like `graph.ainvoke`; raises `Stopped` when a rule ends the run."""
        with watching(self.guard, self.name, graph_input, self._thread(config)) as watch:
            configured = _watched_config(config, watch, self.graph)
            watch.partial = await self.graph.ainvoke(graph_input, configured, **options)
            for interrupt in _interrupts(watch):
                answer = self._answer(interrupt) or _to_answer(
                    await ask_person_async(watch, interrupt.value)
                )
                if answer is None:
                    break
                command = _resume_command(interrupt, answer)
                watch.partial = await self.graph.ainvoke(command, configured, **options)
        return watch.partial

    def stream(self, graph_input: object, config: Config = None, **options: Any) -> Iterator[Any]:
        """Like `graph.stream`; raises `Stopped` when a rule ends the run. An interrupt ends it."""
        with watching_stream(self.guard, self.name, graph_input, self._thread(config)) as watch:
            configured = _watched_config(config, watch, self.graph)
            yield from watch.iterate(self.graph.stream(graph_input, configured, **options))

    async def astream(
        self, graph_input: object, config: Config = None, **options: Any
    ) -> AsyncIterator[Any]:
        """Like `graph.astream`; raises `Stopped` when a rule ends the run. An interrupt ends it."""
        with watching_stream(self.guard, self.name, graph_input, self._thread(config)) as watch:
            configured = _watched_config(config, watch, self.graph)
            async for piece in watch.iterate_async(
                self.graph.astream(graph_input, configured, **options)
            ):
                yield piece

    def _thread(self, config: Config) -> object:
        """Return the id of the conversation, as the caller or the graph's own config names it."""
        sources: list[Config] = [config, self.graph.config]
        for source in sources:
            configurable: Config = (source or {}).get("configurable")
            if configurable and configurable.get("thread_id") is not None:
                return configurable["thread_id"]
        return ""

    def _answer(self, interrupt: Any) -> "_InterruptAnswer | None":
        return _InterruptAnswer(self.answer(interrupt.value)) if self.answer is not None else None


class _InterruptAnswer(msgspec.Struct):
    """An answer, which may be any value, also None."""

    value: object


def guarded(
    graph: Any,
    guard: Guard | None = None,
    *,
    name: str = "",
    answer: AnswerFunction | None = None,
) -> GuardedGraph:
    """Put a guard around a compiled graph.

    `answer` is called when the graph interrupts itself for a person. Without it, the server that
    records the run asks a person; without a server, the graph's own result shows the interrupt.
    """
    return GuardedGraph(graph, guard or Guard(), name or graph.get_name(), answer)


def nudge_messages() -> list[Any]:
    """Return what a node should tell its model of a rule that is near, as messages to add to the
    others; most of the time none. A graph has no place where a guard could add them by itself.
    """
    messages: list[Any] = []
    watch = current_watch.get()
    if watch is not None:
        message_type = import_framework("langchain_core.messages", EXTRA).HumanMessage
        watch.deliver_nudge(lambda text: messages.append(message_type(text)))
    return messages


def _interrupts(watch: RunWatch) -> Iterator[Any]:
    """Yield the graph's interrupts, up to the limit of approvals."""
    for _ in range(ASKS_PER_RUN_MAX):
        result = watch.partial
        interrupts: Any = result.get("__interrupt__") if is_mapping(result) else None
        if not interrupts or watch.stop is not None:
            return
        yield interrupts[0]


def _to_answer(reply: Any) -> _InterruptAnswer | None:
    """Return a person's text; a yes without text is True."""
    return None if reply is None else _InterruptAnswer(reply.text or True)


def _resume_command(interrupt: Any, answer: _InterruptAnswer) -> Any:
    return import_framework("langgraph.types", EXTRA).Command(resume={interrupt.id: answer.value})


def _watched_config(config: Config, watch: RunWatch, graph: Any) -> dict[str, Any]:
    """Return the caller's configuration with the guard among its callbacks."""
    configured: dict[str, Any] = dict(config or {})
    handler = _handler_class()(watch, _ToolNodes(graph))
    callbacks = configured.get("callbacks")
    if callbacks is None or isinstance(callbacks, list):
        configured["callbacks"] = [*(callbacks or ()), handler]
    else:
        configured["callbacks"] = callbacks = callbacks.copy()
        callbacks.add_handler(handler)
    return configured


class _ToolNodes:
    """Knows which nodes only run tools, in the graph and its subgraphs.

    Searching for subgraphs takes a while, so they are searched when a node of one begins. Some
    cannot be found, such as those that tools call: what runs first in their nodes decides.
    """

    def __init__(self, graph: Any) -> None:
        self.graph = graph
        self.tool_node_type = import_framework("langgraph.prebuilt", EXTRA).ToolNode
        self.outer_names = {name for name, node in graph.nodes.items() if self._is_instance(node)}

    @functools.cached_property
    def inner_nodes(self) -> dict[str, bool]:
        tool_nodes: dict[str, bool] = {}
        for namespace, subgraph in self.graph.get_subgraphs(recurse=True):
            path = namespace.replace("|", "/")
            tool_nodes |= {
                f"{path}/{name}": self._is_instance(node) for name, node in subgraph.nodes.items()
            }
        return tool_nodes

    def is_tool_node(self, name: str, inputs: object) -> bool | None:
        """Decide for a node of a subgraph; None while that is unknown."""
        is_known = self.inner_nodes.get(name)
        return False if is_known is None and not _has_open_tool_calls(inputs) else is_known

    def _is_instance(self, node: Any) -> bool:
        return isinstance(node.bound, self.tool_node_type)


@functools.cache
def _handler_class() -> Any:
    """Make the class of callbacks; this works only where the framework is installed."""
    base = import_framework("langchain_core.callbacks", EXTRA).BaseCallbackHandler
    attributes = {"raise_error": True, "run_inline": True}
    attributes |= {f"ignore_{kind}": False for kind in HANDLED_KINDS}
    attributes |= {f"ignore_{kind}": True for kind in IGNORED_KINDS}
    return type("HandrailGuard", (_Callbacks, base), attributes)


class _Callbacks:
    """Maps the framework's callbacks to records of the guard."""

    ignore_chat_model = False
    """True while nothing has to be settled before a model call, as most often. Code that sets it
    checks once more, and code that has something to settle clears it last: parallel nodes hide
    nothing.
    """

    def __init__(self, watch: RunWatch, tool_nodes: _ToolNodes) -> None:
        self.watch, self.tracker = watch, _NodeTracker(watch, tool_nodes)
        self.subgraph_runs, self.undecided_nodes = (
            self.tracker.subgraph_runs,
            self.tracker.undecided_nodes,
        )
        self.tools: dict[UUID, tuple[str, object, Any]] = {}
        self.findings = _SuperstepFindings()

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
                stop = self.tracker.begin_node(metadata, inputs, about)
                self.ignore_chat_model = True
                if self.watch.step_open or self.undecided_nodes or self.watch.stop is not None:
                    self.ignore_chat_model = False
                if stop is not None:
                    _abort_graph(self.watch)

    def on_chain_end(self, _: object, *, run_id: UUID, **about: object) -> None:
        if self.subgraph_runs:
            self.subgraph_runs.pop(run_id, None)
        if run_id is self.tracker.outer_run_id:
            self.tracker.outer_run_id = None

    on_chain_error = on_chain_end

    def on_chat_model_start(self, *_: object, metadata: Any = None, **about: object) -> None:
        if self.undecided_nodes:
            self.tracker.decide_node(_namespace(metadata), runs_tools=False)
        if self.watch.begin_step() is not None:
            _abort_graph(self.watch)

    on_llm_start = on_chat_model_start

    def on_llm_end(self, response: Any, **about: object) -> None:
        first = response.generations[0][0]
        usage = getattr(getattr(first, "message", None), "usage_metadata", None)
        if not usage and response.llm_output:  # from the message, or else from the whole response
            usage = response.llm_output.get("token_usage")
        self.watch.record_answer(first.text, (usage.get("total_tokens") or 0) if usage else 0)
        self.ignore_chat_model = False

    def on_tool_start(
        self, serialized: Config, input_str: str, *, run_id: UUID, **about: Any
    ) -> None:
        name = (serialized or {}).get("name") or about.get("name") or "tool"
        inputs, metadata = about.get("inputs"), about.get("metadata")
        self.tools[run_id] = (name, inputs if inputs is not None else input_str, metadata)
        if self.undecided_nodes:
            self.tracker.decide_node(_namespace(metadata), runs_tools=True)

    def on_tool_end(self, output: Any, *, run_id: UUID, **about: object) -> None:
        name, inputs, metadata = self.tools.pop(run_id, ("tool", "", None))
        if getattr(output, "goto", ()):
            return  # a handoff, recorded when the other node begins
        tool_output = _tool_output(output)
        is_failure = getattr(output, "status", "") == "error"
        if is_failure or self.findings.is_new(
            self.tracker.step.number, _namespace(metadata), name, inputs, tool_output
        ):
            error = tool_output if is_failure else None
            effect = declares_effect(metadata)
            self.watch.record_tool_call(name, inputs, tool_output, error, effect=effect)
            self.ignore_chat_model = False

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **about: object) -> None:
        name, inputs, metadata = self.tools.pop(run_id, ("tool", "", None))
        if not isinstance(
            error, import_framework("langgraph.errors", EXTRA).GraphBubbleUp
        ):  # no pause
            message, effect = f"{type(error).__name__}: {error}", declares_effect(metadata)
            self.watch.record_tool_call(name, inputs, error=message, effect=effect)
            self.ignore_chat_model = False


class _SuperstepFindings:
    """Findings of a superstep: the same one by parallel tasks is no repetition, as none knew of the
    other. The same one again by one task is.
    """

    def __init__(self) -> None:
        self.step = -1
        self.finders: dict[int, str] = {}
        """By finding, the task that made it."""

    def is_new(self, step: int, namespace: str, *finding: object) -> bool:
        """Return whether the finding is new; `step` is that of the outermost graph."""
        task, _, _ = namespace.partition("|")
        if step != self.step or len(self.finders) >= FINDINGS_KEPT:
            self.step, self.finders = step, {}
        return self.finders.setdefault(hash(tuple(map(to_text, finding))), task) == task


class _NodeTracker:
    """Maps starting nodes to turns.

    Each graph has its own supersteps; a subgraph goes on while its node of the outer graph runs,
    several times at once where several tasks run the same node.
    """

    def __init__(self, watch: RunWatch, tool_nodes: _ToolNodes) -> None:
        self.watch, self.tool_nodes = watch, tool_nodes
        self.outer_run_id: UUID | None = None
        """The run of the outermost graph, while it goes on."""
        self.step = _Superstep(0, "")
        """Its superstep: each is over before the next begins."""
        self.supersteps: dict[str, dict[int, _Superstep]] = {}
        """Supersteps of subgraphs, by the path to the node that runs them."""
        self.last_agents: dict[str, str] = {}
        """By the same path: the agent that had the turn in it last."""
        self.tool_callers: dict[str, str] = {}
        """By tool node: the agent that has the turn meanwhile."""
        self.subgraph_runs: dict[UUID, str] = {}
        """Calls of subgraphs that are not over, each with that path."""
        self.undecided_nodes: dict[str, tuple[_Superstep, str, str]] = {}
        """By namespace: nodes that may only run tools, with path and name."""
        self.lock = RLock()

    def begin_node(self, metadata: Any, inputs: object, run_info: Mapping[str, Any]) -> Stop | None:
        name: str = metadata["langgraph_node"]
        number: int = metadata["langgraph_step"]
        namespace: str = metadata["langgraph_checkpoint_ns"]
        with self.lock:
            graph = run_info["parent_run_id"]
            if "|" in namespace:
                path = self._subgraph_path(namespace, graph)
                return self._begin_inner_node(path, f"{path}/{name}", number, namespace, inputs)
            if graph is not self.outer_run_id and graph != self.outer_run_id:
                if self.outer_run_id is not None:
                    return self._begin_inner_node(DETACHED_PATH, name, number, namespace, inputs)
                self.outer_run_id = graph
            step, watch = self.step, self.watch
            if number != step.number:
                source, after_tools = min(step.names, default=""), step.ran_tools
                if self.supersteps:
                    self._decide_earlier_nodes(namespace)
                    source = self._pop_last_agent(source)
                    self._forget_inner("")
                step.number, step.source, step.after_tools = number, source, after_tools
                step.names, step.ran_tools = (), False
            if name in self.tool_nodes.outer_names:
                self.tool_callers[name] = step.source
                step.mark_tools_run()
            elif name not in step.names:
                step.names += (name,)
                watch.partial = inputs
                _record_state(watch, inputs)
                if not step.after_tools or name != step.source:
                    return watch.activate(name, source=step.source)
                watch.resume(name)
            return watch.stop

    def _begin_inner_node(
        self, path: str, name: str, number: int, namespace: str, inputs: object
    ) -> Stop | None:
        """Begin a node of a subgraph, or of a graph that a node calls."""
        watch = self.watch
        steps = self.supersteps.setdefault(path, {})
        step = steps.get(number)
        if step is None:
            step = steps[number] = self._next_superstep(
                path, steps.get(number - 1), number, namespace
            )
            steps.pop(number - SUPERSTEPS_KEPT, None)
        runs_tools = self.tool_nodes.is_tool_node(name, inputs)
        if runs_tools:
            self.tool_callers[name] = step.source
            step.mark_tools_run()
        elif runs_tools is None and name not in step.names:
            self.undecided_nodes[namespace] = step, path, name
        elif name not in step.names:
            step.names += (name,)
            self.last_agents[path] = name
            if watch.partial is None:
                watch.partial = inputs
            _record_state(watch, inputs)
            if not step.after_tools or name != step.source:
                return watch.activate(name, source=step.source)
            watch.resume(name)
        return watch.stop

    def decide_node(self, namespace: str, *, runs_tools: bool) -> None:
        """Decide an undecided node: a requested tool as its first act means it only runs tools."""
        with self.lock:
            step, path, name = self.undecided_nodes.pop(namespace, (None, "", ""))
            if step is not None and runs_tools:
                self.tool_callers[name] = step.source
                step.mark_tools_run()
            elif step is not None and name not in step.names:
                step.names += (name,)
                self.last_agents[path] = name
                self.watch.activate(name, source=step.source)

    def _subgraph_path(self, namespace: str, run_id: UUID) -> str:
        """Return the path to the node that runs the graph.

        A node that calls a graph again after its end begins anew: the framework counts such calls.
        """
        parts = namespace.split("|")[:-1]
        path = "/".join(part.partition(":")[0] for part in parts if not part.isdigit())
        if run_id not in self.subgraph_runs:
            if parts[-1].isdigit() and path not in self.subgraph_runs.values():
                self.supersteps.pop(path, None)
            self.subgraph_runs[run_id] = path
        return path

    def _next_superstep(
        self, path: str, previous: "_Superstep | None", number: int, namespace: str
    ) -> "_Superstep":
        """Begin a superstep; the first has the turn from the graph's node, or its tool caller."""
        self._decide_earlier_nodes(namespace)
        runner = path if path != DETACHED_PATH else min(self.step.names, default="")
        first_source = self.tool_callers.get(runner, runner)
        source = (
            first_source
            if previous is None
            else self._pop_last_agent(min(previous.names, default=first_source))
        )
        self._forget_inner(path)
        return _Superstep(number, source, previous is not None and previous.ran_tools)

    def _decide_earlier_nodes(self, namespace: str) -> None:
        """Decide earlier nodes when a graph goes on: those that ran no tools are agents."""
        graph, _, _ = namespace.rpartition("|")
        for undecided in [
            undecided
            for undecided in self.undecided_nodes
            if graph in (undecided, undecided.rpartition("|")[0])
        ]:
            self.decide_node(undecided, runs_tools=False)

    def _pop_last_agent(self, agent: str) -> str:
        """Return the agent that had the turn last in the subgraphs of `agent`; itself if it ran
        none.
        """
        while agent in self.last_agents:
            agent = self.last_agents.pop(agent)
        return agent

    def _forget_inner(self, outer_path: str) -> None:
        """Forget the subgraphs of this path: none still runs when the outer graph goes on."""
        prefix = f"{outer_path}/" if outer_path else ""
        for table in (self.supersteps, self.last_agents, self.tool_callers):
            for path in [
                candidate
                for candidate in table
                if candidate != outer_path and candidate.startswith(prefix)
            ]:
                del table[path]
        if not outer_path:
            self.subgraph_runs.clear()
            self.undecided_nodes.clear()


class _Superstep(msgspec.Struct, gc=False):
    """One superstep: the agents that have the turn in it, and from which agent."""

    number: int
    source: str
    after_tools: bool = False
    names: tuple[str, ...] = ()
    ran_tools: bool = False

    def mark_tools_run(self) -> None:
        if not self.ran_tools:
            self.names, self.ran_tools = (*self.names, self.source), True


def _record_state(watch: RunWatch, inputs: Any) -> None:
    """Record the state that a node begins with, as what the agent before it left.

    Messages are texts: the last one counts as what that agent said, unless its model was seen.
    """
    if not watch.judges_findings:
        return
    fields: Any = inputs if is_mapping(inputs) else getattr(inputs, "__dict__", {"": inputs})
    state: dict[str, Any] = {}
    text = ""
    for key, value in cast("Mapping[str, Any]", fields).items():
        last = _last_message(value)
        if last is None:
            state[key] = value
        else:
            text = to_text(last.content)
    watch.record_state(state, text)


def _last_message(value: Any) -> Any:
    """Return the last of a list of messages; None if the value is no such list."""
    messages = cast("list[Any]", value) if type(value) is list else []
    return messages[-1] if messages and hasattr(messages[-1], "content") else None


def _namespace(metadata: Mapping[str, Any] | None) -> str:
    return (metadata or {}).get("langgraph_checkpoint_ns", "")


def _has_open_tool_calls(inputs: Any) -> bool:
    """Return whether a node's input has unanswered tool calls: in the model's message at the end of
    its messages, or by themselves.
    """
    fields: Any = inputs if is_mapping(inputs) else getattr(inputs, "__dict__", {"": inputs})
    last_values: list[Any] = [
        value[-1] if value and type(value) is list else value for value in fields.values()
    ]
    return any(
        last_value.get("type") == "tool_call"
        if is_mapping(last_value)
        else getattr(last_value, "tool_calls", None)
        for last_value in last_values
    )


def _abort_graph(watch: RunWatch) -> None:
    """End the graph by an error that no `RetryPolicy` retries.

    The stop itself is raised when the graph has come to rest.
    """
    message = f"the guarded run is over: {watch.stop.rule if watch.stop else ''}"
    raise import_framework("langgraph.errors", EXTRA).GraphBubbleUp(message)


def _tool_output(output: Any) -> object:
    """Return a tool's output, without the id of the call."""
    update: Any = getattr(output, "update", None)
    if is_mapping(update):  # a change of the graph's state
        changes: Any = update
        messages: list[Any] = changes.get("messages") or []
        rest = {key: value for key, value in changes.items() if key != "messages"}
        return [getattr(message, "content", message) for message in messages], rest
    return getattr(output, "content", output)
