"""Find the adapter that a team needs, whatever made the team, and how the team is run.

The module of the object's class tells the framework; an object of no framework is a function.
"""

import asyncio
from collections.abc import Callable
from importlib import import_module
from typing import Any
from uuid import uuid4

import msgspec

from handrail.guard.run import Guard
from handrail.kernel.decision import prepare_types

prepare_types(Any)


class TeamInputError(ValueError):
    """An input text that the team cannot begin with."""


TeamStarter = Callable[[str], Any]
"""Runs the team on a text to its end, and returns its own result."""


def wrap_team(team: object, guard: Guard, name: str) -> TeamStarter:
    """Put the team under guard. Raises ValueError if no adapter can run it."""
    packages = {cls.__module__.partition(".")[0] for cls in type(team).__mro__}
    for package, (adapter, start) in ADAPTERS.items():
        if package in packages:
            guarded = import_module(f"handrail.guard.{adapter}").guarded(team, guard, name=name)
            return lambda input_text: start(guarded, input_text)
    if not callable(team):
        frameworks = ", ".join(ADAPTERS)
        message = f"an object of type {type(team).__name__} is no team that can be guarded"
        raise ValueError(f"{message}; name a function, or an object of {frameworks}")
    function: Any = import_module("handrail.guard.plain").guarded(team, guard, name=name)
    return lambda input_text: _run_if_coroutine(function(input_text))


def _run_if_coroutine(result: Any) -> Any:
    return asyncio.run(result) if asyncio.iscoroutine(result) else result


def _invoke_graph(team: Any, input_text: str) -> Any:
    """Run a graph on a JSON object as its input; any other text is a user's message.

    A graph with a checkpointer gets a thread of its own.
    """
    state: Any = _parse_object(input_text, None)
    input_keys: list[str] = [
        channel for channel in team.channels if channel.isidentifier() and channel[0] != "_"
    ]
    if state is None and input_keys and "messages" not in input_keys:
        message = f"the graph takes {', '.join(input_keys)}, and no messages"
        example = f'{{"{input_keys[0]}": …}}'
        raise TeamInputError(f"{message}; give its input as a JSON object: --input '{example}'")
    thread = {"configurable": {"thread_id": uuid4().hex}} if team.checkpointer else None
    return team.invoke(state or {"messages": [("user", input_text)]}, thread)


def _kickoff_team(team: Any, input_text: str) -> Any:
    """Run a crew or a flow on a JSON object as its inputs; any other text is their `input`.

    An agent gets the text itself.
    """
    is_agent = hasattr(team, "role")
    return team.kickoff(
        input_text if is_agent else _parse_object(input_text, {"input": input_text})
    )


def _parse_object(text: str, default: Any) -> Any:
    """Parse a JSON object. Raises TeamInputError if the text only looks like one."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        if text.lstrip().startswith("{"):
            raise TeamInputError(
                f"--input begins like a JSON object, but is none: {error}"
            ) from None
        return default


ADAPTERS: dict[str, tuple[str, Callable[[Any, str], Any]]] = {
    "langgraph": ("langgraph", _invoke_graph),
    "strands": ("strands", lambda team, text: team(text)),
    "agents": ("openai_agents", lambda team, text: asyncio.run(team.run(text))),
    "pydantic_ai": ("pydantic_ai", lambda team, text: team.run_sync(text)),
    "autogen_agentchat": ("autogen", lambda team, text: asyncio.run(team.run(task=text))),
    "agent_framework": ("agent_framework", lambda team, text: asyncio.run(team.run(text))),
    "crewai": ("crewai", _kickoff_team),
}
