"""A chart of steps per second with 1,000 runs in flight, as SVG: a dot per contender, log scale."""

import math
from collections.abc import Mapping
from html import escape
from typing import Any

from benchmarks.durable.ratios import figure
from benchmarks.durable.report import STORES, name_of

LEFT, WIDTH, RIGHT = 130, 480, 90
ROW, TITLE, AXIS = 26, 34, 26
LOAD = "1000"
PANELS = (("SQLite", ("sqlite", "own")), ("PostgreSQL", ("postgres",)))
OWN, OTHER, FAINT = "#0b6e4f", "#5b6470", "#d5d9de"


def rows(figures: Mapping[str, Any], stores: tuple[str, ...]) -> list[tuple[str, float, bool]]:
    """Name, figure and whether it is ours; the fastest first."""
    found = [
        (
            name_of(contender) + (f" ({STORES[store]})" if store == "own" else ""),
            speed,
            contender == "handrail",
        )
        for contender, places in figures["contenders"].items()
        for store in stores
        if (speed := figure(places, store, LOAD, "steps_per_s"))
    ]
    return sorted(found, key=lambda row: -row[1])


def svg(figures: Mapping[str, Any]) -> str:
    panels = [(title, rows(figures, stores)) for title, stores in PANELS]
    speeds = [speed for _, found in panels for _, speed, _ in found] or [1.0]
    low, high = math.floor(math.log10(min(speeds))), math.ceil(math.log10(max(speeds)))
    high = max(high, low + 1)

    def across(speed: float) -> float:
        return LEFT + (math.log10(speed) - low) / (high - low) * WIDTH

    parts: list[str] = []
    top = 0
    for title, found in panels:
        bottom = top + TITLE + ROW * len(found)
        parts.append(label(0, top + 20, f"{title}: steps per second, 1,000 runs in flight", "bold"))
        for power in range(low, high + 1):
            x = across(10**power)
            parts.append(line(x, top + TITLE - 6, x, bottom, FAINT))
            parts.append(label(x, bottom + 16, f"{10**power:,}", anchor="middle"))
        for place, (name, speed, own) in enumerate(found):
            y, colour = top + TITLE + ROW * place + ROW / 2, OWN if own else OTHER
            weight = "bold" if own else "normal"
            parts.append(line(LEFT, y, across(speed), y, colour))
            parts.append(f'<circle cx="{across(speed):.1f}" cy="{y:.1f}" r="5" fill="{colour}"/>')
            parts.append(label(0, y + 4, name, weight))
            parts.append(label(across(speed) + 10, y + 4, f"{speed:,.0f}", weight))
        top = bottom + AXIS + 10
    width = LEFT + WIDTH + RIGHT
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-12 0 {width + 12} {top}" '
        f'width="{width + 12}" height="{top}" font-family="sans-serif" font-size="13" role="img">\n'
        f"<title>Steps per second with 1,000 runs in flight</title>\n"
        f'<rect x="-12" width="{width + 12}" height="{top}" fill="white"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def line(x: float, y: float, to_x: float, to_y: float, colour: str) -> str:
    return (
        f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}" '
        f'stroke="{colour}" stroke-width="1.5"/>'
    )


def label(x: float, y: float, text: str, weight: str = "normal", anchor: str = "start") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-weight="{weight}" text-anchor="{anchor}">'
        f"{escape(text)}</text>"
    )
