"""Strands: every run of an agent, a swarm or a graph that is no part of a guarded run is
guarded."""

import functools
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

from handrail.guard.adapter import current_watch, import_framework
from handrail.guard.run import Guard
from handrail.guard.strands import EXTRA, guarded


def patch(make_guard: Callable[[], Guard]) -> None:
    """Send the calls of agents, swarms and graphs through the adapter."""
    agent_type = import_framework("strands", EXTRA).Agent
    swarm_type = import_framework("strands.multiagent.swarm", EXTRA).Swarm
    graph_type = import_framework("strands.multiagent.graph", EXTRA).Graph
    for team_type in (agent_type, swarm_type, graph_type):
        team_type.__call__ = _guarded_call(team_type.__call__, make_guard)
        team_type.invoke_async = _guarded_invoke(team_type.invoke_async, make_guard)
        team_type.stream_async = _guarded_stream(team_type.stream_async, make_guard)


def _guarded_call(original: Any, make_guard: Callable[[], Guard]) -> Any:
    @functools.wraps(original)
    def call(team: Any, *args: Any, **options: Any) -> Any:
        if current_watch.get() is not None:
            return original(team, *args, **options)
        return guarded(team, make_guard())(*args, **options)

    return call


def _guarded_invoke(original: Any, make_guard: Callable[[], Guard]) -> Any:
    @functools.wraps(original)
    async def invoke_async(team: Any, *args: Any, **options: Any) -> Any:
        if current_watch.get() is not None:
            return await original(team, *args, **options)
        return await guarded(team, make_guard()).invoke_async(*args, **options)

    return invoke_async


def _guarded_stream(original: Any, make_guard: Callable[[], Guard]) -> Any:
    @functools.wraps(original)
    async def stream_async(team: Any, *args: Any, **options: Any) -> AsyncIterator[Any]:
        is_part = current_watch.get() is not None
        stream: Any = (
            original(team, *args, **options)
            if is_part
            else guarded(team, make_guard()).stream_async(*args, **options)
        )
        async with aclosing(stream) as events:
            async for event in events:
                yield event

    return stream_async
