"""Team runs: handoffs, authority, markers, milestones, once-only tasks, review, stop rules."""

from typing import Any

import pytest
from tests.kernel.driven_run import ANA, OLA, DrivenRun, files, green, red, team, used

from handrail.kernel.result import Check, Evidence, Outcome, Result
from handrail.kernel.run import commands as c
from handrail.kernel.run.decision_builder import CancelDispatch
from handrail.kernel.run.events import Faulted, HandedOff, Moved, Offered, Reported, Warned
from handrail.kernel.stop.ledger import edge_key

HELPDESK = team(
    {
        "orchestrator": ["memory", "ticketing", "network", "summarization"],
        "memory": ["orchestrator"],
        "ticketing": ["orchestrator"],
        "network": ["orchestrator"],
        "summarization": ["orchestrator"],
    },
    terminator="ticketing",
    initial_phase="memory_check_pending",
    agents={
        "memory": {
            "tasks": [
                {"id": "retrieve", "once": True, "milestone": "memory_checked"},
                {"id": "store", "once": True},
            ]
        },
        "ticketing": {
            "tasks": [
                {
                    "id": "analyze",
                    "once": True,
                    "milestone": "ticket_analyzed",
                    "when": "phase == 'memory_checked'",
                },
                {"id": "close", "once": True, "when": "phase == 'summary_complete'"},
            ]
        },
        "network": {"tasks": [{"id": "resolve", "milestone": "resolution_obtained"}]},
        "summarization": {
            "tasks": [{"id": "summarize", "once": True, "milestone": "summary_complete"}],
            "marker": "WORKFLOW_COMPLETE",
        },
    },
)
PAIR = team({"a": ["b"], "b": ["a"]}, terminator="a")
FINANCE = team(
    {"planner": ["invoice", "audit"], "invoice": [], "audit": []},
    review={"after": ["invoice", "audit"], "back_to": "planner"},
)


def end(driven: DrivenRun, **result: Any):
    return driven.report(outcome=Outcome.TERMINATE, **result)


def holder(driven: DrivenRun) -> str:
    return next(iter(driven.run.positions))


@pytest.mark.requirement("H4.1", "H4.2", "H4.3", "H4.4", "H4.5", "H4.6", "H1.1", "S6", "H2.1")
def test_a_ticket_goes_through_its_milestones_and_ticketing_ends_it() -> None:
    run = DrivenRun(HELPDESK)
    phases = [run.run.phase]
    run.hand("memory")
    run.hand("orchestrator", data={"phase_detail": "miss"})
    phases.append(run.run.phase)
    assert run.run.phase_detail == "miss"
    run.hand("ticketing")
    assert run.run.positions["ticketing"].task == "analyze"
    run.hand("orchestrator")
    phases.append(run.run.phase)
    run.hand("network")
    run.hand("orchestrator")
    phases.append(run.run.phase)
    run.hand("summarization")
    run.hand("orchestrator", marker="WORKFLOW_COMPLETE")
    phases.append(run.run.phase)
    run.hand("ticketing")
    assert run.run.positions["ticketing"].task == "close"
    end(run, reason="resolved")
    assert phases == [
        "memory_check_pending",
        "memory_checked",
        "ticket_analyzed",
        "resolution_obtained",
        "summary_complete",
    ]
    assert run.run.phase == "terminated"
    assert run.run.terminal_status == "done_success"
    assert run.run.stop is not None
    assert (run.run.stop.rule, run.run.final_agent) == ("terminated", "ticketing")


@pytest.mark.requirement("H1.2", "H1.3", "H5.3", "H2.2", "H4.6")
def test_after_the_end_every_handoff_is_refused_and_nothing_changes() -> None:
    run = DrivenRun(team({"t": ["b"], "b": ["t"]}, terminator="t"))
    fence = run.claim()
    end(run)
    before = run.run
    late = run.do(c.Report(fence=fence, agent="t-1"))
    assert late.refusal is not None
    assert late.refusal.code == "ended"
    assert "done_success" in late.refusal.message
    assert run.run == before


