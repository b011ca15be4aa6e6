"""Tuning: limits proposed from how runs really went, with what each would have cost and saved.

Theory of operation. Every run of the history is replayed (`replay.py`) under the limits in force
with one of them changed, for each value of a grid. A good run (`done_success`) that would have been
stopped is a false stop. The steps of an aborted run after its last progress are its waste. Of the
values that cut no more than the allowed share of the good runs the one with the least waste is
proposed; the limit in force stays unless another wastes less. At the end all proposals are replayed
together, for they may do together what none does alone.

What a looser limit would have brought nobody knows: nothing is recorded beyond a stop. So limits
are proposed tighter, and looser only where the limit in force cuts good runs of this history; how
many stopped runs a limit would have let go on is told. A rule that is off stays off, but for the
budgets, where runs told what they used.

A value that a run never reached cannot stop it: `_reach` saves replaying most of the grid.
"""

import math
from collections.abc import Sequence

from handrail.kernel.decision import Value
from handrail.kernel.definition import TerminalStatus
from handrail.kernel.limits import SCOPES, Limits
from handrail.kernel.other_rules import FIELDS as RULE_FIELDS
from handrail.kernel.plan import Plan
from handrail.kernel.replay import Plans, Walked, walk
from handrail.kernel.replayed import GOOD, is_cut
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
from handrail.kernel.shown import Shown

LEAST = 10
"""So many good runs have to have ended before anything is proposed."""
CONFIDENCE = 0.95
FEW = (1, 2, 3, 4, 5, 6, 8, 10)
MANY = (5, 8, 10, 12, 15, 20, 25, 30, 40, 50, 75, 100, 150, 200, 300, 500, 1_000)
SECONDS = (30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 14_400, 28_800, 86_400)
TOKENS = tuple(n * 10**e for e in range(2, 9) for n in (1, 2, 5))
COST = tuple(n / 10_000 for n in TOKENS)
GRID: dict[str, tuple[int | float, ...]] = {
    "max_handoffs": MANY,
    "max_steps": MANY,
    "max_duration": SECONDS,
    "max_edge": FEW,
    "repeat_limit": FEW[1:],
    "same_error_limit": FEW,
    "no_change_limit": FEW,
    "research_limit": FEW,
    "oscillation_limit": FEW,
    "protocol_error_limit": FEW,
    "max_tokens": TOKENS,
    "max_cost": COST,
}
"""What is tried, besides the limit in force."""
FIELDS = tuple(name for name in RULE_FIELDS if name != "profile")
BUDGETS = ("max_tokens", "max_cost")
ABORTED = (TerminalStatus.ABORTED_STUCK, TerminalStatus.ABORTED_CONSTRAINT)


class Tried(Shown):
    """What a limit would have done: good runs cut, steps wasted in aborted ones, runs let go on."""

    value: int | float | None
    cut: int
    wasted: int
    beyond: int


class Proposal(Shown):
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
    tried: tuple[Tried, ...]


class Tuning(Shown):
    """`rules` are the limits that change, as a definition's `stop_rules` has them; `together` says
    what all of them do at once."""

    workflow_id: str
    workflow_version: int
    runs: int
    good: int
    aborted: int
    aborted_steps: int
    share: float
    told: str
    rules: dict[str, int | float | None]
    together: Tried | None
    proposals: tuple[Proposal, ...]


class _Ended(Value):
    """A run that has ended, and how much of each limit it can have used."""

    recording: Sequence[RunEvent]
    run: Run
    reach: dict[str, float]


def tune(
    plan: Plan,
    workflow_id: str,
    version: int,
    recordings: Sequence[Sequence[RunEvent]],
    plans: Plans,
    share: float = 0.0,
) -> Tuning:
    """Limits for this plan, from recordings of ended runs of any version of its definition."""
    trial = _Trial(plan.limits, [_ended(one) for one in recordings], plans)
    proposals: tuple[Proposal, ...] = ()
    if trial.good >= LEAST and trial.aborted:
        names = [name for name in GRID if trial.concerns(name)]
        proposals = tuple(_propose(trial, name, share) for name in names)
    rules, together = _combine(trial, proposals, share)
    return Tuning(
        workflow_id=workflow_id,
        workflow_version=version,
        runs=len(trial.history),
        good=trial.good,
        aborted=len(trial.aborted),
        aborted_steps=sum(run.ledger.steps for run in trial.aborted),
        share=share,
        told=_told(trial, rules, together),
        rules=rules,
        together=together,
        proposals=proposals,
    )


def _ended(recording: Sequence[RunEvent]) -> _Ended:
    run = replay_events(recording)
    return _Ended(recording=recording, run=run, reach=_reach(recording, run))


def _reach(recording: Sequence[RunEvent], run: Run) -> dict[str, float]:
    """More than this of a limit the run cannot have used, whatever counted as progress."""
    results = [event.result for event in recording if isinstance(event, Reported | Faulted)]
    checks = [check for result in results for check in result.evidence.checks]
    files = sum(result.evidence.files is not None for result in results)
    ways = sum(len(event.targets) for event in recording if isinstance(event, Moved))
    ways += sum(isinstance(event, HandedOff) for event in recording)
    return {
        "max_handoffs": ways,
        "max_steps": run.ledger.steps * max(1.0, 1 / min(SCOPES.values())),
        "max_duration": (recording[-1].at - run.started_at).total_seconds(),
        "max_edge": ways,
        "repeat_limit": ways,
        "same_error_limit": sum(check.exit_code != 0 for check in checks),
        "no_change_limit": files,
        "research_limit": sum(result.evidence.score is not None for result in results),
        "oscillation_limit": files,
        "protocol_error_limit": sum(
            isinstance(one, Faulted | Lost | TimedOut) for one in recording
        ),
        "max_tokens": run.ledger.tokens,
        "max_cost": run.ledger.cost,
    }


