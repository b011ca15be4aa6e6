"""The built-in teams: definitions as data, and scripted agents that work them offline.

A definition lies in `definitions/NAME.yaml` and is checked like anybody's own. Its agents are
rules, not models: they need no network, give the same answer every time, and can show every ending
of their definition (the bead's `context.demo` asks for one; each module lists its own).
"""

import asyncio
import importlib
import inspect
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from handrail.engine.dispatch import Dispatch
from handrail.engine.documents import load
from handrail.engine.engine import Engine, Refused
from handrail.teams.scripted import Agent, Staff

if TYPE_CHECKING:
    from handrail.teams.healing import Service

HEALING = "auto-bug-workflow"
NAMES = ("helpdesk", "coding", "finance", HEALING)
OURS = "handrail"
"""Who defined what is built in."""
_MODULES = {HEALING: "auto_bug"}
_FOLDER = Path(__file__).parent / "definitions"


def builtin(name: str) -> dict[str, Any]:
    """The document of a built-in definition, fresh for every caller."""
    if name not in NAMES:
        raise KeyError(f"'{name}' is not built in; there are {', '.join(NAMES)}")
    document, problems = load(_FOLDER / f"{name}.yaml")
    assert not problems, problems
    return cast("dict[str, Any]", document)


def offline(name: str) -> tuple[Staff, frozenset[str]]:
    """The scripted agents of a built-in definition by role, and the roles that measure."""
    module = importlib.import_module(f"handrail.teams.{_MODULES.get(name, name)}")
    trusted: frozenset[str] = getattr(module, "TRUSTED", frozenset())
    return module.staff(), trusted


async def provide(engine: Engine, names: Iterable[str] = NAMES) -> None:
    """These definitions are known to the engine. One that a person has changed stays as it is."""
    for name in names:
        try:
            known = await engine.definition(name)
        except Refused:
            known = None
        if known is None or known.id != name or known.created_by == OURS:
            await engine.define(builtin(name), by=OURS)


async def employ(
    engine: Engine,
    names: Iterable[str] = NAMES,
    *,
    model: str = "",
    workspaces: tuple[str, ...] = (),
    service: "Service | None" = None,
) -> None:
    """These definitions are known to the engine, and their agents work in its process: by rules, or
    by the language model of that name. `workspaces` are the folders that coding runs may work in,
    `service` is what `auto-bug-workflow` heals; without one it only rehearses.
    """
    names = tuple(names)
    await provide(engine, names)
    staff: dict[str, dict[str, Agent]] = {}
    measuring: set[str] = set()
    for name in names:
        own, trusted = staff_of(name, engine, model=model, workspaces=workspaces)
        if name == HEALING and service is not None:
            from handrail.teams.healing import REVERT, healing

            own, trusted = await healing(engine, service, model=model)
            for role, agent in own.items():
                staff.setdefault(role, {})[REVERT] = agent
        measuring |= trusted
        for role, agent in own.items():
            staff.setdefault(role, {})[name] = agent
    for role, agents in staff.items():
        await engine.add_agent(
            _one_of(agents), role, name=role, trusted=role in measuring, only=agents
        )


def staff_of(
    name: str, engine: Engine, *, model: str = "", workspaces: tuple[str, ...] = ()
) -> tuple[Staff, frozenset[str]]:
    """As `offline`, for an engine: a module with `employed` makes its agents of what is there."""
    own, trusted = offline(name)
    module = importlib.import_module(f"handrail.teams.{_MODULES.get(name, name)}")
    if hasattr(module, "employed"):
        return module.employed(engine, model=model, workspaces=workspaces), trusted
    if not model:
        return own, trusted
    from handrail.agents.model import model_agent

    return cast("Staff", dict.fromkeys(own, model_agent(model))), frozenset()


def _one_of(agents: dict[str, Agent]) -> Agent:
    """Two definitions may have a planner each: every one works its own."""
    if len(agents) == 1:
        return next(iter(agents.values()))
    if not any(inspect.iscoroutinefunction(agent) for agent in agents.values()):
        return lambda dispatch: agents[dispatch.definition](dispatch)

    async def either(dispatch: Dispatch) -> object:
        agent = agents[dispatch.definition]
        if inspect.iscoroutinefunction(agent):
            return await agent(dispatch)
        return await asyncio.to_thread(agent, dispatch)

    return cast("Agent", either)
