"""How near a run is to its soft rules: the count of each since the last progress, and its limit.

The rules fire on events; this module only reads the counts in their table, so that people see a
stop coming. Rules that are off, or cannot fire in this kind of run, are left out.
"""

from handrail.kernel.run.state import Run
from handrail.kernel.stop.rules import RULES, StopRule
from handrail.views.view_types import RuleCount


def soft_rule_counts(run: Run) -> dict[str, RuleCount]:
    """Return the counts by rule name."""
    ledger, limits = run.ledger, run.limits
    counts = {
        row.rule.value: RuleCount(count=row.count(ledger, limits), limit=limit)
        for row in RULES
        if row.count is not None and (limit := getattr(limits, row.limit)) is not None
    }
    if run.kind == "team":
        faults = max((position.faults for position in run.positions.values()), default=0)
        limit = limits.protocol_error_limit
        counts[StopRule.PROTOCOL.value] = RuleCount(count=faults, limit=limit)
    return counts
