"""What people do to a run: answers bound to what was shown, overrides with a reason, small acts."""

from typing import Any

import pytest
from tests.kernel.driven_run import (
    ANA,
    NOON,
    OLA,
    DrivenRun,
    chain,
    edge,
    node,
    plan_of,
    team,
    workflow,
)

from handrail.kernel.result import Outcome
from handrail.kernel.run import commands as c
from handrail.kernel.run.decide import decide
from handrail.kernel.run.decision_builder import CancelDispatch
from handrail.kernel.run.events import (
    Answered,
    Migrated,
    Moved,
    Offered,
    Patched,
    Reasked,
    Reported,
)
from handrail.kernel.run.state import Person
from handrail.views.history import human_acts

BEN = Person(name="ben", role="ceo")
EVE = Person(name="eve", role="viewer")
APPROVE = chain(node("a"), node("ok", "approval", revise_to="a"), node("b"))


def waiting(document: dict = APPROVE, **start: Any) -> DrivenRun:
    run = DrivenRun(document, **start)
    run.succeed("a", text="the fix")
    return run


def code(decision) -> str | None:
    return decision.refusal.code if decision.refusal else None


@pytest.mark.requirement("L7.1", "L9.4", "L11.6")
def test_an_approval_node_asks_a_person_and_is_never_dispatched() -> None:
    run = waiting()
    question = run.question()
    assert (question.kind, question.step_id) == ("approval", "ok")
    reported = run.events[question.result - 1]
    assert isinstance(reported, Reported)
    assert reported.result.text == "the fix"
    assert [o.step_id for o in run.of(Offered)] == ["a"]


@pytest.mark.requirement("L7.1")
def test_approving_goes_on_and_rejecting_closes() -> None:
    run = waiting()
    run.answer(decision="approve")
    assert set(run.run.positions) == {"b"}
    run = waiting()
    run.answer(decision="reject", text="too risky")
    assert run.run.stop is not None
    assert (run.run.terminal_status, run.run.stop.reason) == ("closed_by_human", "too risky")


@pytest.mark.requirement("L7.1")
def test_rejecting_follows_the_failure_edge_if_the_approval_has_one() -> None:
    run = DrivenRun(
        workflow(
            node("s", "start"),
            node("ok", "approval"),
            node("plan-b"),
            node("e", "end"),
            edges=[
                edge("s", "ok"),
                edge("ok", "e"),
                edge("ok", "plan-b", "failure"),
                edge("plan-b", "e"),
            ],
        )
    )
    run.answer(decision="reject")
    assert set(run.run.positions) == {"plan-b"}


@pytest.mark.requirement("K14", "L6.5")
def test_revising_goes_back_with_the_text_and_opens_a_new_stretch() -> None:
    run = waiting()
    run.answer("use the other table")
    assert set(run.run.positions) == {"a"}
    moved = run.of(Moved)[-1]
    assert (moved.outcome, moved.reason, moved.by) == ("revise", "use the other table", "ana")
    assert run.run.stretch == 2


def test_revising_where_no_way_back_is_named_is_refused() -> None:
    run = waiting(chain(node("a"), node("ok", "approval")))
    assert code(run.answer("do it differently")) == "no_way_back"
    assert run.question()


@pytest.mark.requirement("R4.2", "K16")
@pytest.mark.parametrize("text", ["", "  ", "no", "wait", "hm", "?"])
def test_an_unclear_answer_is_asked_again_and_changes_nothing(text: str) -> None:
    run = waiting()
    before = run.run
    decision = run.answer(text)
    assert code(decision) == "ambiguous_answer"
    assert decision.refusal is not None
    assert "approve" in decision.refusal.hint
    assert run.run == before


def test_a_revision_without_a_text_and_a_decision_nobody_knows_are_refused() -> None:
    run = waiting()
    assert code(run.answer(decision="revise")) == "no_text"
    assert code(run.answer(decision="maybe")) == "ambiguous_answer"  # type: ignore[arg-type]


@pytest.mark.requirement("L16")
def test_only_people_with_the_level_may_answer() -> None:
    run = waiting()
    assert code(run.answer("ok", by=OLA)) == "not_allowed"
    assert code(run.answer("ok", by=EVE)) == "not_allowed"
    assert code(run.answer("ok", by=Person(name="x", role="agent"))) == "not_allowed"  # type: ignore[arg-type]
    assert run.answer("ok", by=ANA).refusal is None


def test_named_approvers_are_the_only_ones_asked() -> None:
    run = waiting(chain(node("a"), node("ok", "approval", approvers=["ben", "ola"])))
    assert code(run.answer("ok", by=ANA)) == "not_allowed"
    assert run.answer("ok", by=OLA).refusal is None
    run = waiting(chain(node("a"), node("ok", "approval", approvers=["operator"])))
    assert run.answer("ok", by=ANA).refusal is None


