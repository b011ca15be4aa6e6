"""Pydantic AI: every run of an agent that is no part of a guarded run is guarded."""

import functools
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

from handrail.guard.adapter import current_watch, import_framework
from handrail.guard.pydantic_ai import EXTRA, guarded
from handrail.guard.run import Guard

_is_starting: ContextVar[bool] = ContextVar("handrail_peers_starting", default=False)
"""Whether the adapter calls the framework, which begins `iter` before the run is watched."""


def patch(make_guard: Callable[[], Guard]) -> None:
    """Send `run` and `iter` of agents, of which all else is made, through the adapter."""
    agent_type = import_framework("pydantic_ai", EXTRA).Agent
    agent_type.run = _guarded_run(agent_type.run, make_guard)
    agent_type.iter = _guarded_iter(agent_type.iter, make_guard)


def _guarded_run(original: Any, make_guard: Callable[[], Guard]) -> Any:
    @functools.wraps(original)
    async def run(agent: Any, *args: Any, **options: Any) -> Any:
        if current_watch.get() is not None:
            return await original(agent, *args, **options)
        return await guarded(agent, make_guard()).run(*args, **options)

    return run


def _guarded_iter(original: Any, make_guard: Callable[[], Guard]) -> Any:
    @functools.wraps(original)
    @asynccontextmanager
    async def iterate(agent: Any, *args: Any, **options: Any) -> AsyncGenerator[Any]:
        if current_watch.get() is not None or _is_starting.get():
            async with original(agent, *args, **options) as run:
                yield run
            return
        manager = guarded(agent, make_guard()).iter(*args, **options)
        reset_token = _is_starting.set(True)
        try:
            run = await manager.__aenter__()
        finally:
            _is_starting.reset(reset_token)
        async with _Entered(manager):
            yield run

    return iterate


class _Entered:
    """A context manager that has been entered before."""

    def __init__(self, manager: Any) -> None:
        self.manager = manager

    async def __aenter__(self) -> None: ...

    async def __aexit__(self, *error: Any) -> Any:
        return await self.manager.__aexit__(*error)
