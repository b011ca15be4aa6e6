"""Handrail runs teams of AI agents and people so that every run ends, with a reason."""

from handrail.guard import Guard, GuardedRun
from handrail.guard.errors import (
    BudgetSpent,
    ConstraintViolated,
    LimitReached,
    LoopDetected,
    NoProgress,
    Stopped,
)
from handrail.kernel.definition import Constraints, StopRules, TerminalStatus

__all__ = [
    "BudgetSpent",
    "ConstraintViolated",
    "Constraints",
    "Guard",
    "GuardedRun",
    "LimitReached",
    "LoopDetected",
    "NoProgress",
    "StopRules",
    "Stopped",
    "TerminalStatus",
]