@pytest.mark.requirement("H5.4", "H2.4")
def test_an_end_tried_without_authority_is_a_warning_and_the_same_agent_goes_on() -> None:
    run = DrivenRun(team({"a": ["b"], "b": []}, terminator="b"))
    decision = end(run)
    assert decision.refusal is None
    assert not run.run.has_ended
    (warning,) = run.of(Warned)
    assert warning.code == "terminate_refused"
    assert holder(run) == "a"
    assert "only 'b' may" in run.run.positions["a"].refusal


@pytest.mark.requirement("H5.5")
def test_the_authoritys_end_takes_the_work_out_of_every_hand() -> None:
    run = DrivenRun(PAIR)
    fence = run.claim()
    decision = run.do(c.Close(by=ANA, reason="enough"))
    assert CancelDispatch(fence=fence, agent="a-1") in decision.effects
    assert run.run.positions == {}


@pytest.mark.requirement("H6.1", "K20")
def test_a_result_that_says_neither_is_told_why_and_the_third_ends_the_run() -> None:
    run = DrivenRun(PAIR)
    first = run.report(text="I am done here.")
    assert "hand off or terminate" in run.run.positions["a"].refusal
    assert (first.fault, first.accepted) == (run.run.positions["a"].refusal, False)
    run.report(outcome=Outcome.SUCCESS)
    assert run.run.positions["a"].attempts == 3
    last = run.report()
    assert run.run.stop is not None
    assert (run.run.terminal_status, run.run.stop.rule) == ("aborted_stuck", "protocol")
    assert (last.fault, last.accepted) == (run.run.stop.reason, False)
    assert len(run.of(Faulted)) == 3


def test_a_late_result_is_refused_and_no_lost_lease_counts_as_a_result() -> None:
    run = DrivenRun(PAIR)
    fence = run.claim("a")
    lost = run.do(c.Lose(fence=fence, reason="gone"))
    assert (lost.fault, lost.accepted) == ("", True)
    late = run.do(c.Report(fence=fence, agent="a-1", result=Result(outcome=Outcome.SUCCESS)))
    assert (late.fault, late.accepted) == ("", False)


@pytest.mark.requirement("K20")
@pytest.mark.parametrize(
    ("result", "code"),
    [
        ({"outcome": Outcome.HANDOFF, "to": "nobody"}, "bad_target"),
        ({"outcome": Outcome.HANDOFF, "to": "a"}, "bad_target"),
        ({"outcome": Outcome.HANDOFF, "to": "b", "task": "dance"}, "bad_task"),
        ({"outcome": Outcome.TERMINATE, "status": "done_partial"}, "no_remaining"),
        ({"outcome": Outcome.ASK, "question": " "}, "no_question"),
        ({"outcome": Outcome.FAILURE, "reason": "no network"}, "failure"),
        ({"outcome": Outcome.CONTINUE}, "says_neither"),
    ],
)
def test_an_answer_that_may_not_be_costs_a_step_and_the_holder_is_told(result, code) -> None:
    run = DrivenRun(PAIR)
    run.report(**result)
    (faulted,) = run.of(Faulted)
    assert faulted.fault == code
    assert holder(run) == "a"
    assert run.run.positions["a"].faults == 1
    assert run.run.ledger.steps == 2
    refused = [h for h in run.of(HandedOff) if not h.accepted]
    assert len(refused) == (result["outcome"] is Outcome.HANDOFF)


def test_faults_of_one_turn_are_forgotten_in_the_next() -> None:
    run = DrivenRun(PAIR)
    for _ in range(5):
        run.report()
        run.report()
        run.hand("b" if holder(run) == "a" else "a", evidence=files(x=str(run.run.seq)))
    assert not run.run.has_ended


def test_a_malformed_result_is_a_fault_and_its_usage_counts() -> None:
    run = DrivenRun(PAIR)
    fence = run.claim()
    from handrail.kernel.result import Result

    run.do(
        c.Report(fence=fence, agent="a-1", malformed="no JSON", result=Result(usage=used(tokens=7)))
    )
    assert run.run.ledger.tokens == 7
    assert run.run.positions["a"].refusal == "no JSON"


