"""How near a run is to its soft rules: the count of each since the last progress, and its limit.

The rules in `rules.py` fire on events; this module only reads the same ledger, so that people see a
stop coming. Rules that are off, or cannot fire in this kind of run, are left out.
"""

from handrail.kernel.definition.limits import Limits
from handrail.kernel.run.state import Run
from handrail.kernel.stop.ledger import Ledger
from handrail.kernel.stop.repetition import repetition_period
from handrail.kernel.stop.rules import StopRule
from handrail.views.view_types import RuleCount


def soft_rule_counts(run: Run) -> dict[str, RuleCount]:
    """Return the counts by rule name."""
    ledger, limits = run.ledger, run.limits
    faults = max((position.faults for position in run.positions.values()), default=0)
    rows: tuple[tuple[StopRule, int, int | None], ...] = (
        (StopRule.REPEATED_PATTERN, _repetitions(ledger, limits), limits.repeat_limit),
        (StopRule.NO_CHANGE, ledger.idle.count, limits.no_change_limit),
        (StopRule.OSCILLATION, ledger.returns.count, limits.oscillation_limit),
        (StopRule.RESEARCH_EXHAUSTED, _fruitless_visits(ledger), limits.research_limit),
        (StopRule.PROTOCOL, faults, limits.protocol_error_limit if run.kind == "team" else None),
    )
    return {
        rule.value: RuleCount(count=count, limit=limit)
        for rule, count, limit in rows
        if limit is not None
    }


def _repetitions(ledger: Ledger, limits: Limits) -> int:
    """Return how often the last pattern of handoffs, of any period, was repeated in a row."""
    limit, trail = limits.repeat_limit or 0, ledger.trail
    counts = (
        n for n in range(limit, 1, -1) if repetition_period(trail, n, limits.pattern_period_max)
    )
    return next(counts, min(1, len(trail)))


def _fruitless_visits(ledger: Ledger) -> int:
    """Return the largest number of visits to one goal without a better score."""
    entries = (*ledger.measured.research.values(), *ledger.claimed.research.values())
    return max((scores.stale.count for scores in entries), default=0)
