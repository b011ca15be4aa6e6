"""AutoGen: every run of a team or an agent that is no part of a guarded run is guarded."""

import functools
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

from handrail.guard.adapter import current_watch, import_framework
from handrail.guard.autogen import EXTRA, guarded
from handrail.guard.run import Guard


def patch(make_guard: Callable[[], Guard]) -> None:
    """Send `run` and `run_stream` of teams and agents through the adapter."""
    teams = import_framework("autogen_agentchat.teams", EXTRA)
    agents = import_framework("autogen_agentchat.agents", EXTRA)
    for team_type in (teams.BaseGroupChat, agents.BaseChatAgent):
        team_type.run = _guarded_run(team_type.run, make_guard)
        team_type.run_stream = _guarded_stream(team_type.run_stream, make_guard)


def _guarded_run(original: Any, make_guard: Callable[[], Guard]) -> Any:
    @functools.wraps(original)
    async def run(team: Any, **options: Any) -> Any:
        if current_watch.get() is not None:
            return await original(team, **options)
        return await guarded(team, make_guard()).run(**options)

    return run


def _guarded_stream(original: Any, make_guard: Callable[[], Guard]) -> Any:
    @functools.wraps(original)
    async def run_stream(team: Any, **options: Any) -> AsyncIterator[Any]:
        is_part = current_watch.get() is not None
        stream = (
            original(team, **options)
            if is_part
            else guarded(team, make_guard()).run_stream(**options)
        )
        async with aclosing(stream) as messages:
            async for message in messages:
                yield message

    return run_stream
