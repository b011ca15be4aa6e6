"""Proposes limits from recorded runs, with the cost and the savings of each.

Theory of operation. Every run of the history is replayed (`replayer.py`) under the limits in force
with one of them changed, for each value of a grid. A good run (`done_success`) that would have been
stopped is a false stop. The steps of an aborted run after its last progress are its waste. Of the
values that cut no more than the allowed share of the good runs, the value with the least waste is
proposed; the limit in force stays unless another wastes less. At the end all proposals are replayed
together, because they may do together what none does alone.

The effect of a looser limit is unknown: nothing is recorded beyond a stop. So proposals are
tighter, and looser only if the limit in force cuts good runs of this history; each trial reports
how many stopped runs its limit would have let go on. A rule that is off stays off, except the
budgets if runs reported their usage.

A value that a run never reached cannot stop it: `_limit_usage` saves replaying most of the grid.
"""

import math
from collections.abc import Sequence

from handrail.kernel.decision import Value
from handrail.kernel.definition.limits import LIMITS, SCOPE_FACTORS, Limits
from handrail.kernel.definition.model import TerminalStatus
from handrail.kernel.definition.plan import Plan
from handrail.kernel.run.events import (
    Faulted,
    HandedOff,
    Lost,
    Moved,
    Reported,
    RunEvent,
    TimedOut,
)
from handrail.kernel.run.evolve import replay as replay_events
from handrail.kernel.run.state import Run
from handrail.replay.replay_report import GOOD_STATUS, is_cut
from handrail.replay.replayer import PlanLookup, ReplayOutcome, replay_recording
from handrail.replay.rule_overrides import RULE_FIELDS as RULE_FIELDS
from handrail.views.view_types import View

TUNING_RUNS_DEFAULT, TUNING_RUNS_MAX = 100, 500
"""Ended runs, the newest, from which limits are proposed."""
GOOD_RUNS_MIN = 10
"""Good runs needed before anything is proposed."""
CONFIDENCE = 0.95
LIMIT_GRID = {name: info.grid for name, info in LIMITS.items() if info.grid}
"""The values tried, besides the limit in force."""
TUNED_FIELDS = tuple(name for name in RULE_FIELDS if name != "profile")
BUDGET_FIELDS = ("max_tokens", "max_cost")
ABORTED_STATUSES = (TerminalStatus.ABORTED_STUCK, TerminalStatus.ABORTED_CONSTRAINT)


class LimitTrial(View):
    """The effect of a limit: good runs cut, steps wasted in aborted ones, runs let go on."""

    value: int | float | None
    cut: int
    wasted: int
    beyond: int


class LimitProposal(View):
    """One limit. `cut_at_most`: with such a history the true share of good runs that the proposed
    limit cuts is below this, in 95 of 100 cases."""

    limit: str
    now: int | float | None
    proposed: int | float | None
    cut: int
    cut_at_most: float
    wasted_now: int
    wasted: int
    why: str
    tried: tuple[LimitTrial, ...]


class TuningReport(View):
    """`rules` are the limits that change, in the form of a definition's `stop_rules`; `together` is
    the effect of all of them at once."""

    workflow_id: str
    workflow_version: int
    runs: int
    good: int
    aborted: int
    aborted_steps: int
    share: float
    told: str
    rules: dict[str, int | float | None]
    together: LimitTrial | None
    proposals: tuple[LimitProposal, ...]


class _EndedRun(Value):
    """A run that has ended, and the most that it can have used of each limit."""

    recording: Sequence[RunEvent]
    run: Run
    limit_usage: dict[str, float]


def tune(
    plan: Plan,
    workflow_id: str,
    version: int,
    recordings: Sequence[Sequence[RunEvent]],
    plans: PlanLookup,
    share: float = 0.0,
) -> TuningReport:
    """Propose limits for a plan from recordings of ended runs of any version of its definition."""
    tuner = _Tuner(plan.limits, [_ended_run(recording) for recording in recordings], plans)
    proposals: tuple[LimitProposal, ...] = ()
    if tuner.good_count >= GOOD_RUNS_MIN and tuner.aborted_runs:
        names = [name for name in LIMIT_GRID if tuner.is_tunable(name)]
        proposals = tuple(_propose(tuner, name, share) for name in names)
    rules, together = _combine(tuner, proposals, share)
    return TuningReport(
        workflow_id=workflow_id,
        workflow_version=version,
        runs=len(tuner.history),
        good=tuner.good_count,
        aborted=len(tuner.aborted_runs),
        aborted_steps=sum(run.ledger.steps for run in tuner.aborted_runs),
        share=share,
        told=_summarize(tuner, rules, together),
        rules=rules,
        together=together,
        proposals=proposals,
    )


