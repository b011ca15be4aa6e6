"""Reports replays: one value for each run, in words and figures, and their sum.

A *good* run ended as `done_success`. It is *cut* if the other rules would have ended it in another
way: a false stop. The savings are what the recording shows after the earlier stop.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

from handrail.kernel.definition.model import TerminalStatus
from handrail.kernel.run.events import RunEvent
from handrail.kernel.run.evolve import replay as replay_events
from handrail.kernel.run.state import Run
from handrail.replay.replayer import PlanLookup, ReplayOutcome, replay_recording
from handrail.replay.rule_overrides import RuleOverrides
from handrail.views.history import StopView, stop_view
from handrail.views.view_types import View

GOOD_STATUS = TerminalStatus.DONE_SUCCESS
REPLAYED_RUNS_MAX = 200
"""Runs of one replay."""


class Verdict(StrEnum):
    """How the run goes under the rules, against its recording."""

    SAME = "same"
    SOONER = "sooner"
    OTHERWISE = "otherwise"
    """At the same step, by another rule."""
    BEYOND = "beyond"
    """It goes on past its recorded end; how far is unknown."""
    OPEN = "open"
    """It has not ended, and these rules do not end it either."""
    UNLIKE = "unlike"
    """Its events do not follow from its definition, as this version of the program reads it."""


class ReplayEnding(View):
    terminal_status: str
    step: int
    at: datetime
    stop: StopView


class Savings(View):
    """Steps, usage and time on record after the earlier stop."""

    steps: int = 0
    tokens: int = 0
    cost: float = 0.0
    seconds: float = 0.0


class ReplayReport(View):
    """One run under other rules. `told` is a summary in one sentence."""

    execution_id: str
    title: str
    workflow_id: str
    workflow_version: int
    verdict: Verdict
    told: str
    cut: bool
    recorded: ReplayEnding | None
    replayed: ReplayEnding | None
    saved: Savings


class ReplaySummary(View):
    """The sum of all reports. `cut` counts good runs that the rules would have stopped; their
    remaining steps do not count as saved."""

    runs: int
    good: int
    cut: int
    verdicts: dict[str, int]
    saved: Savings


class ReplayResults(View):
    """Runs under other rules, in the order of the request, and their sum."""

    rules: dict[str, Any]
    items: tuple[ReplayReport, ...]
    summary: ReplaySummary


def replay_report(
    recording: Sequence[RunEvent], plans: PlanLookup, overrides: RuleOverrides | None
) -> ReplayReport:
    """Replay a run under these rules, or by default under its own, and report the difference."""
    recorded_run, outcome = replay_events(recording), replay_recording(recording, plans, overrides)
    verdict = _verdict(recorded_run, outcome)
    saves = verdict is Verdict.SOONER
    return ReplayReport(
        execution_id=recorded_run.id,
        title=recorded_run.title,
        workflow_id=recorded_run.definition_id,
        workflow_version=recorded_run.version,
        verdict=verdict,
        told=DESCRIPTIONS[verdict](recorded_run, outcome),
        cut=is_cut(recorded_run, outcome),
        recorded=_ending(recorded_run),
        replayed=_ending(outcome.run),
        saved=_savings(recorded_run, outcome.run, recording[-1].at) if saves else Savings(),
    )


def is_cut(recorded: Run, outcome: ReplayOutcome) -> bool:
    """Whether a good run would have been stopped."""
    status = outcome.run.terminal_status
    return (
        recorded.terminal_status is GOOD_STATUS and status is not None and status is not GOOD_STATUS
    )


def summarize(reports: Iterable[ReplayReport]) -> ReplaySummary:
    all_reports = tuple(reports)
    saved = [report.saved for report in all_reports if not report.cut]
    return ReplaySummary(
        runs=len(all_reports),
        good=sum(
            report.recorded is not None and report.recorded.terminal_status == GOOD_STATUS
            for report in all_reports
        ),
        cut=sum(report.cut for report in all_reports),
        verdicts={
            verdict.value: count
            for verdict in Verdict
            if (count := sum(report.verdict is verdict for report in all_reports))
        },
        saved=Savings(
            steps=sum(savings.steps for savings in saved),
            tokens=sum(savings.tokens for savings in saved),
            cost=sum(savings.cost for savings in saved),
            seconds=sum(savings.seconds for savings in saved),
        ),
    )


def _verdict(recorded: Run, outcome: ReplayOutcome) -> Verdict:
    replayed_run = outcome.run
    if outcome.mismatch_seq:
        return Verdict.UNLIKE
    if outcome.continues_past_end:
        return Verdict.BEYOND
    if replayed_run.stop is None or replayed_run.ended_at is None:
        return Verdict.OPEN
    if (
        recorded.stop is None
        or recorded.ended_at is None
        or replayed_run.ended_at < recorded.ended_at
    ):
        return Verdict.SOONER
    if replayed_run.ledger.steps < recorded.ledger.steps:
        return Verdict.SOONER
    is_same = (replayed_run.stop.rule, replayed_run.terminal_status) == (
        recorded.stop.rule,
        recorded.terminal_status,
    )
    return Verdict.SAME if is_same else Verdict.OTHERWISE


def _ending(run: Run) -> ReplayEnding | None:
    stop = stop_view(run.stop)
    if stop is None or run.terminal_status is None or run.ended_at is None:
        return None
    return ReplayEnding(
        terminal_status=run.terminal_status.value,
        step=run.ledger.steps,
        at=run.ended_at,
        stop=stop,
    )


def _savings(recorded: Run, replayed_run: Run, last_at: datetime) -> Savings:
    assert replayed_run.ended_at is not None, "it was stopped"
    return Savings(
        steps=recorded.ledger.steps - replayed_run.ledger.steps,
        tokens=recorded.ledger.tokens - replayed_run.ledger.tokens,
        cost=float(recorded.ledger.cost - replayed_run.ledger.cost),
        seconds=(last_at - replayed_run.ended_at).total_seconds(),
    )


def _rule_and_status(run: Run) -> str:
    return f"{run.stop.rule} ({run.terminal_status})" if run.stop is not None else "nothing"


def _describe_same(recorded: Run, outcome: ReplayOutcome) -> str:
    return f"ends as recorded, by {_rule_and_status(recorded)} at step {recorded.ledger.steps}"


def _describe_sooner(recorded: Run, outcome: ReplayOutcome) -> str:
    replayed_run = outcome.run
    step_text = f"step {replayed_run.ledger.steps} of {recorded.ledger.steps}"
    reason = replayed_run.stop.reason if replayed_run.stop is not None else ""
    prefix = "a good run is cut: " if is_cut(recorded, outcome) else ""
    return f"{prefix}{_rule_and_status(replayed_run)} stops it at {step_text}: {reason}"


def _describe_otherwise(recorded: Run, outcome: ReplayOutcome) -> str:
    prefix = "a good run is cut: " if is_cut(recorded, outcome) else ""
    step = recorded.ledger.steps
    return (
        f"{prefix}{_rule_and_status(outcome.run)} ends it at step {step}, instead of "
        f"{_rule_and_status(recorded)}"
    )


def _describe_beyond(recorded: Run, outcome: ReplayOutcome) -> str:
    step = outcome.run.ledger.steps
    if step < recorded.ledger.steps:
        return f"goes another way after step {step}: there is no recording of that"
    step = recorded.ledger.steps
    description = f"goes on past its recorded stop, {_rule_and_status(recorded)} at step {step}"
    return f"{description}; there is no recording beyond step {step}"


def _describe_open(recorded: Run, outcome: ReplayOutcome) -> str:
    return (
        f"is still {recorded.status} at step {recorded.ledger.steps}, and these rules do not "
        "stop it"
    )


def _describe_unlike(recorded: Run, outcome: ReplayOutcome) -> str:
    definition_text = f"version {recorded.version} of '{recorded.definition_id}'"
    description = (
        f"cannot be replayed: event {outcome.mismatch_seq} does not follow from {definition_text}"
    )
    return f"{description}; it may have been recorded by another version of Handrail"


DESCRIPTIONS = {
    Verdict.SAME: _describe_same,
    Verdict.SOONER: _describe_sooner,
    Verdict.OTHERWISE: _describe_otherwise,
    Verdict.BEYOND: _describe_beyond,
    Verdict.OPEN: _describe_open,
    Verdict.UNLIKE: _describe_unlike,
}
