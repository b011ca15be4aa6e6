"""Errors of the guard itself: none reaches the program, and the hard limits hold all the same."""

import logging
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from inspect import isfunction
from typing import Any

import pytest

from handrail import BudgetSpent, Guard, LimitReached, Stopped, StopRules
from handrail.guard import adapter, plain, run
from handrail.guard.adapter import RunWatch, watching
from handrail.guard.run import GuardedRun
from handrail.guard.step_reader import StepReader

ROUNDS = 12
"""More than the soft rules allow of the same."""
BY_HAND = ("report", "ask")
"""What only a program that uses a run by hand calls, and what it asks for must not be nothing."""


class UnreadableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("this error has no text")


class Unreadable:
    """A value that has no text."""

    def __repr__(self) -> str:
        raise RuntimeError("this value has no text")


def break_down(*_: object, **__: object) -> Any:
    raise UnreadableError


def methods_of(cls: type[Any]) -> Iterator[str]:
    for name, value in vars(cls).items():
        if isfunction(value) and not name.startswith("__") and name not in BY_HAND:
            yield name


FAULTS = [
    *((RunWatch, name) for name in methods_of(RunWatch) if name not in ("raise_if_stopped",)),
    *((GuardedRun, name) for name in methods_of(GuardedRun)),
    *((StepReader, name) for name in methods_of(StepReader)),
    *((run, name) for name in ("safe_text", "safe_name", "begin_guarded_ledger", "FastPath")),
    *((run, name) for name in ("Started", "assess_result", "judge_result", "apply_guarded_events")),
    *((adapter, name) for name in ("describe_text", "ToolCall", "Usage")),
]
STRUCTURAL = {"as_current", "iterate", "iterate_async", "judge_hard_limits", "boundary"}
"""The blocks in which the framework's own code runs, and what is left when all else fails."""
FAULTS = [fault for fault in FAULTS if fault[1] not in STRUCTURAL]


def program() -> Callable[[], list[object]]:
    """A team without a framework, as the decorators of `plain` make it."""
    answers: list[object] = []

    @plain.tool
    def search(words: str) -> object:
        return Unreadable() if words == "unreadable" else f"nothing about {words}"

    @plain.agent("worker")
    def work(words: str) -> object:
        plain.used(tokens=1, text="looking")
        return search(words)

    @plain.agent("planner")
    def team() -> list[object]:
        for number in range(ROUNDS):
            answers.append(work("unreadable" if number == 3 else f"topic {number}"))
        return answers

    return team