def _ended_run(recording: Sequence[RunEvent]) -> _EndedRun:
    run = replay_events(recording)
    return _EndedRun(recording=recording, run=run, limit_usage=_limit_usage(recording, run))


def _limit_usage(recording: Sequence[RunEvent], run: Run) -> dict[str, float]:
    """Return an upper bound of the run's use of each limit, whatever counted as progress."""
    results = [event.result for event in recording if isinstance(event, Reported | Faulted)]
    checks = [check for result in results for check in result.evidence.checks]
    file_results = sum(result.evidence.files is not None for result in results)
    handoffs = sum(len(event.targets) for event in recording if isinstance(event, Moved))
    handoffs += sum(isinstance(event, HandedOff) for event in recording)
    usage = dict.fromkeys(LIMIT_GRID, float(len(recording)))  # nothing counts more than all events
    return usage | {
        "max_handoffs": handoffs,
        "max_steps": run.ledger.steps * max(1.0, 1 / min(SCOPE_FACTORS.values())),
        "max_duration": (recording[-1].at - run.started_at).total_seconds(),
        "max_edge": handoffs,
        "repeat_limit": handoffs,
        "same_error_limit": sum(check.exit_code != 0 for check in checks),
        "no_change_limit": file_results,
        "research_limit": sum(result.evidence.score is not None for result in results),
        "oscillation_limit": file_results,
        "protocol_error_limit": sum(
            isinstance(recorded_event, Faulted | Lost | TimedOut) for recorded_event in recording
        ),
        "max_tokens": run.ledger.tokens,
        "max_cost": run.ledger.cost,
    }


class _Tuner:
    """Replays the history under the limits in force, and under others."""

    def __init__(self, limits: Limits, history: list[_EndedRun], plans: PlanLookup) -> None:
        self.limits, self.history, self.plans = limits, history, plans
        self.base_rules = {name: getattr(limits, name) for name in TUNED_FIELDS}
        self.good_count = sum(ended_run.run.terminal_status is GOOD_STATUS for ended_run in history)
        self.aborted_runs = [
            ended_run.run
            for ended_run in history
            if ended_run.run.terminal_status in ABORTED_STATUSES
        ]
        self.baseline = [
            replay_recording(ended_run.recording, plans, self.base_rules) for ended_run in history
        ]

    def is_tunable(self, name: str) -> bool:
        """Whether the rule is on, or is a budget with recorded usage."""
        is_used_budget = name in BUDGET_FIELDS and any(
            ended_run.limit_usage[name] for ended_run in self.history
        )
        return is_used_budget or self.base_rules[name] is not None

    def try_limits(self, changes: dict[str, int | float | None]) -> LimitTrial:
        """Replay the whole history under the limits in force with these changes."""
        cut_count = wasted_steps = beyond_count = 0
        for ended_run, baseline in zip(self.history, self.baseline, strict=True):
            outcome = self._replay_with(ended_run, baseline, changes)
            cut_count += is_cut(ended_run.run, outcome)
            beyond_count += outcome.continues_past_end
            wasted_steps += _wasted_steps(ended_run.run, outcome)
        return LimitTrial(
            value=next(iter(changes.values()), None),
            cut=cut_count,
            wasted=wasted_steps,
            beyond=beyond_count,
        )

    def _replay_with(
        self, ended_run: _EndedRun, baseline: ReplayOutcome, changes: dict[str, int | float | None]
    ) -> ReplayOutcome:
        effective = {
            name: value
            for name, value in changes.items()
            if min(_or_infinity(value), _or_infinity(self.base_rules[name]))
            <= ended_run.limit_usage[name]
        }
        return (
            replay_recording(ended_run.recording, self.plans, {**self.base_rules, **effective})
            if effective
            else baseline
        )


def _or_infinity(limit: float | None) -> float:
    return math.inf if limit is None else limit


def _wasted_steps(run: Run, outcome: ReplayOutcome) -> int:
    """Return the steps after the last progress if the run was aborted, else 0."""
    if run.terminal_status not in ABORTED_STATUSES:
        return 0
    ledger = outcome.run.ledger
    return ledger.steps - ledger.last_progress_step


