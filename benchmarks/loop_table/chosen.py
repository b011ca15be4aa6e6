"""The limits of `observed` that these runs had a part in choosing, measured by five folds.

The runs are read once; at each step the rules are asked under every combination of limits.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from benchmarks.loop_table.figures import Stop
from benchmarks.loop_table.folds import FoldedFigures, Setting, choose_by_folds, settings
from handrail.kernel.definition.limits import OBSERVED
from handrail.replay.trace_judgement import TraceJudge
from handrail.replay.traces.model import Trace

GRID = {
    "no_change_limit": (2, 3, 4),
    "same_error_limit": (2, 3, 4),
    "oscillation_limit": (2, 3),
}


def fold_limits(traces: Sequence[Trace]) -> FoldedFigures:
    """Choose the limits on four folds and measure them on the fifth, five times."""
    grid = settings(GRID)
    ends = [_find_ends(trace, grid) for trace in traces]
    tried = [
        (
            setting,
            [
                Stop(success=trace.success, steps=len(trace.steps), at=ends_of_trace[number])
                for trace, ends_of_trace in zip(traces, ends, strict=True)
            ],
        )
        for number, setting in enumerate(grid)
    ]
    return choose_by_folds(tried, traces)


def _find_ends(trace: Trace, grid: Sequence[Setting]) -> list[int]:
    """Where the run ends under each setting. The judge itself never ends it."""
    judge = TraceJudge(replace(OBSERVED, **dict.fromkeys(GRID), max_steps=None))
    limits = [replace(OBSERVED, **setting) for setting in grid]
    ends = [len(trace.steps)] * len(grid)
    open_numbers = set(range(len(grid)))
    for step_number, step in enumerate(trace.steps, 1):
        judge.judge(step)
        fired = {number for number in open_numbers if judge.judge_under(limits[number])}
        for number in fired:
            ends[number] = step_number
        open_numbers -= fired
    return ends
