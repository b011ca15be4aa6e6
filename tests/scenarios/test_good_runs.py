"""The corpus of good runs: none is stopped by the defaults, and each is if its progress is taken.

The runs are data (`tests/corpus/runs`), made by `python -m tests.corpus.record`.
"""

from collections import defaultdict
from datetime import timedelta
from itertools import cycle
from typing import Any

import msgspec
import pytest
from tests.corpus.record import GOOD, Recorded, read, record, written
from tests.kernel.driven_run import NOON, plan_of

from handrail.kernel.definition.limits import STRICT
from handrail.kernel.result import Evidence, Outcome, Result
from handrail.kernel.run import commands as c
from handrail.kernel.run.clocks import next_due
from handrail.kernel.run.decide import decide_and_apply
from handrail.kernel.run.events import Reported, Started
from handrail.kernel.run.state import PositionPhase, Run
from handrail.kernel.run.workflow import ADVANCEABLE_PHASES
from handrail.replay.replay_report import Verdict, replay_report
from handrail.replay.rule_overrides import read_overrides

NAMES = sorted(GOOD)
COMMANDS_MAX = 2_000
LOOPS = {
    *("research_exhausted", "same_error", "no_change", "oscillation", "repeated_pattern"),
    "max_edge",
}
ROUND_AND_ROUND = ("refactoring", "polling", "research", "shrinking", "growing", "flaky")
"""Runs that are saved from being a loop by their progress alone."""


def rules(document: object) -> Any:
    given, problems = read_overrides(document)
    assert not problems
    return given


def test_the_corpus_is_what_its_script_makes():
    for name in NAMES:
        assert written(read(name)) == written(record(GOOD[name]())), name


@pytest.mark.requirement("S16")
def test_there_are_enough_runs_under_the_defaults_and_all_are_good():
    assert len(NAMES) >= 30
    for name in NAMES:
        run = read(name)
        first = run.events[0]
        assert isinstance(first, Started)
        assert "stop_rules" not in run.definition
        assert first.kind == "workflow" or first.limits == STRICT


@pytest.mark.requirement("S16")
@pytest.mark.parametrize("name", NAMES)
def test_no_good_run_is_stopped_by_the_defaults(name: str):
    run = read(name)
    plan = plan_of(run.definition)
    for given in (None, rules("strict")):
        found = replay_report(run.events, lambda _id, _version: plan, given)
        assert (found.verdict, found.cut) == (Verdict.SAME, False), found.told
        assert found.recorded is not None
        assert found.recorded.terminal_status == "done_success"
        assert found.replayed == found.recorded


class Stuck:
    """The same agents with the same answers, again and again, but what they show is always the
    same, nobody ends the run, and no person comes."""

    def __init__(self, recorded: Recorded) -> None:
        self.plan, self.now = plan_of(recorded.definition), NOON
        said: dict[str, list[Result]] = defaultdict(list)
        shown: dict[str, Evidence] = {}
        for event in recorded.events:
            if isinstance(event, Reported):
                evidence = shown.setdefault(event.step_id, event.result.evidence)
                said[event.step_id].append(msgspec.structs.replace(event.result, evidence=evidence))
        self.answers = {place: cycle(self._stuck(results)) for place, results in said.items()}
        self.run: Run | None = None
        start = recorded.events[0]
        assert isinstance(start, Started)
        self.do(c.Start(run_id="run", bead_id="bead", title=start.title, paths=start.paths))

    def _stuck(self, results: list[Result]) -> list[Result]:
        if self.plan.kind == "workflow":
            failed = {"outcome": Outcome.FAILURE, "reason": "not yet"}
            return [msgspec.structs.replace(one, **failed) for one in results]
        handing = [one for one in results if one.outcome is Outcome.HANDOFF]
        return handing or [Result(text="I am on it")]

    def do(self, command: c.RunCommand) -> None:
        _, self.run = decide_and_apply(self.plan, self.run, command, self.now)

    def play(self) -> Run:
        assert self.run is not None
        for _ in range(COMMANDS_MAX):
            if self.run.has_ended:
                return self.run
            self.do(self._next(self.run))
        raise AssertionError("it does not end")

    def _next(self, run: Run) -> c.RunCommand:
        for token in run.positions.values():
            if token.phase is PositionPhase.CLAIMED:
                self.now += timedelta(seconds=1)
                result = next(self.answers[token.step_id])
                return c.Report(fence=token.fence, agent=token.agent, result=result)
            if token.phase is PositionPhase.OFFERED:
                agent = f"agent {run.fence % 2}"
                return c.Claim(fence=token.fence, agent=agent, roles=(token.role,))
            if token.phase in ADVANCEABLE_PHASES:
                return c.GrantLock(step_id=token.step_id, lock=run.fence + 1)
        due = next_due(self.plan, run)
        assert due is not None, "every wait has its end"
        self.now = due
        return c.Tick()


@pytest.mark.requirement("S15", "S16")
@pytest.mark.parametrize("name", NAMES)
def test_the_same_run_without_progress_is_stopped(name: str):
    recorded = read(name)
    ended = Stuck(recorded).play()
    assert ended.terminal_status == "aborted_stuck"
    assert ended.stop is not None
    if name.startswith(ROUND_AND_ROUND):
        assert ended.stop.rule in LOOPS, ended.stop
