"""Proposes tighter limits from runs that other programs recorded.

Theory of operation. Every trace is judged under the limits in force, and with one of them tighter,
for each tighter value of a grid. A value is chosen if it cuts no more good runs than the limits in
force do, *nor does the next tighter value*, and saves the most steps of failed runs. The margin of
one value is the price of choosing: what just about spares every run that was looked at cuts one
that was not.

What is chosen on a run says nothing about that run. So the same choice is made five times without
a fifth of the runs, and measured on that fifth. Only if the sum of the five cuts no more good runs
than the limits in force, and saves more, is anything proposed.

Rules count alike whatever their limits are, so a run under several tighter limits ends where the
first of them ends it.
"""

from collections.abc import Iterable, Sequence
from hashlib import blake2b

from msgspec.structs import replace

from handrail.kernel.decision import Value
from handrail.kernel.definition.limits import LIMITS, Limits
from handrail.replay.trace_judgement import TraceJudge
from handrail.replay.traces.model import Trace
from handrail.replay.tuning import GOOD_RUNS_MIN
from handrail.views.view_types import View

FOLDS = 5
TUNED_LIMITS = (
    "max_handoffs",
    "max_steps",
    "max_edge",
    "repeat_limit",
    "same_error_limit",
    "no_change_limit",
    "oscillation_limit",
    "monologue_limit",
)
"""The limits that a trace can reach; it has no scores and no costs."""
CLAIM_LIMITS = tuple(name for name in TUNED_LIMITS if name != "same_error_limit")
"""Where claims are judged, that limit also says what counts as progress."""

Change = tuple[str, int | float]


class TraceFigures(View):
    """Good runs cut, failed runs caught, and steps of failed runs that would not have been made."""

    cut: int = 0
    caught: int = 0
    steps_saved: int = 0


class TraceLimitProposal(View):
    """One limit: what it is, what was chosen instead, and what that alone does."""

    limit: str
    now: int | float
    proposed: int | float
    figures: TraceFigures


class TraceTuningReport(View):
    """`rules` are the limits that change, in the form of `stop_rules`, empty if nothing is
    proposed. `now` and `proposed` are figures on all runs; `unseen` are those of the same way of
    choosing on runs that it had not seen.
    """

    profile: str
    view: str
    good: int
    failed: int
    steps_failed: int
    summary: str
    rules: dict[str, int | float]
    now: TraceFigures
    proposed: TraceFigures
    unseen: TraceFigures
    proposals: tuple[TraceLimitProposal, ...]


class _Outcome(Value):
    """Where a run ends under the limits in force, and with each change."""

    success: bool
    steps: int
    fold: int
    end: int
    ends: dict[Change, int]

    def end_with(self, changes: Iterable[Change]) -> int:
        return min((self.ends[change] for change in changes), default=self.end)


def tune_traces(traces: Iterable[Trace], limits: Limits, view: str) -> TraceTuningReport:
    """Propose tighter limits; runs that nobody judged are left out."""
    changes = _changes(limits)
    outcomes = [_outcome(trace, limits, changes) for trace in traces if trace.success is not None]
    good = sum(outcome.success for outcome in outcomes)
    failed, now = len(outcomes) - good, _measure(outcomes, ())
    chosen: tuple[Change, ...] = ()
    unseen = now
    if good >= GOOD_RUNS_MIN and failed:
        chosen, unseen = _choose(outcomes, changes), _measure_unseen(outcomes, changes)
    is_better = unseen.cut <= now.cut and unseen.steps_saved > now.steps_saved
    proposed = _measure(outcomes, chosen)
    return TraceTuningReport(
        profile=limits.profile,
        view=view,
        good=good,
        failed=failed,
        steps_failed=sum(outcome.steps for outcome in outcomes if not outcome.success),
        summary=_summarize(good, failed, now, unseen, chosen),
        rules=dict(chosen) if is_better else {},
        now=now,
        proposed=proposed if is_better else now,
        unseen=unseen,
        proposals=tuple(
            TraceLimitProposal(
                limit=name,
                now=getattr(limits, name),
                proposed=value,
                figures=_measure(outcomes, ((name, value),)),
            )
            for name, value in chosen
        ),
    )


