"""Redirects (K30): where a handoff leads that a loop rule is against."""

from typing import Any

import pytest
from tests.kernel.adversary import explore, oracle
from tests.kernel.driven_run import (
    ANA,
    DrivenRun,
    Evidence,
    Outcome,
    files,
    plan_of,
    team,
    used,
)

from handrail.kernel.definition.plan import check_definition
from handrail.kernel.run import commands as c
from handrail.kernel.run.events import HandedOff, Warned

pytestmark = pytest.mark.requirement("K30")

HANDS = {
    "planner": ["researcher", "coder", "verifier"],
    "researcher": ["planner"],
    "coder": ["planner"],
    "verifier": ["planner"],
    "closer": ["planner"],
}
CHAIN = {"researcher": "coder", "coder": "verifier", "verifier": "closer"}


def coding(redirects: dict[str, str] | None = None, /, **rules: Any) -> dict[str, Any]:
    hands = {**HANDS, "planner": [*HANDS["planner"], "closer"]}
    stop_rules = {"max_handoffs": 100, "repeat_limit": None, "max_edge": 2, **rules}
    agents = {"planner": {"when_exhausted": CHAIN if redirects is None else redirects}}
    return team(hands, terminator="closer", agents=agents, stop_rules=stop_rules)


def play(run: DrivenRun, *targets: str, **result: Any) -> None:
    """The planner proposes each of them; whoever gets the turn hands back."""
    for to in targets:
        run.hand(to, **result)
        if not run.run.has_ended:
            run.hand("planner")


def way(run: DrivenRun) -> list[str]:
    return [event.target for event in run.of(HandedOff) if event.accepted]


def turned(run: DrivenRun) -> list[tuple[str, tuple[str, ...], str, str]]:
    return [(e.source, e.proposed, e.target, e.rule) for e in run.of(HandedOff) if e.proposed]


@pytest.mark.requirement("S8")
def test_a_handoff_over_a_spent_edge_leads_to_the_target_that_the_agent_names() -> None:
    run = DrivenRun(coding())
    play(run, "researcher", "researcher")
    run.hand("researcher", "one more look")
    assert turned(run) == [("planner", ("researcher",), "coder", "max_edge")]
    assert [*run.run.positions] == ["coder"]
    handoff = run.of(HandedOff)[-1]
    assert (handoff.number, handoff.reason, handoff.accepted) == (5, "one more look", True)
    assert [(w.code, w.step_id) for w in run.of(Warned)] == [
        ("same_target_twice", "planner"),
        ("redirected", "planner"),
    ]
    assert run.of(Warned)[-1].message == (
        "'planner' wanted to hand off to 'researcher'; it goes to 'coder' instead (max_edge: "
        "planner_researcher_loop: planner handed to researcher 2 times without progress and wants "
        "to again)"
    )


def test_it_counts_as_an_ordinary_handoff_is_no_progress_and_resets_nothing() -> None:
    run = DrivenRun(coding())
    play(run, "researcher", "researcher")
    before = run.run.ledger
    run.hand("researcher")
    after = run.run.ledger
    assert (after.handoffs, after.epoch) == (before.handoffs + 1, before.epoch)
    assert after.trail[1:] == before.trail
    assert run.replayed() == run.run


@pytest.mark.requirement("S8")
def test_each_edge_leads_elsewhere_once_a_stretch_and_then_the_rule_ends_the_run() -> None:
    run = DrivenRun(coding())
    play(run, "researcher", "researcher", "researcher", "researcher")
    assert way(run)[-2:] == ["coder", "planner"]
    assert run.run.stop is not None
    assert (run.run.stop.rule, run.run.terminal_status) == ("max_edge", "aborted_stuck")
    assert "planner_researcher_loop" in run.run.stop.reason
    assert run.run.stop.evidence == ("handoff 1", "handoff 3")


@pytest.mark.requirement("K14")
def test_a_persons_move_opens_a_stretch_in_which_it_leads_elsewhere_again() -> None:
    run = DrivenRun(coding())
    play(run, "researcher", "researcher", "researcher")
    run.do(c.Move(by=ANA, step_id="planner", reason="try again"))
    assert run.run.redirected == ()
    play(run, "researcher", "researcher", "researcher")
    assert [target for _, _, target, _ in turned(run)] == ["coder", "coder"]


def test_where_the_other_target_is_spent_too_its_own_redirect_is_taken() -> None:
    run = DrivenRun(coding())
    play(run, "coder", "coder", "researcher", "researcher")
    run.hand("researcher")
    assert turned(run) == [("planner", ("researcher", "coder"), "verifier", "max_edge")]
    run.hand("planner")
    run.hand("coder")
    assert run.run.stop is not None
    assert run.run.stop.rule == "max_edge", "the edge to the coder is spent with the other one"


