"""`handrail sim`: the adversary simulator, many seeds or one."""

import os
import sys
from typing import Any

import msgspec

from handrail.cli.words import clean
from handrail.testing import simulate

FAILED = 1
WORTH_A_PROCESS = 100
"""Seeds below which another process costs more time than it saves."""


def run_many(count: int, *, engine: bool = False, as_json: bool) -> int:
    """Plays the seeds on every core and prints how they ended; the exit code."""
    processes = min(os.cpu_count() or 1, max(1, count // WORTH_A_PROCESS))
    through = ("engine",) if engine else ()
    summary = simulate.run_seeds(0, count, processes, *through)
    if as_json:
        figures = {"seeds_per_second": summary.seeds_per_second, "all_ended": summary.all_ended}
        print(_json({**msgspec.to_builtins(summary), **figures}))
    else:
        print(clean(summary.table()))
    return 0 if summary.all_ended else FAILED


def run_seed(seed: int, *, engine: bool = False, as_json: bool) -> int:
    """Plays one seed and prints what was drawn from it and everything that happened."""
    result = simulate.run_seed(seed, "engine") if engine else simulate.run_seed(seed)
    events: list[Any] = simulate.history(seed) if not result.failure else []
    if as_json:
        print(_json({**msgspec.to_builtins(result), "history": msgspec.to_builtins(events)}))
    else:
        print(clean(simulate.describe(seed)))
        for number, event in enumerate(events, 1):
            print(f"{number:5}  {clean(msgspec.json.encode(event).decode())}")
        ended = f"seed {seed}: {result.status} by {result.rule}, {result.events} events"
        print(ended if not result.failure else clean(result.failure))
    sys.stdout.flush()
    return FAILED if result.failure else 0


def _json(document: dict[str, Any]) -> str:
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