@pytest.mark.requirement("H3.1", "H7.2")
def test_two_agents_handing_to_each_other_stop_at_the_third_repetition() -> None:
    run = DrivenRun(PAIR)
    for i in range(6):
        assert not run.run.has_ended
        run.hand("b" if i % 2 == 0 else "a", reason=f"round {i}")
    assert run.run.stop is not None
    assert run.run.stop.rule == "repeated_pattern"
    assert run.run.stop.pattern == ("a -> b", "b -> a")
    accepted = [h for h in run.of(HandedOff) if h.accepted]
    assert [h.number for h in accepted] == [1, 2, 3, 4, 5, 6]
    assert accepted[-1].reason == "round 5", "the completing handoff is recorded as the last"


@pytest.mark.requirement("H3.1")
def test_a_self_handoff_is_a_pattern_of_period_one() -> None:
    run = DrivenRun(team({"a": ["a"]}, terminator="a"))
    for _ in range(3):
        run.hand("a")
    assert run.run.stop is not None
    assert run.run.stop.pattern == ("a -> a",)


@pytest.mark.requirement("H3.2")
def test_the_orchestrator_handing_to_the_same_agent_twice_in_a_row_is_a_warning() -> None:
    run = DrivenRun(HELPDESK)
    run.hand("network")
    run.hand("orchestrator")
    assert not run.of(Warned)
    run.hand("network")
    assert [w.code for w in run.of(Warned)] == ["same_target_twice"]


@pytest.mark.requirement("H3.3", "K20")
def test_the_twenty_first_handoff_is_not_made_and_ends_the_run() -> None:
    run = DrivenRun(team({"a": ["b"], "b": ["a"]}, terminator="a"))
    for i in range(20):
        run.hand("b" if i % 2 == 0 else "a", evidence=files(work=str(i)))
        assert not run.run.has_ended
    run.hand("b", evidence=files(work="21"))
    assert run.run.stop is not None
    assert (run.run.stop.rule, run.run.stop.limit, run.run.stop.seen) == ("max_handoffs", 20, 21)
    assert not run.of(HandedOff)[-1].accepted
    assert run.run.ledger.handoffs == 20


@pytest.mark.requirement("H3.5")
def test_a_run_whose_agent_never_answers_ends_after_ten_minutes() -> None:
    run = DrivenRun(PAIR)
    run.claim()
    run.advance(599)
    assert not run.run.has_ended
    run.advance(1)
    assert run.run.stop is not None
    assert (run.run.terminal_status, run.run.stop.rule) == ("aborted_stuck", "max_duration")


@pytest.mark.requirement("S7", "S8")
def test_the_ninth_use_of_an_edge_without_progress_is_refused_and_names_the_loop() -> None:
    hands = {"planner": ["researcher", "coder"], "researcher": ["planner"], "coder": ["planner"]}
    run = DrivenRun(
        team(hands, terminator="planner", stop_rules={"max_handoffs": 100, "repeat_limit": None})
    )
    while not run.run.has_ended:
        run.hand("researcher" if holder(run) == "planner" else "planner")
    assert run.run.stop is not None
    assert run.run.stop.rule == "max_edge"
    assert "planner_researcher_loop" in run.run.stop.reason
    assert (run.run.stop.limit, run.run.stop.seen) == (8, 9)


@pytest.mark.requirement("S7")
def test_the_step_limit_ends_the_run_before_the_next_step() -> None:
    run = DrivenRun(team({"a": ["b"], "b": ["a"]}, terminator="a", stop_rules={"max_steps": 4}))
    for i in range(4):
        run.hand("b" if i % 2 == 0 else "a", evidence=files(work=str(i)))
    assert run.run.stop is not None
    assert run.run.stop.rule == "max_steps"
    assert len(run.of(Offered)) == 4


