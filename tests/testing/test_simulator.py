"""The simulator: what it finds, that it finds the same again, and that it would find more.

The auditor is only worth something if a broken kernel is caught. Each sabotage below breaks one
thing on purpose; the simulator must notice within a few hundred seeds, and say what.
"""

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from handrail.kernel.definition.plan import Plan, check_definition
from handrail.kernel.run import clocks, human_commands, team, workflow
from handrail.kernel.run import commands as c
from handrail.kernel.run import decide as decide_module
from handrail.kernel.run import evolve as evolve_module
from handrail.kernel.run.decide import RunDecision
from handrail.kernel.run.events import Offered, Reported, Warned
from handrail.kernel.run.state import Run
from handrail.testing import invariants, simulator, world
from handrail.testing.clock import NOON
from handrail.testing.invariants import InvariantChecker, encode
from handrail.testing.seed_options import SeedOptions, describe_seed, draw_options
from handrail.testing.simulator import history, run_seed, run_seeds

ROOT = Path(__file__).resolve().parents[2]
SABOTAGE_SEEDS = 400
Patch = Callable[[pytest.MonkeyPatch], None]


def fingerprint(seeds: range) -> str:
    histories = b"".join(encode(event) for seed in seeds for event in history(seed))
    return hashlib.sha256(histories).hexdigest()


@pytest.mark.requirement("S15")
def test_two_hundred_seeds_end():
    summary = run_seeds(1_000_000, 200, processes=1)
    assert summary.all_ended, summary.table()
    assert summary.seeds == 200 == sum(summary.rules.values()) == sum(summary.statuses.values())


def test_the_same_seed_gives_the_same_history_byte_for_byte():
    assert fingerprint(range(40)) == fingerprint(range(40))


def test_a_history_does_not_depend_on_the_process_that_plays_it():
    code = "from tests.testing.test_simulator import fingerprint; print(fingerprint(range(25)))"
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout.strip()
        for hash_seed in ("1", "2")
    }
    assert found == {fingerprint(range(25))}


def test_every_option_that_a_seed_draws_can_be_printed():
    for seed in range(30):
        told = describe_seed(seed)
        assert not [name for name in SeedOptions.__struct_fields__ if f'"{name}"' not in told]
        assert draw_options(seed) == draw_options(seed)


def test_a_thousand_revisions_are_played_to_the_end():
    seed = next(s for s in count(0) if draw_options(s).revisions == 1_000)
    result = run_seed(seed)
    assert result.ended, result.failure
    assert result.stretches == 1_001


def test_a_summary_is_the_same_in_one_process_and_in_two():
    alone, both = run_seeds(50, 60, processes=1), run_seeds(50, 60, processes=2)
    assert alone.rules == both.rules
    assert alone.events == both.events
    assert alone.all_ended
    assert both.all_ended
    assert "ended: 60 of 60 (100.00%)" in alone.table()


def swap(patch: pytest.MonkeyPatch, name: str, function: Callable[..., Any]) -> None:
    """Give the simulator another function of the machine."""
    for module in (invariants, simulator, world):
        if hasattr(module, name):
            patch.setattr(module, name, function)


def measure_that_stays(patch: pytest.MonkeyPatch) -> None:
    swap(patch, "measure", lambda plan, run: 0 if run.has_ended else 100)


