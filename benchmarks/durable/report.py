"""The figures as Markdown, readable as plain text too."""

from collections.abc import Mapping
from typing import Any

from benchmarks.durable.ratios import figure, ratios

NAMES = {"raw_limit": "raw limit", "langgraph": "LangGraph", "dbos": "DBOS", "restate": "Restate"}
STORES = {"sqlite": "SQLite", "postgres": "PostgreSQL", "own": "its own"}
COLUMNS = (
    ("1", "ms_per_step", "1 run: ms/step"),
    ("1", "cpu_ms_per_step", "CPU-ms"),
    ("100", "steps_per_s", "100: steps/s"),
    ("100", "cpu_ms_per_step", "CPU-ms"),
    ("1000", "steps_per_s", "1,000: steps/s"),
    ("1000", "cpu_ms_per_step", "CPU-ms"),
    ("1000_long", "steps_per_s", "longer runs"),
)


def name_of(contender: str) -> str:
    return NAMES.get(contender, contender.capitalize())


def number(value: float | None, digits: int = 3) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.{digits}g}"


def table(head: list[str], rows: list[list[str]], left: int = 2) -> list[str]:
    """Columns as wide as they need to be; the first ones are texts."""
    widths = [max(len(cell) for cell in column) for column in zip(head, *rows, strict=True)]

    def line(cells: list[str]) -> str:
        padded = (
            f"{cell:<{width}}" if place < left else f"{cell:>{width}}"
            for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        return f"| {' | '.join(padded)} |"

    rule = "|".join(
        "-" * (width + 2) if place < left else "-" * (width + 1) + ":"
        for place, width in enumerate(widths)
    )
    return [line(head), f"|{rule}|", *(line(row) for row in rows)]


def speed(figures: Mapping[str, Any]) -> list[str]:
    """Who does how many steps, the fastest first."""
    rows = [
        (
            figure(loads, "1000", "steps_per_s") or 0.0,
            [
                name_of(contender),
                STORES[store],
                *(number(figure(loads, load, unit)) for load, unit, _ in COLUMNS),
            ],
        )
        for contender, stores in figures["contenders"].items()
        for store, loads in stores.items()
    ]
    ordered = [cells for _, cells in sorted(rows, key=lambda row: -row[0])]
    return table(["contender", "store", *(title for *_, title in COLUMNS)], ordered)


def long_run(figures: Mapping[str, Any]) -> list[str]:
    rows = [
        [
            name_of(contender),
            STORES[store],
            f"{found['steps']:,}",
            number(found["first_ms_per_step"]),
            number(found["last_ms_per_step"]),
            number(found["growth"]),
            number(found["growth_cpu"]),
            number(found["bytes_per_step"]),
        ]
        for contender, stores in figures["growth"].items()
        for store, found in stores.items()
    ]
    head = [
        "contender",
        "store",
        "steps",
        "first: ms",
        "last: ms",
        "growth",
        "of CPU",
        "bytes/step",
    ]
    return table(head, rows) if rows else ["Not measured."]


def waiting(figures: Mapping[str, Any]) -> list[str]:
    """Whatever Handrail's side says about runs that wait."""
    lines = [
        f"- {name_of(contender)}, {STORES[store]}: "
        + ", ".join(f"{unit} {number(value)}" for unit, value in found.items())
        for contender, stores in figures["waiting"].items()
        for store, found in stores.items()
    ]
    return lines or ["Not measured."]


def compared(figures: Mapping[str, Any]) -> list[str]:
    rows = [
        [name, "not measured" if value is None else number(value)]
        for name, value in ratios(figures).items()
    ]
    return table(["ratio", "figure"], rows, left=1)


def about(figures: Mapping[str, Any]) -> list[str]:
    machine = figures["machine"]
    versions = "".join(
        f", {name_of(name)} {version}" for name, version in figures["versions"].items() if version
    )
    loads = {name: f"{runs:,} x {steps}" for name, (runs, steps) in figures["loads"].items()}
    return [
        f"{machine['cpu']}, {machine['cores']} cores, {machine['system']}; "
        f"{machine['syncs_per_s']:,.0f} syncs of a page per second; "
        f"load before the start {machine['load_before']:.1f}.",
        f"Python {machine['python']}, SQLite {machine['sqlite']}, "
        f"PostgreSQL {machine.get('postgres', 'missing')}{versions}.",
        f"Rounds: {figures['rounds']}; medians. Runs x steps: {loads['1']} one at a time, "
        f"{loads['100']}, {loads['1000']}; longer {loads['1000_long']}.",
    ]


def text(figures: Mapping[str, Any]) -> str:
    lines = [*about(figures), "", *speed(figures)]
    missing = [f"- {label}: {reason}" for label, reason in figures["missing"].items()]
    if missing:
        lines += ["", "Missing:", "", *missing]
    lines += ["", "One long run of 500 bytes a step:", "", *long_run(figures)]
    lines += ["", "Runs that wait for a person:", "", *waiting(figures)]
    lines += ["", "Handrail / the other (benchmarks/durable/ratios.py says what is what):", ""]
    return "\n".join([*lines, *compared(figures)])


def page(figures: Mapping[str, Any]) -> str:
    return (
        "# What a durable step costs\n\n"
        "Written by `uv run --group bench python -m benchmarks.durable`; what is measured stands\n"
        "in that module's header. CPU time includes the servers that do the work. *raw limit* is\n"
        "a bare loop of batched commits of the same rows, without an engine.\n\n"
        "![Steps per second with 1,000 runs in flight](durable.svg)\n\n"
        f"{text(figures)}\n"
    )
