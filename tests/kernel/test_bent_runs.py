"""The promises of `test_run_properties` hold where the way of a run is bent, too: by nudges,
redirects, waits, conclusions, and the question whether it goes on.

Few random acts in a row lead there. Here agents keep to one target each, meet one failure and wait
a lot, and people let runs go on. Of the 2,000 definitions, 20,000 in the long form, at least three
in ten may bend a run in each manner; each happens in every hundred.
"""

import os
from collections import Counter
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace
from tests.kernel.adversary import Play, happenings
from tests.kernel.driven_run import ANA, red
from tests.kernel.test_exhaustive import BENDS, bends
from tests.kernel.test_run_properties import RunPromises

from handrail.kernel.result import Outcome, Result
from handrail.kernel.run import commands as c
from handrail.kernel.run.events import RunEvent, Started
from handrail.kernel.run.state import Position

CHUNKS = 200 if os.environ.get("HANDRAIL_LONG") else 20
HUNDRED = 100
ACTS_MAX = 60
TEMPERS = ((0.0, 0.05), (0.4, 0.1), (0.05, 0.5))
"""How often agents fail, and how often they wait: each definition is run with each."""


class BentRun(RunPromises):
    """A run whose agents repeat themselves; every decision is checked as in any other."""

    def __init__(self, rng: Random, fails: float, waits: float) -> None:
        super().__init__()
        self.rng, self.fails, self.waits = rng, fails, waits
        self.happened: set[str] = set()

    def _invariants(self, events: tuple[RunEvent, ...]) -> None:
        super()._invariants(events)
        self.happened |= happenings(Play((), self.run, events))

    def live(self) -> None:
        for _ in range(ACTS_MAX):
            positions = list(self.run.positions.values())
            if self.run.has_ended or not positions:
                break
            position = self.rng.choice(positions)
            match position.phase:
                case "asked":
                    decision = "approve" if self.rng.random() < 0.8 else "reject"
                    command = c.Answer(
                        approval_id=position.approval_id, by=ANA, text="ok", decision=decision
                    )
                    self._take(command)
                case "offered":
                    self._work(position)
                case _:
                    self._take(c.GrantLock(step_id=position.step_id, lock=1))
                    self.now += timedelta(seconds=1)
                    self._take(c.Tick())

    def _work(self, position: Position) -> None:
        claim = c.Claim(fence=position.fence, agent="worker", roles=(position.role,))
        self._take(claim)
        result = self._result(position)
        if self.rng.random() < self.fails:
            result = replace(result, evidence=red())
        self._take(c.Report(fence=position.fence, agent="worker", result=result))

    @property
    def start_id(self) -> str:
        started = self.events[0]
        assert isinstance(started, Started)
        return started.step_id

    def _result(self, position: Position) -> Result:
        draw, targets = self.rng.random(), self.plan.handoff_targets.get(position.step_id, ())
        if draw < self.waits:
            return Result(outcome=Outcome.WAITING, waits_for="it", retry_after=1)
        if draw < self.waits + 0.05:
            return Result(outcome=Outcome.ASK, question="which?")
        if self.plan.kind == "workflow":
            return Result(outcome=Outcome.SUCCESS if draw < 0.9 else Outcome.FAILURE)
        if targets:
            exhaustible = self.plan.agents[position.step_id].when_exhausted
            back = [to for to in targets if to in (*exhaustible, position.step_id, self.start_id)]
            return Result(outcome=Outcome.HANDOFF, to=(back or targets)[0], reason="on")
        return Result(outcome=Outcome.TERMINATE)


@pytest.mark.requirement("K26", "K28", "K29", "K30", "K31")
@pytest.mark.heavy
@pytest.mark.no_cover
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_the_promises_hold_where_the_way_of_a_run_is_bent(chunk: int) -> None:
    possible: Counter[str] = Counter()
    happened: Counter[str] = Counter()
    for seed in range(chunk * HUNDRED, (chunk + 1) * HUNDRED):
        rng, happened_here, possible_here = Random(seed), set[str](), set[str]()
        for fails, waits in TEMPERS:
            run = BentRun(rng, fails, waits)
            start: Any = run.start
            start(seed=seed, a_team=seed % 5 > 0)
            run.live()
            possible_here |= bends(run.plan)
            happened_here |= run.happened
        possible.update(possible_here)
        happened.update(happened_here)
    print(f"possible: {possible}, happened: {happened}")
    assert min(possible[name] for name in BENDS) >= 0.3 * HUNDRED
    assert min(happened[name] for name in BENDS) > 0