def _propose(tuner: _Tuner, name: str, share: float) -> LimitProposal:
    """Propose the value with the least waste among those that cut few enough; at equal waste the
    value in force, else the loosest."""
    current_value = tuner.base_rules[name]
    values = sorted({*LIMIT_GRID[name], _or_infinity(current_value)} - {math.inf})
    trials = [tuner.try_limits({name: value}) for value in values]
    trials += [tuner.try_limits({name: None})] if current_value is None else []
    current = next(limit_trial for limit_trial in trials if limit_trial.value == current_value)
    candidates = [
        limit_trial for limit_trial in trials if limit_trial.cut <= share * tuner.good_count
    ]
    best = min(
        candidates or [current],
        key=lambda limit_trial: (
            limit_trial.wasted,
            limit_trial is not current,
            -_or_infinity(limit_trial.value),
        ),
    )
    return LimitProposal(
        limit=name,
        now=current_value,
        proposed=best.value,
        cut=best.cut,
        cut_at_most=cut_share_upper_bound(best.cut, tuner.good_count),
        wasted_now=current.wasted,
        wasted=best.wasted,
        why=_explain_proposal(current, best, trials, share * tuner.good_count),
        tried=tuple(trials),
    )


def _explain_proposal(
    current: LimitTrial, best: LimitTrial, trials: list[LimitTrial], cut_max: float
) -> str:
    if best.wasted > current.wasted:
        return f"the limit in force cuts {_format_count(current.cut, 'good run')} of this history"
    if best is not current:
        saved = _format_count(current.wasted - best.wasted, "wasted step")
        return f"saves {saved}, cuts {_format_count(best.cut, 'good run')}"
    tempting = [
        limit_trial
        for limit_trial in trials
        if limit_trial.wasted < current.wasted and limit_trial.cut > cut_max
    ]
    if tempting:
        loosest = max(tempting, key=lambda limit_trial: _or_infinity(limit_trial.value))
        saved, cut = (
            _format_count(current.wasted - loosest.wasted, "step"),
            _format_count(loosest.cut, "good run"),
        )
        return f"{loosest.value:g} would save {saved}, but cut {cut}"
    return "no other limit saves a step"


def _format_count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _combine(
    tuner: _Tuner, proposals: Sequence[LimitProposal], share: float
) -> tuple[dict[str, int | float | None], LimitTrial | None]:
    """Combine proposals, the largest savings first; take each only if it adds savings and all of
    them together still cut few enough."""
    rules: dict[str, int | float | None] = {}
    together: LimitTrial | None = None
    changed = [proposal for proposal in proposals if proposal.proposed != proposal.now]
    for proposal in sorted(changed, key=lambda proposal: proposal.wasted):
        candidate = {**rules, proposal.limit: proposal.proposed}
        limit_trial = tuner.try_limits(candidate)
        if limit_trial.cut <= share * tuner.good_count and (
            together is None or limit_trial.wasted < together.wasted
        ):
            rules, together = candidate, limit_trial
    return rules, together


def cut_share_upper_bound(cut: int, good: int) -> float:
    """Return the true share at which so few of so many would be cut in only 5 of 100 cases."""
    if good == 0 or cut >= good:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(40):  # bisection
        share = (low + high) / 2
        chance = sum(
            math.comb(good, k) * share**k * (1 - share) ** (good - k) for k in range(cut + 1)
        )
        low, high = (share, high) if chance > 1 - CONFIDENCE else (low, share)
    return round(high, 4)


def _summarize(
    tuner: _Tuner, rules: dict[str, int | float | None], together: LimitTrial | None
) -> str:
    good, aborted = tuner.good_count, len(tuner.aborted_runs)
    history_text = (
        f"{_format_count(len(tuner.history), 'ended run')}, {good} good, {aborted} aborted"
    )
    if good < GOOD_RUNS_MIN:
        return f"the history is too small: {history_text}; it takes {GOOD_RUNS_MIN} good ones"
    if not aborted:
        return f"nothing is to be saved: {history_text}"
    if together is None:
        return (
            f"the limits are right as they are: {history_text}; no tighter one saves a step "
            "and cuts none"
        )
    wasted = sum(
        _wasted_steps(ended_run.run, baseline)
        for ended_run, baseline in zip(tuner.history, tuner.baseline, strict=True)
    )
    changes, cut = _format_count(len(rules), "limit"), _format_count(together.cut, "good run")
    saved = f"{wasted - together.wasted} of {_format_count(wasted, 'wasted step')}"
    return f"{history_text}: changing {changes} saves {saved} and cuts {cut}"
