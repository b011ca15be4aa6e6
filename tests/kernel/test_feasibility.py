"""Feasibility: what the shortest success needs of each limit, and the warning when none is left."""

from typing import Any

import pytest
from tests.kernel.driven_run import chain, edge, node, team, workflow

from handrail.kernel.definition.feasibility import MILESTONES_MAX, Slack
from handrail.kernel.definition.plan import check_definition


def slacks(document: dict[str, Any]) -> dict[tuple[str, bool], tuple[int, int, int]]:
    """(limit, through all milestones?) -> (needed, allowed, slack)"""
    plan, checked = check_definition(document)
    assert plan is not None, checked.errors
    return {
        (s.limit, "milestones" in s.way): (s.needed, s.allowed, s.slack)
        for s in checked.feasibility
    }


def warned(document: dict[str, Any]) -> list[tuple[str, str]]:
    _, checked = check_definition(document)
    return [(w.code, w.path) for w in checked.warnings]


def row(count: int, **rest: Any) -> dict[str, Any]:
    """A team in a row: 0 hands to 1 and so on, and the last one ends the run."""
    hands = {str(i): [str(i + 1)] if i < count else [] for i in range(count + 1)}
    return team(hands, terminator=str(count), **rest)


def test_slack_is_what_is_allowed_less_what_is_needed():
    assert Slack(limit="max_steps", way="it", needed=3, allowed=5).slack == 2


def test_a_happy_path_as_long_as_the_handoff_limit_is_warned_of_with_the_numbers():
    helpdesk = row(12, stop_rules={"max_handoffs": 12})
    assert slacks(helpdesk) == {
        ("max_handoffs", False): (12, 12, 0),
        ("max_steps", False): (13, 100, 87),
    }
    assert warned(helpdesk) == [("slack_0", "$.stop_rules.max_handoffs")]
    _, checked = check_definition(helpdesk)
    assert checked.warnings[0].message == (
        "slack 0: max_handoffs is 12, and the shortest way to the end takes 12"
    )


def test_one_handoff_more_is_no_warning_and_one_less_is_a_stronger_one():
    assert warned(row(12, stop_rules={"max_handoffs": 13})) == []
    assert warned(row(12, stop_rules={"max_handoffs": 11})) == [
        ("infeasible", "$.stop_rules.max_handoffs")
    ]


def test_a_way_of_first_visits_needs_no_handoff_where_those_are_free():
    free = row(3, stop_rules={"profile": "conversation", "max_handoffs": 1})
    assert slacks(free) == {("max_steps", False): (4, 500, 496)}
    none = row(3, stop_rules={"profile": "conversation", "max_handoffs": 0})
    assert slacks(none)["max_handoffs", False] == (3, 0, -3)


def test_a_limit_that_is_off_has_no_slack():
    assert slacks(row(3, stop_rules={"max_steps": None})) == {("max_handoffs", False): (3, 20, 17)}
    assert slacks(row(3, stop_rules={"max_handoffs": None})) == {("max_steps", False): (4, 100, 96)}


def test_a_review_ends_a_run_with_one_handoff_to_the_person_and_no_step():
    document = team({"a": ["b"], "b": []}, review={"after": ["b"], "back_to": "a"})
    assert slacks(document) == {
        ("max_handoffs", False): (2, 20, 18),
        ("max_steps", False): (2, 100, 98),
    }
    both = team({"a": ["b"], "b": []}, terminator="a", review={"after": ["b"], "back_to": "a"})
    assert slacks(both)["max_handoffs", False] == (1, 20, 19)


def milestones(hands: dict[str, list[str]], gives: dict[str, list[str]], **rest: Any):
    tasks = {
        name: {"tasks": [{"id": f"t{i}", "milestone": m} for i, m in enumerate(given)]}
        for name, given in gives.items()
    }
    return team(hands, agents=tasks, **rest)


def test_the_walk_through_all_milestones_may_be_longer_than_the_shortest_way():
    star = {"hub": ["m", "w", "s", "t"], "m": ["hub"], "w": ["hub"], "s": ["hub"], "t": []}
    gives = {"m": ["checked"], "w": ["resolved"], "s": ["told"], "t": ["ended"], "hub": [""]}
    document = milestones(star, gives, terminator="t", stop_rules={"max_handoffs": 7})
    assert slacks(document)["max_handoffs", False] == (1, 7, 6)
    assert slacks(document)["max_handoffs", True] == (7, 7, 0)
    assert slacks(document)["max_steps", True] == (8, 100, 92)
    assert warned(document) == [("slack_0", "$.stop_rules.max_handoffs")]


