"""LangGraph, swarm, supervisor and LangChain's agents: every run of a graph that is no part of a
guarded run is guarded.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from handrail.guard.adapter import import_framework
from handrail.guard.langgraph import GuardedGraph, guarded
from handrail.guard.langgraph.callbacks import find_callbacks
from handrail.guard.langgraph.framework import EXTRA
from handrail.guard.run import Guard

CALLS = ("invoke", "ainvoke", "stream", "astream")


def patch(make_guard: Callable[[], Guard]) -> None:
    """Send the calls of `Pregel` through the adapter."""
    graph_type = import_framework("langgraph.pregel", EXTRA).Pregel
    for name in CALLS:
        setattr(graph_type, name, _guarded_call(getattr(graph_type, name), name, make_guard))


def _guarded_call(original: Any, name: str, make_guard: Callable[[], Guard]) -> Any:
    """Return the call, guarded; without arguments it raises what the original raises."""

    @functools.wraps(original)
    def call(graph: Any, input: Any, config: Any = None, **options: Any) -> Any:  # noqa: A002 - its name
        is_part = find_callbacks(config, graph.config) is not None
        if is_part or isinstance(graph, GuardedGraph):
            return original(graph, input, config, **options)
        return getattr(guarded(graph, make_guard()), name)(input, config, **options)

    call.__dict__["__signature__"] = inspect.signature(original)
    return call