@pytest.mark.parametrize("redirects", [{}, {"coder": "verifier"}])
def test_without_a_redirect_the_run_ends_as_ever(redirects: dict[str, str]) -> None:
    run = DrivenRun(coding(redirects))
    play(run, "researcher", "researcher", "researcher")
    assert run.run.stop is not None
    assert (run.run.stop.rule, turned(run)) == ("max_edge", [])


@pytest.mark.parametrize(
    ("rules", "result", "rule"),
    [
        ({"max_handoffs": 4}, {}, "max_edge"),
        ({"max_tokens": 10}, {"usage": used(tokens=11)}, "budget"),
    ],
)
def test_a_handoff_that_another_rule_refuses_too_is_not_turned_aside(
    rules: dict[str, int], result: dict[str, Any], rule: str
) -> None:
    run = DrivenRun(coding(**rules))
    play(run, "researcher", "researcher")
    run.hand("researcher", **result)
    assert run.run.stop is not None
    assert (run.run.stop.rule, turned(run)) == (rule, [])


def test_a_redirect_that_a_rule_is_against_ends_the_run_by_the_rule_against_the_proposal() -> None:
    run = DrivenRun(coding({"researcher": "coder"}))
    play(run, "coder", "coder", "researcher", "researcher", "researcher")
    assert run.run.stop is not None
    assert (run.run.stop.rule, turned(run)) == ("max_edge", [])
    assert "planner_researcher_loop" in run.run.stop.reason


@pytest.mark.requirement("H3.1")
def test_a_handoff_that_would_complete_a_repetition_leads_elsewhere() -> None:
    run = DrivenRun(coding(repeat_limit=3, max_edge=None))
    run.hand("coder")
    run.hand("planner")
    play(run, "researcher", "researcher")
    run.hand("researcher")
    run.hand("planner")
    assert run.run.stop is not None, "the researcher, who completes it, has no redirect"
    run = DrivenRun(coding(repeat_limit=3, max_edge=None))
    run.hand("researcher")
    run.hand("planner", evidence=files(notes="1"))
    play(run, "researcher", "researcher")
    run.hand("researcher")
    assert turned(run) == [("planner", ("researcher",), "coder", "repeated_pattern")]


@pytest.mark.requirement("S2")
def test_research_that_is_good_is_not_visited_again_after_a_visit_without_gain() -> None:
    run = DrivenRun(coding(max_edge=None))
    for score in (0.9, 0.91):
        run.hand("researcher")
        run.hand("planner", evidence=Evidence(score=score))
        assert not turned(run)
    run.hand("researcher")
    assert turned(run) == [("planner", ("researcher",), "coder", "research_exhausted")]
    assert "research has a best score of 0.9" in run.of(Warned)[-1].message
    run.hand("planner")
    run.hand("researcher")
    assert way(run)[-1] == "researcher", "no rule refuses it, and the redirect is spent"


@pytest.mark.requirement("S2")
def test_research_that_is_not_good_is_visited_again_and_switched_off_it_is_not_judged() -> None:
    for rules, score in (({}, 0.5), ({"research_limit": None}, 0.9)):
        run = DrivenRun(coding(max_edge=None, **rules))
        for _ in range(2):
            run.hand("researcher")
            run.hand("planner", evidence=Evidence(score=score))
        run.hand("researcher")
        assert not turned(run)


@pytest.mark.requirement("S2")
def test_only_the_goal_of_the_named_task_is_judged() -> None:
    document = coding({"researcher": "coder"}, max_edge=None)
    document["agents"][1]["tasks"] = [{"id": "cause"}, {"id": "cure"}]
    run = DrivenRun(document)
    for _ in range(2):
        run.hand("researcher", task="cause")
        run.hand("planner", evidence=Evidence(score=0.9))
    run.hand("researcher", task="cure")
    assert not turned(run)
    run.hand("planner")
    run.hand("researcher", task="cause")
    assert way(run)[-1] == "coder"


@pytest.mark.requirement("S2")
def test_a_result_that_exhausts_research_leads_its_own_handoff_elsewhere() -> None:
    document = coding({}, max_edge=None)
    document["agents"][1] |= {
        "hands_off_to": ["planner", "coder"],
        "when_exhausted": {"planner": "coder"},
    }
    run = DrivenRun(document)
    for _ in range(4):
        run.hand("researcher")
        run.hand("planner", evidence=Evidence(score=0.2))
    assert turned(run) == [("researcher", ("planner",), "coder", "research_exhausted")]
    run.hand("planner")
    run.hand("researcher")
    run.hand("planner", evidence=Evidence(score=0.2))
    assert run.run.stop is not None
    assert run.run.stop.rule == "research_exhausted"


