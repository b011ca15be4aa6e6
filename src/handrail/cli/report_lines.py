"""Lines about a run that several commands print: its end, why it stopped, what it waits for."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from handrail.cli.formatting import format_count, format_duration
from handrail.cli.output import format_time

if TYPE_CHECKING:
    from handrail.kernel.definition.certificate import Bound
    from handrail.views.report import RunReport
    from handrail.views.run_details import WaitReason
    from handrail.views.view_types import StopView


def stop_lines(stop: "StopView | None") -> Iterator[str]:
    """Yield the rule, what it saw, and what would have let the run go on."""
    if stop is None:
        return
    also = f", and {', '.join(stop.also)}" if stop.also else ""
    yield f"rule: {stop.rule}{also}"
    if stop.limit is not None:
        yield f"limit {stop.limit}, seen {stop.seen}"
    for name, text in (
        ("pattern", ", then ".join(stop.pattern)),
        ("evidence", ", ".join(stop.evidence)),
        ("what would have let it go on", stop.remedy),
        ("left to do", "; ".join(stop.remaining)),
    ):
        if text:
            yield f"{name}: {text}"


def waiting_lines(waiting: "tuple[WaitReason, ...]") -> Iterator[str]:
    """Yield for each position: what it waits for, since when, and what to do."""
    for wait in waiting:
        yield f"{wait.place}, since {format_time(wait.since)}: {wait.message.rstrip('.')}"
        yield f"  what to do: {wait.hint}"


def summary_lines(report: "RunReport", bound: "Bound") -> Iterator[str]:
    """Yield what the end of a run should show, beyond why."""
    stop, totals = report.stop, report.totals
    if stop is not None:
        yield f"{report.terminal_status} ({stop.rule}), the last one was {report.final_agent}"
    moves = ("transitions", totals.transitions - 1, bound.transitions)
    if report.kind == "team":
        moves = ("handoffs", totals.handoffs, bound.handoffs)
    used = f"{totals.dispatches} of {bound.dispatches} dispatches, {moves[1]} of {moves[2]}"
    stretches = f" in {totals.stretches} stretches" if totals.stretches > 1 else ""
    yield f"{used} {moves[0]}{stretches}, {format_duration(report.duration)}"
    if stop is not None and stop.evidence:
        yield f"evidence: {', '.join(stop.evidence)}"
    if stop is not None and stop.remedy:
        yield f"what would have let it go on: {stop.remedy}"
    if report.warnings:
        yield format_count(len(report.warnings), "warning")
