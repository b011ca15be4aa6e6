"""Runs every scene in every framework, bare and under guard, and prints one table.

Bare figures are measured here, with the framework's own limits as they come. Where it has none, or
a growing history would take too long, the stub models stop the team at a cap, which the table says.
Then what the guard costs: CPU of a run of 100 handoffs among three agents that never repeat
themselves, every rule on and none in reach, against the same run without a guard; the least of
several runs of each, in turn, since other work on a machine only ever adds. Where a process has its
code and its data in memory makes a difference of several percent, so that is done in several
processes, and the one in the middle is told. `--write` also writes
`benchmarks/results/same_mistake.md`.
"""

import argparse
import gc
import importlib
import json
import logging
import os
import platform
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.guarded import rules
from benchmarks.same_mistake.scenes import CAP, GROWN_CAP, SCENES, Scene, Script
from handrail import Guard, Stopped

FRAMEWORKS = (
    "plain",
    "langgraph",
    "strands",
    "openai_agents",
    "pydantic_ai",
    "autogen",
    "agent_framework",
)
RESULTS = Path(__file__).parents[1] / "results" / "same_mistake.md"
HANDOFFS, FAR = 100, 100_000
SHARE_MAX, PLAIN_MAX = 0.10, 15.0
"""What the guard may cost: a share of the framework's own step; in plain Python, µs a handoff."""
THREE = Scene("never the same twice", ("triage", "billing", "tech"), ends=HANDOFFS)


def square_free(number: int) -> str:
    """No block of this route comes even twice in a row (Thue)."""
    return THREE.agents[(number + 1).bit_count() % 2 - number.bit_count() % 2 + 1]


def modules(only: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in FRAMEWORKS:
        if only in ("", name):
            try:
                found[name] = importlib.import_module(f"benchmarks.same_mistake.{name}")
            except ModuleNotFoundError as error:
                say(f"{name} is left out: {error}")
    return found


def play(module: Any, scene: Scene, guard: Guard | None) -> dict[str, Any]:
    """One run: how many steps it took, what it cost, what the caller was told."""
    cap = getattr(module, "CAP", CAP)
    script = Script(scene, min(cap, GROWN_CAP) if scene.grows else cap)
    try:
        told = module.bare(script) if guard is None else module.guarded(script, guard)
    except Stopped as stop:
        report = stop.run.report()
        told = f"{stop.stop.rule} at handoff {report.totals.handoffs}: {report.why}"
    except Exception as error:
        capped = script.steps >= script.cap
        told = f"nothing; capped at {script.cap:,} steps" if capped else in_short(error)
    return {"steps": script.steps, "tokens": script.tokens, "told": told}


def in_short(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0][:70]}"


def pairs_of(module: Any) -> dict[str, tuple[Any, Any]]:
    """What is compared: the scenes' own form, and a simpler one if the module has it."""
    if hasattr(module, "guarded_loop"):
        return {
            "": (module.loop, module.guarded_loop),
            ", decorated": (module.bare, module.guarded),
        }
    return {"": (module.bare, module.guarded)}


def cost(bare: Any, guarded: Any, pairs: int) -> dict[str, float]:
    """CPU µs per handoff, bare and what the guard adds, and its share."""

    def once(guard: Guard | None) -> float:
        script = Script(THREE, cap=FAR, route=square_free, far=FAR)
        gc.collect()
        start = time.process_time()
        told = bare(script) if guard is None else guarded(script, guard)
        took = time.process_time() - start
        if script.handoffs != HANDOFFS:
            raise RuntimeError(f"made {script.handoffs} of {HANDOFFS} handoffs: {told}")
        return took / HANDOFFS * 1e6

    guard = Guard(rules())
    once(None)
    once(guard)
    found = [(once(None), once(guard)) for _ in range(pairs)]
    least, most = (min(one) for one in zip(*found, strict=True))
    return {"bare": least, "added": most - least, "share": most / least - 1}


def costs_of(name: str, pairs: int) -> dict[str, dict[str, float]]:
    module = importlib.import_module(f"benchmarks.same_mistake.{name}")
    return {f"{name}{kind}": cost(*two, pairs) for kind, two in pairs_of(module).items()}