class _Trial:
    """The history under the limits in force, and under others."""

    def __init__(self, limits: Limits, history: list[_Ended], plans: Plans) -> None:
        self.limits, self.history, self.plans = limits, history, plans
        self.base = {name: getattr(limits, name) for name in FIELDS}
        self.good = sum(one.run.terminal_status is GOOD for one in history)
        self.aborted = [one.run for one in history if one.run.terminal_status in ABORTED]
        self.now = [walk(one.recording, plans, self.base) for one in history]

    def concerns(self, name: str) -> bool:
        """Whether the rule is on, or a budget of which something was used."""
        used = name in BUDGETS and any(one.reach[name] for one in self.history)
        return used or self.base[name] is not None

    def tried(self, changes: dict[str, int | float | None]) -> Tried:
        """The whole history under the limits in force with these changes."""
        cut = wasted = beyond = 0
        for one, now in zip(self.history, self.now, strict=True):
            walked = self._walked(one, now, changes)
            cut += is_cut(one.run, walked)
            beyond += walked.beyond
            wasted += _wasted(one.run, walked)
        value = next(iter(changes.values()), None)
        return Tried(value=value, cut=cut, wasted=wasted, beyond=beyond)

    def _walked(self, one: _Ended, now: Walked, changes: dict[str, int | float | None]) -> Walked:
        moved = {
            name: value
            for name, value in changes.items()
            if min(_high(value), _high(self.base[name])) <= one.reach[name]
        }
        return walk(one.recording, self.plans, {**self.base, **moved}) if moved else now


def _high(limit: float | None) -> float:
    return math.inf if limit is None else limit


def _wasted(run: Run, walked: Walked) -> int:
    """Steps after the last progress, if the run was aborted."""
    if run.terminal_status not in ABORTED:
        return 0
    ledger = walked.run.ledger
    return ledger.steps - ledger.last_progress_step


def _propose(trial: _Trial, name: str, share: float) -> Proposal:
    """The value with the least waste that cuts few enough; at equal waste the one in force, else
    the loosest."""
    now = trial.base[name]
    values = sorted({*GRID[name], _high(now)} - {math.inf})
    tried = [trial.tried({name: value}) for value in values]
    tried += [trial.tried({name: None})] if now is None else []
    held = next(one for one in tried if one.value == now)
    allowed = [one for one in tried if one.cut <= share * trial.good]
    best = min(
        allowed or [held],
        key=lambda one: (one.wasted, one is not held, -_high(one.value)),
    )
    return Proposal(
        limit=name,
        now=now,
        proposed=best.value,
        cut=best.cut,
        cut_at_most=at_most(best.cut, trial.good),
        wasted_now=held.wasted,
        wasted=best.wasted,
        why=_why(held, best, tried, share * trial.good),
        tried=tuple(tried),
    )


def _why(held: Tried, best: Tried, tried: list[Tried], allowed: float) -> str:
    if best.wasted > held.wasted:
        return f"the limit in force cuts {_count(held.cut, 'good run')} of this history"
    if best is not held:
        saved = _count(held.wasted - best.wasted, "wasted step")
        return f"saves {saved}, cuts {_count(best.cut, 'good run')}"
    tempting = [one for one in tried if one.wasted < held.wasted and one.cut > allowed]
    if tempting:
        loosest = max(tempting, key=lambda one: _high(one.value))
        saved, cut = _count(held.wasted - loosest.wasted, "step"), _count(loosest.cut, "good run")
        return f"{loosest.value:g} would save {saved}, but cut {cut}"
    return "no other limit saves a step"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")


def _combine(
    trial: _Trial, proposals: Sequence[Proposal], share: float
) -> tuple[dict[str, int | float | None], Tried | None]:
    """Those that save most first; each only if it saves something beside the others, and if all of
    them together still cut few enough."""
    rules: dict[str, int | float | None] = {}
    together: Tried | None = None
    changed = [one for one in proposals if one.proposed != one.now]
    for one in sorted(changed, key=lambda one: one.wasted):
        more = {**rules, one.limit: one.proposed}
        found = trial.tried(more)
        if found.cut <= share * trial.good and (together is None or found.wasted < together.wasted):
            rules, together = more, found
    return rules, together


def at_most(cut: int, good: int) -> float:
    """The largest true share with which so few of so many would be cut in 5 of 100 cases."""
    if good == 0 or cut >= good:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(40):  # halves the rest each time
        p = (low + high) / 2
        chance = sum(math.comb(good, k) * p**k * (1 - p) ** (good - k) for k in range(cut + 1))
        low, high = (p, high) if chance > 1 - CONFIDENCE else (low, p)
    return round(high, 4)


def _told(trial: _Trial, rules: dict[str, int | float | None], together: Tried | None) -> str:
    good, aborted = trial.good, len(trial.aborted)
    of = f"{_count(len(trial.history), 'ended run')}, {good} good, {aborted} aborted"
    if good < LEAST:
        return f"the history is too small: {of}; it takes {LEAST} good ones"
    if not aborted:
        return f"nothing is to be saved: {of}"
    if together is None:
        return f"the limits are right as they are: {of}; no tighter one saves a step and cuts none"
    wasted = sum(_wasted(one.run, now) for one, now in zip(trial.history, trial.now, strict=True))
    changes, cut = _count(len(rules), "limit"), _count(together.cut, "good run")
    saved = f"{wasted - together.wasted} of {_count(wasted, 'wasted step')}"
    return f"{of}: changing {changes} saves {saved} and cuts {cut}"
