"""Timing: CPU seconds, contenders in turn, medians.

Contenders run one after another within each repeat, so that a noisy minute of the machine hits all
of them. The garbage collector stays on: what a run leaves behind is part of its cost.
"""

import gc
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping

Run = Callable[[], int]
Prepare = Callable[[int], Run]
"""Given a number of handoffs, one run that is ready to start and returns how many it made."""


def cpu_us(runs: list[Run], handoffs: int) -> float:
    """CPU µs per handoff of these runs, one after the other."""
    gc.collect()
    start = time.process_time()
    for run in runs:
        made = run()
        if made != handoffs:
            raise RuntimeError(f"made {made} handoffs instead of {handoffs}")
    return (time.process_time() - start) / (len(runs) * handoffs) * 1e6


def interleaved(
    contenders: Mapping[str, Prepare], handoffs: int, runs: int, repeats: int
) -> dict[str, float]:
    """Median CPU µs per handoff of each contender, after one short run of each to warm up."""
    for prepare in contenders.values():
        prepare(20)()
    figures: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(repeats):
        for name, prepare in contenders.items():
            ready = [prepare(handoffs) for _ in range(runs)]
            figures[name].append(cpu_us(ready, handoffs))
    return {name: statistics.median(values) for name, values in figures.items()}


def import_ms(module: str, repeats: int = 5) -> float:
    """Median CPU ms of a fresh interpreter that imports the module, less that of a bare one."""
    environment = dict(os.environ)
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # users have their bytecode cached

    def cpu(code: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code], check=True, env=environment)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    cpu(f"import {module}")  # writes the bytecode
    differences = [cpu(f"import {module}") - cpu("pass") for _ in range(repeats)]
    return statistics.median(differences) * 1000
