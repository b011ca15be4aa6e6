"""What makes a team valid: each rule with the smallest definition that breaks it."""

from typing import Any

import pytest
from tests.kernel.driven_run import plan_of, team

from handrail.kernel.definition.graph import handoff_distances
from handrail.kernel.definition.plan import check_definition


def errors(document: dict[str, Any]) -> list[tuple[str, str]]:
    """(code, path) of each error; every error says what is wrong and what to do."""
    plan, checked = check_definition(document)
    assert (plan is None) == bool(checked.errors)
    assert all(e.message and e.hint for e in checked.errors)
    return [(e.code, e.path) for e in checked.errors]


def test_a_team_with_a_start_and_an_authority_is_valid():
    assert errors(team({"a": ["b"], "b": ["a"]}, terminator="b")) == []
    assert errors(team({"a": []}, terminator="a")) == []
    assert errors(team({"a": ["a"]}, terminator="a")) == []


@pytest.mark.requirement("L13.8")
def test_agents_and_tasks_have_ids_of_their_own():
    document = team({"a": ["b"], "b": []}, terminator="b")
    document["agents"].append({"id": "b", "hands_off_to": []})
    assert errors(document) == [("duplicate_agent", "$.agents")]
    tasks = {"a": {"tasks": [{"id": "t"}, {"id": "t"}]}}
    doubled = team({"a": ["b"], "b": []}, terminator="b", agents=tasks)
    assert errors(doubled) == [("duplicate_task", "$.agents[0].tasks")]


def test_start_and_terminator_are_agents_of_the_team():
    assert errors(team({"a": []}, start="x", terminator="a")) == [("unknown_start", "$.start")]
    assert ("unknown_terminator", "$.terminator") in errors(team({"a": []}, terminator="x"))
    empty = {"name": "t", "kind": "team", "start": "a", "terminator": "a", "agents": []}
    assert errors(empty) == [("unknown_start", "$.start"), ("unknown_terminator", "$.terminator")]


def test_somebody_may_end_a_run():
    assert errors(team({"a": []})) == [("no_terminator", "$.terminator")]
    reviewed = team({"a": []}, review={"after": ["a"], "back_to": "a"})
    assert errors(reviewed) == []


def test_handoffs_name_agents_of_the_team():
    document = team({"a": ["b", "ghost"], "b": ["review"]}, terminator="b")
    assert errors(document) == [
        ("unknown_target", "$.agents[0].hands_off_to[1]"),
        ("unknown_target", "$.agents[1].hands_off_to[0]"),
    ]
    _, checked = check_definition(document)
    assert checked.errors[0].hint == "use one of a, b"


@pytest.mark.requirement("L5.5")
def test_the_when_of_a_task_compiles_and_names_declared_keys():
    def asked(when: str, **rest: Any) -> dict[str, Any]:
        return team({"a": []}, terminator="a", agents={"a": {"tasks": [{"id": "t", "when": when}]}},
                    **rest)  # fmt: skip

    assert errors(asked("x > 1")) == []
    assert errors(asked(" ")) == []
    assert errors(asked("x >")) == [("bad_condition", "$.agents[0].tasks[0].when")]
    declared = {"metadata": {"context": ["x"]}}
    assert errors(asked("x > 1 && phase == 'checked'", **declared)) == []
    assert errors(asked("y > 1", **declared)) == [("unknown_name", "$.agents[0].tasks[0].when")]


@pytest.mark.requirement("L13.4")
def test_the_terminator_and_every_agent_can_be_reached():
    cut_off = team({"a": ["b"], "b": ["a"], "t": ["a"]}, terminator="t")
    assert errors(cut_off) == [("unreachable_terminator", "$.terminator")]
    lost = team({"a": ["b"], "b": [], "x": ["b"]}, terminator="b")
    assert errors(lost) == [("unreachable", "$.agents[2]")]


def test_reached_gives_the_fewest_handoffs_to_each_agent():
    document = team({"a": ["b", "c"], "b": ["d"], "c": ["a", "d"], "d": ["a"]}, terminator="d")
    assert handoff_distances(plan_of(document).team) == {"a": 0, "b": 1, "c": 1, "d": 2}


def test_review_comes_after_agents_of_the_team_and_goes_back_to_one():
    base = {"a": ["b"], "b": ["a"]}
    fine = {"after": ["b"], "back_to": "a"}
    assert errors(team(base, review=fine)) == []
    assert errors(team(base, terminator="b", review={"after": ["x"], "back_to": "y"})) == [
        ("unknown_target", "$.review.after[0]"),
        ("unknown_target", "$.review.back_to"),
    ]
    assert errors(team(base, terminator="b", review={"after": [], "back_to": "a"})) == []
    assert errors(team(base, review={"after": [], "back_to": "a"})) == [
        ("unreachable_terminator", "$.review.after")
    ]


def test_a_quorum_of_named_reviewers_has_enough_people():
    review = {"after": ["a"], "back_to": "a", "quorum": 2}
    assert errors(team({"a": []}, review={**review, "approvers": ["ana", "bo"]})) == []
    assert errors(team({"a": []}, review={**review, "approvers": ["ana"]})) == [
        ("too_few_approvers", "$.review.quorum")
    ]


def test_the_seat_of_the_reviewing_person_is_no_agent():
    review = {"after": ["b"], "back_to": "a"}
    seated = team({"a": ["b", "review"], "b": ["review"], "review": []}, review=review)
    assert errors(seated) == []
    unreached_seat = team({"a": ["b"], "b": [], "review": []}, review=review)
    assert errors(unreached_seat) == []
    starting = team({"a": ["b"], "b": [], "review": ["a"]}, start="review", review=review)
    assert ("unknown_start", "$.start") in errors(starting)
    back = team({"a": ["b"], "b": [], "review": []}, review={"after": ["b"], "back_to": "review"})
    assert errors(back) == [("unknown_target", "$.review.back_to")]


@pytest.mark.requirement("K19")
def test_a_team_has_a_hard_limit():
    base = {"a": ["b"], "b": ["a"]}
    for one in ("max_handoffs", "max_steps"):
        assert errors(team(base, terminator="b", stop_rules={one: None})) == []
    off = {"max_handoffs": None, "max_steps": None}
    assert errors(team(base, terminator="b", stop_rules=off)) == [("unbounded", "$.stop_rules")]


@pytest.mark.requirement("L13.8")
def test_everything_wrong_is_said_at_once():
    document = team(
        {"a": ["ghost"], "b": []},
        start="nobody",
        agents={"a": {"tasks": [{"id": "t", "when": "("}, {"id": "t"}]}},
        stop_rules={"max_handoffs": None, "max_steps": None},
    )
    assert {code for code, _ in errors(document)} == {
        "unknown_start", "no_terminator", "unknown_target", "duplicate_task", "bad_condition",
        "unbounded",
    }  # fmt: skip
