"""What a guard knows of its run without the ledger, and how far that leads.

Most of what it sees is an event and a few figures more: the ledger is brought forward when a rule
is near. The theory is that of `kernel/guarded.py`; here is what goes on from one handoff to the
next, in one small place, since every handoff of somebody's loop comes by.
"""

from handrail.guard.texts import name_of
from handrail.kernel.guarded import is_quiet, room_of
from handrail.kernel.ledger import EDGES_KEPT, Ledger, character
from handrail.kernel.limits import Limits


class Ahead:
    """Figures as the ledger would have them, and what is left until it has to be asked."""

    __slots__ = (
        *("apart", "cost", "handoffs", "last", "moves", "quiet", "room", "steps", "tokens"),
        *("trail", "ways"),
    )

    def __init__(self, ledger: Ledger, limits: Limits) -> None:
        self.ways: dict[tuple[str, str], str] = {}
        """Source and target to the character that the ledger has for them, or will have."""
        self.last = ""
        """That of the last handoff."""
        self.look(ledger, limits)

    def look(self, ledger: Ledger, limits: Limits) -> None:
        """From a ledger that has caught up."""
        self.handoffs, self.steps, self.trail = ledger.handoffs, ledger.steps, ledger.trail
        self.tokens, self.cost = ledger.tokens, ledger.cost
        self.room, self.quiet = room_of(ledger, limits), is_quiet(ledger, limits)
        self.moves, self.apart = self.room.moves, 0
        """What is left of the room's; and handoffs that repeat nothing, up to the first that goes
        the way of the last."""
        if ledger.edges_seen != len(self.ways):  # some went by names that cannot be kept
            self.ways = {(one.source, one.target): one.symbol for one in ledger.edges.values()}

    def new_way(self, source: str, target: str) -> str:
        """Its character; none if it has to be looked at closely: by a name that cannot be kept, or
        beyond what the ledger can tell apart."""
        number = len(self.ways)
        if number >= EDGES_KEPT or name_of(source) != source or name_of(target) != target:
            return ""
        symbol = self.ways[source, target] = character(number)
        return symbol
