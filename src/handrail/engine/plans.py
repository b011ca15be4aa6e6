"""Definitions that are in use, checked and ready. A version never changes, so a plan is kept."""

from collections.abc import Set

import msgspec

from handrail.kernel.definition import Settings
from handrail.kernel.plan import Plan, check
from handrail.store.port import DefinitionRow

PLANS_KEPT = 500


class UnknownDefinitionError(LookupError):
    """Nothing is defined by that id and version, or it is valid no more."""


class Plans:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._plans: dict[tuple[str, int], Plan | str] = {}

    def knows(self, workflow_id: str, version: int) -> bool:
        return (workflow_id, version) in self._plans

    def trim(self, wanted: Set[tuple[str, int]]) -> None:
        """Make room, but not of what is wanted."""
        spare = len(self._plans) - PLANS_KEPT
        for key in [key for key in self._plans if key not in wanted][: max(0, spare)]:
            del self._plans[key]

    def add(self, workflow_id: str, version: int, row: DefinitionRow | None) -> None:
        """What is stored, or that nothing is."""
        if row is None:
            return
        plan, checked = check(msgspec.json.decode(row.definition), self.settings)
        self._plans[workflow_id, version] = plan or str(checked.errors[0])

    def get(self, workflow_id: str, version: int) -> Plan:
        plan = self._plans.get((workflow_id, version))
        if isinstance(plan, Plan):
            return plan
        why = f": {plan}" if plan else ""
        told = f"there is no usable version {version} of the definition '{workflow_id}'{why}"
        raise UnknownDefinitionError(told)