@pytest.mark.requirement("S13")
@pytest.mark.parametrize(("scope", "steps"), [("tiny", 5), ("small", 10), ("large", 20)])
def test_task_scope_halves_keeps_or_doubles_the_steps(scope: str, steps: int) -> None:
    document = team({"a": ["a"]}, terminator="a", stop_rules={"max_steps": 10})
    assert DrivenRun(document, context={"task_scope": scope}).run.limits.max_steps == steps


@pytest.mark.requirement("S13", "S3")
def test_a_functional_goal_that_is_green_makes_the_run_partial_not_stuck() -> None:
    document = team({"v": ["v"]}, terminator="v", stop_rules={"repeat_limit": None})
    for goal, status in ((green("make goal"), "done_partial"), (red("make goal"), "aborted_stuck")):
        run = DrivenRun(document, context={"goal": {"command": "make goal"}})
        run.hand("v", evidence=goal)
        for _ in range(4):
            if not run.run.has_ended:
                run.hand("v", evidence=red("make lint", "E501 line too long"))
        assert run.run.stop is not None
        assert (run.run.stop.rule, run.run.terminal_status) == ("same_error", status)


@pytest.mark.requirement("S14")
def test_budget_and_constraint_end_a_run_as_constraint() -> None:
    rules = {"max_tokens": 100, "constraints": {"paths": ["secrets/*"], "commands": ["rm -rf"]}}
    document = team({"a": ["a", "b"], "b": ["a"]}, terminator="a", stop_rules=rules)
    run = DrivenRun(document)
    run.hand("b", usage=used(tokens=101))
    assert run.run.stop is not None
    assert (run.run.terminal_status, run.run.stop.rule) == ("aborted_constraint", "budget")
    run = DrivenRun(document)
    run.hand("b", usage=used(tokens=100))
    assert run.run.has_ended, "nothing is left for another step"
    run = DrivenRun(document)
    end(run, usage=used(tokens=100))
    assert run.run.terminal_status == "done_success"
    run = DrivenRun(document)
    run.hand("b", evidence=Evidence(files={"secrets/key": "1"}))
    assert run.run.stop is not None
    assert (run.run.terminal_status, run.run.stop.rule) == ("aborted_constraint", "constraint")
    run = DrivenRun(document)
    run.hand("b", evidence=Evidence(checks=(Check(command="cd x && rm -rf .", exit_code=0),)))
    assert run.run.terminal_status == "aborted_constraint"


def test_when_several_rules_fire_the_first_of_the_order_is_named_and_the_rest_stand_beside() -> (
    None
):
    rules = {"max_tokens": 10, "max_handoffs": 0}
    run = DrivenRun(team({"a": ["b"], "b": []}, terminator="a", stop_rules=rules))
    run.hand("b", usage=used(tokens=11))
    assert run.run.stop is not None
    assert run.run.stop.rule == "budget"
    assert run.run.stop.also == ("max_handoffs",)
    run = DrivenRun(team({"a": ["b"], "b": []}, terminator="a", stop_rules=rules))
    end(run, usage=used(tokens=11))
    assert run.run.stop is not None
    assert (run.run.stop.rule, run.run.stop.also) == ("budget", ("terminated",))


@pytest.mark.requirement("H6.5", "H6.3", "H6.4", "K19")
def test_a_once_only_task_is_not_repeated_the_source_gets_the_earlier_result() -> None:
    run = DrivenRun(HELPDESK)
    run.hand("memory", task="retrieve")
    run.hand("orchestrator", text="nothing known")
    told = run.of(Reported)[-1]
    run.hand("memory", task="retrieve")
    last = run.of(HandedOff)[-1]
    assert last.already_done
    assert holder(run) == "orchestrator"
    assert run.events[run.run.positions["orchestrator"].result - 1] is told
    assert run.run.ledger.steps == 5, "a replayed answer is a step"


@pytest.mark.requirement("H6.2")
def test_after_the_summary_ticketing_closes_exactly_once() -> None:
    run = DrivenRun(HELPDESK)
    run.hand("summarization")
    run.hand("orchestrator", marker="WORKFLOW_COMPLETE")
    run.hand("ticketing")
    run.hand("orchestrator")
    run.hand("ticketing")
    assert run.of(HandedOff)[-1].already_done
    assert holder(run) == "orchestrator"