def anybody_may_terminate(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(team, "may_finish", lambda plan, agent: True)


def clocks_that_never_fire(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(clocks, "expire", lambda book, **rest: None)


def anybody_may_answer(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(human_commands, "check_may_answer", lambda question, by: None)


def anybody_may_report(patch: pytest.MonkeyPatch) -> None:
    def held(book: Any, fence: int, agent: str, what: str) -> Any:
        return next(iter(book.run.positions.values()))

    patch.setattr(decide_module, "_require_holder", held)


def retries_without_end(patch: pytest.MonkeyPatch) -> None:
    again = {workflow.AttemptEnding.AGAIN: (lambda book, token, why: True,)}
    patch.setattr(workflow, "ROUTES", workflow.ROUTES | again)


def fences_that_repeat(patch: pytest.MonkeyPatch) -> None:
    offered = evolve_module.APPLY[Offered]
    patch.setitem(
        evolve_module.APPLY,
        Offered,
        lambda run, event: replace(offered(run, event), fence=0),
    )


def pauses_without_deadline(patch: pytest.MonkeyPatch) -> None:
    due = clocks.next_due
    swap(patch, "next_due", lambda plan, run: None if run.paused_at else due(plan, run))


def a_certificate_that_is_too_low(patch: pytest.MonkeyPatch) -> None:
    bound = Plan.bound

    def low(self: Plan, scope: object = None) -> Any:
        found = bound(self, scope)
        return replace(found, dispatches=found.dispatches // 2)

    patch.setattr(Plan, "bound", low)


def evolve_that_counts_on_its_own(patch: pytest.MonkeyPatch) -> None:
    reported, number = evolve_module.APPLY[Reported], count()
    patch.setitem(
        evolve_module.APPLY,
        Reported,
        lambda run, event: replace(reported(run, event), phase_detail=str(next(number))),
    )


def refusals_that_leave_a_trace(patch: pytest.MonkeyPatch) -> None:
    decide = decide_module.decide

    def tracing(plan: Plan, run: Run | None, command: Any, now: Any, *budgets: Any) -> RunDecision:
        decision = decide(plan, run, command, now, *budgets)
        if decision.refusal is None or decision.events:
            return decision
        return replace(decision, events=(Warned(at=now, code="refused", message=""),))

    swap(patch, "decide", tracing)


def decide_that_writes_into_the_run(patch: pytest.MonkeyPatch) -> None:
    decide = decide_module.decide

    def writing(plan: Plan, run: Run | None, command: Any, now: Any, *budgets: Any) -> RunDecision:
        if run is not None and isinstance(command, c.Claim):
            run.context["claimed"] = True
        return decide(plan, run, command, now, *budgets)

    swap(patch, "decide", writing)


def questions_renewed_by_a_patch(patch: pytest.MonkeyPatch) -> None:
    question = human_commands.PendingApproval

    def renewed(**given: Any) -> Any:
        return question(**{**given, "deadline": given["deadline"] + timedelta(days=7)})

    patch.setattr(human_commands, "PendingApproval", renewed)


def an_end_that_can_be_ended_again(patch: pytest.MonkeyPatch) -> None:
    decide = decide_module.decide

    def ending(plan: Plan, run: Run | None, command: Any, now: Any, *budgets: Any) -> RunDecision:
        decision = decide(plan, run, command, now, *budgets)
        return replace(decision, refusal=None) if run is not None and run.has_ended else decision

    swap(patch, "decide", ending)


@pytest.mark.parametrize(
    ("sabotage", "rule"),
    [
        (measure_that_stays, "the measure falls with"),
        (anybody_may_terminate, "only the terminator ends a team"),
        (clocks_that_never_fire, "a run that waits goes on when its time comes"),
        (anybody_may_answer, "nobody answers without the right to"),
        (anybody_may_report, "only the holder of an open dispatch answers it"),
        (retries_without_end, "attempts stay within their limit"),
        (fences_that_repeat, "fences grow over the whole run"),
        (pauses_without_deadline, "every wait has a deadline"),
        (a_certificate_that_is_too_low, "dispatches of a stretch stay within the certificate"),
        (evolve_that_counts_on_its_own, "a replayed run equals the live one"),
        (refusals_that_leave_a_trace, "a refusal changes nothing"),
        (decide_that_writes_into_the_run, "decide changes none of its arguments"),
        (questions_renewed_by_a_patch, "a question asked again keeps its deadline"),
        (an_end_that_can_be_ended_again, "an ended run refuses everything"),
    ],
)
def test_a_broken_kernel_is_caught(sabotage: Patch, rule: str, monkeypatch: pytest.MonkeyPatch):
    sabotage(monkeypatch)
    found: list[str] = []
    for seed in range(SABOTAGE_SEEDS):
        failure = run_seed(seed).failure
        if rule in failure:
            break
        found.append(failure.split("\n")[0])
    else:
        pytest.fail(f"not caught in {SABOTAGE_SEEDS} seeds: {rule}; but {sorted(set(found))[:5]}")


def test_a_failure_says_how_to_see_it_again(monkeypatch: pytest.MonkeyPatch):
    measure_that_stays(monkeypatch)
    result = run_seed(7)
    assert not result.ended
    assert result.failure.startswith("seed 7: the measure falls with")
    assert '"type":"started"' in result.failure
    assert '"definition"' in result.failure
    summary = run_seeds(7, 2, processes=1)
    assert not summary.all_ended
    assert "failing seeds: 7, 8" in summary.table()


def test_a_kernel_that_raises_is_a_finding_and_not_a_crash(monkeypatch: pytest.MonkeyPatch):
    def broken(*_: Any) -> Any:
        raise KeyError("gone")

    swap(monkeypatch, "evolve", broken)
    assert "the kernel never raises: KeyError" in run_seed(3).failure


def test_the_auditor_can_watch_a_run_of_ones_own():
    agents = [{"id": "a", "hands_off_to": []}]
    plan, _ = check_definition(
        {"kind": "team", "name": "t", "start": "a", "terminator": "a", "agents": agents}
    )
    assert plan is not None
    auditor = InvariantChecker(plan)
    auditor.apply_command(c.Start(run_id="r", bead_id="b"), NOON)
    assert auditor.run.positions["a"].phase == "offered"
    assert auditor.measure > 0