def _changes(limits: Limits) -> list[Change]:
    """Return the tighter values of every limit in force, the tightest first."""
    names = TUNED_LIMITS if limits.judges_findings else CLAIM_LIMITS
    return [
        (name, value)
        for name in names
        if (current := getattr(limits, name)) is not None
        for value in LIMITS[name].grid
        if value < current
    ]


def _outcome(trace: Trace, limits: Limits, changes: Sequence[Change]) -> _Outcome:
    place = blake2b(f"{trace.dataset}\n{trace.id}".encode(errors="replace"), digest_size=8)
    end, ends = _find_ends(trace, limits, changes)
    return _Outcome(
        success=bool(trace.success),
        steps=len(trace.steps),
        fold=int.from_bytes(place.digest()) % FOLDS,
        end=end,
        ends=ends,
    )


def _find_ends(
    trace: Trace, limits: Limits, changes: Sequence[Change]
) -> tuple[int, dict[Change, int]]:
    """Return where the trace ends under the limits in force, and with each change. It is read once,
    and the rules are asked at each step."""
    judge, steps = TraceJudge(limits), len(trace.steps)
    waiting = {change: replace(limits, **dict((change,))) for change in changes}
    ends: dict[Change, int] = {}
    for number, step in enumerate(trace.steps[:-1], 1):
        has_fired = bool(judge.judge(step))
        fired = [change for change in waiting if has_fired or judge.judge_under(waiting[change])]
        for change in fired:
            ends[change] = number
            del waiting[change]
        if has_fired:
            return number, ends
    return steps, ends | dict.fromkeys(waiting, steps)


def _measure(outcomes: Iterable[_Outcome], changes: Sequence[Change]) -> TraceFigures:
    cut = caught = steps_saved = 0
    for outcome in outcomes:
        saved = outcome.steps - outcome.end_with(changes)
        if outcome.success:
            cut += saved > 0
        else:
            caught += saved > 0
            steps_saved += saved
    return TraceFigures(cut=cut, caught=caught, steps_saved=steps_saved)


def _measure_unseen(outcomes: Sequence[_Outcome], changes: Sequence[Change]) -> TraceFigures:
    """Return the sum over the folds, each measured with what was chosen without it."""
    parts: list[TraceFigures] = []
    for fold in range(FOLDS):
        rest = [outcome for outcome in outcomes if outcome.fold != fold]
        fold_runs = [outcome for outcome in outcomes if outcome.fold == fold]
        parts.append(_measure(fold_runs, _choose(rest, changes)))
    return TraceFigures(
        cut=sum(part.cut for part in parts),
        caught=sum(part.caught for part in parts),
        steps_saved=sum(part.steps_saved for part in parts),
    )


def _choose(outcomes: Sequence[_Outcome], changes: Sequence[Change]) -> tuple[Change, ...]:
    """Return the changes that save the most together and cut no more, each with its margin."""
    best, chosen = _measure(outcomes, ()), ()
    cut_max = best.cut
    for name in TUNED_LIMITS:
        values = [change for change in changes if change[0] == name]
        trials = [_measure(outcomes, (*chosen, change)) for change in values]
        safe = [
            (trial, change)
            for tighter, trial, change in zip(trials, trials[1:], values[1:], strict=False)
            if max(tighter.cut, trial.cut) <= cut_max and trial.steps_saved > best.steps_saved
        ]
        if safe:
            best, change = max(safe, key=lambda entry: (entry[0].steps_saved, entry[1][1]))
            chosen = (*chosen, change)
    return chosen


def _summarize(
    good: int, failed: int, now: TraceFigures, unseen: TraceFigures, chosen: Sequence[Change]
) -> str:
    history = f"{good} good and {failed} failed runs"
    if good < GOOD_RUNS_MIN or not failed:
        return (
            f"nothing is proposed: {history}, of which nothing can be learned; it takes "
            f"{GOOD_RUNS_MIN} good ones and a failed one"
        )
    if not chosen:
        return (
            f"nothing is proposed: {history}; no tighter limit saves a step, cuts no good run "
            "more, and leaves a margin"
        )
    on_unseen = (
        f"on runs that it had not seen the choice cuts {unseen.cut} good runs (now {now.cut}) and "
        f"saves {unseen.steps_saved} steps (now {now.steps_saved})"
    )
    if unseen.cut > now.cut or unseen.steps_saved <= now.steps_saved:
        return f"nothing is proposed: {history}; {on_unseen}"
    return f"{history}: {on_unseen}"
