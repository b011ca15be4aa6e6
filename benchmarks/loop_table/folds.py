"""Figures for settings that were chosen on the same data: five folds.

A setting that was chosen on a run says nothing about that run. So the runs are dealt into folds by
a hash of their names; for each fold the setting is chosen on the other four and measured on this
one. The sum over the folds is what the way of choosing achieves on runs that it has not seen.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from hashlib import blake2b
from itertools import product
from typing import Any

import msgspec

from benchmarks.loop_table.detectors import Detector
from benchmarks.loop_table.figures import Figures, Stop, count, run_detector
from handrail.replay.traces.model import Trace

FOLDS = 5
CUT_SHARE_MAX = 0.01
"""Of the good runs, what a chosen setting may cut where it is chosen."""

Setting = dict[str, Any]
Preference = Callable[[Figures], Any]
"""The setting whose figures give the largest value is chosen; among equals the first."""


class FoldedFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures over all folds, each run measured with a setting that was chosen without it,
    and the setting that was chosen for each fold."""

    figures: Figures
    chosen: list[Setting]


def fold_of(trace: Trace) -> int:
    name = f"{trace.dataset}\n{trace.id}".encode()
    return int.from_bytes(blake2b(name, digest_size=8).digest()) % FOLDS


def settings(grid: Mapping[str, Iterable[Any]]) -> list[Setting]:
    """Every combination of the values of a grid."""
    return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]


def prefer_saving(figures: Figures) -> tuple[Hashable, ...]:
    """No more than the allowed share of good runs cut, then the most steps saved, then the fewest
    runs cut."""
    allowed = figures.cut <= CUT_SHARE_MAX * figures.good
    if not allowed:
        return False, -figures.cut, figures.steps_saved
    return True, figures.steps_saved, -figures.cut


def cross_validated(
    make: Callable[..., Detector],
    grid: Mapping[str, Iterable[Any]],
    traces: Sequence[Trace],
    preference: Preference = prefer_saving,
) -> FoldedFigures:
    """Choose a setting of the detector on four folds and measure it on the fifth, five times."""
    tried = [
        (setting, [run_detector(lambda chosen=setting: make(**chosen), t) for t in traces])
        for setting in settings(grid)
    ]
    return choose_by_folds(tried, traces, preference)


def choose_by_folds(
    tried: Sequence[tuple[Setting, Sequence[Stop]]],
    traces: Sequence[Trace],
    preference: Preference = prefer_saving,
) -> FoldedFigures:
    """Choose among settings that were tried on every trace."""
    folds = [fold_of(trace) for trace in traces]
    chosen: list[Setting] = []
    measured: list[Stop] = []
    for fold in range(FOLDS):
        setting, stops = max(
            tried, key=lambda trial: preference(count(_without(fold, folds, trial[1])))
        )
        chosen.append(setting)
        measured += [stop for stop, own in zip(stops, folds, strict=True) if own == fold]
    return FoldedFigures(figures=count(measured), chosen=chosen)


def _without(fold: int, folds: Sequence[int], stops: Sequence[Stop]) -> list[Stop]:
    return [stop for stop, own in zip(stops, folds, strict=True) if own != fold]
