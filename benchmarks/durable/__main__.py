"""What a durable step costs, next to what else one could use.

    uv run --group bench python -m benchmarks.durable [--quick] [--json] [--write]

Three trivial agents in a ring hand over to each other: no model, no sleep, so that only what the
engine and its store do shows. A step is one agent's turn, and counts when it is on disk: SQLite in
WAL mode with synchronous=FULL, PostgreSQL with fsync on. Measured are steps per second and CPU-ms
per step with 1, 100 and 1,000 runs in flight, of every contender in turn, round after round, each
time in a process and a database of its own; then one long run, and runs that wait for a person.
Figures are medians of the rounds. A contender that is missing is named with the reason.

The full form takes up to 20 minutes, and writes `benchmarks/results/durable.md` and `.svg`;
`--quick` takes up to 3, and writes them only with `--write`. `--json` adds one line at the end.
"""

import argparse
import json
import signal
import statistics
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.durable import chart, machine, ratios, report
from benchmarks.durable.common import Load, MissingError
from benchmarks.durable.contender import Turn, take_turn
from benchmarks.durable.servers import Server, postgres

RESULTS = Path(__file__).parents[1] / "results"
STORES = ("sqlite", "postgres")
CONTENDERS = {
    "handrail": STORES,
    "raw_limit": STORES,
    "langgraph": STORES,
    "dbos": STORES,
    "burr": STORES,
    "restate": ("own",),
}
FAST = ("handrail", "raw_limit")
"""Who is given the longer loads too."""


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    rounds: int
    loads: tuple[Load, ...]
    long_loads: tuple[Load, ...]
    grow: dict[str, int]
    wait: int


FULL = Plan(
    rounds=3,
    loads=(Load("1", 20, 20, at_once=False), Load("100", 100, 10), Load("1000", 1_000, 3)),
    long_loads=(Load("100_long", 100, 100), Load("1000_long", 1_000, 20)),
    grow={"handrail": 100_000, "langgraph": 2_000},
    wait=100_000,
)
QUICK = Plan(
    rounds=1,
    loads=(Load("1", 10, 20, at_once=False), Load("100", 100, 5), Load("1000", 1_000, 2)),
    long_loads=(Load("100_long", 100, 50), Load("1000_long", 1_000, 10)),
    grow={"handrail": 4_000, "langgraph": 800},
    wait=4_000,
)


class Rounds:
    """The turns taken, and what came out of them."""

    def __init__(self, server: Server | str) -> None:
        self.server = server
        self.missing: dict[str, str] = {}
        self.versions: dict[str, str] = {}

    def take(self, turn: Turn) -> dict[str, Any]:
        """Its figures; none if it is missing, now or before."""
        label = f"{turn.name} {turn.store}"
        label = label if turn.task == "measure" else f"{label} {turn.task}"
        if label in self.missing:
            return {}
        say(label)
        found = take_turn(turn, self.server)
        if "missing" in found:
            self.missing[label] = found["missing"]
            say(f"{label}: missing, {found['missing']}")
            return {}
        self.versions[turn.name] = found.pop("version")
        return found

    def measured(self, plan: Plan) -> dict[str, Any]:
        """Contender -> store -> load -> figures."""
        every: dict[str, dict[str, list[dict[str, Any]]]] = {name: {} for name in CONTENDERS}
        for number in range(plan.rounds):
            say(f"round {number + 1} of {plan.rounds}")
            for store in (*STORES, "own"):
                for name in (name for name, stores in CONTENDERS.items() if store in stores):
                    loads = plan.loads + (plan.long_loads if name in FAST else ())
                    found = self.take(Turn(name, store, loads=loads))
                    if found:
                        every[name].setdefault(store, []).append(found["loads"])
        return {
            name: {store: medians(rounds) for store, rounds in stores.items()}
            for name, stores in every.items()
        }

    def once(self, task: str, sizes: dict[str, int]) -> dict[str, Any]:
        """Contender -> store -> figures of a workload that is measured once."""
        return {
            name: {
                store: found
                for store in STORES
                if (found := self.take(Turn(name, store, task, size=size)))
            }
            for name, size in sizes.items()
        }


def medians(rounds: list[dict[str, dict[str, float]]]) -> dict[str, dict[str, float]]:
    return {
        load: {
            unit: statistics.median(one[load][unit] for one in rounds) for unit in rounds[0][load]
        }
        for load in rounds[0]
    }


def measured(plan: Plan) -> dict[str, Any]:
    about = machine.about()
    with ExitStack() as stack:
        server: Server | str
        try:
            server = stack.enter_context(postgres())
            about["postgres"] = server.version
        except MissingError as error:
            server = str(error)
        rounds = Rounds(server)
        contenders = rounds.measured(plan)
        growth = rounds.once("grow", plan.grow)
        waiting = rounds.once("wait", {"handrail": plan.wait})
    return {
        "contenders": contenders,
        "growth": growth,
        "waiting": waiting,
        "missing": rounds.missing,
        "versions": rounds.versions,
        "machine": about,
        "rounds": plan.rounds,
        "loads": {load.name: [load.runs, load.steps] for load in plan.loads + plan.long_loads},
    }


def say(text: str) -> None:
    print(f"benchmark: {text}", file=sys.stderr, flush=True)


def write(figures: dict[str, Any]) -> None:
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "durable.md").write_text(report.page(figures), encoding="utf-8")
    (RESULTS / "durable.svg").write_text(chart.svg(figures), encoding="utf-8")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="benchmarks.durable",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="one round, shorter workloads")
    parser.add_argument("--json", action="store_true", help="one JSON line at the end")
    parser.add_argument("--write", action="store_true", help="write the results of --quick too")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that servers and folders go
    figures = measured(QUICK if options.quick else FULL)
    if options.write or not options.quick:
        write(figures)
    print(report.text(figures))
    if options.json:
        print(json.dumps(ratios.rounded({"ratios": ratios.ratios(figures), "figures": figures})))


if __name__ == "__main__":
    main()