def typical_costs(name: str, pairs: int, processes: int) -> dict[str, dict[str, float]]:
    """Each as in the process that is in the middle."""
    command = [sys.executable, "-m", "benchmarks.same_mistake", "--costs-of", name]
    found = [
        json.loads(subprocess.check_output([*command, "--pairs", str(pairs)], text=True))
        for _ in range(processes)
    ]
    return {
        kind: sorted((one[kind] for one in found), key=lambda costs: costs["added"])[processes // 2]
        for kind in found[0]
    }


def measured(only: str, pairs: int, processes: int) -> dict[str, Any]:
    scenes: dict[str, Any] = {}
    costs: dict[str, Any] = {}
    found = modules(only)
    for name, module in found.items():
        say(name)
        scenes[name] = {
            scene.name: {
                "bare": play(module, scene, None),
                "guarded": play(module, scene, Guard()),
            }
            for scene in SCENES
        }
        costs |= typical_costs(name, pairs, processes)
    at = {
        name: version(module.DISTRIBUTION) if module.DISTRIBUTION else platform.python_version()
        for name, module in found.items()
    }
    limits = {name: module.LIMIT for name, module in found.items()}
    return {"scenes": scenes, "costs": costs, "versions": at, "limits": limits}


def report(figures: dict[str, Any]) -> str:
    lines = [
        "| framework | scene | bare: steps | tokens | the caller is told "
        "| guarded: steps | tokens | the caller is told |",
        "|---|---|---:|---:|---|---:|---:|---|",
    ]
    for name, scenes in figures["scenes"].items():
        for scene, found in scenes.items():
            cells = [f"{name.replace('_', '-')} {figures['versions'][name]}", scene]
            for kind in ("bare", "guarded"):
                one = found[kind]
                cells += [f"{one['steps']:,}", f"{one['tokens']:,}", one["told"]]
            lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    lines += [
        "",
        f"The guard's cost, CPU µs per handoff, Python {platform.python_version()}, "
        f"{os.cpu_count()} cores:",
        "",
        "| framework | its own | the guard adds | share | aim | met |",
        "|---|---:|---:|---:|---|---|",
    ]
    for name, found in figures["costs"].items():
        aim, verdict = aimed(name, found)
        lines.append(
            f"| {name.replace('_', '-')} | {found['bare']:,.1f} | {found['added']:,.1f} "
            f"| {found['share']:.1%} | {aim} | {verdict} |"
        )
    lines += ["", "Limits of their own: " + limits_in_words(figures["limits"]) + "."]
    return "\n".join(lines)


def aimed(name: str, found: dict[str, float]) -> tuple[str, str]:
    """The aim, and whether it is met. Decorators and usage in plain Python have none."""
    if name == "plain, decorated":
        return "", ""
    if name == "plain":
        return f"< {PLAIN_MAX:g} µs", "yes" if found["added"] < PLAIN_MAX else "NO"
    return f"< {SHARE_MAX:.0%}", "yes" if found["share"] < SHARE_MAX else "NO"


def limits_in_words(limits: dict[str, str]) -> str:
    return "; ".join(f"{name.replace('_', '-')}: {limit}" for name, limit in limits.items())


def say(text: str) -> None:
    print(f"benchmark: {text}", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.same_mistake", description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON line instead of tables")
    parser.add_argument("--write", action="store_true", help=f"also write {RESULTS.name}")
    parser.add_argument("--only", default="", choices=("", *FRAMEWORKS), help="one framework")
    parser.add_argument("--pairs", type=int, default=9, help="runs of each for the cost")
    parser.add_argument("--processes", type=int, default=5, help="in each of so many processes")
    parser.add_argument("--costs-of", default="", choices=("", *FRAMEWORKS), help="in this process")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)  # frameworks log what this table says
    if options.costs_of:
        print(json.dumps(costs_of(options.costs_of, options.pairs)))
        return
    figures = measured(options.only, options.pairs, options.processes)
    if options.write:
        title = "# The same mistakes in every framework, bare and under guard\n\n"
        how = "Written by `uv run --group frameworks python -m benchmarks.same_mistake --write`;\n"
        more = "what is measured stands in that module's header, the scenes in `scenes.py`.\n\n"
        RESULTS.write_text(f"{title}{how}{more}{report(figures)}\n", encoding="utf-8")
    print(json.dumps(figures) if options.json else report(figures))


if __name__ == "__main__":
    main()
