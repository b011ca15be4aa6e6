"""Somebody's team, whatever it was made with: which adapter it needs, and how it is run.

The framework is told by where the object's class comes from; what is no framework's is a function.
"""

import asyncio
from collections.abc import Callable
from importlib import import_module
from uuid import uuid4

import msgspec

from handrail.guard import Guard
from handrail.guard.watch import Theirs
from handrail.kernel.decision import learn

learn(Theirs)


class WrongInputError(ValueError):
    """A text that the team cannot be begun with."""


Start = Callable[[str], Theirs]
"""Runs the team on a text to its end, and returns its own result."""


def around(team: object, guard: Guard, name: str) -> Start:
    """The team under guard. Raises ValueError if nobody knows how to run it."""
    homes = {cls.__module__.partition(".")[0] for cls in type(team).__mro__}
    for home, (adapter, start) in ADAPTERS.items():
        if home in homes:
            guarded = import_module(f"handrail.guard.{adapter}").guarded(team, guard, name=name)
            return lambda given: start(guarded, given)
    if not callable(team):
        known = ", ".join(ADAPTERS)
        told = f"an object of type {type(team).__name__} is no team that can be guarded"
        raise ValueError(f"{told}; name a function, or an object of {known}")
    function: Theirs = import_module("handrail.guard.plain").guarded(team, guard, name=name)
    return lambda given: _finished(function(given))


def _finished(result: Theirs) -> Theirs:
    return asyncio.run(result) if asyncio.iscoroutine(result) else result


def _graph(team: Theirs, given: str) -> Theirs:
    """A JSON object is the graph's input; anything else what the user says. A graph that remembers
    has a thread of its own."""
    state: Theirs = _object(given, None)
    takes: list[str] = [one for one in team.graph.channels if one.isidentifier() and one[0] != "_"]
    if state is None and takes and "messages" not in takes:
        told = f"the graph takes {', '.join(takes)}, and no messages"
        example = f'{{"{takes[0]}": …}}'
        raise WrongInputError(f"{told}; give its input as a JSON object: --input '{example}'")
    thread = {"configurable": {"thread_id": uuid4().hex}} if team.graph.checkpointer else None
    return team.invoke(state or {"messages": [("user", given)]}, thread)


def _kickoff(team: Theirs, given: str) -> Theirs:
    """A JSON object is the inputs of a crew or a flow; anything else their `input`. An agent is
    told what was said."""
    alone = hasattr(team.team, "role")
    return team.kickoff(given if alone else _object(given, {"input": given}))


def _object(given: str, otherwise: Theirs) -> Theirs:
    """The JSON object that it is. Raises WrongInputError if it only looks like one."""
    try:
        return msgspec.json.decode(given, type=dict[str, Theirs])
    except msgspec.MsgspecError as error:
        if given.lstrip().startswith("{"):
            raise WrongInputError(
                f"--input begins like a JSON object, but is none: {error}"
            ) from None
        return otherwise


ADAPTERS: dict[str, tuple[str, Callable[[Theirs, str], Theirs]]] = {
    "langgraph": ("langgraph", _graph),
    "strands": ("strands", lambda team, given: team(given)),
    "agents": ("openai_agents", lambda team, given: asyncio.run(team.run(given))),
    "pydantic_ai": ("pydantic_ai", lambda team, given: team.run_sync(given)),
    "autogen_agentchat": ("autogen", lambda team, given: asyncio.run(team.run(task=given))),
    "agent_framework": ("agent_framework", lambda team, given: asyncio.run(team.run(given))),
    "crewai": ("crewai", _kickoff),
}
