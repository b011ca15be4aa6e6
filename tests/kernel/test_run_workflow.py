"""Workflow runs: routing, retries, rework, parallel blocks, escalation, redispatch."""

import pytest
from tests.kernel.driven_run import ANA, NOON, DrivenRun, chain, edge, node, plan_of, red, workflow

from handrail.kernel.result import Outcome
from handrail.kernel.run import commands as c
from handrail.kernel.run.decide import decide
from handrail.kernel.run.decision_builder import AcquireLock, CancelDispatch, ReleaseLock
from handrail.kernel.run.events import Asked, Claimed, Ended, Moved, Offered, Warned

AUTO_BUG = chain(
    node("triage", role="qa-engineer"),
    node("investigate", max_attempts=5, multi_dispatch=True, kind="investigation"),
    node("approve", "approval", revise_to="investigate"),
    node("apply", role="engineering-manager", kind="commit", repository="shop"),
    node(
        "verify",
        role="qa-engineer",
        kind="verification",
        on_failure={"rework": "apply", "max": 3},
    ),
)


def block(wait: str = "all", **fork: object) -> dict:
    """p, then a and b side by side, then q; both branches may send back to p."""
    return workflow(
        node("s", "start"),
        node("p", max_attempts=1),
        node("f", "decision", parallel=True, **fork),
        node("a", max_attempts=2, on_failure={"rework": "p", "max": 1}),
        node("b", max_attempts=2),
        node("m", "merge", wait=wait),
        node("q", max_attempts=1),
        node("e", "end"),
        edges=[
            edge("s", "p"),
            edge("p", "f"),
            edge("f", "a"),
            edge("f", "b"),
            edge("a", "m"),
            edge("b", "m"),
            edge("m", "q"),
            edge("q", "e"),
        ],
    )


def at(driven: DrivenRun) -> set[str]:
    return set(driven.run.positions)


@pytest.mark.requirement("L8.2", "L9.1", "L4.2")
def test_a_run_starts_at_the_start_node_and_offers_the_first_task_to_its_role() -> None:
    run = DrivenRun(AUTO_BUG)
    offered = run.of(Offered)[-1]
    assert (offered.step_id, offered.role, offered.attempt) == ("triage", "qa-engineer", 1)
    assert at(run) == {"triage"}


@pytest.mark.requirement("L5.1", "L5.6", "S1", "L10.7")
def test_success_leads_over_the_success_edge_and_the_end_node_closes_the_run() -> None:
    run = DrivenRun(chain(node("a"), node("b")))
    run.succeed("a")
    assert at(run) == {"b"}
    decision = run.succeed("b")
    assert run.run.terminal_status == "done_success"
    assert run.run.stop is not None
    assert run.run.stop.rule == "completed"
    assert decision.accepted


@pytest.mark.requirement("L5.2", "K3")
def test_failure_takes_the_failure_edge_at_once_even_with_attempts_left() -> None:
    document = workflow(
        node("s", "start"),
        node("a", max_attempts=3),
        node("b"),
        node("fix"),
        node("e", "end"),
        edges=[
            edge("s", "a"),
            edge("a", "b"),
            edge("a", "fix", "failure"),
            edge("b", "e"),
            edge("fix", "e"),
        ],
    )
    run = DrivenRun(document)
    run.fail("a")
    assert at(run) == {"fix"}
    assert run.of(Moved)[-1].outcome == "failure"


@pytest.mark.requirement("L5.3", "L5.4", "L6.1", "L6.2", "L6.3", "L2.4", "L2.6")
def test_without_a_failure_edge_a_task_is_retried_and_then_a_person_decides() -> None:
    run = DrivenRun(chain(node("a")))
    for attempt in (1, 2, 3):
        assert run.run.positions["a"].attempts == attempt
        run.fail(text="does not work")
    question = run.question()
    assert question.kind == "escalation"
    assert "3 of 3 attempts" in question.text
    assert "does not work" in question.text
    assert run.run.status == "waiting"


@pytest.mark.requirement("L6.5", "K13")
def test_an_approved_escalation_goes_on_as_if_the_node_had_succeeded() -> None:
    run = DrivenRun(chain(node("a", max_attempts=1), node("b")))
    run.fail()
    run.answer("ok")
    assert at(run) == {"b"}
    assert run.run.stretch == 1, "approving raises nothing"


