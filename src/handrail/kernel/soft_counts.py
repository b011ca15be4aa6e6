"""How near a run is to its soft rules: what each has counted since the last progress, of how many.

The rules themselves stand in `rules.py` and fire on events; this only reads the same ledger, for
people who want to see it coming. A rule that is off is left out, and so is one that cannot fire in
this kind of run.
"""

from handrail.kernel.ledger import Ledger
from handrail.kernel.limits import Limits
from handrail.kernel.repetition import repetition
from handrail.kernel.rules import StopRule
from handrail.kernel.run.state import Run
from handrail.kernel.shown import RuleCount


def soft_counts(run: Run) -> dict[str, RuleCount]:
    """By the names of the rules."""
    ledger, limits = run.ledger, run.limits
    faults = max((token.faults for token in run.tokens.values()), default=0)
    counted: tuple[tuple[StopRule, int, int | None], ...] = (
        (StopRule.REPEATED_PATTERN, _repetitions(ledger, limits), limits.repeat_limit),
        (StopRule.NO_CHANGE, ledger.idle.count, limits.no_change_limit),
        (StopRule.OSCILLATION, ledger.returns.count, limits.oscillation_limit),
        (StopRule.RESEARCH_EXHAUSTED, _fruitless(ledger), limits.research_limit),
        (StopRule.PROTOCOL, faults, limits.protocol_error_limit if run.kind == "team" else None),
    )
    return {
        rule.value: RuleCount(count=count, limit=most)
        for rule, count, most in counted
        if most is not None
    }


def _repetitions(ledger: Ledger, limits: Limits) -> int:
    """How often the last handoffs, however many belong together, were the same in a row."""
    most, trail = limits.repeat_limit or 0, ledger.trail
    seen = (n for n in range(most, 1, -1) if repetition(trail, n, limits.pattern_period_max))
    return next(seen, min(1, len(trail)))


def _fruitless(ledger: Ledger) -> int:
    """Of the goal that was visited most often without a better score."""
    held = (*ledger.measured.research.values(), *ledger.claimed.research.values())
    return max((one.stale.count for one in held), default=0)
