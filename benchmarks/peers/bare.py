"""No library at all: a table, a list of what happened. The floor."""

from collections.abc import Callable

from benchmarks.peers import AGENTS, RING

DISTRIBUTION = ""


def prepare(handoffs: int) -> Callable[[], int]:
    table = {(source, "handoff"): target for source, target in RING.items()}

    def run() -> int:
        agent, log = AGENTS[0], []
        for _ in range(handoffs):
            target = table[agent, "handoff"]
            log.append((agent, target))
            agent = target
        return len(log)

    return run
