"""Runs of definitions that name budgets: no step begins once one of them is spent."""

from typing import Any

import pytest
from tests.kernel.driven_run import ANA, DrivenRun, chain, edge, node, plan_of, team, workflow

from handrail.kernel.result import Usage
from handrail.kernel.run import commands as c
from handrail.kernel.run.decide import decide
from handrail.kernel.run.events import (
    BUDGET_NEARLY_SPENT,
    BUDGETS_CHANGED,
    Offered,
    Started,
    Warned,
)
from handrail.kernel.run.evolve import replay
from handrail.kernel.run.measure import measure
from handrail.kernel.stop.budgets import BudgetState, parse_budget

RULES = {"budgets": ["support"]}
CHAIN = chain(node("a"), node("b"), stop_rules=RULES)
TEAM = team({"planner": ["coder"], "coder": ["planner"]}, terminator="coder", stop_rules=RULES)


def support(cost: float, limit: float | None = 20, **more: Any) -> tuple[BudgetState, ...]:
    return (BudgetState(name="support", per="day", cost=cost, cost_max=limit, **more),)


def codes(driven: DrivenRun) -> list[str]:
    return [event.code for event in driven.events if isinstance(event, Warned)]


def stop_of(driven: DrivenRun) -> tuple[Any, ...]:
    stop = driven.run.stop
    assert stop is not None
    return driven.run.terminal_status, stop.rule, stop.limit_name, stop.seen, stop.limit


SPENT = ("aborted_constraint", "budget", "budgets", 20, 20)


@pytest.mark.parametrize("document", [CHAIN, TEAM])
def test_a_run_does_not_begin_once_the_budget_is_spent(document: dict[str, Any]) -> None:
    driven = DrivenRun(document, budgets=support(20))
    assert stop_of(driven) == SPENT
    assert not [event for event in driven.events if isinstance(event, Offered)]
    assert driven.run.stop is not None
    assert "the budget 'support' is spent: 20 of 20 cost in all its runs" in driven.run.stop.reason


@pytest.mark.parametrize(
    ("document", "result"),
    [(CHAIN, {"outcome": "success"}), (TEAM, {"outcome": "handoff", "to": "coder"})],
)
def test_the_step_that_spends_the_rest_is_the_last(
    document: dict[str, Any], result: dict[str, Any]
) -> None:
    driven = DrivenRun(document, budgets=support(12))
    driven.report(usage=Usage(cost=8), **result)
    assert stop_of(driven) == SPENT
    assert driven.run.ledger.cost == 8


def test_what_others_have_spent_ends_the_run_when_a_dispatch_is_claimed() -> None:
    driven = DrivenRun(CHAIN, budgets=support(12))
    driven.budgets = support(20)
    (position,) = driven.run.positions.values()
    claim = c.Claim(fence=position.fence, agent="x", roles=(position.role,))
    refusal = driven.do(claim).refusal
    assert refusal is not None
    assert refusal.code == "ended"
    assert stop_of(driven) == SPENT
    assert codes(driven) == [BUDGETS_CHANGED, BUDGET_NEARLY_SPENT]


def test_what_others_have_spent_ends_a_run_that_waits_for_agents_with_the_clock() -> None:
    driven = DrivenRun(TEAM, budgets=support(12))
    driven.budgets = support(20)
    assert driven.advance(1).refusal is None
    assert stop_of(driven) == SPENT


def test_an_agent_at_work_reports_what_it_did_and_nothing_follows() -> None:
    driven = DrivenRun(CHAIN, budgets=support(12))
    driven.claim()
    driven.budgets = support(20)
    driven.advance(1)
    assert driven.run.terminal_status is None
    assert driven.report(outcome="success").refusal is None
    assert stop_of(driven) == SPENT


def test_the_last_result_of_a_run_is_not_lost_although_it_spends_the_budget() -> None:
    driven = DrivenRun(CHAIN, budgets=support(12))
    driven.report(outcome="success")
    driven.report(outcome="success", usage=Usage(cost=8))
    assert driven.run.terminal_status == "done_success"


def test_a_larger_budget_lets_a_run_go_on_that_waits_for_a_person() -> None:
    document = chain(node("a"), node("ok", "approval"), node("b"), stop_rules=RULES)
    driven = DrivenRun(document, budgets=support(12))
    driven.report(outcome="success", usage=Usage(cost=8))
    (approval,) = driven.run.pending_approvals.values()
    driven.budgets = support(20)
    driven.advance(1)
    assert driven.run.terminal_status is None
    driven.budgets = support(20, 50)
    driven.do(c.Answer(approval_id=approval.id, by=ANA, decision="approve", digest=approval.digest))
    assert [position.step_id for position in driven.run.positions.values()] == ["b"]


