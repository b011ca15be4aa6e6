"""Runs detectors over traces and counts: good runs cut, failed runs caught, steps saved.

A stop counts only if another step would have followed. `saved` is the share of all steps of failed
runs that would not have been made. Both come with a 95% interval: of the good runs cut, Wilson's;
of the steps saved, Wilson's with the effective number of runs in place of the number of steps,
since steps of one run are not independent (Kish: the square of the sum of the weights over the sum
of their squares, the weights being the steps of a run). The share of one run lies between 0 and 1,
so the interval is rather too wide than too narrow, and it does not vanish where nothing was saved.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from benchmarks.loop_table.detectors import MakeDetector
from handrail.replay.traces.model import Trace

Z = 1.959964
"""Of a 95% interval."""
OURS = "Handrail"
"""How the names of our own detectors begin."""
GROUPS = {
    "tau": "tool agents",
    "swe": "tool agents",
    "tb": "tool agents",
    "intercode": "InterCode",
    "magentic": "MagenticOne",
    "ag2": "AG2",
    "openmanus": "OpenManus",
}
"""The group of a dataset, by the first part of its name; others are groups of their own."""


class Stop(msgspec.Struct, frozen=True, kw_only=True):
    """What a detector did to one run. `at` is how many steps had been made, or all of them."""

    success: bool | None
    steps: int
    at: int
    rule: str = ""
    nudged: bool = False

    @property
    def stopped(self) -> bool:
        return self.at < self.steps

    @property
    def saved(self) -> int:
        return self.steps - self.at


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """A share with its 95% interval."""

    value: float
    low: float
    high: float


class RuleFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What one rule of a detector did."""

    cut: int
    caught: int
    steps_saved: int
    other_stopped: int


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What a detector did to the runs of a group. `nudged` are good runs that were warned and not
    stopped; `other` are runs that nobody judged."""

    good: int
    cut: int
    cut_share: Share
    nudged: int
    failed: int
    caught: int
    steps_failed: int
    steps_saved: int
    saved_share: Share
    other: int
    other_stopped: int
    rules: dict[str, RuleFigures]


def group_of(dataset: str) -> str:
    return GROUPS.get(dataset.partition("-")[0], dataset)


def grouped(traces: Iterable[Trace]) -> dict[str, list[Trace]]:
    """The traces by group, groups in the order of `GROUPS` and then of their names."""
    groups: dict[str, list[Trace]] = defaultdict(list)
    for trace in traces:
        groups[group_of(trace.dataset)].append(trace)
    order = list(dict.fromkeys(GROUPS.values()))
    return {name: groups[name] for name in sorted(groups, key=lambda name: _place(name, order))}


def _place(name: str, order: list[str]) -> tuple[int, str]:
    return order.index(name) if name in order else len(order), name


def run_detector(make: MakeDetector, trace: Trace) -> Stop:
    """Let a new detector watch the trace until it stops it or the trace ends."""
    detector = make()
    steps = at = len(trace.steps)
    for number, step in enumerate(trace.steps, 1):
        if detector.step(step):
            at = number
            break
    return Stop(
        success=trace.success,
        steps=steps,
        at=at,
        rule=detector.rule if at < steps else "",
        nudged=getattr(detector, "nudges", 0) > 0,
    )


def count(stops: Sequence[Stop]) -> Figures:
    good = [stop for stop in stops if stop.success is True]
    failed = [stop for stop in stops if stop.success is False]
    other = [stop for stop in stops if stop.success is None]
    cut = sum(stop.stopped for stop in good)
    steps = [stop.steps for stop in failed]
    steps_saved = sum(stop.saved for stop in failed)
    return Figures(
        good=len(good),
        cut=cut,
        cut_share=wilson(cut, len(good)),
        nudged=sum(stop.nudged and not stop.stopped for stop in good),
        failed=len(failed),
        caught=sum(stop.stopped for stop in failed),
        steps_failed=sum(steps),
        steps_saved=steps_saved,
        saved_share=saved_interval(steps_saved, steps),
        other=len(other),
        other_stopped=sum(stop.stopped for stop in other),
        rules=_by_rule(good, failed, other),
    )


def _by_rule(*judged: Sequence[Stop]) -> dict[str, RuleFigures]:
    good, failed, other = judged
    names = sorted({stop.rule for stops in judged for stop in stops if stop.rule})
    return {
        name: RuleFigures(
            cut=sum(stop.rule == name for stop in good),
            caught=sum(stop.rule == name for stop in failed),
            steps_saved=sum(stop.saved for stop in failed if stop.rule == name),
            other_stopped=sum(stop.rule == name for stop in other),
        )
        for name in names
    }


def measure(
    detectors: Mapping[str, MakeDetector], traces: Iterable[Trace]
) -> dict[str, dict[str, Figures]]:
    """The figures by group and detector."""
    return {
        group: {
            name: count([run_detector(make, trace) for trace in of_group])
            for name, make in detectors.items()
        }
        for group, of_group in grouped(traces).items()
    }


def wilson(hits: float, number: float) -> Share:
    """A share with Wilson's 95% interval; of nothing it may be anything."""
    if not number:
        return Share(value=0.0, low=0.0, high=1.0)
    share, z2 = hits / number, Z * Z
    middle = (share + z2 / (2 * number)) / (1 + z2 / number)
    spread = math.sqrt(share * (1 - share) / number + z2 / (4 * number * number))
    half = Z * spread / (1 + z2 / number)
    return Share(
        value=share,
        low=max(0.0, middle - half) if hits else 0.0,
        high=min(1.0, middle + half) if hits < number else 1.0,
    )


def saved_interval(saved: int, steps: Sequence[int]) -> Share:
    """The share of all steps that was saved, with the interval that the header describes."""
    total = sum(steps)
    if not total:
        return wilson(0, 0)
    runs = total * total / sum(one * one for one in steps)
    return wilson(saved / total * runs, runs)


def dominating(figures: Mapping[str, Figures], name: str, *, clearly: bool = True) -> list[str]:
    """The detectors that are better than the named one in both: fewer good runs cut and more steps
    saved. A difference counts `clearly` if neither value lies in the 95% interval of the other;
    otherwise any difference counts."""
    mine = figures[name]
    return [
        other
        for other, theirs in figures.items()
        if _is_less(theirs.cut_share, mine.cut_share, clearly)
        and _is_less(mine.saved_share, theirs.saved_share, clearly)
    ]


def beaten_by(figures: Mapping[str, Figures], name: str) -> list[str]:
    """The detectors of others that are clearly better in both than this one of ours."""
    return [other for other in dominating(figures, name) if not other.startswith(OURS)]


def _is_less(small: Share, large: Share, clearly: bool) -> bool:
    if clearly:
        return small.high < large.value and small.value < large.low
    return small.value < large.value
