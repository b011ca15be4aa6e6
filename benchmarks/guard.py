"""What a handoff through the guard costs, next to what else one could use.

    uv run --group bench python -m benchmarks.guard [--quick] [--json] [--write]

Short runs (20 handoffs) and one long run (100,000) of every contender, in turn, medians of the CPU
time per handoff. The guard is measured with every stop rule on, opening and closing of the run
included, on two walks of which the worse counts; peers are measured without their set-up
(`benchmarks/peers`). Then what the guard adds to a framework's own steps, least of many runs
(`benchmarks/framework_steps.py`). `--quick` makes the peers' long run 2,000 handoffs and repeats
less. `--json` prints one line; `--write` also writes `benchmarks/results/guard.md`.
"""

import argparse
import importlib
import json
import os
import platform
import statistics
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks import framework_steps
from benchmarks.framework_steps import EMPTY_HANDLER, TWO_NODES, tool_call_us
from benchmarks.measure import Prepare, import_ms, interleaved

PEERS = ("bare", "transitions", "burr", "pydantic_graph", "python_statemachine", "langgraph")
RESULTS = Path(__file__).parent / "results" / "guard.md"
SHORT, LONG, EARLY = 20, 100_000, 100
UNDER_GUARD = " under guard"


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    short_runs: int = 50
    repeats: int = 5
    long_repeats: int = 3
    peer_long: int = LONG
    step_repeats: int = 60


FULL = Plan()
QUICK = Plan(short_runs=10, repeats=3, long_repeats=1, peer_long=2_000, step_repeats=10)


def peers() -> tuple[dict[str, Prepare], dict[str, str]]:
    """The installed peers, and the version of each; the others are named as not installed."""
    # Nobody's tracing may be switched on by the environment.
    os.environ.update(LANGSMITH_TRACING="false", LANGCHAIN_TRACING_V2="false")
    found: dict[str, Prepare] = {}
    versions: dict[str, str] = {}
    for name in PEERS:
        try:
            module = importlib.import_module(f"benchmarks.peers.{name}")
        except ModuleNotFoundError:
            versions[name] = "not installed"
            continue
        found[name] = module.prepare
        if module.DISTRIBUTION:
            versions[name] = version(module.DISTRIBUTION)
    return found, versions


def measured(plan: Plan) -> dict[str, Any]:
    """All figures: CPU µs per handoff, unless the name says otherwise."""
    from benchmarks import guarded  # only here: the rest of this module needs no guard

    others, versions = peers()
    own = guarded.contenders(LONG)
    say(f"{SHORT} handoffs, {plan.short_runs} runs, {plan.repeats} repeats")
    short = interleaved({**own, **others}, SHORT, plan.short_runs, plan.repeats)
    say(f"{LONG:,} handoffs in one run, {plan.long_repeats} repeats")
    if plan.peer_long == LONG:
        long = interleaved({**own, **others}, LONG, 1, plan.long_repeats)
    else:
        long = interleaved(own, LONG, 1, plan.long_repeats)
        long |= interleaved(others, plan.peer_long, 1, plan.repeats)
    say(f"frameworks bare and under guard, {plan.step_repeats} repeats")
    steps = measured_steps(plan)
    say("cost early and late in a run, import")
    early, late, growth = guarded.growth(EARLY, LONG, plan.repeats)
    return {
        "handoffs_20": with_worse_guard(short),
        "handoffs_100000": with_worse_guard(long),
        "peer_handoffs_in_long_run": plan.peer_long,
        "framework_steps": steps,
        "tool_call_20kb": statistics.median(tool_call_us() for _ in range(plan.repeats)),
        "guard_at_100": early,
        "guard_at_100000": late,
        "guard_growth": growth,
        "import_ms": import_ms("handrail"),
        "versions": {"handrail": version("handrail"), **versions},
        "python": platform.python_version(),
        "cores": os.cpu_count(),
    }