def test_m_of_n_needs_distinct_people_and_a_partial_answer_lowers_the_measure() -> None:
    run = waiting(chain(node("a"), node("ok", "approval", quorum=2), node("b")))
    before = run.measure
    run.answer("ok", by=ANA)
    assert run.measure < before
    assert run.run.status == "waiting"
    assert code(run.answer("ok", by=ANA)) == "answered_before"
    run.answer("ok", by=BEN)
    assert set(run.run.positions) == {"b"}
    assert [answered.final for answered in run.of(Answered)] == [False, True]


def test_with_four_eyes_whoever_filed_the_bead_may_not_approve_it() -> None:
    document = chain(node("a"), node("ok", "approval", four_eyes=True))
    run = waiting(document, filed_by="ana")
    assert code(run.answer("ok", by=ANA)) == "author"
    assert run.answer("ok", by=BEN).refusal is None


def test_an_answer_is_used_once() -> None:
    run = waiting()
    question = run.question().id
    run.answer("ok")
    again = run.do(c.Answer(approval_id=question, by=ANA, text="ok"))
    assert code(again) == "not_open"


def test_an_answer_to_what_was_shown_before_is_refused() -> None:
    run = waiting()
    assert code(run.answer("ok", digest="0" * 64)) == "changed"
    assert run.answer("ok", digest=run.question().digest).refusal is None


@pytest.mark.requirement("K15", "K16")
def test_a_change_of_the_bead_voids_the_question_and_asks_again_with_the_old_deadline() -> None:
    run = waiting(context={"amount": 1})
    old = run.question()
    run.now = NOON.replace(hour=13)
    run.do(c.Patch(by=OLA, patch={"amount": 82_000}))
    new = run.question()
    assert new.id != old.id
    assert new.digest != old.digest
    assert new.deadline == old.deadline
    assert run.of(Reasked)[0].approval_id == old.id
    assert code(run.do(c.Answer(approval_id=old.id, by=ANA, text="ok"))) == "not_open"
    assert len(run.of(Patched)) == 1


@pytest.mark.requirement("K16")
def test_a_file_hung_on_the_bead_is_somebodys_act_and_leaves_the_question_open() -> None:
    run = waiting(context={"amount": 1})
    asked = run.question()
    run.do(c.Patch(by=OLA, patch={}, files={"invoice.txt": "82"}))
    assert run.question() == asked
    assert OLA.name in run.run.hands
    assert [(act.act, act.by, act.reason) for act in human_acts(run.events)] == [
        ("patch", OLA.name, "invoice.txt")
    ]


@pytest.mark.requirement("K16")
def test_a_change_that_was_not_shown_or_a_viewers_change_voids_nothing() -> None:
    run = waiting(context={"amount": 1})
    question = run.question()
    run.do(c.Patch(by=OLA, patch={"amount": 1, "last_run_at": "never"}))
    assert run.question() == question
    assert run.run.context["last_run_at"] != "never"
    assert code(run.do(c.Patch(by=EVE, patch={"amount": 2}))) == "not_allowed"


@pytest.mark.requirement("K16")
def test_a_siblings_result_that_changes_what_was_shown_voids_the_question_too() -> None:
    run = DrivenRun(
        workflow(
            node("s", "start"),
            node("f", "decision", parallel=True),
            node("ok", "approval", quorum=2),
            node("work"),
            node("m", "merge"),
            node("e", "end"),
            edges=[
                edge("s", "f"),
                edge("f", "ok"),
                edge("f", "work"),
                edge("ok", "m"),
                edge("work", "m"),
                edge("m", "e"),
            ],
        )
    )
    run.answer("ok", by=ANA)
    before = run.measure
    run.succeed("work", data={"amount": 2})
    assert run.question().approved_by == ()
    assert run.measure < before, "the result pays for the answers it voids"


@pytest.mark.requirement("L7.2", "L7.4")
def test_a_move_cancels_what_is_open_and_starts_a_new_stretch_at_the_node() -> None:
    run = DrivenRun(APPROVE)
    fence = run.claim("a")
    decision = run.do(c.Move(by=ANA, step_id="b", reason="known bug"))
    assert set(run.run.positions) == {"b"}
    assert CancelDispatch(fence=fence, agent="a-1") in decision.effects
    moved = run.of(Moved)[-1]
    assert (moved.by, moved.reason, moved.outcome) == ("ana", "known bug", "move")
    assert code(run.do(c.Move(by=ANA, step_id="nowhere", reason="x"))) == "unknown_place"


@pytest.mark.requirement("L7.2")
def test_a_move_gives_the_turn_to_an_agent_of_a_team() -> None:
    run = DrivenRun(team({"a": ["b"], "b": ["a"]}, terminator="a"))
    run.do(c.Move(by=ANA, step_id="b", reason="b knows"))
    assert set(run.run.positions) == {"b"}
    assert run.run.stretch == 2


@pytest.mark.requirement("L7.3", "L7.4")
def test_closing_takes_a_reason_and_a_ceo_or_whoever_filed_it() -> None:
    run = DrivenRun(APPROVE, filed_by="ola")
    assert code(run.do(c.Close(by=ANA, reason=" "))) == "no_reason"
    assert code(run.do(c.Close(by=OLA, reason=""))) == "not_allowed"
    assert code(run.do(c.Close(by=Person(name="pat", role="operator"), reason="x"))) == (
        "not_allowed"
    )
    assert run.do(c.Close(by=OLA, reason="mistake")).refusal is None
    assert run.run.terminal_status == "closed_by_human"


