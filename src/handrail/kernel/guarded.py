"""A guarded run's ledger, and a look ahead of it.

A guard sees every handoff of somebody else's loop, and what it takes is added to each. Most come
nowhere near a rule. That can be told from a ledger that some events have not been brought into yet:
how much room it leaves is worked out once, what is known without it (handoffs, steps, what was
spent, the trail) is passed as it is, and a way can have been gone as many times more as handoffs
were made since. So `is_clear` may say no where the table of rules would find nothing, and never the
other way round. Who hears no brings the ledger forward and asks the rules.
"""

from collections.abc import Iterable
from math import inf

from msgspec.structs import replace

from handrail.kernel.decision import Value
from handrail.kernel.ledger import NOTHING, EdgeCount, Ledger, handed, reported
from handrail.kernel.limits import Limits
from handrail.kernel.progress import weigh
from handrail.kernel.result import NO_EVIDENCE
from handrail.kernel.rules import repetition
from handrail.kernel.run.events import HandedOff, Reported, RunEvent

AHEAD_MAX = 64
"""Handoffs, or steps, that a ledger may be behind. What has to be caught up with stays little, so
that a handoff costs the same at the start and after 100,000 of them."""
FAR = 2**62


def brought_forward(ledger: Ledger, limits: Limits, events: Iterable[RunEvent]) -> Ledger:
    """The ledger after these events of a guarded run, in which every handoff takes a step."""
    for event in events:
        if isinstance(event, HandedOff):
            if event.accepted:
                ledger = handed(ledger, limits, event.source, event.target, event.reason, steps=1)
        elif isinstance(event, Reported):
            step, result = event.fence, event.result
            if step != ledger.steps:
                ledger = replace(ledger, steps=step)
            ledger = reported(ledger, limits, step, result.evidence, result.usage, event.weighed)
    return ledger


class Room(Value):
    """Up to where no rule is near, as a ledger stands; what has no limit is out of reach."""

    handoffs: int = 0
    way: int = 0
    """How often one way was gone by then, and all handoffs, together."""
    steps: int = 0
    tokens: int = 0
    cost: float = 0
    times: int = 0
    period_max: int = 0


NO_ROOM = Room()


def room_of(ledger: Ledger, limits: Limits) -> Room:
    made, taken = ledger.handoffs, ledger.steps
    return Room(
        handoffs=min(made + AHEAD_MAX, FAR if limits.max_handoffs is None else limits.max_handoffs),
        way=made + (FAR if limits.max_edge is None else limits.max_edge),
        steps=min(taken + AHEAD_MAX, FAR if limits.max_steps is None else limits.max_steps),
        tokens=FAR if limits.max_tokens is None else limits.max_tokens,
        cost=inf if limits.max_cost is None else limits.max_cost,
        times=limits.repeat_limit or 0,
        period_max=limits.pattern_period_max,
    )


def is_clear(
    room: Room, edge: EdgeCount, trail: str, handoffs: int, steps: int, tokens: int, cost: float
) -> bool:
    """Whether no rule but that of time is near a handoff this way, after so many; `trail` begins
    with it."""
    return (
        handoffs < room.handoffs
        and edge.count + handoffs < room.way
        and steps < room.steps
        and tokens < room.tokens
        and cost < room.cost
        and not (room.times and repetition(trail, room.times, room.period_max))
    )


def is_quiet(ledger: Ledger, limits: Limits) -> bool:
    """Whether a result without evidence adds nothing but what was used, until there is some. What
    was counted before would have ended the run when it was."""
    return weigh(ledger, limits, "", NO_EVIDENCE) is NOTHING
