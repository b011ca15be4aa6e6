"""Evidence is minimal: without any one of the cited events the rule would not have fired there.

For every rule that counts events a run is driven until the rule stops it. Then it is driven again,
once for each cited event, with that event left out: the rule must not fire at that point.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.kernel.driven_run import DrivenRun, chain, files, node, red, team

from handrail.guard import Guard
from handrail.kernel.definition.limits import StopRules
from handrail.kernel.result import Evidence, Outcome, Usage
from handrail.kernel.run.state import Stop
from handrail.views.history import handoff_sequence
from handrail.views.steps import steps

OFF: dict[str, Any] = dict.fromkeys(
    (
        "max_handoffs", "repeat_limit", "max_duration", "max_edge", "same_error_limit",
        "no_change_limit", "research_limit", "oscillation_limit",
    )
)  # fmt: skip
HAND: dict[str, Any] = {"outcome": Outcome.HANDOFF, "to": "a", "reason": "on"}
Turn = dict[str, Any]
Edge = tuple[str, str]


def scored(score: float) -> Turn:
    return {**HAND, "evidence": Evidence(score=score, measured=True)}


def with_files(digest: str) -> Turn:
    return {**HAND, "evidence": files(a_py=digest)}


def spending(tokens: int) -> Turn:
    return {**HAND, "usage": Usage(tokens=tokens)}


NEITHER: Turn = {"outcome": None}
FAILING: Turn = {**HAND, "evidence": red()}
ELSEWHERE: Turn = {**HAND, "evidence": red(stderr="KeyError: other")}
STEPS: dict[str, tuple[dict[str, Any], list[Turn], int]] = {
    "same_error": ({"same_error_limit": 3}, [HAND, FAILING, ELSEWHERE, FAILING, FAILING], 3),
    "no_change": (
        {"no_change_limit": 3},
        [with_files("1"), with_files("1"), HAND, with_files("1"), with_files("1")],
        3,
    ),
    "oscillation": ({"oscillation_limit": 3}, [with_files(d) for d in "12121"], 3),
    "research_exhausted": (
        {"research_limit": 3},
        [scored(0.5), scored(0.5), HAND, scored(0.4), scored(0.52)],
        3,
    ),
    "max_steps": ({"max_steps": 5}, [HAND] * 5, 5),
    "budget": ({"max_tokens": 100}, [spending(40), HAND, spending(40), spending(40)], 1),
    "constraint": (
        {"constraints": {"paths": ["secrets/*"]}},
        [HAND, {**HAND, "evidence": Evidence(files={"secrets/key": "1"}, measured=True)}],
        1,
    ),
    "protocol": ({"protocol_error_limit": 3}, [HAND, NEITHER, NEITHER, NEITHER], 3),
}


def driven(rules: dict[str, Any], script: Sequence[Turn]) -> DrivenRun:
    """One agent that hands over to itself, as the script says."""
    given_rules = {**OFF, "max_steps": 1_000, **rules}
    d = DrivenRun(team({"a": ["a"]}, terminator="a", stop_rules=given_rules))
    for turn in script:
        assert not d.run.has_ended, "the script goes on after the end"
        d.report(**turn)
    return d


def without(script: Sequence[Any], number: int) -> list[Any]:
    """The script without its entry of this number, counted from 1."""
    return [*script[: number - 1], *script[number:]]


def cited(stop: Stop | None, what: str) -> list[int]:
    assert stop is not None
    numbers = [name.removeprefix(f"{what} ") for name in stop.evidence]
    assert all(number.isdigit() for number in numbers), stop.evidence
    return [int(number) for number in numbers]


@pytest.mark.requirement("S2", "S3", "S4", "S7", "S14", "H6.1")
@pytest.mark.parametrize("rule", STEPS)
def test_without_any_cited_step_the_rule_does_not_fire(rule: str):
    rules, script, count = STEPS[rule]
    d = driven(rules, script)
    assert d.run.stop is not None
    assert d.run.stop.rule == rule
    numbers = cited(d.run.stop, "step")
    assert len(numbers) == count
    assert set(numbers) <= {step.n for step in steps(d.events)}
    for number in numbers:
        again = driven(rules, without(script, number))
        assert again.run.stop is None, f"{rule} fires without step {number}"


GUARDED = [name for name in STEPS if name not in ("max_steps", "protocol")]


def results(rules: dict[str, Any], script: Sequence[Turn]) -> Stop | None:
    """The same turns as results under guard."""
    guard = Guard(StopRules(**{**OFF, **rules}))
    with guard.run("r", raises=False) as run:
        found = None
        for turn in script:
            assert found is None, "the script goes on after the end"
            found = run.result("a", evidence=turn.get("evidence"), usage=turn.get("usage"))
        return found


@pytest.mark.parametrize("rule", GUARDED)
def test_without_any_cited_step_the_guard_does_not_stop(rule: str):
    rules, script, count = STEPS[rule]
    stop = results(rules, script)
    assert stop is not None
    assert stop.rule == rule
    numbers = cited(stop, "step")
    assert len(numbers) == count
    for number in numbers:
        assert results(rules, without(script, number)) is None, number


def handed(rules: dict[str, Any], script: Sequence[Edge]) -> tuple[Stop | None, int]:
    """(the stop, how many handoffs were proposed by then)"""
    guard = Guard(StopRules(**{**OFF, "max_steps": None, **rules}))
    with guard.run("r", raises=False) as run:
        for n, (source, target) in enumerate(script, 1):
            stop = run.handoff(source, target)
            if stop is not None:
                return stop, n
    return None, len(script)


def ring(period: int) -> list[Edge]:
    """A walk of this period through as many agents; of period 1 a handoff to oneself."""
    return [(f"a{i}", f"a{(i + 1) % period}") for i in range(period)]


WALKS: dict[str, list[Edge]] = {
    **{f"ring of {n}": ring(n) for n in range(1, 9)},
    "self and other": [("a", "a"), ("a", "b"), ("b", "a")],
    "self twice": [("a", "a"), ("a", "a"), ("a", "b"), ("b", "a")],
    "two selves": [("a", "a"), ("a", "b"), ("b", "b"), ("b", "a")],
    "star": [("p", "c"), ("c", "p"), ("p", "r"), ("r", "p"), ("p", "v"), ("v", "p")],
}


@pytest.mark.requirement("H3.1", "H7.4")
@pytest.mark.parametrize("times", [3, 4])
@pytest.mark.parametrize("walk", WALKS)
def test_without_any_cited_handoff_the_pattern_is_none(walk: str, times: int):
    before = [("start", "a")]
    script = [*before, *WALKS[walk] * times]
    rules = {"repeat_limit": times}
    stop, proposed = handed(rules, script)
    assert proposed == len(script)
    numbers = cited(stop, "handoff")
    assert numbers == list(range(2, len(script) + 1))
    for number in numbers:
        found, _ = handed(rules, without(script, number))
        assert found is None, f"handoff {number}"
    assert handed(rules, without(script, 1))[0] is not None, "what is not cited is not needed"


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from("ABCD"), min_size=1, max_size=12),
    st.lists(st.sampled_from("ABCD"), max_size=6),
)
def test_without_any_cited_handoff_that_pattern_does_not_end_the_run_there(
    period: list[str], before: list[str]
):
    script = [(letter, letter) for letter in [*before, *period * 3]]
    rules = {"repeat_limit": 3}
    stop, proposed = handed(rules, script)
    numbers = cited(stop, "handoff")
    assert stop is not None
    # The same handoff just before the first cited one could stand in for it: nothing would change.
    assume(numbers[0] == 1 or script[numbers[0] - 2] != script[numbers[0] - 1])
    for number in numbers:
        found, at = handed(rules, without(script[:proposed], number))
        same = found is not None and found.pattern == stop.pattern and at == proposed - 1
        assert not same, f"handoff {number}"


@pytest.mark.requirement("S7")
def test_without_any_cited_handoff_an_edge_is_not_used_up():
    rules = {"max_edge": 3}
    script = [("a", "b"), ("b", "a"), ("a", "b"), ("c", "a"), ("a", "b"), ("a", "b")]
    stop, proposed = handed(rules, script)
    assert proposed == len(script)
    assert cited(stop, "handoff") == [1, 3, 5]
    for number in (1, 3, 5):
        assert handed(rules, without(script, number))[0] is None
    for number in (2, 4):
        assert handed(rules, without(script, number))[0] is not None


@pytest.mark.requirement("H3.3")
def test_without_any_cited_handoff_the_limit_of_handoffs_is_not_reached():
    rules = {"max_handoffs": 4}
    script = [("a", "b"), ("b", "c"), ("c", "a"), ("a", "c"), ("c", "b")]
    stop, proposed = handed(rules, script)
    assert proposed == len(script)
    assert cited(stop, "handoff") == [1, 2, 3, 4]
    for number in (1, 2, 3, 4):
        assert handed(rules, without(script, number))[0] is None


def pattern_team() -> DrivenRun:
    d = DrivenRun(team({"a": ["b"], "b": ["a"]}, terminator="a"))
    for i in range(6):
        d.hand("ba"[i % 2])
    return d


def edge_team() -> DrivenRun:
    d = DrivenRun(team({"a": ["b"], "b": ["a"]}, terminator="a", stop_rules={"max_edge": 1}))
    for i in range(3):
        d.hand("ba"[i % 2])
    return d


def handoffs_team() -> DrivenRun:
    d = DrivenRun(team({"a": ["b"], "b": ["a"]}, terminator="a", stop_rules={"max_handoffs": 2}))
    for i in range(3):
        d.hand("ba"[i % 2])
    return d


def counted_workflow() -> DrivenRun:
    d = DrivenRun(chain(node("x"), node("y"), stop_rules={"max_handoffs": 2}))
    d.succeed("x")
    d.succeed("y")
    return d


@pytest.mark.requirement("H3.1", "H3.3", "S7")
@pytest.mark.parametrize(
    ("make", "rule", "count"),
    [
        (pattern_team, "repeated_pattern", 6),
        (edge_team, "max_edge", 1),
        (handoffs_team, "max_handoffs", 2),
        (counted_workflow, "max_handoffs", 2),
    ],
)
def test_the_engine_cites_handoffs_that_stand_in_its_sequence(
    make: Callable[[], DrivenRun], rule: str, count: int
):
    d = make()
    assert d.run.stop is not None
    assert d.run.stop.rule == rule
    numbers = cited(d.run.stop, "handoff")
    assert len(numbers) == count
    assert set(numbers) <= {h.number for h in handoff_sequence(d.events) if h.accepted}


def test_evidence_goes_on_counting_after_a_person_opened_a_new_stretch():
    document = team(
        {"a": ["b"], "b": ["a", "review"]},
        review={"after": ["b"], "back_to": "a"},
        stop_rules={"max_handoffs": 2, "repeat_limit": None},
    )
    d = DrivenRun(document)
    d.hand("b")
    d.hand("review")
    d.answer("again, please")
    for target in "bab":
        d.hand(target)
    numbers = cited(d.run.stop, "handoff")
    assert numbers == [3, 4]
    assert set(numbers) <= {h.number for h in handoff_sequence(d.events)}
