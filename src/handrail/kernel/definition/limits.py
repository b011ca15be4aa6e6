"""Limits: the stop rules resolved with profile, kind of definition and task scope.

A profile fills unset limits. In a team every rule is on. In a workflow the structure bounds the run
already, so the rules that count handoffs or time are off there unless the definition sets them.
`None` means off. To add a limit: a field in `model.StopRules`, a field and a row here, a function
in `stop/rules.py`.
"""

from typing import Literal

import msgspec
from msgspec import UNSET

from handrail.kernel.decision import Value
from handrail.kernel.definition.model import Constraints, StopRules

ASKS_MAX = 10
"""Questions that agents may put to people in one stretch."""


class Limits(Value):
    """Every limit as a number, or None if the rule is off. The defaults are profile `strict`."""

    max_handoffs: int | None = 20
    repeat_limit: int | None = 3
    pattern_period_max: int = 64
    max_duration: int | float | None = 600
    max_steps: int | None = 100
    max_edge: int | None = 8
    same_error_limit: int | None = 3
    no_change_limit: int | None = 3
    research_limit: int | None = 3
    research_good: float = 0.8
    research_gain: float = 0.05
    oscillation_limit: int | None = 3
    protocol_error_limit: int = 3
    max_tokens: int | None = None
    max_cost: int | float | None = None
    constraints: Constraints = Constraints()
    profile: str = "strict"

    @property
    def counts_handoffs(self) -> bool:
        """Whether any limit counts handoffs: in a workflow only if the definition sets one."""
        return not (self.max_handoffs is self.repeat_limit is self.max_edge is None)


STRICT = Limits()
PROFILES: dict[str, Limits] = {
    "strict": STRICT,
    "yolo": msgspec.structs.replace(
        STRICT,
        same_error_limit=2,
        no_change_limit=2,
        research_limit=2,
        max_edge=4,
        max_steps=50,
        profile="yolo",
    ),
}
WORKFLOW_OFF_LIMITS = ("max_handoffs", "repeat_limit", "max_edge", "max_steps", "max_duration")
SCOPE_FACTORS = {"tiny": 0.5, "small": 1.0, "large": 2.0}
"""Factors on max_steps by `context.task_scope` of the bead."""


def resolve_limits(rules: StopRules, kind: Literal["workflow", "team"] = "team") -> Limits:
    filled: dict[str, object] = {"constraints": rules.constraints}
    if kind == "workflow":
        filled |= dict.fromkeys(WORKFLOW_OFF_LIMITS)
    for name in Limits.__struct_fields__:
        value = getattr(rules, name)
        if value is not UNSET and name != "constraints":
            filled[name] = value
    return msgspec.structs.replace(PROFILES[rules.profile], **filled)


def scale_limits(base: Limits, scope: object) -> Limits:
    """Scale the limits for the bead's `task_scope`; any other value changes nothing."""
    factor = SCOPE_FACTORS.get(scope) if isinstance(scope, str) else None
    if factor is None or factor == 1.0 or base.max_steps is None:
        return base
    return msgspec.structs.replace(base, max_steps=max(1, int(base.max_steps * factor)))
