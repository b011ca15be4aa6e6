"""The benchmark's pieces run, with tiny counts; no time is asserted, and no peer is needed."""

import json
from itertools import pairwise

import pytest
from benchmarks import guard, measure
from benchmarks.peers import bare
from benchmarks.walks import WALKS, square_free, thue_morse

import handrail

needs_guard = pytest.mark.skipif(
    not hasattr(handrail, "Guard"), reason="the guard is not exported yet"
)

FIGURES = {
    "handoffs_20": {"guard": 4.0, "guard thue_morse": 4.0, "bare": 0.5, "langgraph": 200.0},
    "handoffs_100000": {"guard": 5.0, "guard thue_morse": 5.0, "bare": 0.5, "langgraph": 220.0},
    "peer_handoffs_in_long_run": 2000,
    "guard_at_100": 4.0,
    "guard_at_100000": 5.2,
    "guard_growth": 1.3,
    "framework_steps": {},
    "tool_call_20kb": 200.0,
    "import_ms": 31.25,
    "versions": {"handrail": "0.1.0", "langgraph": "1.0", "transitions": "not installed"},
    "python": "3.11.7",
    "cores": 2,
}
for table in ("handoffs_20", "handoffs_100000"):
    FIGURES[table]["guard with results"] = 2 * FIGURES[table]["guard"]


def repeats_in_a_row(moves: list[tuple[str, str]], period: int) -> int:
    """The most times that one pattern of this period stands in a row."""
    longest = run = 0
    for index in range(period, len(moves)):
        run = run + 1 if moves[index] == moves[index - period] else 0
        longest = max(longest, run)
    return 1 + longest // period


@pytest.mark.parametrize(("walk", "most"), [(thue_morse, 2), (square_free, 1)])
def test_no_pattern_of_a_walk_comes_three_times_in_a_row(walk, most: int):
    moves = list(pairwise(walk(5_000)))
    assert max(repeats_in_a_row(moves, period) for period in range(1, 65)) <= most


def test_walks_are_as_long_as_asked_and_always_the_same():
    for walk in WALKS.values():
        assert len(walk(100)) == 100
        assert walk(100) == walk(1_000)[:100]
    assert len(set(square_free(1_000))) == 8


def test_contenders_are_measured_in_turn():
    turns: list[str] = []

    def contender(name: str) -> measure.Prepare:
        def prepare(handoffs: int) -> measure.Run:
            turns.append(name)
            return bare.prepare(handoffs)

        return prepare

    figures = measure.interleaved(
        {"one": contender("one"), "two": contender("two")}, handoffs=3, runs=1, repeats=2
    )
    assert turns == ["one", "two"] * 3
    assert set(figures) == {"one", "two"}


def test_a_contender_that_makes_another_number_of_handoffs_is_an_error():
    with pytest.raises(RuntimeError, match="made 2 handoffs instead of 3"):
        measure.cpu_us([lambda: 2], handoffs=3)


def test_import_is_measured_in_a_fresh_interpreter():
    assert isinstance(measure.import_ms("json", repeats=1), float)


def test_a_peer_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(guard, "PEERS", ("bare", "no_such_peer"))
    found, versions = guard.peers()
    assert list(found) == ["bare"]
    assert versions == {"no_such_peer": "not installed"}


def test_json_line_gives_the_less_favourable_ratio_of_the_two_runs():
    line = guard.json_line(FIGURES)
    assert "\n" not in line
    assert json.loads(line)["ratios"] == {
        "guard_vs_bare": 0.1,
        "guard_vs_langgraph": 44.0,
        "guard_with_results_vs_bare": 0.05,
        "guard_with_results_vs_langgraph": 22.0,
        "guard_growth_100000_vs_100": 1.3,
    }
    assert json.loads(line)["figures"]["import_ms"] == 31.25


def test_table_says_which_targets_are_met_missed_and_not_measured():
    verdicts = [met for *_, met in guard.targets(FIGURES)]
    assert verdicts == [False, True, None, True, None, False, True]
    text = guard.page(FIGURES)
    assert "Not installed: transitions" in text
    assert "not measured" in text
    assert "| NO " in text


@needs_guard
@pytest.mark.parametrize("handoffs", [1, 30])
def test_guard_makes_the_handoffs_of_every_walk_with_every_rule_on(handoffs: int):
    from benchmarks import guarded

    for prepare in guarded.contenders(handoffs).values():
        assert prepare(handoffs)() == handoffs


@needs_guard
def test_growth_compares_early_with_late_handoffs():
    from benchmarks import guarded

    early, late, ratio = guarded.growth(early=4, late=40, repeats=1)
    assert min(early, late, ratio) > 0
