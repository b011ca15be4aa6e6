"""A guard that looks ahead of its ledger sees what one sees that looks at every rule every time."""

import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kernel.driven_run import DrivenRun, chain, node, team

from handrail import Guard, StopRules
from handrail.guard import GuardedRun
from handrail.kernel.run.events import RunEvent, Warned
from handrail.kernel.run.lookahead import apply_guarded_events
from handrail.kernel.stop import rules as stop_rules
from handrail.kernel.stop.ledger import Ledger
from handrail.kernel.stop.repetition import repetition_period, unrepeated_handoffs
from handrail.kernel.stop.rules import (
    FiredRule,
    RuleContext,
    RuleKind,
    RuleRow,
    RuleTable,
    StopRule,
)
from handrail.testing.clock import ManualClock

Move = Callable[[GuardedRun, ManualClock], Any]
NAMES = st.sampled_from("abc")


def while_asked(run: GuardedRun, clock: ManualClock, source: str, target: str, n: int) -> None:
    """A person is asked, takes a while, and somebody beside that hands over."""
    run._change_open_asks(1)
    clock.advance(n)
    run.handoff(source, target)
    run._change_open_asks(-1)


FOUND = [
    {"checks": [{"command": "pytest", "exit_code": 1, "stderr": "KeyError: a"}]},
    {"checks": [{"command": "pytest", "exit_code": 0}]},
    {"files": {"app.py": "1"}},
    {"files": {"app.py": "2"}},
    {"files": {}},
    {"score": 0.5},
]
MOVES: st.SearchStrategy[Move] = st.one_of(
    st.builds(lambda a, b: lambda run, clock: run.handoff(a, b), NAMES, NAMES),
    st.builds(lambda a, b: lambda run, clock: run.handoff(a, b), NAMES, NAMES),
    st.builds(
        lambda a, n: lambda run, clock: run.result(a, usage={"tokens": n, "cost": n / 3}),
        NAMES,
        st.integers(0, 9),
    ),
    st.builds(
        lambda a, one: lambda run, clock: run.result(a, evidence=one), NAMES, st.sampled_from(FOUND)
    ),
    st.builds(lambda a: lambda run, clock: run.result(a, milestone=a), NAMES),
    st.builds(lambda n: lambda run, clock: clock.advance(n), st.integers(1, 9)),
    st.builds(
        lambda a, b, n: lambda run, clock: while_asked(run, clock, a, b, n),
        NAMES,
        NAMES,
        st.integers(1, 99),
    ),
)
HANDOFFS = st.lists(
    st.builds(lambda a, b: lambda run, clock: run.handoff(a, b), NAMES, NAMES), max_size=4
)
AGAIN: st.SearchStrategy[list[Move]] = st.builds(
    lambda before, unit, times, after: before + unit * times + after,
    st.lists(MOVES, max_size=10),
    st.builds(lambda moves, more: moves + more, HANDOFFS, st.lists(MOVES, max_size=1)),
    st.integers(2, 5),
    HANDOFFS,
)
"""Somewhere in them the same comes again and again."""
LIMITS: dict[str, st.SearchStrategy[int]] = {
    "max_handoffs": st.integers(1, 12),
    "max_steps": st.integers(1, 12),
    "max_edge": st.integers(1, 6),
    "max_duration": st.integers(1, 200),
    "repeat_limit": st.integers(2, 4),
    "max_tokens": st.integers(1, 100),
    "max_cost": st.integers(1, 50),
    "no_change_limit": st.integers(1, 5),
    "research_limit": st.integers(1, 5),
    "oscillation_limit": st.integers(1, 5),
    "same_error_limit": st.integers(1, 5),
}
NONE = dict.fromkeys(LIMITS)
RULES = st.sampled_from(list(LIMITS)).flatmap(
    lambda first: st.builds(
        lambda one, others: StopRules(**NONE | others | {first: one}, pattern_period_max=12),
        LIMITS[first],
        st.just({}) | st.fixed_dictionaries({}, optional=LIMITS),
    )
)


def played(rules: StopRules, moves: list[Move]) -> tuple[list[RunEvent], Ledger]:
    clock = ManualClock()
    with Guard(rules, clock=clock.now).run("r", raises=False) as run:
        for move in moves:
            move(run, clock)
        ledger = run._catch_up()
    return run.events, ledger


