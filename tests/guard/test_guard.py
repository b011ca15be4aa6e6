"""The guard around somebody's own loop."""

from contextlib import suppress
from datetime import timedelta
from typing import Any, Literal

import pytest

import handrail
from handrail import Guard, LoopDetected, StopRules
from handrail.kernel.definition.limits import Ladder
from handrail.kernel.result import NO_EVIDENCE
from handrail.kernel.run.events import Ended, HandedOff, Reported, Warned
from handrail.testing.clock import ManualClock


def ping_pong(run: handrail.GuardedRun, rounds: int = 50) -> None:
    for _ in range(rounds):
        run.handoff("planner", "coder", reason="fix it")
        run.handoff("coder", "planner", reason="done")


@pytest.mark.requirement("H3.1")
def test_a_loop_of_two_agents_is_raised_at_its_third_repetition() -> None:
    with pytest.raises(LoopDetected) as caught, Guard().run("ticket 1") as run:
        ping_pong(run)
    stop = caught.value.stop
    assert (stop.rule, stop.seen, stop.limit) == ("repeated_pattern", 3, 3)
    assert stop.pattern == ("planner -> coder", "coder -> planner")
    assert stop.evidence == tuple(f"handoff {n}" for n in range(1, 7))
    assert str(caught.value).startswith("repeated_pattern: the same handoffs 3 times in a row")
    assert [event.number for event in run.events if isinstance(event, HandedOff)] == [*range(1, 7)]


@pytest.mark.parametrize(
    ("rules", "error", "rule"),
    [
        ({"max_handoffs": 4}, handrail.LimitReached, "max_handoffs"),
        ({"max_steps": 4}, handrail.LimitReached, "max_steps"),
        ({"repeat_limit": None, "max_edge": 3}, LoopDetected, "max_edge"),
    ],
)
def test_each_rule_raises_its_own_kind_of_stop(rules, error, rule) -> None:
    with pytest.raises(error) as caught, Guard(StopRules(**rules)).run("r") as run:
        ping_pong(run)
    assert caught.value.stop.rule == rule
    assert isinstance(caught.value, handrail.Stopped)


@pytest.mark.requirement("H3.3")
def test_four_handoffs_are_allowed_and_the_fifth_is_refused() -> None:
    with (
        pytest.raises(handrail.LimitReached),
        Guard(StopRules(max_handoffs=4)).run("r") as run,
    ):
        ping_pong(run)
    made = [event.accepted for event in run.events if isinstance(event, HandedOff)]
    assert made == [True, True, True, True, False]


def test_a_duration_is_measured_by_the_clock_that_was_given() -> None:
    clock = ManualClock()
    rules = StopRules(max_duration="10m")  # pyright: ignore[reportArgumentType] (read as in a file)
    guard = Guard(rules, clock=clock.now)
    with pytest.raises(handrail.LimitReached) as caught, guard.run("r") as run:
        run.handoff("a", "b")
        clock.advance(seconds=601)
        run.handoff("b", "c")
    assert caught.value.stop.rule == "max_duration"


def test_evidence_of_the_same_failure_ends_the_run_and_progress_postpones_it() -> None:
    failing = {"checks": [{"command": "pytest", "exit_code": 1, "stderr": "AssertionError: 1"}]}
    guard = Guard()
    with pytest.raises(handrail.NoProgress) as caught, guard.run("r") as run:
        for _ in range(9):
            run.result("verifier", evidence=failing)
    assert (caught.value.stop.rule, caught.value.stop.seen) == ("same_error", 3)
    with guard.run("r") as run:
        for i in range(12):
            run.result("verifier", evidence=failing)
            passing = {"checks": [{"command": f"unit {i}", "exit_code": 1, "stderr": "E"}]}
            run.result("verifier", evidence=passing)
            passing["checks"][0]["exit_code"] = 0
            run.result("verifier", evidence=passing)
    assert run.stop is not None
    assert run.stop.rule == "completed"


def test_budget_and_constraints_are_raised_too() -> None:
    with pytest.raises(handrail.BudgetSpent), Guard(StopRules(max_tokens=10)).run("r") as run:
        run.result("a", usage={"tokens": 11})
    with pytest.raises(handrail.BudgetSpent), Guard(StopRules(max_cost=1.0)).run("r") as run:
        run.result("a", usage={"cost": 1.0})
        run.handoff("a", "b")
    forbidden = StopRules(constraints=handrail.Constraints(paths=("secrets/*",)))
    with pytest.raises(handrail.ConstraintViolated), Guard(forbidden).run("r") as run:
        run.result("a", evidence={"files": {"secrets/key": "x"}})