@pytest.mark.requirement("L6.6")
def test_a_rejected_escalation_closes_run_and_bead() -> None:
    run = DrivenRun(chain(node("a", max_attempts=1)))
    run.fail()
    run.answer(decision="reject", text="drop it")
    assert run.run.terminal_status == "closed_by_human"


@pytest.mark.requirement("K13", "K14")
def test_once_more_starts_a_new_visit_with_fresh_attempts_and_a_new_stretch() -> None:
    run = DrivenRun(chain(node("a", max_attempts=2)))
    run.fail()
    run.fail()
    run.answer(decision="revise", text="look at the log first")
    assert run.run.positions["a"].attempts == 1
    assert run.run.stretch == 2
    assert run.of(Moved)[-1].outcome == "once_more"


@pytest.mark.requirement("L5.5", "L8.3", "K5")
def test_conditions_are_tried_in_order_and_the_plain_edge_last() -> None:
    document = workflow(
        node("s", "start"),
        node("d", "decision"),
        node("low"),
        node("mid"),
        node("high"),
        node("e", "end"),
        edges=[
            edge("s", "d"),
            edge("d", "low"),
            edge("d", "high", "severity >= 5"),
            edge("d", "mid", "severity >= 3"),
            edge("low", "e"),
            edge("mid", "e"),
            edge("high", "e"),
        ],
    )
    assert at(DrivenRun(document, context={"severity": 9})) == {"high"}
    assert at(DrivenRun(document, context={"severity": 4})) == {"mid"}
    assert at(DrivenRun(document, context={"severity": 1})) == {"low"}


@pytest.mark.requirement("K5")
def test_a_condition_that_errors_counts_as_false_and_is_recorded() -> None:
    document = workflow(
        node("s", "start"),
        node("a"),
        node("b"),
        node("e", "end"),
        edges=[edge("s", "a", "severity >= 5"), edge("s", "b"), edge("a", "e"), edge("b", "e")],
    )
    run = DrivenRun(document)
    assert at(run) == {"b"}
    (warning,) = run.of(Warned)
    assert warning.code == "condition_error"
    assert "severity" in warning.message


@pytest.mark.requirement("L11.7", "L11.8", "K3", "K7")
def test_failed_verification_reworks_apply_three_times_and_then_asks_a_person() -> None:
    run = DrivenRun(AUTO_BUG)
    run.succeed("triage")
    run.succeed("investigate")
    run.answer("lgtm")
    for _ in range(4):
        run.do(c.GrantLock(step_id="apply", lock=1))
        run.succeed("apply")
        run.fail("verify", text="still red")
    assert run.question().kind == "escalation"
    assert "3 reworks used up" in run.question().text
    reworks = [moved for moved in run.of(Moved) if moved.outcome == "rework"]
    assert [moved.targets for moved in reworks] == [("apply",)] * 3


@pytest.mark.requirement("K2")
def test_rework_gives_fresh_attempts_and_the_fence_grows_over_the_whole_run() -> None:
    run = DrivenRun(
        chain(node("x"), node("v", max_attempts=1, on_failure={"rework": "x", "max": 1}))
    )
    run.fail("x")
    run.succeed("x")
    run.fail("v")
    assert run.run.positions["x"].attempts == 1
    fences = [offered.fence for offered in run.of(Offered)]
    assert fences == [1, 2, 3, 4]


@pytest.mark.requirement("K7")
def test_rework_to_an_outer_target_refreshes_inner_counters_but_not_its_own() -> None:
    run = DrivenRun(
        chain(
            node("x", max_attempts=1),
            node("y", max_attempts=1),
            node("v", max_attempts=1, on_failure={"rework": "y", "max": 1}),
            node("z", max_attempts=1, on_failure={"rework": "x", "max": 2}),
        )
    )
    run.succeed("x")
    run.succeed("y")
    run.fail("v")
    assert run.run.reworks == {"v": 1}
    run.succeed("y")
    run.succeed("v")
    run.fail("z")
    assert run.run.reworks == {"z": 1}


