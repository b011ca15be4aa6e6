"""A guard that looks ahead of its ledger sees what one sees that looks at every rule every time."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handrail import Guard, StopRules
from handrail.guard import GuardedRun
from handrail.kernel.guarded import brought_forward
from handrail.kernel.ledger import Ledger
from handrail.kernel.run.events import RunEvent
from handrail.testing.clock import ManualClock

Move = Callable[[GuardedRun, ManualClock], Any]
NAMES = st.sampled_from("abc")
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
)
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
@given(RULES, st.lists(MOVES, max_size=80))
@settings(max_examples=600, deadline=None)
def test_what_is_seen_ahead_is_what_every_rule_would_have_said(
    rules: StopRules, moves: list[Move]
) -> None:
    seen = played(rules, moves)
    with (
        patch("handrail.guard.is_clear", lambda *_: False),
        patch("handrail.guard.is_quiet", lambda *_: False),
    ):
        assert played(rules, moves) == seen
    with patch("handrail.kernel.guarded.AHEAD_MAX", 3):
        assert played(rules, moves) == seen


@given(st.lists(MOVES, max_size=80))
@settings(max_examples=100, deadline=None)
def test_the_ledger_can_be_had_from_the_events_alone(moves: list[Move]) -> None:
    events, ledger = played(StopRules(), moves)
    begun: Any = events[0]
    assert brought_forward(Ledger(steps=1), begun.limits, events) == ledger


@pytest.mark.parametrize("results", [0, 3])
def test_a_ledger_is_never_more_than_so_many_events_behind(results: int) -> None:
    """Thue-Morse: nothing comes three times in a row, so that no rule ever wants a look."""
    rules = StopRules(max_handoffs=10**6, max_steps=10**6, max_edge=10**6)
    walk = "".join("ab"[n.bit_count() % 2] for n in range(201))
    looks = list[int]()

    def noticed(ledger: Ledger, limits: Any, events: list[RunEvent]) -> Ledger:
        looks.append(len(events))
        return brought_forward(ledger, limits, events)

    with (
        patch("handrail.kernel.guarded.AHEAD_MAX", 50),
        patch("handrail.guard.brought_forward", noticed),
        Guard(rules).run("r") as run,
    ):
        for source, target in pairwise(walk):
            for _ in range(results):
                run.result(source, usage={"tokens": 1})
            run.handoff(source, target)
    assert 40 < max(looks) <= 2 * 50
    assert sum(looks) > 100