def test_without_raising_a_stop_is_a_value_and_the_run_stays_stopped() -> None:
    with Guard().run("r", raises=False) as run:
        stops = [run.handoff("a", "a") for _ in range(3)]
        assert stops[:2] == [None, None]
        assert stops[2] is not None
        assert run.stop is stops[2]
        assert run.handoff("a", "b") is stops[2]
        assert run.result("a") is stops[2]
    assert [event.stop.rule for event in run.events if isinstance(event, Ended)] == [
        "repeated_pattern"
    ]


def test_a_loop_that_comes_to_its_own_end_is_done() -> None:
    with Guard().run("r") as run:
        run.handoff("a", "b")
        run.result("b", text="fine", milestone="tested")
    (ended,) = [event for event in run.events if isinstance(event, Ended)]
    assert (ended.status, ended.stop.rule) == ("done_success", "completed")


def test_an_error_of_the_host_program_passes_through_and_is_on_record() -> None:
    with pytest.raises(ZeroDivisionError), Guard().run("r") as run:
        _ = 1 / 0
    assert run.stop is not None
    assert "ZeroDivisionError" in run.stop.reason


def test_a_green_goal_makes_a_stopped_run_partial() -> None:
    green = {"checks": [{"command": "make demo", "exit_code": 0}]}
    lint = {"checks": [{"command": "lint", "exit_code": 1, "stderr": "E1"}]}
    with Guard().run("r", goal="make demo", raises=False) as run:
        run.result("v", evidence=green)
        for _ in range(3):
            run.result("v", evidence=lint)
    (ended,) = [event for event in run.events if isinstance(event, Ended)]
    assert ended.status == "done_partial"


def test_several_results_in_one_turn_are_steps() -> None:
    guard = Guard(StopRules(max_steps=3))
    with pytest.raises(handrail.LimitReached), guard.run("r") as run:
        for i in range(3):
            run.result("a", evidence={"files": {"f": str(i)}})
        run.handoff("a", "b")


@pytest.mark.parametrize(
    ("rules", "named"),
    [
        ({"max_handoffs": -1}, "max_handoffs"),
        ({"max_duration": "soon"}, "max_duration"),
        ({"profile": "wild"}, "profile"),
    ],
)
def test_rules_that_cannot_be_used_are_refused_with_the_limit_named(rules, named) -> None:
    with pytest.raises(ValueError, match=named):
        Guard(StopRules(**rules))


def test_evidence_of_the_wrong_shape_is_the_hosts_mistake_and_says_where() -> None:
    with pytest.raises(ValueError, match="evidence"), Guard().run("r") as run:
        run.result("a", evidence={"files": 7})


@pytest.mark.requirement("S13")
def test_yolo_allows_fewer_attempts_than_strict() -> None:
    def failures(profile: Literal["strict", "yolo"]) -> int:
        failing = {"checks": [{"command": "t", "exit_code": 1, "stderr": "E"}]}
        with Guard(StopRules(profile=profile)).run("r", raises=False) as run:
            for count in range(1, 20):
                if run.result("v", evidence=failing):
                    return count
        raise AssertionError("never stopped")

    assert failures("yolo") < failures("strict")


def test_a_report_can_be_had_at_any_time() -> None:
    with Guard().run("r") as run:
        run.handoff("a", "b", reason="x")
        assert run.report() is not None
    assert timedelta(0) <= run.events[-1].at - run.events[0].at


@pytest.mark.requirement("K35")
def test_a_dry_run_ends_nothing_and_says_once_what_each_rule_would_have_ended() -> None:
    guard = Guard(StopRules(max_handoffs=20, max_steps=30), dry_run=True)
    with guard.run("r") as run:
        ping_pong(run)
        for _ in range(5):
            run.result("coder", evidence={"files": {}})
    would_have = [(entry.rung, entry.rule.value, entry.step) for entry in run.would_have]
    assert would_have[0] == ("nudge", "repeated_pattern", 4)
    assert ("stop", "repeated_pattern", 6) in would_have
    for rung in ("nudge", "stop"):
        rules = [rule for noted, rule, _ in would_have if noted == rung]
        assert len(rules) == len(set(rules))
        assert {"max_handoffs", "max_steps", "no_change"} <= set(rules)
    assert run.take_nudge() is None
    assert not any(isinstance(event, Warned) and event.nudge for event in run.events)
    assert run.report().terminal_status == "done_success"
    assert sum(isinstance(event, HandedOff) and event.accepted for event in run.events) == 100


