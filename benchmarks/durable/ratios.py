"""How Handrail compares: what the tests of the project's aims read.

- `STORE_100_vs_PEER`, `STORE_1000_vs_PEER`: Handrail's steps per second / the peer's with so many
  runs in flight, both on the same load; with `raw_limit` the longer one, since three commits are
  over too soon to be timed. Higher is better.
- `STORE_1_time_vs_PEER`: Handrail's time per step / the peer's, one run at a time. Lower is better.
- `STORE_1000_cpu_vs_PEER`: Handrail's CPU time per step / the peer's. Lower is better.
- `STORE_growth`, `STORE_growth_cpu`: what the last steps of a long run cost / the first ones.
- `STORE_bytes_vs_langgraph`: Handrail's bytes on disk per step of a long run / LangGraph's.

Restate keeps its own store and stands beside SQLite. None: one of the two was not measured.
"""

from collections.abc import Mapping
from typing import Any

PEERS = {
    "sqlite": ("langgraph", "dbos", "restate", "burr", "raw_limit"),
    "postgres": ("langgraph", "dbos", "burr", "raw_limit"),
}


def figure(figures: Mapping[str, Any], *path: str) -> float | None:
    """The figure at that path, None if any of it is missing."""
    for name in path:
        figures = figures.get(name) or {}
    return figures or None  # type: ignore[return-value] - a figure stands at the end of a path


def quotient(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below is not None else None


def ratios(figures: Mapping[str, Any]) -> dict[str, float | None]:
    contenders, growth = figures["contenders"], figures["growth"]
    found: dict[str, float | None] = {}

    def compare(store: str, peer: str, load: str, unit: str) -> float | None:
        place = "own" if peer == "restate" else store
        return quotient(
            figure(contenders, "handrail", store, load, unit),
            figure(contenders, peer, place, load, unit),
        )

    for store, peers in PEERS.items():
        for peer in peers:
            long = "_long" if peer == "raw_limit" else ""
            for runs in ("100", "1000"):
                name = f"{store}_{runs}_vs_{peer}"
                found[name] = compare(store, peer, runs + long, "steps_per_s")
            found[f"{store}_1_time_vs_{peer}"] = compare(store, peer, "1", "ms_per_step")
            name = f"{store}_1000_cpu_vs_{peer}"
            found[name] = compare(store, peer, "1000" + long, "cpu_ms_per_step")
        for unit in ("growth", "growth_cpu"):
            found[f"{store}_{unit}"] = figure(growth, "handrail", store, unit)
        found[f"{store}_bytes_vs_langgraph"] = quotient(
            figure(growth, "handrail", store, "bytes_per_step"),
            figure(growth, "langgraph", store, "bytes_per_step"),
        )
    return found


def rounded(value: Any) -> Any:
    """To four digits that say something."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, Mapping):
        return {name: rounded(part) for name, part in value.items()}
    return value
