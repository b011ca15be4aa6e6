"""What a million runs need: the durable benchmark's figures, multiplied out.

    uv run python -m benchmarks.envelope

writes the tables of `docs/deployment.md` anew from `benchmarks/results/durable.md`; a test looks.
"""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
FIGURES = ROOT / "benchmarks" / "results" / "durable.md"
PAGE = ROOT / "docs" / "deployment.md"
BEGIN, END = "<!-- envelope: generated -->", "<!-- end of envelope -->"
RUNS, STEPS = 1_000_000, 10
DAY, YEAR_DAYS, KEPT_DAYS = 86_400, 365, 30


class Figures:
    """Those of Handrail on PostgreSQL."""

    def __init__(self, text: str) -> None:
        self.short, self.cpu_ms, self.steps = (
            _cell(text, "Handrail", column) for column in (7, 8, 9)
        )
        self.limit = _cell(text, "raw limit", 7)
        self.step_bytes = _cell(text, "Handrail", 8, after="One long run")
        waiting = re.search(r"^- Handrail, PostgreSQL: .*bytes_per_run ([\d,]+)", text, re.M)
        assert waiting, "durable.md says what a run that waits takes"
        self.run_bytes = _number(waiting.group(1))


def _cell(text: str, contender: str, column: int, after: str = "") -> float:
    rest = text.partition(after)[2] if after else text
    row = re.search(rf"^\| {contender} +\| PostgreSQL .*$", rest, re.MULTILINE)
    assert row, f"durable.md has a row of {contender} on PostgreSQL"
    return _number(row.group().split("|")[column].strip())


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def envelope(figures: Figures) -> str:
    f = figures
    steps = RUNS * STEPS
    disk = RUNS * (f.run_bytes + STEPS * f.step_bytes)
    daily = steps / DAY
    measured = [
        ("steps a second, 1,000 runs in flight", f"{f.short:,.0f}; {f.steps:,.0f} in longer runs"),
        ("CPU for a step, engine and database together", f"{f.cpu_ms:g} ms"),
        ("bytes for a step that says 500 bytes", f"{f.step_bytes:,.0f}"),
        ("bytes for a run that waits for a person", f"{f.run_bytes:,.0f}"),
        ("bare commits of the same rows, without an engine", f"{f.limit:,.0f} steps a second"),
    ]
    a_run = f"({f.run_bytes:,.0f} + {STEPS} × {f.step_bytes:,.0f})"
    derived = [
        ("steps", f"{RUNS:,} × {STEPS}", f"{steps / 1e6:,.0f} million"),
        ("disk", f"{RUNS:,} × {a_run} bytes", _size(disk)),
        (
            "disk, if all of them wait for a person at once",
            f"{RUNS:,} × {f.run_bytes:,.0f} bytes",
            _size(RUNS * f.run_bytes),
        ),
        (
            "as fast as that machine can",
            f"{steps:,} ÷ {f.steps:,.0f}",
            f"{steps / f.steps / 60:.0f} minutes",
        ),
        (
            "spread over a day",
            f"{steps:,} ÷ {DAY:,} = {daily:.0f} steps a second; ÷ {f.steps:,.0f}",
            f"{daily / f.steps:.1%} of that machine",
        ),
        (
            "CPU",
            f"{steps:,} × {f.cpu_ms:g} ms ÷ 3,600",
            f"{steps * f.cpu_ms / 1e3 / 3600:.2g} core-hours",
        ),
        (
            "a year of a million runs a day, nothing archived",
            f"{YEAR_DAYS} × {_size(disk)}",
            _size(YEAR_DAYS * disk),
        ),
        (
            f"the same with `db archive --older-than {KEPT_DAYS}d`",
            f"{KEPT_DAYS} × {_size(disk)}",
            f"{_size(KEPT_DAYS * disk)}, and the hashes of the rest",
        ),
    ]
    return "\n".join(
        [
            *("| measured | |", "|---|---|"),
            *(f"| {what} | {value} |" for what, value in measured),
            "",
            f"For a million runs of {STEPS} steps, each taken as one that waits and so many steps:",
            "",
            *("| | arithmetic | |", "|---|---|---|"),
            *(f"| {what} | {how} | {value} |" for what, how, value in derived),
        ]
    )


def _size(number: float) -> str:
    return f"{number / 1e12:.2g} TB" if number >= 1e12 else f"{number / 1e9:.3g} GB"


def written(page: str, figures: str) -> str:
    """The page with its tables made from those figures."""
    before, _, rest = page.partition(BEGIN)
    _, found, after = rest.partition(END)
    assert found, f"{PAGE.name} has a place for it"
    return f"{before}{BEGIN}\n\n{envelope(Figures(figures))}\n\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(), FIGURES.read_text()))
