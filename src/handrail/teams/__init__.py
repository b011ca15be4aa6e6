"""The built-in teams: definitions as data, and scripted agents that work them offline.

A definition lies in `definitions/NAME.yaml` and is checked like anybody's own. Its agents are
rules, not models: they need no network, give the same answer every time, and can show every ending
of their definition (the bead's `context.demo` asks for one; each module lists its own).
"""

import importlib
from pathlib import Path
from typing import Any, cast

from handrail.engine.documents import load
from handrail.engine.local import Agent, Staff

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
    staff: dict[str, Agent] = module.staff()
    trusted: frozenset[str] = getattr(module, "TRUSTED", frozenset())
    return staff.get, trusted
