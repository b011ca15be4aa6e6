"""A guarded run's ledger, and the headroom before any rule can fire.

A guard sees every handoff of a foreign loop and adds its own time to each. Most handoffs are far
from any rule, and a ledger that lacks the latest events is enough to tell: `headroom` computes once
how many moves, whichever they are, no limit on handoffs, steps or edges can stop, and for a few
handoffs the caller also checks that they repeat nothing. Without headroom the rules may still find
nothing, but never the other way round: a caller without headroom updates the ledger and asks the
rules.
"""

from collections.abc import Iterable
from math import inf

from msgspec.structs import replace

from handrail.kernel.decision import Value
from handrail.kernel.definition.limits import Limits
from handrail.kernel.result import NO_EVIDENCE, Usage
from handrail.kernel.run.events import HandedOff, Reported, RunEvent
from handrail.kernel.stop.ledger import NO_ASSESSMENT, Ledger, add_handoffs, add_result, add_usage
from handrail.kernel.stop.progress import assess_result

UNLIMITED = 2**62


def apply_guarded_events(ledger: Ledger, limits: Limits, events: Iterable[RunEvent]) -> Ledger:
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
            if assessment == NO_ASSESSMENT and result.evidence == NO_EVIDENCE:
                usages.append((steps, result.usage))
            else:
                ledger = _add_pending(ledger, limits, handoffs, usages, steps)
                handoffs, usages = [], []
                ledger = add_result(
                    ledger, limits, steps, result.evidence, result.usage, assessment
                )
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


class Headroom(Value):
    """How far a ledger is from any rule; a missing limit is out of reach."""

    moves: int
    """Results, and handoffs each with a result before it, that no counting limit can stop."""
    tokens_max: int
    cost_max: float
    repeat_limit: int
    period_max: int
    trail_handoffs_max: int
    """The most handoffs that a repeated pattern can span."""


def headroom(ledger: Ledger, limits: Limits) -> Headroom:
    moves = UNLIMITED
    if limits.max_handoffs is not None:
        moves = min(moves, limits.max_handoffs - ledger.handoffs)
    if limits.max_steps is not None:
        moves = min(moves, (limits.max_steps - ledger.steps) // 2)  # a result's, and a handoff's
    if limits.max_edge is not None:
        edge_counts = [edge.count for edge in ledger.edges.values() if edge.epoch == ledger.epoch]
        moves = min(moves, limits.max_edge - max(edge_counts, default=0))
    return Headroom(
        moves=max(0, moves),
        tokens_max=UNLIMITED if limits.max_tokens is None else limits.max_tokens,
        cost_max=inf if limits.max_cost is None else limits.max_cost,
        repeat_limit=limits.repeat_limit or 0,
        period_max=limits.pattern_period_max,
        trail_handoffs_max=limits.pattern_period_max * (limits.repeat_limit or 0),
    )


def is_usage_only(ledger: Ledger, limits: Limits) -> bool:
    """Whether results without evidence add only usage, until a result has evidence. Earlier counts
    would have ended the run already."""
    return assess_result(ledger, limits, "", NO_EVIDENCE) is NO_ASSESSMENT
