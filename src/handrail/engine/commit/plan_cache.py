"""Definitions in memory, as plans."""

from collections.abc import Set
from hashlib import sha256

import msgspec

from handrail.engine.errors import DefinitionAlteredError, UnknownDefinitionError
from handrail.kernel.definition.model import Settings
from handrail.kernel.definition.plan import Plan, check_definition
from handrail.kernel.run.state import Run
from handrail.store.rows import DefinitionRow

CACHED_PLANS_MAX = 500


class PlanCache:
    """Definitions in use, checked and ready. A version never changes, so a plan stays cached."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.newest: dict[str, DefinitionRow] = {}
        """Newest definitions by id or name, until another engine may have stored a new version."""
        self._plans: dict[tuple[str, int], Plan | str] = {}
        self._altered: set[tuple[str, int]] = set()
        """Versions that are not as they were stored."""
        self._stand_in = _stand_in(settings)
        self.name_budgets = False
        """Whether any of them names a budget."""

    def has(self, workflow_id: str, version: int) -> bool:
        return (workflow_id, version) in self._plans

    def trim(self, in_use: Set[tuple[str, int]]) -> None:
        """Drop cached plans, except those in use."""
        excess = len(self._plans) - CACHED_PLANS_MAX
        for key in [key for key in self._plans if key not in in_use][: max(0, excess)]:
            del self._plans[key]

    def add(
        self, workflow_id: str, version: int, row: DefinitionRow | None, *, on_record: bool = True
    ) -> None:
        """Cache a stored version, or that it does not exist."""
        if row is None:
            return
        if not on_record:
            self._altered.add((workflow_id, version))
        plan, validation = check_definition(msgspec.json.decode(row.definition), self.settings)
        if plan is not None:
            plan.digest = sha256(row.definition.encode()).hexdigest()
        self._plans[workflow_id, version] = plan or str(validation.errors[0])
        if plan is not None and plan.limits.budgets:
            self.name_budgets = True

    def get(self, workflow_id: str, version: int) -> Plan:
        plan = self._plans.get((workflow_id, version))
        if isinstance(plan, Plan):
            return plan
        reason = f": {plan}" if plan else ""
        raise UnknownDefinitionError(
            f"there is no usable version {version} of the definition '{workflow_id}'{reason}"
        )

    def get_to_start(self, workflow_id: str, version: int) -> Plan:
        """The plan for a run that begins, or goes over to it."""
        if (workflow_id, version) in self._altered:
            raise DefinitionAlteredError(
                f"version {version} of the definition '{workflow_id}' is not the one that was "
                "stored: it was altered in the database"
            )
        return self.get(workflow_id, version)

    def get_for_run(self, run: Run) -> Plan:
        """The plan of a run; where its definition is gone or unusable, one under which the run only
        ends."""
        try:
            return self.get(run.definition_id, run.version)
        except UnknownDefinitionError:
            if not run.definition_digest:
                raise
            return self._stand_in


def _stand_in(settings: Settings) -> Plan:
    nodes = [{"id": "start", "type": "start"}, {"id": "end", "type": "end"}]
    edge = {"id": "e", "from_node_id": "start", "to_node_id": "end"}
    document = {"name": "gone", "kind": "workflow", "nodes": nodes, "edges": [edge]}
    plan, _ = check_definition(document, settings)
    assert plan is not None, "it is valid"
    plan.digest = "gone"
    return plan