@pytest.mark.requirement("L2.1", "L2.2", "L2.3", "L2.5", "L9.3")
def test_an_investigation_asks_for_more_turns_and_each_is_an_attempt() -> None:
    run = DrivenRun(AUTO_BUG)
    run.succeed("triage")
    run.report("investigate", outcome=Outcome.CONTINUE, text="looking")
    assert run.run.context["redispatch_requested"] is True
    assert "last_run_at" in run.run.context
    assert run.run.positions["investigate"].attempts == 2
    run.claim("investigate")
    assert run.run.context["redispatch_requested"] is False
    for _ in range(4):
        run.report("investigate", outcome=Outcome.CONTINUE)
    assert run.question().kind == "escalation"


@pytest.mark.requirement("L2.1")
def test_continue_is_refused_where_a_node_takes_one_dispatch() -> None:
    run = DrivenRun(chain(node("a")))
    run.claim()
    before = run.run
    decision = run.report(outcome=Outcome.CONTINUE)
    assert decision.refusal is not None
    assert decision.refusal.code == "not_multi_dispatch"
    assert run.run == before


@pytest.mark.parametrize("outcome", [Outcome.HANDOFF, Outcome.TERMINATE, None])
def test_outcomes_of_teams_mean_nothing_in_a_workflow(outcome: Outcome | None) -> None:
    run = DrivenRun(chain(node("a")))
    decision = run.report(outcome=outcome)
    assert decision.refusal is not None
    assert decision.refusal.code == "bad_outcome"


@pytest.mark.requirement("K1")
def test_a_lost_lease_and_a_malformed_result_each_use_up_an_attempt() -> None:
    run = DrivenRun(chain(node("a", max_attempts=3)))
    fence = run.claim()
    run.do(c.Lose(fence=fence, reason="no heartbeat"))
    assert run.run.positions["a"].attempts == 2
    fence = run.claim()
    malformed = run.do(c.Report(fence=fence, agent="a-1", malformed="not JSON"))
    assert (malformed.fault, malformed.accepted) == ("not JSON", False)
    assert run.run.positions["a"].attempts == 3
    fence = run.claim()
    run.do(c.Lose(fence=fence, reason="killed"))
    assert run.question().kind == "escalation"


@pytest.mark.requirement("L3.2", "L9.2", "L3.1")
def test_only_an_agent_with_the_role_may_claim() -> None:
    run = DrivenRun(AUTO_BUG)
    decision = run.do(c.Claim(fence=1, agent="web", roles=("web-designer",)))
    assert decision.refusal is not None
    assert decision.refusal.code == "wrong_role"
    assert "qa-engineer" in decision.refusal.message
    assert not run.of(Claimed)


@pytest.mark.requirement("L3.3")
def test_whoever_committed_may_not_verify_in_the_same_run() -> None:
    run = DrivenRun(AUTO_BUG)
    run.succeed("triage")
    run.succeed("investigate")
    run.answer("ok")
    run.do(c.GrantLock(step_id="apply", lock=7))
    run.claim("apply", agent="both")
    run.succeed("apply")
    fence = run.run.positions["verify"].fence
    decision = run.do(c.Claim(fence=fence, agent="both", roles=("qa-engineer",)))
    assert decision.refusal is not None
    assert decision.refusal.code == "own_work"
    assert run.do(c.Claim(fence=fence, agent="qa-2", roles=("qa-engineer",))).refusal is None


@pytest.mark.requirement("L1.4")
def test_the_role_may_stand_in_the_beads_context_but_never_makes_somebody_ceo() -> None:
    document = chain(node("a", role="backend-engineer", role_from="specialist"))
    assert DrivenRun(document, context={"specialist": "web-designer"}).of(Offered)[0].role == (
        "web-designer"
    )
    assert DrivenRun(document).of(Offered)[0].role == "backend-engineer"
    assert DrivenRun(document, context={"specialist": "ceo"}).of(Offered)[0].role == (
        "backend-engineer"
    )


@pytest.mark.requirement("L12.2", "L9.5")
def test_a_commit_is_offered_only_with_the_lock_and_gives_it_back() -> None:
    run = DrivenRun(chain(node("c", role="engineering-manager", kind="commit", repository="shop")))
    assert not run.of(Offered)
    assert AcquireLock(step_id="c", repository="shop", attempt=1) in run.decisions[-1].effects
    run.do(c.GrantLock(step_id="c", lock=41))
    assert run.of(Offered)[0].lock == 41
    decision = run.fail("c")
    assert ReleaseLock(step_id="c", repository="shop", lock=41) in decision.effects
    assert AcquireLock(step_id="c", repository="shop", attempt=2) in decision.effects


