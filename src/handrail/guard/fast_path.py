"""The state by which a guard decides most events without the ledger.

Most events need only a few counters: the ledger catches up when a rule is near. The theory is that
of `kernel/run/lookahead.py`; this module holds what happens between two handoffs, in one small
place, since every handoff of a guarded loop passes it.
"""

import re
from collections.abc import Callable
from math import inf

from handrail.guard.sanitising import safe_name
from handrail.kernel.definition.limits import Limits
from handrail.kernel.result import NO_EVIDENCE, Evidence
from handrail.kernel.run.lookahead import (
    assess_news,
    headroom,
    is_usage_only,
    is_visit_idle,
    look_for_news,
    may_repeat_blindly,
)
from handrail.kernel.stop.ladder import headroom_limits
from handrail.kernel.stop.ledger import (
    EDGES_KEPT,
    NO_ASSESSMENT,
    Assessment,
    Ledger,
    edge_symbol,
)
from handrail.kernel.stop.repetition import repetition_regex


def _find_nothing(trail: str) -> None:
    """Stands for the search where no pattern is worth a nudge."""


class FastPath:
    """Counters as the ledger would have them, and what is left until the ledger must decide."""

    __slots__ = (
        "_names",
        "cost",
        "cost_max",
        "edge_symbols",
        "find_near",
        "handoffs",
        "last_symbol",
        "may_repeat",
        "may_repeat_blindly",
        "moves_left",
        "news",
        "period_max",
        "repeat_limit",
        "seconds_max",
        "steps",
        "tokens",
        "tokens_max",
        "trail",
        "trail_handoffs_max",
        "unrepeated_left",
        "usage_only",
    )

    def __init__(self, ledger: Ledger, limits: Limits) -> None:
        self.edge_symbols: dict[tuple[str, str], str] = {}
        """By source and target, the ledger's character for the edge, present or future."""
        self._names: set[str] = set()
        """The agents of these edges."""
        self.last_symbol = ""
        """The symbol of the last handoff."""
        self.refresh(ledger, limits)

    def refresh(self, ledger: Ledger, limits: Limits) -> None:
        """Reset the counters from a ledger that has caught up."""
        self.handoffs, self.steps, self.trail = ledger.handoffs, ledger.steps, ledger.trail
        self.tokens, self.cost = ledger.tokens, ledger.cost
        near = headroom_limits(ledger, limits)
        room = headroom(ledger, near)
        self.tokens_max, self.cost_max = room["tokens"], room["cost"]
        self.seconds_max, repeats = room["seconds"], room["repeats"]
        self.usage_only = is_usage_only(ledger, limits)
        takes_news = self.usage_only and room["news"] > 0
        self.news = look_for_news(ledger, limits) if takes_news else None
        """Takes steps that bring news; None where the rules must be asked about those, too."""
        self.repeat_limit = 0 if repeats == inf else int(repeats)
        self.period_max = limits.pattern_period_max
        self.find_near: Callable[[str], re.Match[str] | None] = _find_nothing
        """Finds a pattern in the trail that is worth a nudge."""
        if near.repeat_limit != limits.repeat_limit:
            self.find_near = repetition_regex(self.repeat_limit, near.pattern_period_max).match
            self.repeat_limit = limits.repeat_limit or 0
        self.trail_handoffs_max = self.period_max * self.repeat_limit
        """The most handoffs that a repeated pattern can span; no trail is needed if none may."""
        self.moves_left, self.unrepeated_left = room["moves"], 0
        """What is left of the headroom; and handoffs that repeat nothing, up to the first that
        takes the edge of the last.
        """
        self.may_repeat_blindly = may_repeat_blindly(ledger, limits)
        self.may_repeat = self.may_repeat_blindly and not is_visit_idle(ledger)
        """Whether no repetition of handoffs matters, until the rules are asked again: a visit
        that begins was not seen yet, and no step of it that brings nothing new is taken ahead.
        """
        if ledger.edges_seen != len(self.edge_symbols):  # some had names that cannot be stored
            self.edge_symbols = {
                (edge.source, edge.target): edge.symbol for edge in ledger.edges.values()
            }

    def assess(self, evidence: Evidence) -> Assessment | None:
        """Return the assessment of a result on which no rule can fire, and of which no agent is
        nudged or anybody warned; None if the ledger must decide.
        """
        if evidence is NO_EVIDENCE:
            return NO_ASSESSMENT if self.usage_only else None
        assessment = None if self.news is None else assess_news(self.news, evidence)
        if assessment is not None and assessment.progress:
            self.trail, self.unrepeated_left = "", 0
        if assessment is not None:
            self.may_repeat = self.may_repeat_blindly
        return assessment

    def add_edge(self, source: str, target: str) -> str:
        """Return the edge's character; empty if the ledger must decide: the name cannot be stored,
        or the ledger cannot tell more edges apart.
        """
        index = len(self.edge_symbols)
        if index >= EDGES_KEPT:
            return ""
        for name in (source, target):
            if name not in self._names:
                if safe_name(name) != name:
                    return ""
                self._names.add(name)
        symbol = self.edge_symbols[source, target] = edge_symbol(index)
        return symbol
