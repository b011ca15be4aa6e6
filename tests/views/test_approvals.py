"""What a person is shown with a question, and that it can be looked at afterwards."""

from datetime import timedelta

import pytest
from tests.kernel.driven_run import ANA, OLA, DrivenRun, chain, green, node, red, team

from handrail.kernel.result import Outcome
from handrail.kernel.run import commands as c
from handrail.views.approvals import ATTEMPTS_SHOWN_MAX, OUTPUT_CHARS_MAX, approvals


@pytest.mark.requirement("L6.4", "L11.8")
def test_an_escalation_carries_its_dossier() -> None:
    run = DrivenRun(chain(node("first"), node("a", timeout=60, max_attempts=4)))
    run.succeed("first")
    run.fail("a", text="compile error in a.py")
    fence = run.claim("a")
    run.do(c.Lose(fence=fence, reason="no heartbeat"))
    fence = run.claim("a")
    run.do(c.Report(fence=fence, agent="a-1", malformed="not JSON"))
    run.claim("a")
    run.advance(60)
    (approval,) = approvals(run.events)
    assert (approval.type, approval.status, approval.node_id) == ("escalation", "open", "a")
    assert (approval.original_bead_id, approval.execution_id) == ("b1", "r1")
    assert "timeout" in approval.failure_reason
    tried = [(a.n, a.agent, a.outcome) for a in approval.attempt_history]
    assert tried == [
        (1, "a-1", "failure"),
        (2, "a-1", "lost"),
        (3, "a-1", "malformed"),
        (4, "a-1", "timed_out"),
    ]
    assert approval.attempt_history[0].text == "compile error in a.py"
    assert any(step.startswith("revise") for step in approval.proposed_next_steps)


@pytest.mark.requirement("L6.4", "L11.8")
def test_an_escalation_tells_every_visit_and_the_last_failing_output() -> None:
    run = DrivenRun(
        chain(node("a"), node("test", max_attempts=1, on_failure={"rework": "a", "max": 2}))
    )
    for output in ("red 0", "red 1", "red 2"):
        run.succeed("a")
        run.fail("test", text=output, evidence=red("pytest", f"long\n{output}"))
    (approval,) = approvals(run.events)
    tried = [(a.visit, a.n, a.text) for a in approval.attempt_history]
    assert tried == [(1, 1, "red 0"), (2, 1, "red 1"), (3, 1, "red 2")]
    check = approval.failed_check
    assert check is not None
    assert (check.command, check.output) == ("pytest", "long\nred 2")
    assert (check.node_id, check.agent) == ("test", "test-1")


def test_the_latest_attempts_of_a_node_that_was_visited_often_are_shown() -> None:
    run = DrivenRun(chain(node("a"), node("b", on_failure={"rework": "a", "max": 100})))
    for _ in range(101):
        run.succeed("a")
        run.fail("b")
    (approval,) = approvals(run.events)
    assert len(approval.attempt_history) == ATTEMPTS_SHOWN_MAX
    assert approval.attempt_history[-1].visit == 101


def test_a_check_that_passed_is_not_the_last_that_failed() -> None:
    run = DrivenRun(chain(node("a", max_attempts=2)))
    run.fail("a", evidence=red("pytest", "red"))
    run.fail("a", evidence=green("ruff"))
    (approval,) = approvals(run.events)
    assert approval.failed_check is not None
    assert approval.failed_check.command == "pytest"


@pytest.mark.requirement("L6.4")
def test_output_that_is_shown_ends_where_the_failure_does() -> None:
    run = DrivenRun(chain(node("a", max_attempts=1)))
    run.fail("a", evidence=red("make", "x" * OUTPUT_CHARS_MAX + "the end"))
    (approval,) = approvals(run.events)
    assert approval.failed_check is not None
    assert len(approval.failed_check.output) == OUTPUT_CHARS_MAX
    assert approval.failed_check.output.endswith("the end")


@pytest.mark.requirement("L11.6")
def test_an_approval_shows_the_whole_result_and_who_answered_it() -> None:
    proposal = "diff --git a/app.py b/app.py\n" + "+ line\n" * 500
    run = DrivenRun(chain(node("a"), node("ok", "approval", revise_to="a")), context={"n": 1})
    run.succeed("a", text=proposal)
    run.do(c.Patch(by=OLA, patch={"n": 2}))
    run.answer("sort it", by=ANA)
    first, second = approvals(run.events)
    assert (first.status, second.status) == ("void", "answered")
    assert second.result == proposal
    assert (second.by, second.decision, second.answer) == ("ana", "revise", "sort it")
    assert first.deadline == second.deadline


def test_a_question_nobody_answered_is_expired_and_one_of_a_closed_run_is_void() -> None:
    run = DrivenRun(chain(node("ok", "approval", deadline=60)))
    run.advance(60)
    assert [a.status for a in approvals(run.events)] == ["expired"]
    run = DrivenRun(chain(node("ok", "approval", deadline=60)))
    run.do(c.Close(by=ANA, reason="enough"))
    assert [a.status for a in approvals(run.events)] == ["void"]


def test_an_agents_question_and_a_review_say_what_an_answer_does() -> None:
    run = DrivenRun(chain(node("a", max_attempts=2)))
    run.report(outcome=Outcome.ASK, question="which?")
    (asked,) = approvals(run.events)
    assert asked.proposed_next_steps == ("answer: whoever asks gets the text, and goes on",)
    run = DrivenRun(team({"p": ["i"], "i": []}, review={"after": ["i"], "back_to": "p"}))
    run.hand("i")
    run.hand("review", text="total 1")
    run.now += timedelta(seconds=1)
    (review,) = approvals(run.events)
    assert (review.type, review.result, review.failure_reason) == (
        "clarification_request",
        "total 1",
        "",
    )


@pytest.mark.requirement("L11.6")
def test_an_approval_carries_the_proposal_as_it_was_when_it_was_asked() -> None:
    run = DrivenRun(chain(node("a"), node("ok", "approval", revise_to="a")))
    run.succeed("a", data={"proposal": "swap the cable"})
    run.do(c.Patch(by=OLA, patch={"proposal": "burn it all"}))
    void, again = approvals(run.events)
    assert (void.status, void.proposal) == ("void", "swap the cable")
    assert (again.status, again.proposal) == ("open", "burn it all")
    run.do(c.PushClocks(seconds=60))
    (_, pushed) = approvals(run.events)
    assert pushed.deadline == again.deadline + timedelta(seconds=60)
