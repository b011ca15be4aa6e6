"""Prints what detectors of loops do to real runs that others recorded.

    uv run python -m benchmarks.loop_table [--traces FOLDER] [--view A|B] [--folds] [--json]
        [--write]

`--folds` adds five-fold figures of the limits that such runs had a part in choosing.

The folder has files of traces (`.jsonl`, `.jsonl.gz`, `.json`, `.json.gz`). Without it there is
nothing to measure, and the benchmark says so and is done. `--write` also writes
`benchmarks/results/loop_table.md`.
"""

import argparse
import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import msgspec

from benchmarks.loop_table.chosen import fold_limits
from benchmarks.loop_table.detectors import DETECTORS
from benchmarks.loop_table.figures import Figures, beaten_by, dominating, grouped, measure
from benchmarks.loop_table.folds import FoldedFigures
from benchmarks.loop_table.report import OBSERVED, page
from handrail.replay.traces.model import Trace, TraceView
from handrail.replay.traces.reader import read_traces

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path("..", "shared", "traces")
"""Relative to the repository."""
RESULTS = ROOT / "benchmarks" / "results" / "loop_table.md"
VIEWS: tuple[TraceView, ...] = ("A", "B")
SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".json.gz")


def trace_files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.name.endswith(SUFFIXES))


def load(files: list[Path], view: TraceView) -> Iterator[Trace]:
    for path in files:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as lines:
            yield from read_traces(lines, path.name.partition(".")[0], view=view)


def json_line(
    measured: dict[str, dict[str, dict[str, Figures]]],
    folded: dict[str, dict[str, FoldedFigures]],
) -> str:
    """All figures by view, group and detector, by whom each detector is clearly beaten, and whether
    ours is by nobody."""
    beaten = {
        view: {
            group: {name: dominating(figures, name) for name in figures}
            for group, figures in groups.items()
        }
        for view, groups in measured.items()
    }
    unbeaten = {
        view: {group: not beaten_by(figures, OBSERVED) for group, figures in groups.items()}
        for view, groups in measured.items()
    }
    document = {"views": measured, "beaten_by": beaten, "unbeaten": unbeaten, "folds": folded}
    return msgspec.json.encode(document).decode()


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.loop_table", description=__doc__)
    parser.add_argument("--traces", type=Path, default=ROOT / FOLDER, help="folder of traces")
    parser.add_argument("--view", choices=VIEWS, help="one view; both unless set")
    parser.add_argument("--folds", action="store_true", help="five-fold figures, too; slower")
    parser.add_argument("--json", action="store_true", help="one JSON line instead of tables")
    parser.add_argument("--write", action="store_true", help=f"also write {RESULTS.name}")
    options = parser.parse_args(arguments)
    files = trace_files(options.traces)
    if not files:
        reason = f"skipped: there are no traces in {options.traces}"
        print(json.dumps({"skipped": reason}) if options.json else f"loop_table {reason}.")
        return
    views = (options.view,) if options.view else VIEWS
    measured: dict[str, dict[str, dict[str, Figures]]] = {
        view: measure(DETECTORS, load(files, view)) for view in views
    }
    folded: dict[str, dict[str, FoldedFigures]] = {}
    if options.folds:
        folded = {
            view: {group: fold_limits(runs) for group, runs in grouped(load(files, view)).items()}
            for view in views
        }
    if options.write:
        RESULTS.write_text(f"{page(measured, folded)}\n", encoding="utf-8")
    print(json_line(measured, folded) if options.json else page(measured, folded))


if __name__ == "__main__":
    main()