@pytest.mark.requirement("H2.3", "H2.4")
def test_a_marker_counts_only_from_the_agent_that_owns_it() -> None:
    run = DrivenRun(HELPDESK)
    run.hand("summarization", marker="WORKFLOW_COMPLETE")
    assert run.run.phase == "memory_check_pending"
    assert [w.code for w in run.of(Warned)] == ["marker_ignored"]
    run.hand("orchestrator", text="the user wrote WORKFLOW_COMPLETE and TERMINATE_WORKFLOW")
    assert run.run.phase == "memory_check_pending", "a summary without its marker is not complete"
    assert not run.run.has_ended


@pytest.mark.requirement("H1.5")
def test_runs_end_independently_of_each_other() -> None:
    first, second = DrivenRun(PAIR, run_id="r1"), DrivenRun(PAIR, run_id="r2")
    end(first)
    second.hand("b")
    assert first.run.has_ended
    assert holder(second) == "b"


def test_a_partial_success_names_what_remains() -> None:
    run = DrivenRun(PAIR)
    end(run, status="done_partial", remaining=("docs",), reason="goal met")
    assert run.run.stop is not None
    assert (run.run.terminal_status, run.run.stop.remaining) == ("done_partial", ("docs",))


def test_an_agent_of_a_team_asks_a_person_and_keeps_the_turn() -> None:
    run = DrivenRun(PAIR)
    run.report(outcome=Outcome.ASK, question="which one?")
    assert run.run.status == "waiting"
    run.answer("the second", by=OLA)
    assert run.run.positions["a"].attempts == 2
    for _ in range(9):
        run.report(outcome=Outcome.ASK, question="and now?")
        run.answer("go on", by=OLA)
    run.report(outcome=Outcome.ASK, question="again?")
    assert run.of(Faulted)[-1].fault == "too_many_asks"


def test_a_rule_that_fires_on_a_question_ends_the_run() -> None:
    run = DrivenRun(team({"a": []}, terminator="a", stop_rules={"max_tokens": 1}))
    run.report(outcome=Outcome.ASK, question="?", usage=used(tokens=2))
    assert run.run.terminal_status == "aborted_constraint"


@pytest.mark.requirement("R1.1", "R1.2", "R3.2", "R3.3")
def test_a_specialists_result_goes_to_a_person_as_a_clarification_request() -> None:
    run = DrivenRun(FINANCE)
    run.hand("invoice")
    run.hand("review", text="total 119.00", reason="done")
    question = run.question()
    assert question.kind == "clarification_request"
    reported = run.events[question.result - 1]
    assert isinstance(reported, Reported)
    assert reported.result.text == "total 119.00"
    assert run.run.status == "waiting"
    assert run.of(HandedOff)[-1].target == "review"


@pytest.mark.requirement("R1.3", "R3.4", "R4.2")
def test_an_approval_completes_the_run() -> None:
    run = DrivenRun(FINANCE)
    run.hand("invoice")
    end(run)
    run.answer("OK.", by=OLA)
    assert run.run.stop is not None
    assert (run.run.terminal_status, run.run.stop.rule) == ("done_success", "completed")


@pytest.mark.requirement("R1.4", "R2.1", "R2.3", "R4.3", "R4.4")
def test_a_revision_goes_to_the_planner_with_its_text_as_typed() -> None:
    run = DrivenRun(FINANCE, title="Invoice for Ana", description="3 hours at 40")
    run.hand("invoice")
    run.hand("review")
    run.answer("  ok, but change the date to May 2nd  ", by=OLA)
    moved = run.of(Moved)[-1]
    assert (moved.targets, moved.reason) == (
        ("planner",),
        "  ok, but change the date to May 2nd  ",
    )
    run.hand("audit")
    assert holder(run) == "audit"
    assert (run.run.title, run.run.description) == ("Invoice for Ana", "3 hours at 40")


