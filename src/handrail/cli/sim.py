"""`handrail sim`: the adversary simulator, many seeds or one."""

import os
import sys
from typing import Annotated, Any

import msgspec
import typer

from handrail.cli import output
from handrail.cli.command import EXIT_FAILED
from handrail.cli.formatting import printable
from handrail.cli.options import AsJson

SEEDS_PER_PROCESS_MIN = 100
"""Seeds below which another process costs more time than it saves."""


def sim(
    seeds: Annotated[
        int, typer.Option(min=1, max=10_000_000, help="How many seeds to play.")
    ] = 1_000,
    seed: Annotated[
        int | None, typer.Option(help="Play only this seed, and print its history.")
    ] = None,
    engine: Annotated[
        bool, typer.Option("--engine", help="Also run through the engine and a database.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Play adversaries against the kernel, by seed.

    Agents loop, lie, stall and crash, people never answer or never stop revising; every run has to
    end all the same, within its certificate. Exit code 1 if one does not.
    """
    from handrail.testing import simulator

    if seed is not None:
        return _simulate_seed(seed, engine=engine, as_json=as_json)
    processes = min(os.cpu_count() or 1, max(1, seeds // SEEDS_PER_PROCESS_MIN))
    summary = simulator.run_seeds(0, seeds, processes, *(("engine",) if engine else ()))
    if as_json:
        output.print_json(
            {
                **msgspec.to_builtins(summary),
                "seeds_per_second": summary.seeds_per_second,
                "all_ended": summary.all_ended,
            }
        )
    else:
        print(printable(summary.table()))
    return 0 if summary.all_ended else EXIT_FAILED


def _simulate_seed(seed: int, *, engine: bool, as_json: bool) -> int:
    """Play one seed and print what was drawn from it and everything that happened."""
    from handrail.testing import simulator

    result = simulator.run_seed(seed, "engine") if engine else simulator.run_seed(seed)
    events: list[Any] = simulator.history(seed) if not result.failure else []
    if as_json:
        output.print_json({**msgspec.to_builtins(result), "history": msgspec.to_builtins(events)})
    else:
        print(printable(simulator.describe_seed(seed)))
        for number, event in enumerate(events, 1):
            print(f"{number:5}  {printable(msgspec.json.encode(event).decode())}")
        ended_line = f"seed {seed}: {result.status} by {result.rule}, {result.events} events"
        print(ended_line if not result.failure else printable(result.failure))
    sys.stdout.flush()
    return EXIT_FAILED if result.failure else 0