def measured_steps(plan: Plan) -> dict[str, float]:
    """CPU µs per step of each shape, bare and under guard; empty without the frameworks."""
    try:
        return framework_steps.measured(plan.step_repeats)
    except ModuleNotFoundError:
        return {}


def with_worse_guard(figures: Mapping[str, float]) -> dict[str, float]:
    """Adds `guard`: the worse of its walks."""
    walks = [
        cost
        for name, cost in figures.items()
        if name.startswith("guard ") and name != "guard with results"
    ]
    return {"guard": max(walks), **figures}


def ratios(figures: Mapping[str, Any]) -> dict[str, float]:
    """Peer's cost / guard's cost, the less favourable of the short and the long run; growth."""
    tables = (figures["handoffs_20"], figures["handoffs_100000"])
    found: dict[str, float] = {}
    for label, own in (("guard", "guard"), ("guard_with_results", "guard with results")):
        for peer in PEERS:
            if all(peer in table for table in tables):
                found[f"{label}_vs_{peer}"] = min(table[peer] / table[own] for table in tables)
    found["guard_growth_100000_vs_100"] = figures["guard_growth"]
    for shape, cost in figures["framework_steps"].items():
        if f"{shape}{UNDER_GUARD}" in figures["framework_steps"]:
            guarded_cost = figures["framework_steps"][f"{shape}{UNDER_GUARD}"]
            found[f"{shape}{UNDER_GUARD}"] = guarded_cost / cost
    return found


def targets(figures: Mapping[str, Any]) -> list[tuple[str, str, float | None, bool | None]]:
    """Each target: what, the aim, the figure (None: not measured), and whether it is met."""
    found = ratios(figures)
    langgraph, transitions = found.get("guard_vs_langgraph"), found.get("guard_vs_transitions")
    growth, start = found["guard_growth_100000_vs_100"], figures["import_ms"]
    cheaper = None if langgraph is None else langgraph >= 25
    cheaper_than_transitions = None if transitions is None else transitions > 1
    added = [
        (f"{shape}, % more", "< 10", percent, percent < 10)
        for shape, percent in added_percents(figures["framework_steps"]).items()
    ]
    handoff, call_ms = figures["handoffs_20"]["guard"], figures["tool_call_20kb"] / 1_000
    return [
        ("a plain handoff, µs", "<= 3", handoff, handoff <= 3),
        ("a tool call with 20 kB, ms", "<= 0.3", call_ms, call_ms <= 0.3),
        *(added or [("a framework's step, % more", "< 10", None, None)]),
        ("LangGraph costs, times the guard", ">= 25", langgraph, cheaper),
        ("transitions costs, times the guard", "> 1", transitions, cheaper_than_transitions),
        ("guard at 100,000 / at 100 handoffs", "<= 1.2", growth, growth <= 1.2),
        ("import handrail, ms", "< 100", start, start < 100),
    ]


def added_percents(steps: Mapping[str, float]) -> dict[str, float]:
    """By shape, what the guard adds to a framework's own step."""
    return {
        shape: (steps[f"{shape}{UNDER_GUARD}"] / cost - 1) * 100
        for shape, cost in steps.items()
        if f"{shape}{UNDER_GUARD}" in steps
    }


