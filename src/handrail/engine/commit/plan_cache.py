"""Definitions in memory, as plans."""

from collections.abc import Set

import msgspec

from handrail.engine.errors import UnknownDefinitionError
from handrail.kernel.definition.model import Settings
from handrail.kernel.definition.plan import Plan, check_definition
from handrail.store.rows import DefinitionRow

CACHED_PLANS_MAX = 500


class PlanCache:
    """Definitions in use, checked and ready. A version never changes, so a plan stays cached."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.newest: dict[str, DefinitionRow] = {}
        """Newest definitions by id or name, until another engine may have stored a new version."""
        self._plans: dict[tuple[str, int], Plan | str] = {}

    def has(self, workflow_id: str, version: int) -> bool:
        return (workflow_id, version) in self._plans

    def trim(self, in_use: Set[tuple[str, int]]) -> None:
        """Drop cached plans, except those in use."""
        excess = len(self._plans) - CACHED_PLANS_MAX
        for key in [key for key in self._plans if key not in in_use][: max(0, excess)]:
            del self._plans[key]

    def add(self, workflow_id: str, version: int, row: DefinitionRow | None) -> None:
        """Cache a stored version, or that it does not exist."""
        if row is None:
            return
        plan, validation = check_definition(msgspec.json.decode(row.definition), self.settings)
        self._plans[workflow_id, version] = plan or str(validation.errors[0])

    def get(self, workflow_id: str, version: int) -> Plan:
        plan = self._plans.get((workflow_id, version))
        if isinstance(plan, Plan):
            return plan
        reason = f": {plan}" if plan else ""
        raise UnknownDefinitionError(
            f"there is no usable version {version} of the definition '{workflow_id}'{reason}"
        )
