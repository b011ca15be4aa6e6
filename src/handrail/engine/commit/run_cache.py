"""What the engine keeps in memory of active runs: the runs, and their definitions as plans."""

from collections.abc import Set

import msgspec

from handrail.engine.commit.projection import CachedRun
from handrail.engine.errors import UnknownDefinitionError
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
        message = f"there is no usable version {version} of the definition '{workflow_id}'{reason}"
        raise UnknownDefinitionError(message)


class RunCache:
    """Active runs. Each is a copy; the database is the truth."""

    def __init__(self, plans: PlanCache) -> None:
        self.plans = plans
        self.entries: dict[str, CachedRun] = {}

    def run(self, run_id: str) -> Run | None:
        """An active run, if it is in memory."""
        cached = self.entries.get(run_id)
        return cached.run if cached is not None else None

    def plan_of(self, run: Run) -> Plan:
        """The definition of the run."""
        cached = self.entries.get(run.id)
        return cached.plan if cached is not None else self.plans.get(run.definition_id, run.version)
