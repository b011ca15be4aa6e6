"""`handrail sim`: the adversary simulator, many seeds or one."""

import os
import sys
from typing import Any

import msgspec

from handrail.cli.formatting import printable
from handrail.testing import simulator

EXIT_FAILED = 1
SEEDS_PER_PROCESS_MIN = 100
"""Seeds below which another process costs more time than it saves."""


def simulate_seeds(count: int, *, engine: bool = False, as_json: bool) -> int:
    """Play the seeds on every core and print how they ended; return the exit code."""
    processes = min(os.cpu_count() or 1, max(1, count // SEEDS_PER_PROCESS_MIN))
    mode = ("engine",) if engine else ()
    summary = simulator.run_seeds(0, count, processes, *mode)
    if as_json:
        figures = {"seeds_per_second": summary.seeds_per_second, "all_ended": summary.all_ended}
        print(_format_json({**msgspec.to_builtins(summary), **figures}))
    else:
        print(printable(summary.table()))
    return 0 if summary.all_ended else EXIT_FAILED


def simulate_seed(seed: int, *, engine: bool = False, as_json: bool) -> int:
    """Play one seed and print what was drawn from it and everything that happened."""
    result = simulator.run_seed(seed, "engine") if engine else simulator.run_seed(seed)
    events: list[Any] = simulator.history(seed) if not result.failure else []
    if as_json:
        print(_format_json({**msgspec.to_builtins(result), "history": msgspec.to_builtins(events)}))
    else:
        print(printable(simulator.describe_seed(seed)))
        for number, event in enumerate(events, 1):
            print(f"{number:5}  {printable(msgspec.json.encode(event).decode())}")
        ended_line = f"seed {seed}: {result.status} by {result.rule}, {result.events} events"
        print(ended_line if not result.failure else printable(result.failure))
    sys.stdout.flush()
    return EXIT_FAILED if result.failure else 0


def _format_json(document: dict[str, Any]) -> str:
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
