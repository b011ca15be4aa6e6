"""A guarded run's ledger, and the headroom before any rule can fire.

A guard sees every handoff of a foreign loop and adds its own time to each. Most handoffs are far
from any rule, and a ledger that lacks the latest events is enough to tell: `headroom` computes once
from the table of rules how many moves, whichever they are, no rule can stop, and up to which
totals; for a few handoffs the caller also checks that they repeat nothing. Without headroom the
rules may still find nothing, but never the other way round: a caller without headroom updates the
ledger and asks the rules.
"""

from collections.abc import Collection, Iterable
from math import inf
from typing import get_args

from msgspec.structs import replace

from handrail.kernel.definition.limits import Limits
from handrail.kernel.result import NO_EVIDENCE, Evidence, Usage
from handrail.kernel.run.events import HandedOff, Reported, RunEvent, Warned, warning_key
from handrail.kernel.stop import rules
from handrail.kernel.stop.budgets import BudgetState
from handrail.kernel.stop.early_warnings import ON_RESULT, PATTERN_BY_NAMES, judge_warnings
from handrail.kernel.stop.ledger import (
    NEWS_ASSESSMENTS,
    NO_ASSESSMENT,
    Assessment,
    Ledger,
    add_best,
    add_budgets,
    add_handoffs,
    add_nudge,
    add_result,
    add_usage,
    add_warning,
    assess_result,
)
from handrail.kernel.stop.news import News, NewsAhead
from handrail.kernel.stop.rules import HeadroomUnit

UNLIMITED: dict[HeadroomUnit, float] = dict.fromkeys(get_args(HeadroomUnit), inf)


def begin_guarded_ledger(carried: Ledger | None, budgets: Collection[BudgetState] = ()) -> Ledger:
    """Return the ledger of a guarded run that begins: its first agent has the turn already."""
    ledger = replace(carried, steps=1) if carried is not None else Ledger(steps=1)
    return add_budgets(ledger, budgets)


def apply_guarded_events(
    ledger: Ledger, limits: Limits, events: Iterable[RunEvent], goal: str = ""
) -> Ledger:
    """Return the ledger after these events of a guarded run, where every handoff takes a step."""
    handoffs: list[tuple[str, str, str]] = []
    usages: list[tuple[int, Usage]] = []
    steps = ledger.steps
    for event in events:
        if isinstance(event, HandedOff):
            if event.accepted:
                handoffs.append((event.source, event.target, event.reason))
                steps += 1
        elif isinstance(event, Reported):
            steps, result, assessment = event.fence, event.result, event.weighed
            ledger = add_budgets(ledger, event.budgets)
            if assessment == NO_ASSESSMENT and result.evidence == NO_EVIDENCE:
                usages.append((steps, result.usage))
            else:
                ledger = _add_pending(ledger, limits, handoffs, usages, steps)
                handoffs, usages = [], []
                ledger = add_result(
                    ledger, limits, steps, result.evidence, result.usage, assessment
                )
                if result.evidence.measured:
                    ledger = add_best(ledger, steps, event.agent, result.evidence, goal)
        elif isinstance(event, Warned) and event.nudge is not None:
            ledger = add_nudge(ledger, event.nudge.rule)
        elif isinstance(event, Warned):
            ledger = add_budgets(add_warning(ledger, warning_key(event)), event.budgets)
    return _add_pending(ledger, limits, handoffs, usages, steps)


def _add_pending(
    ledger: Ledger,
    limits: Limits,
    handoffs: list[tuple[str, str, str]],
    usages: list[tuple[int, Usage]],
    steps: int,
) -> Ledger:
    """Add handoffs and usages. They are independent, so their relative order does not matter."""
    if usages:
        ledger = add_usage(ledger, usages)
    if handoffs:
        ledger = add_handoffs(ledger, limits, handoffs)
    return ledger if steps == ledger.steps else replace(ledger, steps=steps)


def headroom(ledger: Ledger, limits: Limits) -> dict[HeadroomUnit, float]:
    """Return the smallest headroom of all rules in each unit; infinity where no rule is on."""
    least: dict[HeadroomUnit, float] = {**UNLIMITED}
    for unit, ahead in rules.TABLE.ahead:
        value = ahead(ledger, limits)
        if value is not None and value < least[unit]:
            least[unit] = value
    return least


def look_for_news(ledger: Ledger, limits: Limits) -> NewsAhead | None:
    """Return what takes results whose evidence is findings that bring news, however many come; None
    where the rules must be asked about these, too: a warning is due already, or a rule that has
    nudged may nudge again in a new epoch. Where an error stands, or a rule has no headroom of news,
    the caller asks the rules anyhow."""
    if ledger.nudged or not limits.judges_findings:
        return None
    is_warned = judge_warnings(ON_RESULT, rules.RuleContext(ledger, limits))
    return None if is_warned else NewsAhead(ledger.repeats)


def assess_news(ahead: NewsAhead, evidence: Evidence) -> Assessment | None:
    """Return the assessment of a result on which no rule can fire, of which no agent is nudged and
    nobody warned; None if the ledger must decide."""
    if evidence.checks or evidence.files is not None or evidence.score is not None:
        return None
    if evidence.ticket_state is not None or evidence.failures is not None:
        return None
    return NEWS_ASSESSMENTS.get(ahead.take(evidence.findings))


def may_repeat_blindly(ledger: Ledger, limits: Limits) -> bool:
    """Whether the same handoffs may come again and again, however often: as long as findings are
    judged, only visits that brought nothing new repeat a pattern. So the visit that goes on must
    have brought something, or not have been seen; and the warning of names alone was given."""
    return limits.judges_findings and PATTERN_BY_NAMES in ledger.warned


def is_visit_idle(ledger: Ledger) -> bool:
    """Whether the visit that goes on was seen, and brought nothing new."""
    return ledger.repeats.visit is News.NOTHING


def is_usage_only(ledger: Ledger, limits: Limits) -> bool:
    """Whether results without evidence add only usage, until a result has evidence. Earlier counts
    would have ended the run already."""
    return assess_result(ledger, limits, "", NO_EVIDENCE) is NO_ASSESSMENT