@pytest.mark.requirement("H5.3")
def test_a_redirect_may_lead_to_the_terminator_whom_the_agent_could_not_choose() -> None:
    hands = {"planner": ["coder"], "coder": ["planner", "closer"], "closer": []}
    agents = {"planner": {"when_exhausted": {"coder": "closer"}}}
    rules = {"max_edge": 1, "repeat_limit": None}
    document = team(hands, terminator="closer", agents=agents, stop_rules=rules)
    run = DrivenRun(document)
    run.hand("coder")
    run.hand("planner")
    run.hand("closer")
    assert run.run.positions["planner"].faults == 1
    run.hand("coder")
    assert [*run.run.positions] == ["closer"]
    run.report(outcome=Outcome.TERMINATE)
    assert run.run.terminal_status == "done_success"


@pytest.mark.requirement("K19")
def test_a_redirect_to_a_task_that_is_done_gives_the_earlier_result_back() -> None:
    document = coding({"researcher": "coder"})
    document["agents"][2]["tasks"] = [{"id": "patch", "once": True}]
    run = DrivenRun(document)
    play(run, "coder", "researcher", "researcher")
    run.hand("researcher")
    handoff = run.of(HandedOff)[-1]
    assert (handoff.target, handoff.task, handoff.already_done) == ("coder", "patch", True)
    assert [*run.run.positions] == ["planner"]


# The certificate


@pytest.mark.requirement("K23", "K26")
def test_with_redirects_the_certificate_is_what_it_was_and_no_play_exceeds_it() -> None:
    hands = {"a": ["b", "c"], "b": ["a"], "c": ["a", "b"]}
    rules = {
        "max_handoffs": 5, "max_steps": 6, "protocol_error_limit": 1, "max_edge": 1,
        "repeat_limit": 2,
    }  # fmt: skip
    agents = {"a": {"when_exhausted": {"b": "c"}}, "c": {"when_exhausted": {"a": "b"}}}
    plain = team(hands, terminator="b", stop_rules=rules)
    document = team(hands, terminator="b", stop_rules=rules, agents=agents)
    bound = oracle(document).bound()
    assert bound == oracle(plain).bound()
    explored = explore(document, limit=200_000, asks=False)
    assert "redirect" in explored.happened
    assert (explored.most["handoffs"], explored.most["dispatches"]) == (
        bound.handoffs,
        bound.dispatches,
    )


@pytest.mark.requirement("K23")
def test_a_way_to_the_terminator_that_only_a_redirect_opens_is_part_of_the_certificate() -> None:
    hands = {"s": ["a", "t"], "a": ["b"], "b": [], "t": ["x"], "x": []}
    plain = plan_of(team(hands, terminator="t")).bound()
    redirected = plan_of(
        team(hands, terminator="t", agents={"a": {"when_exhausted": {"b": "t"}}})
    ).bound()
    assert (plain.handoffs, plain.tight["handoffs"]) == (2, True)
    assert (redirected.handoffs, redirected.tight["handoffs"]) == (3, False)


# The definition


def errors(document: dict[str, Any]) -> list[tuple[str, str]]:
    plan, checked = check_definition(document)
    assert (plan is None) == bool(checked.errors)
    assert all(e.message and e.hint for e in checked.errors)
    return [(e.code, e.path) for e in checked.errors]


@pytest.mark.requirement("L13.8")
def test_a_redirect_leads_from_a_target_of_the_agent_to_another_or_to_the_terminator() -> None:
    path = "$.agents[0].when_exhausted"
    assert errors(coding()) == []
    assert errors(coding({"ghost": "coder"})) == [("bad_redirect", f"{path}.ghost")]
    assert errors(coding({"coder": "planner"})) == [("bad_redirect", f"{path}.coder")]
    hands = {"a": ["b", "review"], "b": ["a"]}
    review = {"after": ["b"], "back_to": "a"}
    for redirects, target in (({"b": "review"}, "b"), ({"review": "b"}, "review")):
        document = team(hands, review=review, agents={"a": {"when_exhausted": redirects}})
        assert errors(document) == [("bad_redirect", f"{path}.{target}")]


@pytest.mark.requirement("L13.8")
@pytest.mark.parametrize(
    ("redirects", "targets"),
    [
        ({"coder": "coder"}, ["coder"]),
        ({"coder": "researcher", "researcher": "coder"}, ["coder", "researcher"]),
        ({"verifier": "coder", "coder": "researcher", "researcher": "coder"},
         ["coder", "researcher"]),
    ],
)  # fmt: skip
def test_the_redirects_of_an_agent_have_no_cycle(
    redirects: dict[str, str], targets: list[str]
) -> None:
    path = "$.agents[0].when_exhausted"
    assert errors(coding(redirects)) == [("redirect_cycle", f"{path}.{to}") for to in targets]