def test_one_agent_may_give_several_milestones_and_two_may_give_the_same():
    hands = {"a": ["b", "c"], "b": ["c"], "c": ["a"]}
    gives = {"b": ["x", "x", "y"], "c": ["x"], "a": ["x"]}
    document = milestones(hands, gives, terminator="c")
    assert slacks(document)["max_handoffs", True] == (2, 20, 18)


def test_milestones_that_no_walk_passes_together_give_no_slack():
    hands = {"a": ["b", "c"], "b": [], "c": []}
    document = milestones(hands, {"b": ["x"], "c": ["y"]}, terminator="c")
    assert ("max_handoffs", True) not in slacks(document)


def test_a_reviewed_team_with_milestones_ends_with_the_person():
    review = {"after": ["b", "c"], "back_to": "a"}
    document = milestones({"a": ["b", "review"], "b": ["c"], "c": ["b"]}, {"c": ["x"]},
                          review=review)  # fmt: skip
    assert slacks(document)["max_handoffs", True] == (3, 20, 17)


def test_more_milestones_than_can_be_searched_are_left_out():
    names = [f"m{i}" for i in range(MILESTONES_MAX + 1)]
    document = milestones({"a": []}, {"a": names}, terminator="a")
    assert ("max_handoffs", True) not in slacks(document)
    assert ("max_handoffs", True) in slacks(
        milestones({"a": []}, {"a": names[:-1]}, terminator="a")
    )


def test_a_search_that_would_be_long_is_left_out():
    names = [f"m{i}" for i in range(MILESTONES_MAX)]
    hands = {str(i): [str(j) for j in range(100)] for i in range(100)}
    document = milestones(hands, {"7": names}, terminator="7")
    assert ("max_handoffs", True) not in slacks(document)
    assert ("max_handoffs", True) in slacks(milestones(hands, {"7": names[:5]}, terminator="7"))


def test_a_workflow_has_slack_only_for_limits_that_are_set():
    assert slacks(chain(node("a"), node("b"))) == {}
    limited = chain(node("a"), node("p", "approval"), stop_rules={"max_steps": 1})
    assert slacks(limited) == {("max_steps", False): (1, 1, 0)}
    assert warned(limited) == [("slack_0", "$.stop_rules.max_steps")]
    walked = chain(node("a"), node("p", "approval"), stop_rules={"max_handoffs": 2})
    assert slacks(walked) == {("max_handoffs", False): (3, 2, -1)}
    assert warned(walked) == [("infeasible", "$.stop_rules.max_handoffs")]


@pytest.mark.parametrize(("wait", "needed"), [("all", 5), ("any", 3)])
def test_the_shortest_way_takes_every_branch_unless_the_first_is_enough(wait: str, needed: int):
    document = workflow(
        node("start", "start"),
        node("d", "decision"),
        node("long1"),
        node("long2"),
        node("f", "decision", parallel=True),
        node("a"),
        node("b"),
        node("b2"),
        node("m", "merge", wait=wait),
        node("z"),
        node("y"),
        node("end", "end"),
        edges=[
            edge("start", "d"),
            edge("d", "long1", "x > 1"),
            edge("long1", "long2"),
            edge("long2", "f"),
            edge("d", "f"),
            edge("f", "a"),
            edge("f", "b"),
            edge("a", "m"),
            edge("b", "b2"),
            edge("b2", "m"),
            edge("m", "z"),
            edge("z", "y"),
            edge("y", "end"),
        ],
        stop_rules={"max_steps": 50},
    )
    assert slacks(document) == {("max_steps", False): (needed, 50, 50 - needed)}


def test_a_branch_that_a_condition_may_leave_out_is_not_needed():
    def forked(condition: str) -> dict[str, Any]:
        return workflow(
            node("start", "start"),
            node("f", "decision", parallel=True),
            node("a"),
            node("b"),
            node("m", "merge"),
            node("end", "end"),
            edges=[
                edge("start", "f"),
                edge("f", "a"),
                edge("f", "b", condition),
                edge("a", "m"),
                edge("b", "m"),
                edge("m", "end"),
            ],
            stop_rules={"max_steps": 2},
        )

    assert slacks(forked("")) == {("max_steps", False): (2, 2, 0)}
    assert slacks(forked("x > 1")) == {("max_steps", False): (1, 2, 1)}


def test_an_end_that_aborts_is_no_success():
    def failing(status: str) -> dict[str, Any]:
        return workflow(
            node("start", "start"),
            node("a"),
            node("b"),
            node("bad", "end", status="aborted_stuck"),
            node("end", "end", status=status),
            edges=[
                edge("start", "a"),
                edge("a", "b"),
                edge("a", "bad", "failure"),
                edge("b", "end"),
            ],
            stop_rules={"max_steps": 2},
        )

    assert slacks(failing("done_partial")) == {("max_steps", False): (2, 2, 0)}
    assert slacks(failing("aborted_stuck")) == {}
