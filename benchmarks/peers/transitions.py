"""transitions: a model with states, one trigger."""

from collections.abc import Callable

from transitions import Machine

from benchmarks.peers import AGENTS, RING

DISTRIBUTION = "transitions"


class Desk:
    """The model; the machine adds `handoff` to it."""


def prepare(handoffs: int) -> Callable[[], int]:
    desk = Desk()
    moves = [
        {"trigger": "handoff", "source": source, "dest": target} for source, target in RING.items()
    ]
    Machine(desk, states=list(AGENTS), initial=AGENTS[0], transitions=moves)

    def run() -> int:
        made = 0
        for _ in range(handoffs):
            desk.handoff()
            made += 1
        return made

    return run