@pytest.mark.requirement("H3.1", "H3.3", "S7")
@given(RULES, st.lists(MOVES, max_size=80) | AGAIN)
@settings(max_examples=1_200, deadline=None)
def test_what_is_seen_ahead_is_what_every_rule_would_have_said(
    rules: StopRules, moves: list[Move]
) -> None:
    seen = played(rules, moves)
    with (
        patch("handrail.guard.run.unrepeated_handoffs", lambda *_: 0),
        patch("handrail.guard.fast_path.is_usage_only", lambda *_: False),
    ):
        assert played(rules, moves) == seen


def test_a_nudge_is_given_once_and_its_rule_is_then_looked_at_when_it_may_stop() -> None:
    far = StopRules(**dict.fromkeys(("max_handoffs", "max_steps", "max_edge"), 10**6))
    with (
        patch("handrail.guard.run.apply_guarded_events", wraps=apply_guarded_events) as looked,
        Guard(far).run("r", raises=False) as run,
    ):
        for source, target in pairwise("abab"):
            run.handoff(source, target)
        assert looked.call_count == 0
        run.handoff("b", "a")
        assert looked.call_count > 0
        assert "repeated_pattern has counted 2 of 3" in (run.take_nudge() or "")
        assert run.take_nudge() is None
        looked.reset_mock()
        for source, target in pairwise("acbcabacbabcacbac"):
            run.handoff(source, target)
        assert looked.call_count == 0
    nudges = [event for event in run.events if isinstance(event, Warned)]
    assert [event.nudge.rule for event in nudges if event.nudge] == ["repeated_pattern"]


def fire_at(count: int, moment: str, **ahead: Any) -> RuleTable:
    """The rules, and one more: so many steps are too many, at this moment."""

    def rule(ctx: RuleContext) -> FiredRule | None:
        if ctx.ledger.steps < count:
            return None
        return FiredRule(rule=StopRule.PROTOCOL, reason=f"{ctx.ledger.steps} steps")

    judged: Any = {moment: rule, "limit": "max_steps", **ahead}
    row = RuleRow(rule=StopRule.PROTOCOL, kind=RuleKind.END, cause="", **judged)
    return RuleTable((*stop_rules.RULES, row))


