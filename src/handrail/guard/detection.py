"""Somebody's team, whatever it was made with: which adapter it needs, and how it is run.

The framework is told by where the object's class comes from; what is no framework's is a function.
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
    """A text that the team cannot be begun with."""


TeamStarter = Callable[[str], Any]
"""Runs the team on a text to its end, and returns its own result."""


def wrap_team(team: object, guard: Guard, name: str) -> TeamStarter:
    """The team under guard. Raises ValueError if nobody knows how to run it."""
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
    """A JSON object is the graph's input; anything else what the user says. A graph that remembers
    has a thread of its own."""
    state: Any = _parse_object(input_text, None)
    input_keys: list[str] = [
        channel for channel in team.graph.channels if channel.isidentifier() and channel[0] != "_"
    ]
    if state is None and input_keys and "messages" not in input_keys:
        message = f"the graph takes {', '.join(input_keys)}, and no messages"
        example = f'{{"{input_keys[0]}": …}}'
        raise TeamInputError(f"{message}; give its input as a JSON object: --input '{example}'")
    thread = {"configurable": {"thread_id": uuid4().hex}} if team.graph.checkpointer else None
    return team.invoke(state or {"messages": [("user", input_text)]}, thread)


def _kickoff_team(team: Any, input_text: str) -> Any:
    """A JSON object is the inputs of a crew or a flow; anything else their `input`. An agent is
    told what was said."""
    is_agent = hasattr(team.team, "role")
    return team.kickoff(
        input_text if is_agent else _parse_object(input_text, {"input": input_text})
    )


def _parse_object(text: str, default: Any) -> Any:
    """The JSON object that it is. Raises WrongInputError if it only looks like one."""
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
    "strands": ("strands", lambda team, given: team(given)),
    "agents": ("openai_agents", lambda team, given: asyncio.run(team.run(given))),
    "pydantic_ai": ("pydantic_ai", lambda team, given: team.run_sync(given)),
    "autogen_agentchat": ("autogen", lambda team, given: asyncio.run(team.run(task=given))),
    "agent_framework": ("agent_framework", lambda team, given: asyncio.run(team.run(given))),
    "crewai": ("crewai", _kickoff_team),
}
