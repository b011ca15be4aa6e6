"""The built-in teams: definitions as data, and scripted agents that work them offline.

A definition lies in `definitions/NAME.yaml` and is checked like anybody's own. Its agents are
rules, not models: they need no network, give the same answer every time, and can show every ending
of their definition (the bead's `context.demo` asks for one; each module lists its own).
"""

import importlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

from handrail.engine.documents import load
from handrail.engine.engine import Engine
from handrail.teams.scripted import Agent, Staff

NAMES = ("helpdesk", "coding", "finance", "auto-bug-workflow")
_MODULES = {"auto-bug-workflow": "auto_bug"}
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


async def employ(engine: Engine, names: Iterable[str] = NAMES) -> None:
    """These definitions are known to the engine, and their offline agents work in its process."""
    staff: dict[str, dict[str, Agent]] = {}
    measuring: set[str] = set()
    for name in names:
        await engine.define(builtin(name), by="handrail")
        own, trusted = offline(name)
        measuring |= trusted
        for role, agent in own.items():
            staff.setdefault(role, {})[name] = agent
    for role, agents in staff.items():
        await engine.add_agent(
            _one_of(agents), role, name=role, trusted=role in measuring, only=agents
        )


def _one_of(agents: dict[str, Agent]) -> Agent:
    """Two definitions may have a planner each: every one works its own."""
    return lambda dispatch: agents[dispatch.definition](dispatch)