MOMENTS = ("on_result", "on_handoff", "on_step")


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize(
    "ahead", [{}, {"ahead": {"moves": lambda ledger, limits: (9 - ledger.steps) // 2}}]
)
def test_a_row_that_is_added_is_asked_on_every_path(moment: str, ahead: dict[str, Any]) -> None:
    rules: Any = dict.fromkeys(("max_handoffs", "max_steps", "max_edge"), 10**6)
    walk = ["ab"[n.bit_count() % 2] for n in range(41)]
    with patch("handrail.kernel.stop.rules.TABLE", fire_at(9, moment, **ahead)):
        with Guard(StopRules(**rules)).run("r", raises=False) as run:
            for source, target in pairwise(walk):
                _ = run.result(source) or run.handoff(source, target)
        agents = {"a": ["a", "b"], "b": ["a", "b"]}
        in_team = DrivenRun(team(agents, terminator="a", stop_rules=rules))
        for target in walk[1:10]:
            in_team.hand(target)
        in_workflow = DrivenRun(
            chain(*(node(f"n{n}") for n in range(12)), stop_rules={"max_steps": 10**6})
        )
        for n in range(9):
            in_workflow.succeed(f"n{n}")
    for stop in (run.stop, in_team.run.stop, in_workflow.run.stop):
        assert stop is not None
        assert (stop.rule, stop.reason) == ("protocol", "9 steps")


def test_a_row_that_says_how_far_off_it_is_leaves_the_ledger_alone_till_then() -> None:
    far = StopRules(**dict.fromkeys(("max_handoffs", "max_steps", "max_edge"), 10**6))
    ahead = {"ahead": {"moves": lambda ledger, limits: (99 - ledger.steps) // 2}}
    for said, looks in (({}, 9), (ahead, 0)):
        with (
            patch("handrail.kernel.stop.rules.TABLE", fire_at(99, "on_step", **said)),
            patch("handrail.guard.run.apply_guarded_events", wraps=apply_guarded_events) as looked,
            Guard(far).run("r", raises=False) as run,
        ):
            for n in range(9):
                run.handoff("ab"[n.bit_count() % 2], "ab"[(n + 1).bit_count() % 2])
        assert looked.call_count == looks


def test_time_that_was_up_before_a_person_was_asked_is_up_meanwhile() -> None:
    clock = ManualClock()
    with Guard(StopRules(max_duration=10), clock=clock.now).run("r", raises=False) as run:
        clock.advance(11)
        while_asked(run, clock, "a", "b", 1)
    assert run.stop is not None
    assert run.stop.rule == "max_duration"


@given(st.lists(MOVES, max_size=80))
@settings(max_examples=100, deadline=None)
def test_the_ledger_can_be_had_from_the_events_alone(moves: list[Move]) -> None:
    events, ledger = played(StopRules(), moves)
    begun: Any = events[0]
    assert apply_guarded_events(Ledger(steps=1), begun.limits, events) == ledger


@pytest.mark.parametrize("results", [0, 3])
def test_a_ledger_is_not_touched_as_long_as_no_rule_is_near(results: int) -> None:
    """Thue-Morse: no handoffs come twice in a row, so that no rule ever wants a look."""
    rules = StopRules(max_handoffs=10**6, max_steps=10**6, max_edge=10**6)
    walk = "".join("ab"[n.bit_count() % 2] for n in range(201))
    looks = list[int]()

    def noticed(ledger: Ledger, limits: Any, events: list[RunEvent], goal: str) -> Ledger:
        looks.append(len(events))
        return apply_guarded_events(ledger, limits, events, goal)

    with patch("handrail.guard.run.apply_guarded_events", noticed), Guard(rules).run("r") as run:
        for source, target in pairwise(walk):
            for _ in range(results):
                run.result(source, usage={"tokens": 1})
            run.handoff(source, target)
        assert looks == []
        run.result("a", evidence={"files": {"app.py": "1"}})
        assert looks[0] == 200 * (1 + results)


@pytest.mark.alone
def test_catching_up_takes_as_long_for_each_handoff_however_many_there_were() -> None:
    """CPU time of 10 times as many: about 10 times that; with a trail that grows, 40 and more."""
    rules = StopRules(max_handoffs=10**6, max_steps=10**6, max_edge=10**6)

    def caught_up(count: int) -> float:
        with Guard(rules).run("r") as run:
            for n in range(count):
                run.handoff("ab"[n.bit_count() % 2], "ab"[(n + 1).bit_count() % 2])
            began = time.process_time()
            run._catch_up()
            return time.process_time() - began

    assert min(caught_up(200_000) for _ in range(2)) < 20 * min(caught_up(20_000) for _ in range(3))


def test_names_that_cannot_be_kept_and_more_ways_than_are_known_are_seen_ahead_all_the_same() -> (
    None
):
    names = [*(f"agent-{n}" for n in range(40)), "a\0b", "", "long " * 30]
    walk = [*((one, other) for one in names for other in names), *[("a\0b", "agent-1")] * 2]
    far = dict.fromkeys(("max_handoffs", "max_steps", "max_edge"), 10**6)

    def seen() -> tuple[list[RunEvent], Ledger]:
        clock = ManualClock()
        rules = StopRules(**far, repeat_limit=3)
        with Guard(rules, clock=clock.now).run("r", raises=False) as run:
            for source, target in walk:
                run.handoff(source, target)
            ledger = run._catch_up()
        return run.events, ledger

    with patch("handrail.guard.run.unrepeated_handoffs", lambda *_: 0):
        events, ledger = seen()
    assert ledger.edges_seen > len(ledger.edges)
    assert seen() == (events, ledger)


@given(
    st.text("abc", max_size=20),
    st.text("abc", min_size=1, max_size=8),
    st.integers(2, 4),
    st.data(),
)
@settings(max_examples=1_000, deadline=None)
def test_handoffs_that_are_said_to_repeat_nothing_repeat_nothing(
    before: str, unit: str, times: int, data: st.DataObject
) -> None:
    """Shown to a guard a few handoffs before something has come so many times: whatever it says is
    held against each handoff, up to the first that goes the way of the one before it."""
    walk = before + unit * times
    known = data.draw(st.integers(max(1, len(walk) - 8), len(walk)), label="known")
    trail, period_max = walk[:known][::-1], data.draw(st.integers(1, 12), label="period_max")
    for after in walk[known : known + unrepeated_handoffs(trail, times, period_max)]:
        assert not repetition_period(trail, times, period_max)
        if after == trail[0]:
            break
        trail = after + trail
