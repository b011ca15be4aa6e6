"""Waits under guard (K31): each is a step, and `wait_deadline` counts from the first of them."""

from collections.abc import Callable
from pathlib import Path

import pytest

import handrail
from handrail import Guard, GuardedRun, StopRules
from handrail.testing.clock import ManualClock


def say_so(run: GuardedRun) -> object:
    return run.waiting("coder", "the build", retry_after=60)


def poll(run: GuardedRun) -> object:
    return run.called("coder", "status", {"job": 7}, "the job is running")


@pytest.mark.parametrize("wait", [say_so, poll])
def test_waits_end_a_run_at_the_deadline_that_the_first_has_set(
    wait: Callable[[GuardedRun], object],
) -> None:
    clock = ManualClock()
    guard = Guard(StopRules(profile="observed", wait_deadline=600), clock=clock.now)
    with pytest.raises(handrail.LimitReached) as caught, guard.run("r") as run:
        run.called("coder", "start", {}, "job 7")
        clock.advance(1_000)
        for _ in range(200):
            wait(run)
            clock.advance(4)
    stop = caught.value.stop
    assert (stop.rule, stop.limit, stop.seen) == ("wait_deadline", 600, 600)
    assert run.report().terminal_status == "aborted_stuck"


def test_work_between_two_waits_renews_nothing() -> None:
    clock = ManualClock()
    guard = Guard(StopRules(profile="observed", wait_deadline=600), clock=clock.now)
    with guard.run("r", raises=False) as run:
        assert say_so(run) is None
        clock.advance(700)
        assert run.called("coder", "edit", {"file": "a"}, "done") is None
        stop = run.waiting("coder", "another thing")
    assert stop is not None
    assert stop.rule == "wait_deadline"


def test_every_wait_is_a_step() -> None:
    with Guard(StopRules(profile="observed", max_steps=5)).run("r", raises=False) as run:
        stops = [say_so(run) for _ in range(6)]
    assert [stop is None for stop in stops] == [True] * 5 + [False]


@pytest.mark.parametrize("profile", ["strict", "yolo"])
def test_in_profiles_that_judge_names_a_wait_is_a_step_like_any_other(profile: str) -> None:
    clock = ManualClock()
    rules = StopRules(profile=profile, wait_deadline=1, max_duration=None)  # pyright: ignore[reportArgumentType]
    with Guard(rules, clock=clock.now).run("r", raises=False) as run:
        for _ in range(10):
            assert say_so(run) is None
            clock.advance(60)


def test_a_recorded_run_that_waited_too_long_ends_the_same_when_it_is_replayed(
    tmp_path: Path,
) -> None:
    database = f"sqlite:///{tmp_path / 'guard.db'}"
    clock = ManualClock()
    rules = StopRules(profile="observed", wait_deadline=600)
    guard = Guard(rules, clock=clock.now, record=database)
    with guard.run("r", raises=False) as run:
        for _ in range(300):
            if poll(run) is not None:
                break
            clock.advance(4)
    assert run.stop is not None
    with handrail.open(database, visit=True) as engine:
        replays, names = engine.engine.replays, [run.recorded]
        (same,) = engine.do(replays.replay(names, {})).items
        (later,) = engine.do(replays.replay(names, {"wait_deadline": 900})).items
    assert same.verdict == "same", same.told
    assert later.verdict == "beyond", later.told
