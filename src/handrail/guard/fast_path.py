"""What a guard knows of its run without the ledger, and how far that leads.

Most of what it sees is an event and a few figures more: the ledger is brought forward when a rule
is near. The theory is that of `kernel/guarded.py`; here is what goes on from one handoff to the
next, in one small place, since every handoff of somebody's loop comes by.
"""

from handrail.guard.sanitising import safe_name
from handrail.kernel.definition.limits import Limits
from handrail.kernel.run.lookahead import headroom, is_usage_only
from handrail.kernel.stop.ledger import EDGES_KEPT, Ledger, edge_symbol


class FastPath:
    """Figures as the ledger would have them, and what is left until it has to be asked."""

    __slots__ = (
        "cost",
        "edge_symbols",
        "handoffs",
        "headroom",
        "last_symbol",
        "moves_left",
        "steps",
        "tokens",
        "trail",
        "unrepeated_left",
        "usage_only",
    )

    def __init__(self, ledger: Ledger, limits: Limits) -> None:
        self.edge_symbols: dict[tuple[str, str], str] = {}
        """Source and target to the character that the ledger has for them, or will have."""
        self.last_symbol = ""
        """That of the last handoff."""
        self.refresh(ledger, limits)

    def refresh(self, ledger: Ledger, limits: Limits) -> None:
        """From a ledger that has caught up."""
        self.handoffs, self.steps, self.trail = ledger.handoffs, ledger.steps, ledger.trail
        self.tokens, self.cost = ledger.tokens, ledger.cost
        self.headroom, self.usage_only = headroom(ledger, limits), is_usage_only(ledger, limits)
        self.moves_left, self.unrepeated_left = self.headroom.moves, 0
        """What is left of the room's; and handoffs that repeat nothing, up to the first that goes
        the way of the last."""
        if ledger.edges_seen != len(self.edge_symbols):  # some went by names that cannot be kept
            self.edge_symbols = {
                (edge.source, edge.target): edge.symbol for edge in ledger.edges.values()
            }

    def add_edge(self, source: str, target: str) -> str:
        """Its character; none if it has to be looked at closely: by a name that cannot be kept, or
        beyond what the ledger can tell apart."""
        index = len(self.edge_symbols)
        if index >= EDGES_KEPT or safe_name(source) != source or safe_name(target) != target:
            return ""
        symbol = self.edge_symbols[source, target] = edge_symbol(index)
        return symbol
