"""Which agent has the turn while a graph runs: starting nodes become turns and handoffs.

A node is an agent, and a node that follows another is a handoff, by whatever means: an edge, a
`Command`, a `Send`. Nodes of one superstep get the turn from the same agent, each name once. Nodes
of subgraphs are called "outer/inner", as often as the outer one calls them. A node that only runs
tools (`ToolNode`), or that LangChain makes of a middleware, is no agent: the agent that comes back
after it goes on with its turn.
"""

import functools
from collections.abc import Mapping
from threading import RLock
from typing import Any
from uuid import UUID

import msgspec

from handrail.guard.adapter import RunWatch, import_framework, to_text
from handrail.guard.langgraph.framework import EXTRA
from handrail.kernel.definition.reader import is_mapping
from handrail.kernel.run.state import Stop

SUPERSTEPS_KEPT = 1_000
"""Supersteps of a graph that are remembered: parallel tasks are not that far apart."""
DETACHED_PATH = "|"
"""The path of graphs that a node calls by callbacks alone, such as in threads of its own. Which of
them are parallel is unknown, so all count as one graph until the node is over.
"""
HOOK_SUFFIXES = (".before_agent", ".before_model", ".after_model", ".after_agent")
"""How LangChain names the nodes that it makes of an agent's middleware."""
AGENT_NODE = "model"
"""How LangChain names the node of an agent that calls its model."""


class ToolNodes:
    """Knows which nodes are no agents, in the graph and its subgraphs: they only run tools, or are
    a middleware's.

    Searching for subgraphs takes a while, so they are searched when a node of one begins. Some
    cannot be found, such as those that tools call, and a callback does not know its graph at all:
    what runs first in their nodes decides.
    """

    def __init__(self, graph: Any | None) -> None:
        self.graph = graph
        self.tool_node_type = import_framework("langgraph.prebuilt", EXTRA).ToolNode

    @functools.cached_property
    def outer_nodes(self) -> dict[str, bool]:
        nodes: Mapping[str, Any] = self.graph.nodes if self.graph is not None else {}
        return {name: self._is_tool_node(name, node) for name, node in nodes.items()}

    @functools.cached_property
    def inner_nodes(self) -> dict[str, bool]:
        tool_nodes: dict[str, bool] = {}
        for namespace, subgraph in self.graph.get_subgraphs(recurse=True) if self.graph else ():
            path = namespace.replace("|", "/")
            tool_nodes |= {
                f"{path}/{name}": self._is_tool_node(name, node)
                for name, node in subgraph.nodes.items()
            }
        return tool_nodes

    def is_outer(self, name: str, inputs: object) -> bool | None:
        """Decide for a node of the outermost graph; None while that is unknown."""
        is_tool_node = self.outer_nodes.get(name)
        return self._guess(name, inputs) if is_tool_node is None else is_tool_node

    def is_inner(self, name: str, inputs: object) -> bool | None:
        """Decide for a node of a subgraph; None while that is unknown."""
        is_tool_node = self.inner_nodes.get(name)
        return self._guess(name, inputs) if is_tool_node is None else is_tool_node

    def _guess(self, name: str, inputs: object) -> bool | None:
        if name.endswith(HOOK_SUFFIXES):
            return True
        return None if _has_open_tool_calls(inputs) else False

    def _is_tool_node(self, name: str, node: Any) -> bool:
        return name.endswith(HOOK_SUFFIXES) or isinstance(node.bound, self.tool_node_type)