@pytest.mark.requirement("L7.6")
def test_while_paused_nothing_is_offered_a_result_in_hand_is_kept() -> None:
    run = DrivenRun(APPROVE)
    run.claim("a")
    run.do(c.Pause(by=ANA, reason="release day"))
    run.succeed("a")
    assert run.run.status == "paused"
    assert not run.run.pending_approvals
    run.do(c.Resume(by=ANA, reason="done"))
    assert run.question().step_id == "ok"


@pytest.mark.requirement("L7.6", "L8.7")
def test_pause_and_resume_twice_are_refused_and_nobody_claims_meanwhile() -> None:
    run = DrivenRun(APPROVE)
    assert code(run.do(c.Resume(by=ANA, reason="x"))) == "not_paused"
    run.do(c.Pause(by=ANA, reason="x"))
    assert code(run.do(c.Pause(by=ANA, reason="x"))) == "paused"
    assert code(run.do(c.Claim(fence=1, agent="z", roles=("backend-engineer",)))) == "paused"
    assert code(run.do(c.Pause(by=OLA, reason="x"))) == "not_allowed"
    assert code(run.do(c.Resume(by=OLA, reason="x"))) == "not_allowed"


def test_a_lock_granted_to_a_paused_run_is_refused_and_sought_again_on_resume() -> None:
    run = DrivenRun(chain(node("c", role="engineering-manager", kind="commit")))
    run.do(c.Pause(by=ANA, reason="x"))
    assert code(run.do(c.GrantLock(step_id="c", lock=1))) == "not_waiting"
    decision = run.do(c.Resume(by=ANA, reason="x"))
    assert [type(effect).__name__ for effect in decision.effects] == ["AcquireLock"]


@pytest.mark.requirement("L7.5")
def test_a_running_run_keeps_its_version_until_a_person_migrates_it() -> None:
    run = DrivenRun(APPROVE)
    run.claim("a")
    newer = plan_of(chain(node("a"), node("c", max_attempts=7)))
    command = c.Migrate(by=ANA, definition_id="w", version=2, step_id="c", reason="fixed")
    decision = decide(newer, run.run, command, run.now)
    assert decision.refusal is None
    run.plan = newer
    run.do(command)
    assert (run.run.version, set(run.run.positions)) == (2, {"c"})
    assert run.of(Migrated)[0].by == "ana"
    for bad in (
        c.Migrate(by=ANA, definition_id="w", version=3, step_id="zz", reason="x"),
        c.Migrate(by=OLA, definition_id="w", version=3, step_id="c", reason="x"),
    ):
        assert run.do(bad).refusal is not None


def test_a_workflow_run_cannot_be_migrated_to_a_team() -> None:
    run = DrivenRun(APPROVE)
    run.plan = plan_of(team({"a": ["a"]}, terminator="a"))
    command = c.Migrate(by=ANA, definition_id="t", version=2, step_id="a", reason="x")
    assert code(run.do(command)) == "unknown_place"


def test_an_agents_own_question_takes_any_text_an_approval_or_a_rejection() -> None:
    def asked() -> DrivenRun:
        run = DrivenRun(chain(node("a", max_attempts=3)))
        run.report(outcome=Outcome.ASK, question="drop the table?")
        return run

    run = asked()
    assert code(run.answer("")) == "ambiguous_answer"
    run.answer("no", by=OLA)
    assert run.of(Answered)[-1].decision == "answer"
    run = asked()
    run.answer(decision="approve", by=OLA)
    assert set(run.run.positions) == {"a"}
    run = asked()
    run.answer(decision="revise", text="rename it", by=OLA)
    assert run.of(Answered)[-1].decision == "answer"
    run = asked()
    assert code(run.answer(decision="reject", by=OLA)) == "not_allowed", "closing is not answering"
    run.answer(decision="reject", by=ANA)
    assert run.run.terminal_status == "closed_by_human"


def test_commands_need_a_started_run_and_a_run_starts_once() -> None:
    plan = plan_of(APPROVE)
    assert code(decide(plan, None, c.Tick(), NOON)) == "unknown_run"
    run = DrivenRun(APPROVE)
    assert code(run.do(c.Start(run_id="r1", bead_id="b1"))) == "started"


def test_a_result_from_somebody_else_or_before_the_claim_is_refused() -> None:
    run = DrivenRun(APPROVE)
    assert code(run.do(c.Report(fence=1, agent="a-1"))) == "not_claimed"
    run.claim("a")
    before = run.run
    assert code(run.do(c.Report(fence=1, agent="mallory"))) == "foreign"
    assert code(run.do(c.Report(fence=99, agent="a-1"))) == "late"
    assert code(run.do(c.Claim(fence=1, agent="b", roles=("backend-engineer",)))) == "not_offered"
    assert code(run.do(c.Lose(fence=99, reason="x"))) == "late"
    assert run.run == before
