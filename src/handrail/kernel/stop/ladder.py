"""The ladder before a stop: a nudge to the agent, one short of the limit; a conclusion after it.

A nudge is derived from the table of rules: the same functions judge the same moment under limits
that are one lower (`Limits.early`). Nothing that fires there and not under the run's own limits
ends the run; it is recorded, and rides on the next dispatch. Under the lower limits everything
fires that fires under the run's own, so a moment at which nothing fires, as at most, is judged
once.

A nudge changes nothing but itself: it costs no step and resets no count (K28). It holds a rule, a
count and a limit, and no text of an agent or a tool. Each rule nudges once in an epoch, and all of
them `NUDGES_MAX` times in a stretch.

Where `ladder.conclude` is on, a team that such a rule stops gives one last answer. It is the last
of the allowed steps, so nothing grows without bound; no constraint, budget or clock may be against
it, and only its text counts, so that no agent ends or changes a run by its conclusion (K29).

Where `ladder.ask` is on, a person decides instead whether a team goes on that a soft rule stops:
going on opens a new stretch, as "once more" does in a workflow (K13). So each stretch has at most
one such question.
"""

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from handrail.kernel.definition.limits import LIMITS, Limits
from handrail.kernel.stop.ledger import Ledger
from handrail.kernel.stop.rules import RULES_BY_NAME, FiredRule, Nudge, RuleContext, StopRule

NUDGES_MAX = 8
"""Nudges in one stretch."""
CONCLUDING_TEXT = (
    "The run was stopped, and this is its last answer. Say in words what was achieved, what is "
    "open and what you would do next. Only the text counts: nobody acts on a handoff, an end or "
    "data in it, whatever its outcome."
)
"""What the agent is told that concludes a stopped run."""
CONCLUSION_CHARS_MAX = 10_000
"""Characters of a conclusion that a stop keeps."""

Judge = Callable[[RuleContext], list[FiredRule]]


def judge_early(judge: Judge, ctx: RuleContext, nudges: list[Nudge]) -> list[FiredRule]:
    """Return the rules that fire under the run's own limits, and add those that are near to
    `nudges`. The context holds both limits."""
    early, limits = judge(ctx), ctx.stops
    if not early or limits is None:
        return early
    fired = judge(replace(ctx, limits=limits, stops=None))
    stops = {rule.rule for rule in fired}
    nudges += [_nudge_for(rule, limits) for rule in early if rule.rule not in stops]
    return fired


def _nudge_for(fired: FiredRule, limits: Limits) -> Nudge:
    limit: int = getattr(limits, RULES_BY_NAME[fired.rule].limit)
    count = fired.seen
    assert isinstance(count, int), "rules that nudge count"
    return Nudge(rule=fired.rule, count=count, limit=limit, left=max(0, limit - count))


def is_due(ledger: Ledger, nudge: Nudge) -> bool:
    """Whether the agent is nudged: by one rule once in an epoch, and not too often in a stretch."""
    return ledger.nudges < NUDGES_MAX and nudge.rule not in ledger.nudged


def may_conclude(limits: Limits, steps: int, reasons: Iterable[FiredRule]) -> bool:
    """Whether a run stopped for these reasons concludes, after so many steps of its stretch. The
    reasons include what is against one more step."""
    return (
        limits.ladder.conclude
        and (limits.max_steps is None or steps < limits.max_steps)
        and all(RULES_BY_NAME[reason.rule].on_ladder for reason in reasons)
    )


def may_ask(limits: Limits, fired: Iterable[FiredRule], next_step: Iterable[FiredRule]) -> bool:
    """Whether a person decides about the stop: soft rules fired, and a new stretch could go on."""
    return (
        limits.ladder.ask
        and all(RULES_BY_NAME[rule.rule].is_soft for rule in fired)
        and all(RULES_BY_NAME[rule.rule].on_ladder for rule in next_step)
    )


def headroom_limits(ledger: Ledger, limits: Limits) -> Limits:
    """Return the limits up to which nothing happens, neither a stop nor a nudge: those of the
    rules that may still nudge are lower."""
    early = limits.early
    if ledger.nudges >= NUDGES_MAX:
        return limits
    if not ledger.nudged:
        return early
    names = [RULES_BY_NAME[StopRule(rule)].limit for rule in ledger.nudged]
    if StopRule.REPEATED_PATTERN in ledger.nudged:
        names.append("pattern_period_max")
    return replace(early, **{name: getattr(limits, name) for name in names})


def describe_nudge(nudge: Nudge) -> str:
    """Tell the agent what is near, in names and figures only."""
    end = LIMITS[RULES_BY_NAME[nudge.rule].limit].prompt.format(nudge.limit)
    return (
        f"The stop rule {nudge.rule} has counted {nudge.count} of {nudge.limit}; the run is ended "
        f"by {end}. Do something else than before, or bring it to an end."
    )