class NodeTracker:
    """Maps starting nodes to turns.

    Each graph has its own supersteps; a subgraph goes on while its node of the outer graph runs,
    several times at once where several tasks run the same node.
    """

    def __init__(self, watch: RunWatch, tool_nodes: ToolNodes) -> None:
        self.watch, self.tool_nodes = watch, tool_nodes
        self.outer_run_id: UUID | None = None
        """The run of the outermost graph, while it goes on."""
        self.outer_namespace: str | None = None
        """The namespace of that graph, which may be a part of a graph that is not watched."""
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
        with self.lock:
            if self.outer_namespace is None:
                self.outer_namespace, _, _ = metadata["langgraph_checkpoint_ns"].rpartition("|")
            namespace, graph = self.namespace_of(metadata), run_info["parent_run_id"]
            if "|" in namespace:
                path = self._subgraph_path(namespace, graph)
                return self._begin_inner_node(path, f"{path}/{name}", number, namespace, inputs)
            if graph is not self.outer_run_id and graph != self.outer_run_id:
                if self.outer_run_id is not None:
                    return self._begin_inner_node(DETACHED_PATH, name, number, namespace, inputs)
                self.outer_run_id = graph
            agent = metadata.get("lc_agent_name") or name if name == AGENT_NODE else name
            return self._begin_outer_node(name, agent, number, namespace, inputs)

    def _begin_outer_node(
        self, node: str, name: str, number: int, namespace: str, inputs: object
    ) -> Stop | None:
        """Begin a node of the outermost graph; `name` is what its agent is called."""
        step, watch = self.step, self.watch
        if number != step.number:
            if self.undecided_nodes:
                self._decide_earlier_nodes(namespace)
            source, after_tools = min(step.names, default=""), step.ran_tools
            if self.supersteps:
                source = self._pop_last_agent(source)
                self._forget_inner("")
            step.number, step.source, step.after_tools = number, source, after_tools
            step.names, step.ran_tools = (), False
        runs_tools = self.tool_nodes.is_outer(node, inputs)
        if runs_tools:
            self.tool_callers[node] = step.source
            step.mark_tools_run()
        elif name not in step.names:
            watch.partial = inputs
            if runs_tools is None:
                self.undecided_nodes[namespace] = step, "", name
                return watch.stop
            step.names += (name,)
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
        runs_tools = self.tool_nodes.is_inner(name, inputs)
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

    def namespace_of(self, metadata: Mapping[str, Any] | None) -> str:
        """Return the namespace that a node has in the outermost graph."""
        namespace: str = (metadata or {}).get("langgraph_checkpoint_ns", "")
        outer = self.outer_namespace
        return namespace.removeprefix(f"{outer}|") if outer else namespace

    def decide_node(self, namespace: str, *, runs_tools: bool) -> None:
        """Decide an undecided node: a requested tool as its first act means it only runs tools."""
        with self.lock:
            step, path, name = self.undecided_nodes.pop(namespace, (None, "", ""))
            if step is not None and runs_tools:
                self.tool_callers[name] = step.source
                step.mark_tools_run()
            elif step is not None and name not in step.names:
                step.names += (name,)
                if path:
                    self.last_agents[path] = name
                if not step.after_tools or name != step.source:
                    self.watch.activate(name, source=step.source)
                else:
                    self.watch.resume(name)

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
    state: dict[str, Any] = {}
    text = ""
    for key, value in _fields_of(inputs).items():
        last_value = _last_of(value)
        if last_value is not value and hasattr(last_value, "content"):
            text = to_text(last_value.content)
        else:
            state[key] = value
    watch.record_state(state, text)


def _fields_of(inputs: Any) -> Mapping[str, Any]:
    if issubclass(type(inputs), dict) or is_mapping(inputs):
        return inputs
    return getattr(inputs, "__dict__", {"": inputs})


def _last_of(value: Any) -> Any:
    """Return the last element of a list, or the value itself if it is none."""
    return value[-1] if value and issubclass(type(value), list) else value


def _has_open_tool_calls(inputs: Any) -> bool:
    """Return whether a node's input has unanswered tool calls: in the model's message at the end of
    its messages, or by themselves.
    """
    last_values = map(_last_of, _fields_of(inputs).values())
    return any(
        last_value.get("type") == "tool_call"
        if is_mapping(last_value)
        else getattr(last_value, "tool_calls", None)
        for last_value in last_values
    )
