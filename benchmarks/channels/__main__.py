"""What a turn in a channel costs: five agents that each say one message and pass the turn on.

    uv run --group bench python -m benchmarks.channels [--quick] [--json] [--write]

Measured are turns per second, and the handover: from an agent's word that it is done until the
next one has its turn in hand. Handrail's engine runs in this process, on SQLite (synchronous=FULL)
and on PostgreSQL, with 1 and 100 channels; a turn is two commits. AutoGen's RoundRobinGroupChat
holds the same conversations in memory, with agents that answer at once: what it is faster by is the
price of a record that survives. Figures are medians of the rounds, which take turns.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.channels import talk
from benchmarks.durable import machine, servers
from benchmarks.durable.common import MissingError
from benchmarks.durable.report import number, table

RESULTS = Path(__file__).parents[1] / "results"
PEER_SECONDS = 300
CONTENDERS = {
    "sqlite": "Handrail, SQLite",
    "postgres": "Handrail, PostgreSQL",
    "autogen": "AutoGen RoundRobinGroupChat, in memory",
}


@dataclass(frozen=True)
class Plan:
    rounds: int
    turns: dict[int, int]
    """Channels -> turns in all of them together."""


FULL = Plan(3, {1: 300, 100: 2_000})
QUICK = Plan(1, {1: 100, 100: 500})


def on_sqlite(channels: int, turns: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="handrail-bench-") as folder:
        url = f"sqlite:///{Path(folder) / 'work.db'}"
        return asyncio.run(talk.measured(url, channels, turns))


def on_postgres(server: servers.Server | str, channels: int, turns: int) -> dict[str, Any]:
    if isinstance(server, str):
        return {"missing": server}
    with server.database() as database:
        return asyncio.run(talk.measured(database.url(), channels, turns))


def in_autogen(channels: int, turns: int) -> dict[str, Any]:
    program = [sys.executable, "-m", "benchmarks.channels.autogen_chat", str(channels), str(turns)]
    done = subprocess.run(
        program, capture_output=True, text=True, timeout=PEER_SECONDS, check=False
    )
    if done.returncode:
        return {"missing": (done.stderr.strip().splitlines() or ["no message"])[-1][:300]}
    return json.loads(done.stdout.strip().splitlines()[-1])


def measured(plan: Plan) -> dict[str, Any]:
    rounds: dict[str, dict[int, list[dict[str, Any]]]] = {name: {} for name in CONTENDERS}
    with ExitStack() as stack:
        try:
            server: servers.Server | str = stack.enter_context(servers.postgres())
        except MissingError as missing:
            server = str(missing)
        for turn in range(plan.rounds):
            for channels, turns in plan.turns.items():
                say(f"round {turn + 1} of {plan.rounds}, {channels} channels")
                taken = {
                    "sqlite": on_sqlite(channels, turns),
                    "postgres": on_postgres(server, channels, turns),
                    "autogen": in_autogen(channels, turns),
                }
                for name, found in taken.items():
                    rounds[name].setdefault(channels, []).append(found)
    return {
        **{
            name: {str(channels): medians(found) for channels, found in loads.items()}
            for name, loads in rounds.items()
        },
        "machine": machine.about(),
        "rounds": plan.rounds,
    }


def medians(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Of what is a number; what is not is the same in every round."""
    missing = next((one for one in found if "missing" in one), None)
    if missing is not None:
        return missing
    return {
        name: value if isinstance(value, str) else statistics.median(one[name] for one in found)
        for name, value in found[0].items()
    }


def ratios(figures: dict[str, Any]) -> dict[str, float]:
    """How many turns the peer takes while Handrail takes one, and how the handovers compare."""
    found: dict[str, float] = {}
    for channels, peer in figures["autogen"].items():
        for name in ("sqlite", "postgres"):
            ours = figures[name][channels]
            if "missing" in peer or "missing" in ours:
                continue
            found[f"turns_{channels}_{name}_vs_autogen"] = ours["turns_per_s"] / peer["turns_per_s"]
            waits = ours["handover_p50_ms"] / peer["handover_p50_ms"]
            found[f"handover_{channels}_{name}_vs_autogen"] = waits
    return found


def page(figures: dict[str, Any]) -> str:
    about = figures["machine"]
    rows = [_row(title, channels, figures[name][channels])
            for name, title in CONTENDERS.items() for channels in figures[name]]  # fmt: skip
    version = next(iter(figures["autogen"].values())).get("version", "not measured")
    return "\n".join(
        [
            "# A turn in a channel",
            "",
            "`uv run --group bench python -m benchmarks.channels`: five agents in each channel, a "
            "turn is one message and its completion. The engine runs in the process of its agents; "
            "on disk a turn is two commits. A handover is from the word of an agent that it is "
            "done until the next one has its turn. AutoGen keeps nothing: the difference is what "
            "a record costs that survives.",
            "",
            *table(["", "channels", "turns/s", "handover p50 ms", "p99"], rows, left=1),
            "",
            f"autogen-agentchat {version}. {about['cpu']}, {about['cores']} cores, "
            f"{about['system']}, Python {about['python']}, SQLite {about['sqlite']}, "
            f"{number(about['syncs_per_s'])} syncs/s, load {about['load_before']:.1f}; medians of "
            f"{figures['rounds']} rounds.",
            "",
        ]
    )


def _row(title: str, channels: str, found: dict[str, Any]) -> list[str]:
    if "missing" in found:
        return [title, channels, found["missing"], "", ""]
    names = ("turns_per_s", "handover_p50_ms", "handover_p99_ms")
    return [title, channels, *(number(found[name]) for name in names)]


def say(text: str) -> None:
    print(f"benchmark: {text}", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="benchmarks.channels",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="one round, shorter conversations")
    parser.add_argument("--json", action="store_true", help="one JSON line at the end")
    parser.add_argument("--write", action="store_true", help="write the results of --quick too")
    options = parser.parse_args()
    figures = measured(QUICK if options.quick else FULL)
    text = page(figures)
    if options.write or not options.quick:
        (RESULTS / "channels.md").write_text(text, encoding="utf-8")
    print(text)
    if options.json:
        print(json.dumps({"ratios": ratios(figures), "figures": figures}))


if __name__ == "__main__":
    main()