def test_a_person_who_raises_a_spent_budget_is_on_record() -> None:
    driven = DrivenRun(CHAIN, budgets=support(12))
    driven.claim()
    driven.budgets = support(20)
    driven.advance(1)
    driven.budgets = support(20, 50)
    driven.report(outcome="success")
    assert driven.run.terminal_status is None
    recorded = [event.budgets for event in driven.events if isinstance(event, Started | Warned)]
    assert [budgets[0].is_spent for budgets in recorded if budgets] == [False, True, False]


def test_a_budget_that_is_deleted_ends_nothing() -> None:
    driven = DrivenRun(CHAIN, budgets=support(12))
    driven.claim()
    driven.budgets = (BudgetState(name="support", per="day"),)
    driven.report(outcome="success", usage=Usage(cost=100))
    assert driven.run.terminal_status is None


def test_a_budget_of_each_run_counts_what_this_run_used() -> None:
    per_run = (BudgetState(name="support", per="run", tokens_max=30),)
    driven = DrivenRun(TEAM, budgets=per_run)
    driven.report(outcome="handoff", to="coder", usage=Usage(tokens=20))
    driven.report(outcome="handoff", to="planner", usage=Usage(tokens=20))
    assert stop_of(driven) == ("aborted_constraint", "budget", "budgets", 40, 30)


def test_a_paused_run_is_not_ended_while_it_is_paused() -> None:
    driven = DrivenRun(CHAIN, budgets=support(12))
    driven.do(c.Pause(by=ANA, reason="later"))
    driven.budgets = support(20)
    driven.advance(1)
    assert driven.run.terminal_status is None
    driven.do(c.Resume(by=ANA, reason="now"))
    driven.advance(1)
    assert stop_of(driven) == SPENT


def test_a_run_warns_once_that_a_budget_is_nearly_spent() -> None:
    driven = DrivenRun(TEAM, budgets=support(15))
    for to in ("coder", "planner"):
        driven.report(outcome="handoff", to=to, usage=Usage(cost=1))
    assert codes(driven).count(BUDGET_NEARLY_SPENT) == 1
    assert driven.run.terminal_status is None


def test_a_run_is_recomputed_from_its_events_and_no_record_lifts_the_measure() -> None:
    driven = DrivenRun(CHAIN, budgets=support(12))
    driven.budgets = support(17)
    driven.report(outcome="success", usage=Usage(cost=1))
    driven.budgets = support(21)
    driven.advance(1)
    assert replay(driven.events) == driven.run
    run = None
    for number, event in enumerate(driven.events):
        before, run = run, replay(driven.events[: number + 1])
        assert before is None or measure(driven.plan, run) <= measure(driven.plan, before)
        assert (
            before is None
            or not isinstance(event, Warned)
            or (measure(driven.plan, run) == measure(driven.plan, before))
        )


def test_the_certificate_knows_no_budget() -> None:
    assert plan_of(CHAIN).bound() == plan_of({**CHAIN, "stop_rules": {}}).bound()


def test_a_failed_attempt_counts_and_is_not_repeated() -> None:
    nodes = [node("start", "start"), node("a"), node("b"), node("end", "end")]
    edges = [edge("start", "a"), edge("a", "b"), edge("b", "end")]
    driven = DrivenRun(workflow(*nodes, edges=edges, stop_rules=RULES), budgets=support(19))
    driven.report(outcome="failure", usage=Usage(cost=1))
    assert stop_of(driven) == SPENT


@pytest.mark.parametrize(
    ("text", "cost", "tokens", "per"),
    [("support = 20 cost a day", 20.0, None, "day"), ("all=5000 tokens a run", None, 5000, "run")],
)
def test_settings_write_a_budget_in_words(
    text: str, cost: float | None, tokens: int | None, per: str
) -> None:
    state = parse_budget(text)
    assert (state.cost_max, state.tokens_max, state.per) == (cost, tokens, per)


@pytest.mark.parametrize(
    "text", ["", "support", "support = 20", "= 20 cost a day", "a = 999999999999999 tokens a day"]
)
def test_a_budget_that_cannot_be_read_is_refused_with_the_form(text: str) -> None:
    with pytest.raises(ValueError, match="budget"):
        parse_budget(text)


def test_a_command_without_what_is_known_decides_as_before() -> None:
    driven = DrivenRun(CHAIN)
    assert decide(driven.plan, driven.run, c.Tick(), driven.now).events == ()
