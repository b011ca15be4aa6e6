"""A stop carries the best result whose evidence Handrail measured."""

import hashlib
import random
from typing import Any

import msgspec
import pytest
from tests.kernel.driven_run import ANA, DrivenRun, files, green, red, team

from handrail.guard import Guard
from handrail.kernel.definition.limits import StopRules
from handrail.kernel.result import Check, Evidence
from handrail.kernel.run import commands as c
from handrail.kernel.stop.best import BestResult, choose_best, seal_best
from handrail.kernel.stop.ledger import Ledger, continue_thread
from handrail.views.history import stop_view
from handrail.views.report import build_report, report_markdown
from handrail.views.stop_explanation import explain_stop

LOOP = team(
    {"coder": ["tester"], "tester": ["coder"]},
    terminator="tester",
    stop_rules={"repeat_limit": None, "max_handoffs": 8},
)


def best_of(evidence: list[Evidence], **start: Any) -> BestResult | None:
    """The tester's results, one a round, until the run is stopped."""
    run = DrivenRun(LOOP, **start)
    for number in range(9):
        if not run.run.has_ended:
            shown = evidence[number // 2] if number % 2 and number // 2 < len(evidence) else None
            run.hand("coder" if number % 2 else "tester", evidence=shown or Evidence())
    assert run.run.stop is not None
    assert run.replayed() == run.run
    return run.run.stop.best


def measured(**rest: Any) -> Evidence:
    return Evidence(measured=True, **rest)


@pytest.mark.requirement("S11")
def test_the_fewest_failures_are_best_and_of_equals_the_latest():
    failing = [measured(failures=tuple("abc"[:n])) for n in (3, 1, 1, 2)]
    best = best_of(failing)
    assert best is not None
    assert (best.step, best.agent, best.evidence) == (6, "tester", failing[2])
    digest = hashlib.sha256(msgspec.json.encode(best.evidence, order="deterministic"))
    assert best.digest == digest.hexdigest()


@pytest.mark.requirement("S11", "S13")
def test_a_green_goal_comes_before_fewer_failures_and_those_before_a_higher_score():
    goal = {"goal": {"command": "make"}}
    rounds = [
        green("make", failures=("a", "b"), score=0.1),
        red("make", failures=(), score=0.9),
        green("make", failures=("a",), score=0.2),
        green("make", failures=("a",), score=0.1),
    ]
    best = best_of(rounds, context=goal)
    assert best is not None
    assert (best.step, best.goal_met) == (6, True)
    without_goal = best_of(rounds)
    assert without_goal is not None
    assert without_goal.step == 4


@pytest.mark.requirement("S11")
def test_red_checks_are_failures_where_none_are_named():
    best = best_of([red(), green(), red()])
    assert best is not None
    assert (best.step, best.failures) == (4, 0)


@pytest.mark.requirement("S11")
def test_claims_and_results_that_show_nothing_are_not_best():
    assert best_of([Evidence(score=0.9), measured(), measured(ticket_state="x")]) is None


@pytest.mark.requirement("S11")
def test_a_new_stretch_keeps_the_best_and_a_person_who_closes_needs_none():
    run = DrivenRun(LOOP)
    run.hand("tester", evidence=files(app_py="1"))
    run.do(c.Move(by=ANA, step_id="coder", reason="again"))
    assert run.run.ledger.best is not None
    run.do(c.Close(by=ANA, reason="enough"))
    assert run.run.stop is not None
    assert run.run.stop.best is None


@pytest.mark.requirement("S11")
@pytest.mark.parametrize("seed", range(20))
def test_no_result_of_a_run_ranks_above_the_best_and_its_size_is_bounded(seed: int):
    chance = random.Random(seed)
    best: BestResult | None = None
    ranks: list[tuple[bool, float, float]] = []
    for step in range(1, 60):
        evidence = measured(
            failures=tuple(f"{'x' * 1_000}{n}" for n in range(chance.randint(0, 300))),
            checks=tuple(
                Check(command="c" * 999, exit_code=1, stderr="e" * 9_999) for _ in range(40)
            ),
            files={f"{n}": "d" for n in range(300)},
            score=chance.choice((None, 0.1, 0.5)),
        )
        goal_met = chance.random() < 0.3
        best = choose_best(best, step, "a", evidence, goal_met=goal_met)
        fresh = choose_best(None, step, "a", evidence, goal_met=goal_met)
        assert fresh is not None
        ranks.append(fresh.rank)
    assert best is not None
    assert best.rank == max(ranks)
    assert best.step == 1 + max(n for n, rank in enumerate(ranks) if rank == best.rank)
    assert len(msgspec.json.encode(seal_best(best))) < 60_000


@pytest.mark.requirement("S11")
def test_the_stop_of_a_guarded_run_has_it_too():
    guard = Guard(StopRules(max_handoffs=2))
    with guard.run("r", goal="make", raises=False) as run:
        run.result("coder", evidence={"checks": [{"command": "make", "exit_code": 0}]})
        run.handoff("coder", "tester")
        run.result("tester", evidence={"checks": [{"command": "lint", "exit_code": 1}]})
        run.handoff("tester", "coder")
        run.handoff("coder", "tester")
    assert run.stop is not None
    assert run.stop.best is not None
    assert (run.stop.best.step, run.stop.best.agent, run.stop.best.goal_met) == (1, "coder", True)


@pytest.mark.requirement("S11")
def test_the_next_run_of_a_thread_has_a_best_of_its_own():
    book = Ledger(best=BestResult(step=3, agent="coder", evidence=measured(score=1)))
    assert continue_thread(book).best is None


@pytest.mark.requirement("S11")
def test_report_and_view_show_it():
    run = DrivenRun(LOOP, context={"goal": {"command": "make"}})
    for _ in range(9):
        if not run.run.has_ended:
            to = "tester" if "coder" in run.run.positions else "coder"
            run.hand(to, evidence=green("make", score=0.5, files={"app.py": "1"}))
    shown = stop_view(run.run.stop)
    assert shown is not None
    expected = "step 4 of tester: goal met, failures 0, score 0.5, files app.py"
    assert ("best measured result", expected) in explain_stop(shown)
    assert f"best measured result: {expected}" in report_markdown(build_report(run.events)).replace(
        "**", ""
    )
