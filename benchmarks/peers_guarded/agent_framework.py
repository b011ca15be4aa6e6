"""Agent Framework: every run of a workflow or an agent that is no part of a guarded run is
guarded."""

import functools
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from handrail.guard.adapter import current_watch, import_framework
from handrail.guard.agent_framework import EXTRA, guarded
from handrail.guard.run import Guard

_is_starting: ContextVar[bool] = ContextVar("handrail_peers_starting", default=False)
"""Whether the adapter calls the framework, which begins a stream before the run is watched."""


def patch(make_guard: Callable[[], Guard]) -> None:
    """Send `run` of workflows and agents through the adapter."""
    sdk = import_framework("agent_framework", EXTRA)
    for team_type in (sdk.Workflow, sdk.Agent):
        team_type.run = _guarded_run(team_type.run, make_guard)


def _guarded_run(original: Any, make_guard: Callable[[], Guard]) -> Any:
    @functools.wraps(original)
    def run(team: Any, *args: Any, **options: Any) -> Any:
        if current_watch.get() is not None or _is_starting.get():
            return original(team, *args, **options)
        reset_token = _is_starting.set(True)
        try:
            return guarded(team, make_guard()).run(*args, **options)
        finally:
            _is_starting.reset(reset_token)

    return run
