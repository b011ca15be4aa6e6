"""The built-in teams: definitions as data, and scripted agents that work them offline.

A definition lies in `definitions/NAME.yaml` and is checked like a user's own. Its agents are rules,
not models: they need no network, give the same answer every time, and can show every ending of
their definition (the bead's `context.demo` asks for one; each module lists its own).
"""

import asyncio
import importlib
import inspect
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from handrail.engine.dispatch.dispatch import Dispatch
from handrail.engine.document_parser import load_document
from handrail.engine.engine import Engine, RefusedError
from handrail.teams.scripted import AgentsByRole, ScriptedAgent

if TYPE_CHECKING:
    from handrail.teams.healing import Service

HEALING_DEFINITION_ID = "auto-bug-workflow"
BUILTIN_IDS = ("helpdesk", "coding", "finance", HEALING_DEFINITION_ID)
BUILTIN_AUTHOR = "handrail"
"""The author of built-in definitions."""
_MODULE_NAMES = {HEALING_DEFINITION_ID: "auto_bug"}
_DEFINITIONS_FOLDER = Path(__file__).parent / "definitions"


def load_builtin(name: str) -> dict[str, Any]:
    """Load the document of a built-in definition, fresh for every caller."""
    if name not in BUILTIN_IDS:
        raise KeyError(f"'{name}' is not built in; there are {', '.join(BUILTIN_IDS)}")
    document, problems = load_document(_DEFINITIONS_FOLDER / f"{name}.yaml")
    assert not problems, problems
    return cast("dict[str, Any]", document)


def load_scripted_agents(name: str) -> tuple[AgentsByRole, frozenset[str]]:
    """Return the scripted agents of a built-in definition by role, and the roles that measure."""
    module = importlib.import_module(f"handrail.teams.{_MODULE_NAMES.get(name, name)}")
    measuring_roles: frozenset[str] = getattr(module, "MEASURING_ROLES", frozenset())
    return module.scripted_agents(), measuring_roles


async def define_builtins(engine: Engine, names: Iterable[str] = BUILTIN_IDS) -> None:
    """Define these in the engine. A definition that a person has changed stays as it is."""
    for name in names:
        try:
            definition = await engine.definitions.get(name)
        except RefusedError:
            definition = None
        if definition is None or definition.id != name or definition.created_by == BUILTIN_AUTHOR:
            await engine.define(load_builtin(name), by=BUILTIN_AUTHOR)


async def install_teams(
    engine: Engine,
    names: Iterable[str] = BUILTIN_IDS,
    *,
    model: str = "",
    workspaces: tuple[str, ...] = (),
    service: "Service | None" = None,
) -> None:
    """Define these in the engine, and run their agents in its process: by rules, or by the language
    model of that name.

    `workspaces` are the folders that coding runs may work in, `service` is what `auto-bug-workflow`
    heals; without one it only rehearses.
    """
    names = tuple(names)
    await define_builtins(engine, names)
    agents_by_role: dict[str, dict[str, ScriptedAgent]] = {}
    measuring_roles: set[str] = set()
    for name in names:
        team_agents, team_measuring_roles = load_agents(
            name, engine, model=model, workspaces=workspaces
        )
        if name == HEALING_DEFINITION_ID and service is not None:
            from handrail.teams.healing import REVERT_WORKFLOW_ID, build_healing_agents

            team_agents, team_measuring_roles = await build_healing_agents(
                engine, service, model=model
            )
            for role, agent in team_agents.items():
                agents_by_role.setdefault(role, {})[REVERT_WORKFLOW_ID] = agent
        measuring_roles |= team_measuring_roles
        for role, agent in team_agents.items():
            agents_by_role.setdefault(role, {})[name] = agent
    for role, agents in agents_by_role.items():
        await engine.add_agent(
            _route_by_definition(agents),
            role,
            name=role,
            trusted=role in measuring_roles,
            only=agents,
        )


def load_agents(
    name: str, engine: Engine, *, model: str = "", workspaces: tuple[str, ...] = ()
) -> tuple[AgentsByRole, frozenset[str]]:
    """Return a definition's agents: what its module builds for this engine, or the scripted
    ones.
    """
    agents, measuring_roles = load_scripted_agents(name)
    module = importlib.import_module(f"handrail.teams.{_MODULE_NAMES.get(name, name)}")
    if hasattr(module, "build_agents"):
        return module.build_agents(engine, model=model, workspaces=workspaces), measuring_roles
    if not model:
        return agents, measuring_roles
    from handrail.agents.model import model_agent

    return cast("AgentsByRole", dict.fromkeys(agents, model_agent(model))), frozenset()


def _route_by_definition(agents: dict[str, ScriptedAgent]) -> ScriptedAgent:
    """Route by definition: two definitions may have a planner each, and each works its own."""
    if len(agents) == 1:
        return next(iter(agents.values()))
    if not any(inspect.iscoroutinefunction(agent) for agent in agents.values()):
        return lambda dispatch: agents[dispatch.definition](dispatch)

    async def route(dispatch: Dispatch) -> object:
        agent = agents[dispatch.definition]
        if inspect.iscoroutinefunction(agent):
            return await agent(dispatch)
        return await asyncio.to_thread(agent, dispatch)

    return cast("ScriptedAgent", route)
