"""Handrail runs teams of AI agents and people so that every run ends, with a reason."""

import importlib
from typing import TYPE_CHECKING, Any

from handrail.guard import Guard, GuardedRun
from handrail.guard.budgets import Budget
from handrail.guard.errors import (
    BudgetSpent,
    ConstraintViolated,
    LimitReached,
    LoopDetected,
    NoProgress,
    Stopped,
)
from handrail.guard.prices import ModelCall
from handrail.kernel.definition.limits import Constraints, StopRules
from handrail.kernel.definition.model import TerminalStatus

if TYPE_CHECKING:
    from handrail.client.clients import AsyncClient, Client, SyncClient
    from handrail.client.errors import ClientError
    from handrail.client.executor import agent
    from handrail.client.worker import Worker
    from handrail.engine.dispatch.dispatch import Dispatch
    from handrail.engine.dispatch.replies import (
        ask,
        carry_on,
        failure,
        hand_to,
        success,
        terminate,
        wait_for,
    )
    from handrail.engine.engine import Engine, InvalidDefinition, Refused
    from handrail.engine.opening import SyncEngine, open  # noqa: A004 - read as handrail.open
    from handrail.engine.settings import EngineSettings
    from handrail.kernel.result import Result
    from handrail.kernel.run.state import Person
    from handrail.store.rows import StoreError

_LAZY_IMPORTS = {
    "handrail.client.clients": ("AsyncClient", "Client", "SyncClient"),
    "handrail.client.errors": ("ClientError",),
    "handrail.client.executor": ("agent",),
    "handrail.client.worker": ("Worker",),
    "handrail.engine.dispatch.dispatch": ("Dispatch",),
    "handrail.engine.engine": ("Engine", "InvalidDefinition", "Refused"),
    "handrail.engine.opening": ("SyncEngine", "open"),
    "handrail.engine.dispatch.replies": (
        "ask",
        "carry_on",
        "failure",
        "hand_to",
        "success",
        "terminate",
        "wait_for",
    ),
    "handrail.engine.settings": ("EngineSettings",),
    "handrail.kernel.result": ("Result",),
    "handrail.kernel.run.state": ("Person",),
    "handrail.store.rows": ("StoreError",),
}
"""Where a name lies that only an engine or a client needs: a guard should not wait for it."""
_LAZY_MODULES = {name: place for place, names in _LAZY_IMPORTS.items() for name in names}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - as the name
    if name not in _LAZY_MODULES:
        raise AttributeError(f"module 'handrail' has no attribute '{name}'")
    value = globals()[name] = getattr(importlib.import_module(_LAZY_MODULES[name]), name)
    return value


__all__ = [
    "AsyncClient",
    "Budget",
    "BudgetSpent",
    "Client",
    "ClientError",
    "ConstraintViolated",
    "Constraints",
    "Dispatch",
    "Engine",
    "EngineSettings",
    "Guard",
    "GuardedRun",
    "InvalidDefinition",
    "LimitReached",
    "LoopDetected",
    "ModelCall",
    "NoProgress",
    "Person",
    "Refused",
    "Result",
    "StopRules",
    "Stopped",
    "StoreError",
    "SyncClient",
    "SyncEngine",
    "TerminalStatus",
    "Worker",
    "agent",
    "ask",
    "carry_on",
    "failure",
    "hand_to",
    "open",
    "success",
    "terminate",
    "wait_for",
]
