"""Writes the figures as Markdown tables."""

from collections import defaultdict
from collections.abc import Mapping

from benchmarks.loop_table.figures import Figures, Share, beaten_by, dominating
from benchmarks.loop_table.folds import FoldedFigures

Measured = Mapping[str, Mapping[str, Figures]]
"""By group and detector."""

INTRODUCTION = """\
Written by `uv run python -m benchmarks.loop_table --write`. The detectors of others are
re-expressed from their documentation (`benchmarks/loop_table/detectors.py`).

good, failed: runs by how they ended. cut: good runs that were stopped, with Wilson's 95% interval.
caught: failed runs that were stopped. saved: of all steps of the failed runs, those that would not
have been made, with a 95% interval (Wilson's, with the effective number of runs). other: runs that
nobody judged, and how many of them were stopped.

The ceiling: most failures are wrong answers and no loops. Whatever a detector could see, it cannot
save those steps without cutting good runs; what saves a third of the steps of tool agents, a cap of
25, cuts more than half of the good ones."""

OBSERVED = "Handrail, observed"


def page(
    measured: Mapping[str, Measured],
    folded: Mapping[str, Mapping[str, FoldedFigures]] | None = None,
) -> str:
    """All tables, by view; `folded` are five-fold figures by view and group."""
    several = detectors_with_several_rules(measured)
    parts = ["# The Loop Table", INTRODUCTION, check_table(measured)]
    parts += [fold_table(measured, folded)] if folded else []
    for view, groups in measured.items():
        for group, figures in groups.items():
            parts += [f"## {group}, view {view}", group_table(figures)]
            parts += [rule_table(figures, several), domination(figures)]
    return "\n\n".join(part for part in parts if part)


def detectors_with_several_rules(measured: Mapping[str, Measured]) -> set[str]:
    rules: dict[str, set[str]] = defaultdict(set)
    for groups in measured.values():
        for figures in groups.values():
            for name, one in figures.items():
                rules[name].update(one.rules)
    return {name for name, names in rules.items() if len(names) > 1}


def domination(figures: Mapping[str, Figures]) -> str:
    """Who is clearly better than whom in both, fewer good runs cut and more steps saved."""
    better = {name: dominating(figures, name) for name in figures}
    sentences = [f"{name} by {', '.join(others)}" for name, others in better.items() if others]
    return f"Clearly beaten in both: {'; '.join(sentences)}." if sentences else ""


def check_table(measured: Mapping[str, Measured]) -> str:
    """Whether a re-expressed detector is clearly better than `observed`, by group and view."""
    lines = [
        "## Is there a better one?",
        "",
        "No detector of others has both fewer good runs cut and more steps saved than "
        f"`{OBSERVED}`, beyond the 95% intervals:",
        "",
        "| group | view | so it is | better in both, inside the intervals |",
        "|---|---|---|---|",
    ]
    for view, groups in measured.items():
        for group, figures in groups.items():
            if OBSERVED not in figures:
                continue
            better = beaten_by(figures, OBSERVED)
            hardly = [n for n in dominating(figures, OBSERVED, clearly=False) if n not in better]
            verdict = f"no: {', '.join(better)}" if better else "yes"
            lines.append(f"| {group} | {view} | {verdict} | {', '.join(hardly) or 'none'} |")
    return "\n".join(lines)


def fold_table(
    measured: Mapping[str, Measured], folded: Mapping[str, Mapping[str, FoldedFigures]]
) -> str:
    """Five-fold figures of the limits that were chosen on these runs, beside those in force."""
    lines = [
        "## Five folds",
        "",
        "`no_change_limit`, `same_error_limit` and `oscillation_limit` chosen on four fifths of "
        "the runs (at most 1% of the good ones cut, then the most steps saved) and measured on "
        "the last fifth, five times; beside it what `observed` has.",
        "",
        "| group | view | chosen in each fold | cut | saved | observed: cut | saved |",
        "|---|---|---|---:|---:|---:|---:|",
    ]
    for view, groups in folded.items():
        for group, result in groups.items():
            ours = measured[view][group][OBSERVED]
            chosen = " ".join("/".join(map(str, setting.values())) for setting in result.chosen)
            cells = [group, view, chosen, f"{result.figures.cut} of {result.figures.good}"]
            cells += [f"{result.figures.saved_share.value:.1%}", f"{ours.cut} of {ours.good}"]
            lines.append(f"| {' | '.join(cells)} | {ours.saved_share.value:.1%} |")
    return "\n".join(lines)


def group_table(figures: Mapping[str, Figures]) -> str:
    lines = [
        "| detector | good | cut | 95% | nudged | failed | caught | saved | 95% | other |",
        "|---|---:|---:|---|---:|---:|---:|---:|---|---:|",
    ]
    for name, one in figures.items():
        cells = [
            name,
            f"{one.good:,}",
            f"{one.cut:,}",
            interval(one.cut_share) if one.good else "",
            f"{one.nudged:,}" if one.nudged else "",
            f"{one.failed:,}",
            f"{one.caught:,}",
            f"{one.saved_share.value:.1%}" if one.failed else "",
            interval(one.saved_share) if one.failed else "",
            f"{one.other_stopped} of {one.other}" if one.other else "",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def rule_table(figures: Mapping[str, Figures], several: set[str]) -> str:
    """What each rule did, of the detectors that have several."""
    lines: list[str] = []
    for name, one in figures.items():
        for rule, did in one.rules.items() if name in several else ():
            saved = f"{did.steps_saved / one.steps_failed:.1%}" if one.steps_failed else ""
            other = f"{did.other_stopped:,}" if one.other else ""
            cells = [name, rule, f"{did.cut:,}", f"{did.caught:,}", saved, other]
            lines.append(f"| {' | '.join(cells)} |")
    heading = [
        "| detector | rule | cut | caught | saved | other |",
        "|---|---|---:|---:|---:|---:|",
    ]
    return "\n".join(heading + lines) if lines else ""


def interval(share: Share) -> str:
    return f"{share.low:.1%} – {share.high:.1%}"