def test_a_lock_that_nobody_waits_for_is_refused() -> None:
    run = DrivenRun(chain(node("a"), node("c", role="engineering-manager", kind="commit")))
    for place in ("c", "a", "nowhere"):
        decision = run.do(c.GrantLock(step_id=place, lock=1))
        assert decision.refusal is not None
        assert decision.refusal.code == "not_waiting"


@pytest.mark.requirement("K9", "K10", "L1.6")
def test_a_fork_runs_its_branches_side_by_side_and_the_merge_waits_for_all() -> None:
    run = DrivenRun(block())
    run.succeed("p")
    assert at(run) == {"a", "b"}
    run.succeed("b")
    assert at(run) == {"a"}
    run.succeed("a")
    assert at(run) == {"q"}
    run.succeed("q")
    assert run.run.terminal_status == "done_success"


@pytest.mark.requirement("K10", "K12")
def test_an_any_merge_goes_on_at_the_first_branch_and_cancels_the_others() -> None:
    run = DrivenRun(block("any"))
    run.succeed("p")
    fence = run.claim("a")
    decision = run.succeed("b")
    assert at(run) == {"q"}
    assert CancelDispatch(fence=fence, agent="a-1") in decision.effects
    late = run.do(c.Report(fence=fence, agent="a-1"))
    assert late.refusal is not None
    assert late.refusal.code == "late"


@pytest.mark.requirement("K11")
def test_rework_out_of_a_branch_cancels_the_block_and_the_late_sibling_is_refused() -> None:
    run = DrivenRun(block())
    run.succeed("p")
    fence = run.claim("b")
    decision = run.fail("a")
    assert at(run) == {"p"}
    assert not run.run.blocks
    assert CancelDispatch(fence=fence, agent="b-1") in decision.effects
    late = run.do(c.Report(fence=fence, agent="b-1"))
    assert late.refusal is not None


@pytest.mark.requirement("K13")
def test_one_branch_waits_for_a_person_while_the_other_goes_on() -> None:
    run = DrivenRun(block())
    run.succeed("p")
    run.fail("b")
    run.fail("b")
    assert run.run.status == "running"
    run.succeed("a")
    assert run.run.status == "waiting"
    run.answer("ok")
    assert at(run) == {"q"}


@pytest.mark.requirement("K9")
def test_a_conditional_fork_starts_only_the_true_branches() -> None:
    document = block()
    document["edges"][2]["condition"] = "wide"
    run = DrivenRun(document, context={"wide": False})
    run.succeed("p")
    assert at(run) == {"b"}
    run.succeed("b")
    assert at(run) == {"q"}


@pytest.mark.requirement("K10")
def test_an_empty_branch_of_an_all_block_arrives_at_once() -> None:
    document = workflow(
        node("s", "start"),
        node("f", "decision", parallel=True),
        node("a"),
        node("m", "merge"),
        node("e", "end"),
        edges=[
            edge("s", "f"),
            edge("f", "a", "deep"),
            edge("f", "m"),
            edge("a", "m"),
            edge("m", "e"),
        ],
    )
    assert at(DrivenRun(document, context={"deep": True})) == {"a"}
    assert DrivenRun(document, context={"deep": False}).run.has_ended
    run = DrivenRun(document, context={"deep": True})
    run.succeed("a")
    assert run.run.has_ended


@pytest.mark.requirement("K10")
def test_a_person_may_set_the_token_on_a_merge_or_into_a_branch() -> None:
    run = DrivenRun(block())
    run.do(c.Move(by=ANA, step_id="m", reason="skip it"))
    assert at(run) == {"q"}
    run.do(c.Move(by=ANA, step_id="b", reason="only b"))
    run.succeed("b")
    assert at(run) == {"q"}


