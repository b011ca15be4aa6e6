"""The OpenAI Agents SDK: every run of `Runner` that is no part of a guarded run is guarded."""

import functools
from collections.abc import Callable
from typing import Any

from handrail.guard.adapter import current_watch, import_framework
from handrail.guard.openai_agents import EXTRA, guarded
from handrail.guard.run import Guard

CALLS = ("run", "run_sync", "run_streamed")


def patch(make_guard: Callable[[], Guard]) -> None:
    """Send the calls of `Runner` through the adapter."""
    runner = import_framework("agents", EXTRA).Runner
    for name in CALLS:
        setattr(runner, name, classmethod(_guarded_call(getattr(runner, name), name, make_guard)))


def _guarded_call(original: Any, name: str, make_guard: Callable[[], Guard]) -> Any:

    @functools.wraps(original.__func__)
    def call(cls: Any, *args: Any, **options: Any) -> Any:
        if current_watch.get() is not None or not (args or "starting_agent" in options):
            return original(*args, **options)
        args_left = list(args)
        agent = args_left.pop(0) if args_left else options.pop("starting_agent")
        return getattr(guarded(agent, make_guard(), name="team"), name)(*args_left, **options)

    return call