@pytest.mark.requirement("R5.1", "R5.2", "R5.3", "R5.4", "R5.5")
def test_fifty_revisions_in_a_row_with_the_default_limits() -> None:
    run = DrivenRun(FINANCE)
    for i in range(50):
        run.hand("invoice")
        run.hand("review", text=f"draft {i}")
        run.answer(f"change line {i}", by=OLA)
        assert not run.run.has_ended
    run.hand("invoice")
    run.hand("review")
    run.answer("looks good", by=OLA)
    assert run.run.terminal_status == "done_success"
    assert run.run.stretch == 51
    assert run.replayed() == run.run


@pytest.mark.requirement("R3.1")
def test_a_task_set_to_skip_review_completes_after_the_specialist() -> None:
    run = DrivenRun(FINANCE, review="skip")
    run.hand("invoice")
    run.hand("review", text="done")
    assert run.run.terminal_status == "done_success"
    assert run.run.approvals_opened == 0


def test_a_review_that_the_definition_does_not_have_cannot_be_required() -> None:
    from tests.kernel.driven_run import NOON, plan_of

    from handrail.kernel.run.decide import decide

    start = c.Start(run_id="r", bead_id="b", review="required")
    refused = decide(plan_of(PAIR), None, start, NOON)
    assert refused.refusal is not None
    assert refused.refusal.code == "no_review"
    assert refused.events == ()


def test_a_reviewing_seat_listed_among_the_agents_is_never_dispatched_to() -> None:
    document = team(
        {"planner": ["invoice"], "invoice": ["review"], "review": ["planner"]},
        review={"after": ["invoice"], "back_to": "planner"},
    )
    run = DrivenRun(document)
    run.hand("invoice")
    run.hand("review")
    assert run.run.status == "waiting"
    refused = run.do(c.Move(by=ANA, step_id="review", reason="try"))
    assert refused.refusal is not None
    assert refused.refusal.code == "unknown_place"


@pytest.mark.requirement("S2")
def test_planner_and_researcher_stop_once_research_is_good_enough() -> None:
    hands = {"planner": ["researcher"], "researcher": ["planner"]}
    run = DrivenRun(
        team(hands, terminator="planner", stop_rules={"max_handoffs": 100, "repeat_limit": None})
    )
    visits = 0
    while not run.run.has_ended:
        run.hand("researcher")
        visits += 1
        run.hand("planner", evidence=Evidence(score=0.9, measured=True))
    assert run.run.stop is not None
    assert run.run.stop.rule == "research_exhausted"
    assert "good enough" in run.run.stop.reason
    assert visits == 4


@pytest.mark.requirement("S4", "S10")
def test_a_coder_whose_turns_change_nothing_is_not_called_again() -> None:
    hands = {"planner": ["coder"], "coder": ["planner"]}
    run = DrivenRun(team(hands, terminator="planner", stop_rules={"repeat_limit": None}))
    for digest in ("1", "1", "1", "1"):
        run.hand("coder")
        run.hand("planner", evidence=files(app_py=digest))
    assert run.run.stop is not None
    assert run.run.stop.rule == "no_change"


@pytest.mark.requirement("S16", "S6")
def test_a_run_with_measured_progress_each_round_goes_on_past_the_soft_limits() -> None:
    hands = {"planner": ["coder"], "coder": ["planner"]}
    run = DrivenRun(team(hands, terminator="planner", stop_rules={"max_handoffs": 100}))
    for i in range(30):
        run.hand("coder")
        run.hand("planner", evidence=files(app_py=str(i)))
    assert not run.run.has_ended
    assert run.run.ledger.edges[edge_key("planner", "coder")].total == 30


def test_ticket_states_that_agents_merely_claim_postpone_eight_times() -> None:
    run = DrivenRun(PAIR)
    for i in range(20):
        if run.run.has_ended:
            break
        claim = Evidence(ticket_state=f"state {i}")
        run.hand("b" if holder(run) == "a" else "a", evidence=claim)
    assert run.run.stop is not None
    assert run.run.stop.rule == "repeated_pattern"
    assert run.run.ledger.last_progress_step == 8
    assert run.run.ledger.handoffs == 13, "the eighth claim came with handoff 8; then five more"