@pytest.mark.requirement("S3", "S14", "L8.4")
def test_run_level_rules_end_a_workflow_run_too() -> None:
    run = DrivenRun(chain(node("a", max_attempts=9)))
    run.fail(evidence=red())
    run.fail(evidence=red())
    run.fail(evidence=red())
    assert run.run.terminal_status == "aborted_stuck"
    assert run.run.stop is not None
    assert run.run.stop.rule == "same_error"
    assert run.of(Ended)


def test_handoff_limits_count_transitions_where_a_workflow_sets_them() -> None:
    nodes = [node(name) for name in "abcd"]
    run = DrivenRun(chain(*nodes, stop_rules={"max_handoffs": 3}))
    for _ in range(2):
        run.succeed()
    run.succeed()
    assert run.run.stop is not None
    assert run.run.stop.rule == "max_handoffs"
    looping = chain(
        node("x", max_attempts=1),
        node("y", max_attempts=1, on_failure={"rework": "x", "max": 9}),
        stop_rules={"repeat_limit": 3},
    )
    run = DrivenRun(looping)
    while not run.run.has_ended:
        run.succeed("x")
        if not run.run.has_ended:
            run.fail("y")
    assert run.run.stop is not None
    assert run.run.stop.rule == "repeated_pattern"


@pytest.mark.requirement("L1.5", "S7")
def test_max_steps_cuts_a_workflow_that_sets_it() -> None:
    run = DrivenRun(chain(node("a"), node("b"), stop_rules={"max_steps": 1}))
    run.succeed("a")
    assert run.run.stop is not None
    assert (run.run.stop.rule, run.run.stop.seen) == ("max_steps", 2)


def test_an_agent_asks_a_person_and_gets_the_answer_with_its_next_dispatch() -> None:
    run = DrivenRun(chain(node("a", max_attempts=2)))
    run.report(outcome=Outcome.ASK, question="which branch?", options=("main", "next"))
    question = run.question()
    assert (question.kind, question.own, question.options) == (
        "clarification_request",
        True,
        ("main", "next"),
    )
    run.answer("no, main")
    assert run.run.positions["a"].attempts == 2
    run.report(outcome=Outcome.ASK, question="sure?")
    assert run.question().kind == "escalation", "its last attempt: nobody could hear the answer"
    assert "sure?" in run.question().text


def test_agents_may_ask_ten_times_in_one_stretch() -> None:
    run = DrivenRun(chain(node("a", max_attempts=30)))
    for _ in range(10):
        run.report(outcome=Outcome.ASK, question="?")
        run.answer("yes")
    eleventh = run.report(outcome=Outcome.ASK, question="?")
    assert eleventh.refusal is not None
    assert eleventh.refusal.code == "bad_ask"
    empty = DrivenRun(chain(node("a"))).report(outcome=Outcome.ASK, question=" ")
    assert empty.refusal is not None
    assert len([asked for asked in run.of(Asked) if asked.approval.own]) == 10


def test_an_end_for_stuck_runs_says_so() -> None:
    run = DrivenRun(
        workflow(
            node("s", "start"),
            node("e", "end", status="aborted_stuck"),
            edges=[edge("s", "e")],
        )
    )
    assert run.run.terminal_status == "aborted_stuck"
    assert run.run.stop is not None
    assert "stuck" in run.run.stop.reason


@pytest.mark.requirement("L4.6", "L4.4")
def test_replaying_the_events_gives_the_same_run() -> None:
    run = DrivenRun(block())
    run.succeed("p")
    run.fail("b")
    run.fail("a")
    run.succeed("p")
    assert run.replayed() == run.run


@pytest.mark.requirement("L8.7")
def test_the_same_result_twice_changes_nothing_the_second_time() -> None:
    run = DrivenRun(chain(node("a"), node("b")))
    fence = run.claim("a")
    run.succeed("a")
    before = run.run
    again = run.do(c.Report(fence=fence, agent="a-1"))
    assert again.refusal is not None
    assert again.events == ()
    assert run.run == before


def test_a_run_may_start_at_a_given_node_and_not_at_an_unknown_one() -> None:
    assert at(DrivenRun(chain(node("a"), node("b")), from_step_id="b")) == {"b"}
    start = c.Start(run_id="r", bead_id="b", from_step_id="zz")
    refused = decide(plan_of(chain(node("a"))), None, start, NOON)
    assert refused.refusal is not None
    assert refused.refusal.code == "unknown_place"