def report(figures: Mapping[str, Any]) -> str:
    """The figures and targets as Markdown, readable as plain text too."""
    short, long = figures["handoffs_20"], figures["handoffs_100000"]
    found = ratios(figures)
    peer_long = figures["peer_handoffs_in_long_run"]
    lines = [
        f"CPU µs per handoff, Python {figures['python']}, {figures['cores']} cores, medians.",
        "",
        f"| {'contender':<24} | {'version':<13} | {'20 in a run':>11} | {'100,000':>9} "
        f"| {'times the guard':>15} |",
        f"|{'-' * 26}|{'-' * 15}|{'-' * 12}:|{'-' * 10}:|{'-' * 16}:|",
    ]
    for name, cost in sorted(short.items(), key=lambda item: item[1]):
        ratio = found.get(f"guard_vs_{name}")
        own = name.startswith("guard")
        at = figures["versions"].get("handrail" if own else name, "")
        label = name.replace("_", " " if own else "-")
        lines.append(
            f"| {label:<24} | {at:<13} | {cost:>11.2f} | {long[name]:>9.2f} "
            f"| {'' if ratio is None else f'{ratio:.1f}':>15} |"
        )
    lines += steps_table(figures["framework_steps"])
    absent = [name for name, at in figures["versions"].items() if at == "not installed"]
    if absent:
        lines += ["", f"Not installed: {', '.join(absent)} (uv run --group bench ...)."]
    if peer_long != LONG:
        lines += ["", f"Peers made {peer_long:,} handoffs in their long run."]
    lines += [
        "",
        f"Guard, handoff 100: {figures['guard_at_100']:.2f} µs; "
        f"handoff 100,000: {figures['guard_at_100000']:.2f} µs.",
        "",
        f"| {'target':<36} | {'aim':>6} | {'figure':>8} | met          |",
        f"|{'-' * 38}|{'-' * 7}:|{'-' * 9}:|--------------|",
    ]
    for what, aim, figure, met in targets(figures):
        shown = "" if figure is None else f"{figure:.2f}"
        verdict = "not measured" if figure is None else "yes" if met else "NO"
        lines.append(f"| {what:<36} | {aim:>6} | {shown:>8} | {verdict:<12} |")
    return "\n".join(lines)


def steps_table(steps: Mapping[str, float]) -> list[str]:
    """The shapes of a framework's own steps, bare and under guard."""
    rows = [
        f"| {shape:<24} | {steps[shape]:>8.0f} | {steps[shape + UNDER_GUARD]:>11.0f} "
        f"| {percent:>7.1f} |"
        for shape, percent in added_percents(steps).items()
    ]
    head = [
        "",
        f"| {'a step, µs':<24} | {'bare':>8} | {'under guard':>11} | {'more, %':>7} |",
        f"|{'-' * 26}|{'-' * 9}:|{'-' * 12}:|{'-' * 8}:|",
    ]
    return [*head, *rows, "", empty_handler_line(steps)] if rows else []


def empty_handler_line(steps: Mapping[str, float]) -> str:
    percent = (steps[TWO_NODES + EMPTY_HANDLER] / steps[TWO_NODES] - 1) * 100
    return (
        f"A callback handler that does nothing makes the step of LangGraph's two nodes "
        f"{percent:.1f}% longer."
    )


def page(figures: Mapping[str, Any]) -> str:
    return (
        "# What a handoff through the guard costs\n\n"
        "Written by `uv run --group bench python -m benchmarks.guard --write`; what is measured\n"
        "stands in that module's header. *guard* is the worse of its two walks; *with results*,\n"
        "each agent also reports evidence and usage before it hands over. The last column is the\n"
        "less favourable of the two runs. Steps of frameworks, bare and under guard: two nodes or\n"
        "agents that only count or talk, and an agent with a tool whose answers are short, or\n"
        "have 20 kB; the least of many runs in turn. The target of 10% is for each of them, also\n"
        "for nodes that only count: their step is the shortest there is.\n\n"
        f"{report(figures)}\n"
    )


def json_line(figures: Mapping[str, Any]) -> str:
    return json.dumps({"ratios": rounded(ratios(figures)), "figures": rounded(figures)})


def rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 3)
    if isinstance(value, Mapping):
        return {name: rounded(part) for name, part in value.items()}
    return value


def say(text: str) -> None:
    print(f"benchmark: {text}", file=sys.stderr, flush=True)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.guard", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer repeats, shorter peers")
    parser.add_argument("--json", action="store_true", help="one JSON line instead of tables")
    parser.add_argument("--write", action="store_true", help=f"also write {RESULTS.name}")
    options = parser.parse_args(arguments)
    figures = measured(QUICK if options.quick else FULL)
    if options.write:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(page(figures), encoding="utf-8")
    print(json_line(figures) if options.json else report(figures))


if __name__ == "__main__":
    main()
