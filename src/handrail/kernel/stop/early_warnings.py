"""Warnings that never stop a run: what looks like going in circles, and proves nothing.

    pattern_by_names   the same handoffs again, where visits were blind or brought new words only
    plans_again        an agent began a long text alike several times: it seems to plan anew
    timeouts           so many calls timed out that the environment is the likely cause

Each is given once in a stretch, in profiles that judge findings. Where a rule may stop only on what
it has seen repeat, a person should still hear of what it has not seen.
"""

from collections.abc import Callable, Mapping

from handrail.kernel.decision import Value
from handrail.kernel.stop.news import is_stale
from handrail.kernel.stop.repetition import repetition_period
from handrail.kernel.stop.rules import RuleContext, pattern_names

PATTERN_BY_NAMES = "pattern_by_names"
PLANS_ALIKE, TIMEOUTS = 3, 4
"""Long texts of one agent that begin alike, and calls that timed out, from which on it is told."""
WarningJudges = Mapping[str, Callable[[RuleContext], str]]
"""By code, the message of a warning that is due; empty if it is not."""


class EarlyWarning(Value):
    code: str
    message: str


def _pattern_by_names(ctx: RuleContext) -> str:
    limits, edge = ctx.stops or ctx.limits, ctx.edge
    times = limits.repeat_limit
    if times is None or edge is None or edge.count < times - 1:
        return ""
    trail = edge.symbol + ctx.ledger.trail
    period = repetition_period(trail, times, limits.pattern_period_max)
    if not period or is_stale(ctx.ledger.repeats, period * (times - 1)):
        return ""
    names = ", ".join(pattern_names(ctx.ledger, trail[:period]))
    return (
        f"the same handoffs {times} times in a row, by names alone: {names}; what the agents did "
        "was not seen, or was new in words only"
    )


def _plans_again(ctx: RuleContext) -> str:
    findings = ctx.evidence.findings if ctx.evidence is not None else ()
    begun = ctx.ledger.repeats.begun
    count = max((begun.get(finding.start, 0) for finding in findings), default=0)
    if count < PLANS_ALIKE:
        return ""
    return f"{ctx.agent} began a long text alike {count} times; it may be planning anew"


def _timeouts(ctx: RuleContext) -> str:
    count = ctx.ledger.repeats.timeouts
    if count < TIMEOUTS:
        return ""
    return f"{count} steps timed out; the cause may lie in the environment, not with the agents"


ON_HANDOFF: WarningJudges = {PATTERN_BY_NAMES: _pattern_by_names}
ON_RESULT: WarningJudges = {"plans_again": _plans_again, "timeouts": _timeouts}
EARLY_CODES = frozenset({*ON_HANDOFF, *ON_RESULT})


def judge_warnings(judges: WarningJudges, ctx: RuleContext) -> list[EarlyWarning]:
    """Return the warnings that are due at this moment, each once in a stretch. Only limits that
    judge findings have warnings; callers ask first, because most moments have none."""
    return [
        EarlyWarning(code=code, message=message)
        for code, judge in judges.items()
        if code not in ctx.ledger.warned and (message := judge(ctx))
    ]
