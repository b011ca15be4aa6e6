"""How near a run is to its soft rules: the counts that people see are those that end it."""

from itertools import pairwise

import pytest
from tests.kernel import histories
from tests.kernel.driven_run import DrivenRun, chain, files, green, node, red, team

from handrail.kernel.result import Evidence
from handrail.kernel.stop.rules import StopRule
from handrail.views.run_view import soft_rule_counts

PAIR = team({"a": ["b"], "b": ["a"]}, terminator="a", stop_rules={"repeat_limit": 4})
ALONE = team({"a": ["a"]}, terminator="a", stop_rules={"repeat_limit": None, "max_edge": None})


def counts(d: DrivenRun) -> dict[str, int]:
    return {rule: one.count for rule, one in soft_rule_counts(d.run).items()}


def limits(d: DrivenRun) -> dict[str, int]:
    return {rule: one.limit for rule, one in soft_rule_counts(d.run).items()}


@pytest.mark.requirement("S1")
def test_repetitions_are_counted_whatever_belongs_together():
    d = DrivenRun(PAIR)
    assert counts(d)["repeated_pattern"] == 0
    seen = []
    for to in ("b", "a", "b", "a", "b", "a"):
        d.hand(to)
        seen.append(counts(d)["repeated_pattern"])
    assert seen == [1, 1, 1, 2, 2, 3]
    assert limits(d)["repeated_pattern"] == 4


def test_progress_begins_every_count_anew():
    d = DrivenRun(PAIR)
    d.hand("b", evidence=red())
    d.hand("a")
    d.hand("b")
    d.hand("a", evidence=green())
    assert counts(d)["repeated_pattern"] <= 1


@pytest.mark.parametrize(
    ("rule", "evidence"),
    [
        (StopRule.NO_CHANGE, (files(a_py="1"), files(a_py="1"), files(a_py="1"))),
        (
            StopRule.OSCILLATION,
            (files(a_py="1"), files(a_py="2"), files(a_py="1"), files(a_py="2")),
        ),
        (StopRule.RESEARCH_EXHAUSTED, tuple(Evidence(score=0.5, measured=True) for _ in range(3))),
    ],
    ids=lambda value: value.value if isinstance(value, StopRule) else "",
)
def test_the_rule_that_ends_the_run_had_counted_up_to_its_limit(
    rule: StopRule, evidence: tuple[Evidence, ...]
):
    d = DrivenRun(ALONE)
    seen = [counts(d)[rule]]
    for one in (*evidence, *evidence[-2:] * 3):
        if d.run.has_ended:
            break
        d.hand("a", evidence=one)
        seen.append(counts(d)[rule])
    assert d.run.stop is not None
    assert d.run.stop.rule is rule
    assert (seen[-1], limits(d)[rule]) == (3, 3)
    assert all(after - before in (0, 1) for before, after in pairwise(seen))


def test_answers_that_cannot_be_used_are_counted_in_a_turn():
    d = DrivenRun(PAIR)
    d.report(text="hm")
    assert counts(d)["protocol"] == 1
    d.hand("b")
    assert counts(d)["protocol"] == 0


def test_rules_that_are_off_or_cannot_fire_are_left_out():
    workflow = DrivenRun(chain(node("fix")))
    assert "protocol" not in counts(workflow)
    assert "repeated_pattern" not in counts(workflow)
    assert "repeated_pattern" not in counts(DrivenRun(ALONE))


@pytest.mark.parametrize("make", histories.DRIVEN, ids=lambda make: make.__name__)
def test_no_count_is_above_its_limit(make):
    assert all(0 <= one.count <= one.limit for one in soft_rule_counts(make().run).values())