@pytest.mark.parametrize(("owner", "name"), FAULTS, ids=[name for _, name in FAULTS])
def test_whatever_breaks_in_the_guard_a_program_runs_as_without_it(
    owner: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = [type(answer) for answer in program()()]
    monkeypatch.setattr(owner, name, break_down)
    guarded = plain.guarded(program(), Guard())
    assert [type(answer) for answer in guarded()] == bare


def hard_limits() -> dict[str, tuple[StopRules, type[Stopped]]]:
    return {
        "steps": (StopRules(max_steps=5), LimitReached),
        "handoffs": (StopRules(max_handoffs=5), LimitReached),
        "tokens": (StopRules(max_tokens=50), BudgetSpent),
        "duration": (StopRules(max_duration=50), LimitReached),
    }


BROKEN_JUDGEMENTS = [
    (StepReader, "read_step"),
    (StepReader, "tool_evidence"),
    (GuardedRun, "record_result"),
    (GuardedRun, "_judge_result"),
    (GuardedRun, "_catch_up"),
]


@pytest.mark.parametrize("limit", hard_limits())
@pytest.mark.parametrize(("owner", "name"), BROKEN_JUDGEMENTS)
def test_hard_limits_stop_a_run_whose_steps_cannot_be_judged(
    owner: Any, name: str, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules, error = hard_limits()[limit]
    now = datetime(2026, 1, 1, tzinfo=UTC)

    monkeypatch.setattr(owner, name, break_down)
    turns = 0
    guard = Guard(rules, clock=lambda: now)
    with pytest.raises(error) as caught, watching(guard, "team") as watch:
        while turns < 100:
            turns += 1
            now += timedelta(seconds=5)
            watch.activate("ab"[turns % 2])
            watch.begin_step()
            with watch.boundary:
                watch.record_answer(f"answer {turns}", tokens=10)
                watch.record_tool_call("search", turns, f"result {turns}")
            watch.raise_if_stopped()
    assert turns <= 20
    assert caught.value.stop.limit in (5, 50)
    assert caught.value.run.errors.unguarded


def test_the_last_step_that_the_limit_allows_is_taken_and_no_other(monkeypatch: Any) -> None:
    monkeypatch.setattr(GuardedRun, "record_result", break_down)
    steps = 0
    with pytest.raises(LimitReached), watching(Guard(StopRules(max_steps=5)), "team") as watch:
        watch.activate("a")
        for _ in range(100):
            with watch.boundary:
                watch.begin_step()
            watch.raise_if_stopped()
            watch.record_answer("answer")
            steps += 1
    assert steps == 6  # the sixth is refused when it is recorded


def test_hooks_that_fail_without_end_are_stopped_by_the_steps_that_they_stand_for() -> None:
    failures = 0
    with pytest.raises(LimitReached), watching(Guard(StopRules(max_steps=5)), "team") as watch:
        for _ in range(100):
            failures += 1
            with watch.boundary:
                break_down()
            watch.raise_if_stopped()
    assert failures == 6


def test_many_tools_in_a_step_count_no_steps_when_their_hooks_fail() -> None:
    with watching(Guard(StopRules(max_steps=5)), "team") as watch:
        watch.activate("a")
        for _ in range(100):
            with watch.tool_boundary:
                break_down()
    assert watch.run.stop is not None
    assert watch.run.stop.rule == "completed"


def test_an_unguarded_run_is_judged_by_no_rule_that_compares_steps() -> None:
    with watching(Guard(), "team") as watch:
        watch.activate("a")
        for number in range(20):
            watch.begin_step()
            watch.record_answer("the same")
            watch.record_tool_call("look", "here", Unreadable() if number == 0 else "the same")
    report = watch.run.report()
    assert report.terminal_status == "done_success"
    assert report.unguarded == watch.run.errors.unguarded
    assert "what a step showed could not be read: RuntimeError" in report.unguarded


def test_an_error_is_logged_once_counted_each_time_and_recorded(caplog: Any) -> None:
    guard = Guard(record_texts="full")
    with caplog.at_level(logging.ERROR), watching(guard, "team") as watch:
        watch.activate("a")
        for _ in range(3):
            watch.deliver_nudge(lambda text: None)
            watch.run.nudge_text = "be quick"
            watch.deliver_nudge(lambda text: 1 / 0)
    assert len(caplog.records) == 1
    report = watch.run.report()
    warnings = [(w.code, w.message) for w in report.warnings]
    assert warnings == [
        ("guard_error", "a nudge could not be delivered: ZeroDivisionError: division by zero")
    ]
    assert (watch.run.errors.count, report.unguarded) == (3, "")


def test_what_an_error_says_is_recorded_as_all_texts_are() -> None:
    with watching(Guard(), "team") as watch, watch.tool_boundary:
        raise ValueError("a secret")
    assert "ValueError: [8 characters, digest" in watch.run.errors.unguarded


def test_errors_are_raised_by_choice() -> None:
    guard = Guard(on_error="raise")
    with pytest.raises(UnreadableError), watching(guard, "team") as watch, watch.boundary:
        break_down()
    with pytest.raises(RuntimeError, match="no text"), guard.run("by hand") as hand:
        hand.called("a", "look", Unreadable(), "found")
    with pytest.raises(ValueError, match="say 'record' or 'raise'"):
        Guard(on_error="ignore")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("profile", ["strict", "observed"])
def test_a_run_used_by_hand_absorbs_errors_and_keeps_its_hard_limits(profile: Any) -> None:
    guard = Guard(StopRules(max_steps=5))
    with guard.run("by hand", profile=profile) as hand:
        assert hand.called("a", "look", Unreadable(), "found") is None
        assert hand.said("a", None) is None  # pyright: ignore[reportArgumentType]
        assert hand.state("a", {"key": Unreadable()}) is None
        assert hand.waiting("a", None) is None  # pyright: ignore[reportArgumentType]
        assert hand.handoff("a", None) is None  # pyright: ignore[reportArgumentType]
        with pytest.raises(LimitReached):
            hand.said("a", "one more")
    assert hand.errors.count >= 3


def test_evidence_of_the_wrong_shape_is_the_callers_mistake_and_is_raised() -> None:
    with Guard().run("by hand") as hand, pytest.raises(ValueError, match="exit_code"):
        hand.result("a", evidence={"checks": [{"command": "test", "exit_code": "x"}]})


def test_an_error_whose_text_cannot_be_read_ends_a_program_as_it_would_without_a_guard() -> None:
    guard = Guard()
    with pytest.raises(UnreadableError), watching(guard, "team") as watch:
        watch.activate("a")
        break_down()
    stop = watch.run.report().stop
    assert stop is not None
    assert stop.reason == "UnreadableError"


def test_a_thread_and_an_input_that_cannot_be_read_leave_the_run_as_it_is() -> None:
    with watching(Guard(), "team", Unreadable(), lambda: break_down()) as watch:
        watch.activate("a")
    assert watch.run.errors.count == 2
    assert watch.run.report().terminal_status == "done_success"
