"""Handoffs through Handrail's guard, with every stop rule on and no limit in reach."""

import statistics
import time
from collections.abc import Iterator
from itertools import islice, pairwise

from benchmarks.measure import Prepare, Run
from benchmarks.walks import WALKS
from handrail import Guard, StopRules
from handrail.kernel.definition.limits import Constraints

FAR = 10**9


def rules() -> StopRules:
    """Every rule is on; none fires."""
    return StopRules(
        max_handoffs=FAR,
        max_steps=FAR,
        max_edge=FAR,
        max_duration=300_000_000,
        repeat_limit=3,
        pattern_period_max=64,
        same_error_limit=1_000_000,
        no_change_limit=1_000_000,
        research_limit=1_000_000,
        oscillation_limit=1_000_000,
        max_tokens=FAR,
        max_cost=float(FAR),
        constraints=Constraints(paths=("secrets/**",), commands=("rm -rf*",)),
    )


def evidence(step: int) -> dict[str, object]:
    """A red check, a file that changes, a score that does not."""
    return {
        "files": {"src/app.py": f"{step % 1000:064x}"},
        "checks": [{"command": "pytest -q", "exit_code": 1, "stderr": "E assert 1 == 2"}],
        "score": 0.5,
    }


def prepare(walk: list[str], results: bool = False) -> Prepare:
    """Runs along the walk; with results, each agent also reports before it hands over."""
    guard = Guard(rules(), prices={})

    def ready(handoffs: int) -> Run:
        def run() -> int:
            made = 0
            with guard.run("benchmark") as guarded:
                for source, target in islice(pairwise(walk), handoffs):
                    if results:
                        guarded.result(source, evidence=evidence(made), usage={"tokens": 1})
                    guarded.handoff(source, target, reason="next")
                    made += 1
            return made

        return run

    return ready


def contenders(handoffs: int) -> dict[str, Prepare]:
    walks = {name: walk(handoffs + 1) for name, walk in WALKS.items()}
    plain = {f"guard {name}": prepare(walk) for name, walk in walks.items()}
    return {**plain, "guard with results": prepare(walks["square_free"], results=True)}


def cost_at(walk: list[str], position: int, window: int) -> float:
    """CPU µs per handoff of the last `window` handoffs of a run that is `position` long."""
    moves: Iterator[tuple[str, str]] = islice(pairwise(walk), position)
    with Guard(rules(), prices={}).run("benchmark") as guarded:
        for source, target in islice(moves, position - window):
            guarded.handoff(source, target, reason="next")
        start = time.process_time()
        for source, target in moves:
            guarded.handoff(source, target, reason="next")
        took = time.process_time() - start
    return took / window * 1e6


def growth(early: int, late: int, repeats: int) -> tuple[float, float, float]:
    """Cost at handoff `early`, at handoff `late`, and their ratio: medians, of the worse walk."""
    found: list[tuple[float, float, float]] = []
    for make in WALKS.values():
        walk = make(late + 1)
        window = max(1, late // 10)  # as many handoffs are timed early as late
        fresh = max(1, window // max(1, early // 2))
        pairs: list[tuple[float, float]] = []
        for _ in range(repeats):
            costs = [cost_at(walk, early, max(1, early // 2)) for _ in range(fresh)]
            pairs.append((statistics.fmean(costs), cost_at(walk, late, window)))
        first = statistics.median(cost for cost, _ in pairs)
        last = statistics.median(cost for _, cost in pairs)
        found.append((first, last, statistics.median(cost / base for base, cost in pairs)))
    return max(found, key=lambda figures: figures[2])
