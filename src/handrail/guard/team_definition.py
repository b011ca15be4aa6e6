"""The definition of a guarded team: the agents and handoffs that its runs have shown so far. Pure.

An agent that has brought a run to its own end is the terminator. No agent of a server has the
roles in it.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from handrail.kernel.definition.limits import Limits
from handrail.kernel.run.events import GuardedEvent, HandedOff, Reported, RunEvent
from handrail.kernel.run.guarded import (
    AGENTS_MAX,
    EDGES_MAX,
    GUARDED_ROLE_PREFIX,
    STEPS_MAX,
    finishing_agent,
)

NO_AGENT = "nobody"
"""The agent of a run in which no agent has done anything."""


def guard_events(events: Iterable[RunEvent]) -> list[GuardedEvent]:
    """Return the events that a guard reports after the beginning of a run."""
    return [event for event in events if isinstance(event, GuardedEvent)]


def first_agent(events: Sequence[RunEvent]) -> str:
    """Return the agent that has the turn first."""
    for event in events:
        if isinstance(event, HandedOff):
            return event.source
        if isinstance(event, Reported):
            return event.agent
    return NO_AGENT


def team_definition(
    team: str,
    limits: Limits,
    events: Sequence[RunEvent],
    known_document: dict[str, Any] | None = None,
    active_agent: str = "",
) -> dict[str, Any]:
    """Build the definition that these events show, on top of `known_document`.

    `active_agent` has the turn before the events; by default the team's first agent.
    """
    known_document = known_document or {}
    targets_by_agent = {
        agent["id"]: list(agent["hands_off_to"]) for agent in known_document.get("agents", ())
    }
    for event in events:
        if isinstance(event, HandedOff):
            targets_by_agent.setdefault(event.source, []).append(event.target)
            targets_by_agent.setdefault(event.target, [])
        elif isinstance(event, Reported):
            targets_by_agent.setdefault(event.agent, [])
    start = known_document.get("start") or first_agent(events)
    targets_by_agent.setdefault(start, [])
    for agent in targets_by_agent:
        if agent not in _reachable_agents(targets_by_agent, start):  # it worked in parallel
            targets_by_agent[start].append(agent)
    known_terminator = known_document.get("terminator") or start
    return {
        "name": team,
        "kind": "team",
        "start": start,
        "terminator": finishing_agent(events, active_agent or start) or known_terminator,
        "agents": [
            {
                "id": agent,
                "hands_off_to": sorted(set(targets)),
                "role": f"{GUARDED_ROLE_PREFIX}{agent}",
            }
            for agent, targets in targets_by_agent.items()
        ],
        "stop_rules": _stop_rules(limits),
        "metadata": {"guarded": True},
    }


def team_share(document: dict[str, Any]) -> float:
    """Return the share of a team's limits that this definition uses."""
    edges = sum(len(agent["hands_off_to"]) for agent in document["agents"])
    return max(len(document["agents"]) / AGENTS_MAX, edges / EDGES_MAX)


def _reachable_agents(targets: dict[str, list[str]], start: str) -> set[str]:
    """Return the agents that the turn can reach."""
    reached, pending = {start}, [start]
    while pending:  # each agent once
        new_agents = set(targets[pending.pop()]) - reached
        reached |= new_agents
        pending += new_agents
    return reached


def _stop_rules(limits: Limits) -> dict[str, Any]:
    rules: dict[str, Any] = msgspec.to_builtins(limits)
    rules["max_steps"] = STEPS_MAX if limits.max_steps is None else min(limits.max_steps, STEPS_MAX)
    return rules