def test_without_dry_run_nothing_is_noted() -> None:
    with pytest.raises(LoopDetected), Guard().run("r") as run:
        ping_pong(run)
    assert run.would_have == []


CONCLUDING: dict[str, Any] = {"ladder": Ladder(conclude=True)}


def test_a_stopped_agent_concludes_with_its_next_text_and_then_the_stop_is_raised() -> None:
    with pytest.raises(LoopDetected) as raised, Guard(StopRules(**CONCLUDING)).run("r") as run:
        for _ in range(3):
            assert run.handoff("a", "b") is None
            assert run.handoff("b", "a") is None
        assert "last answer" in (run.take_nudge() or "")
        run.said("a", "what is left: all of it")
    assert raised.value.stop.conclusion == "what is left: all of it"
    recorded = run.events[-1]
    assert isinstance(recorded, Ended)
    assert recorded.stop.conclusion.startswith("[23 characters"), "texts are not recorded"
    assert run.report().stop is not None


def test_a_refused_handoff_is_on_record_after_the_conclusion() -> None:
    rules = StopRules(max_handoffs=2, **CONCLUDING)
    with Guard(rules, record_texts="full").run("r", raises=False) as run:
        for source, target in ("ab", "ba", "ab"):
            assert run.handoff(source, target) is None
        stop = run.result("a", text="the end", usage={"tokens": 5}, evidence={"files": {"f": "1"}})
    assert stop is not None
    assert (stop.rule, stop.conclusion) == ("max_handoffs", "the end")
    assert [type(event).__name__ for event in run.events[-3:]] == ["Reported", "HandedOff", "Ended"]
    reported = run.events[-3]
    assert isinstance(reported, Reported)
    assert reported.result.evidence == NO_EVIDENCE
    assert run.report().usage.tokens == 5


@pytest.mark.parametrize("how", ["handoff", "end", "error"])
def test_without_another_text_the_run_ends_by_the_rule_that_stopped_it(how: str) -> None:
    guard = Guard(StopRules(**CONCLUDING))
    with suppress(RuntimeError), guard.run("r", raises=False) as run:
        for _ in range(3):
            run.handoff("a", "b")
            run.handoff("b", "a")
        if how == "handoff":
            run.handoff("a", "b")
        if how == "error":
            raise RuntimeError
    assert guard.last is not None
    stop = guard.last.stop
    assert stop is not None
    assert (stop.rule, stop.conclusion) == ("repeated_pattern", "")


def test_the_last_step_is_the_conclusion_and_no_budget_is_overdrawn_for_one() -> None:
    rules = StopRules(max_steps=3, **CONCLUDING)
    with Guard(rules).run("r", raises=False) as run:
        assert run.result("a", text="one") is None
        assert run.result("a", text="two") is None
        stop = run.result("a", text="three")
    assert stop is not None
    assert (stop.rule, stop.conclusion) == ("max_steps", "three")
    dear = StopRules(max_tokens=10, same_error_limit=2, **CONCLUDING)
    red = {"checks": [{"command": "pytest", "exit_code": 1, "stderr": "boom"}]}
    with Guard(dear).run("r", raises=False) as run:
        run.result("a", evidence=red)
        stop = run.result("a", evidence=red, usage={"tokens": 10})
    assert stop is not None
    assert stop.rule == "same_error"


def test_a_guard_asks_through_a_server_or_not_at_all() -> None:
    for rules, ask in ((StopRules(ladder=Ladder(ask=True)), False), (StopRules(), True)):
        with pytest.raises(ValueError, match=r"Guard\(ask=True, record="):
            Guard(rules, ask=ask)
    assert Guard(ask=True, record="http://127.0.0.1:1").limits().ladder.ask


def test_a_dry_run_says_where_a_conclusion_would_have_been_asked_for() -> None:
    with Guard(StopRules(**CONCLUDING), dry_run=True).run("r") as run:
        ping_pong(run)
    rungs = [entry.rung for entry in run.would_have if entry.rule == "repeated_pattern"]
    assert rungs == ["nudge", "conclude", "stop"]
