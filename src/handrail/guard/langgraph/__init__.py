"""Guard LangGraph: a compiled graph, watched through callbacks, called as before.

    team = guarded(graph)
    team.invoke({"messages": [...]})

The guarded graph is an object of the graph's own class: it can be a subgraph, a part of a pipe, and
whatever else the graph can be. Graphs that are built elsewhere are watched by `Guard.callback`, and
agents of LangChain's `create_agent` by `Guard.middleware`.

`nodes` says what counts as an agent. A tool that hands over is no evidence. A refused node does
not run, nor is it retried. What a stop leaves: the input state of the refused node, as `partial`;
with a checkpointer, the thread as it stood before that node.
"""

from typing import Any

from handrail.guard.adapter import current_watch, import_framework
from handrail.guard.framework_versions import require_version
from handrail.guard.langgraph.callbacks import AnyRunCallbacks, callback_type, find_watch
from handrail.guard.langgraph.framework import EXTRA
from handrail.guard.langgraph.graph import GraphGuard, GuardedGraph, guard_graph
from handrail.guard.langgraph.interrupts import ActionQuestion, AnswerFunction
from handrail.guard.langgraph.middleware import middleware_type
from handrail.guard.run import Guard

__all__ = ["ActionQuestion", "GuardedGraph", "guarded", "nudge_messages"]


def guarded(
    graph: Any,
    guard: Guard | None = None,
    *,
    name: str = "",
    answer: AnswerFunction | None = None,
) -> Any:
    """Put a guard around a compiled graph, and return it as an object of the same class.

    `answer` is called when the graph interrupts itself for a person; it may be asynchronous.
    Without it, the server that records the run asks a person; without a server, the graph's own
    result shows the interrupt. Inside a guarded run the graph is a part of that run, and of its
    guard.
    """
    require_version(EXTRA)
    if isinstance(graph, GuardedGraph):
        graph = graph.handrail.graph
    return guard_graph(graph, GraphGuard(graph, guard or Guard(), name, answer))


def make_callback(guard: Guard, name: str) -> Any:
    """Return a callback handler of LangChain's for any number of runs."""
    require_version(EXTRA)
    return callback_type(AnyRunCallbacks)(guard, name)


def make_middleware(guard: Guard, name: str) -> Any:
    """Return a middleware of LangChain's for any number of calls."""
    require_version(EXTRA)
    return middleware_type()(guard, name)


def nudge_messages() -> list[Any]:
    """Return what a node should tell its model of a rule that is near, as messages to add to the
    others; most of the time none. A graph has no place where a guard could add them by itself.
    """
    messages: list[Any] = []
    watch = find_watch() or current_watch.get()
    if watch is not None:
        message_type = import_framework("langchain_core.messages", EXTRA).HumanMessage
        watch.deliver_nudge(lambda text: messages.append(message_type(text)))
    return messages
