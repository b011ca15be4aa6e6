"""A person decides whether a team goes on that a soft rule would stop."""

from typing import Any

import pytest
from tests.kernel.driven_run import ANA, OLA, DrivenRun, chain, node, red, team, used

from handrail.kernel.run import commands as c
from handrail.kernel.run.events import Asked, Moved
from handrail.replay.replayer import ReplayOutcome, replay_recording
from handrail.views.approvals import next_steps

pytestmark = pytest.mark.requirement("K13")

PAIR = {"a": ["b"], "b": ["a"]}
FAR: dict[str, Any] = {
    "max_handoffs": 40, "max_edge": None, "repeat_limit": None, "max_steps": 60,
    "same_error_limit": 2, "ladder": {"ask": True},
}  # fmt: skip


def pair(**rules: Any) -> DrivenRun:
    return DrivenRun(team(PAIR, terminator="a", stop_rules={**FAR, **rules}))


def asked(**rules: Any) -> DrivenRun:
    run = pair(**rules)
    run.hand("b", evidence=red())
    run.hand("a", evidence=red())
    return run


def test_a_soft_stop_of_a_team_is_a_question_that_names_rule_and_evidence() -> None:
    run = asked()
    question = run.question()
    assert (question.kind, question.step_id) == ("escalation", "b")
    assert question.text.startswith("same_error: the same failure 2 times")
    assert "(step 1, step 2)" in question.text
    assert question.options == ("go on", "stop")
    assert next_steps(question)[-1] == "reject, or stop: ends the run by same_error"
    assert not run.run.has_ended


@pytest.mark.parametrize(
    "how", [{"decision": "approve"}, {"text": "Go on"}, {"text": "try port 2"}]
)
def test_going_on_opens_a_new_stretch_for_the_agent_whose_turn_it_was(how: dict[str, Any]) -> None:
    run = asked()
    run.answer(**how)
    (moved,) = run.of(Moved)
    assert (moved.targets, moved.outcome, moved.renews) == (("b",), "once_more", True)
    assert run.run.positions["b"].phase == "offered"
    run.hand("a", evidence=red())
    assert not run.run.pending_approvals
    run.hand("b", evidence=red())
    assert run.run.pending_approvals, "each stretch may ask once"
    assert len(run.of(Asked)) == 2
    assert run.replayed() == run.run


@pytest.mark.parametrize("how", [{"decision": "reject"}, {"text": "stop"}])
def test_stopping_ends_the_run_by_the_rule(how: dict[str, Any]) -> None:
    run = asked()
    run.answer(**how)
    assert run.run.stop is not None
    assert (run.run.stop.rule, run.run.terminal_status) == ("same_error", "aborted_stuck")
    assert run.replayed() == run.run


def test_an_operator_may_not_decide_it_and_silence_ends_it() -> None:
    run = asked()
    refused = run.answer("go on", by=OLA)
    assert refused.refusal is not None
    run.advance(8 * 86_400)
    assert run.run.stop is not None
    assert run.run.stop.rule == "human_deadline"


def test_a_changed_bead_asks_again_and_the_answer_still_counts() -> None:
    run = asked()
    run.do(c.Patch(by=ANA, patch={"hint": "port 2"}))
    run.answer("stop")
    assert run.run.stop is not None
    assert run.run.stop.rule == "same_error"


def test_hard_limits_and_budgets_ask_nobody() -> None:
    for rules in ({"max_steps": 2, "same_error_limit": None}, {"max_tokens": 10}):
        run = pair(**rules)
        run.hand("b", evidence=red())
        run.hand("a", evidence=red(), usage=used(tokens=10))
        assert run.run.has_ended


def test_with_both_rungs_a_person_is_asked_first() -> None:
    run = asked(ladder={"ask": True, "conclude": True})
    assert run.run.pending_approvals
    assert run.run.concluding is None


def test_a_workflow_asks_nobody_so() -> None:
    rules = {"same_error_limit": 2, "ladder": {"ask": True}}
    run = DrivenRun(chain(node("fix", max_attempts=5), stop_rules=rules))
    run.fail("fix", evidence=red())
    run.fail("fix", evidence=red())
    assert run.run.has_ended


def test_the_certificate_counts_the_question_and_its_time() -> None:
    ask = pair().plan.bound()
    none = pair(ladder={}).plan.bound()
    assert (ask.questions, none.questions) == (1, 0)
    assert ask.dispatches == none.dispatches
    assert ask.time.people == none.time.people + 7 * 86_400


def test_a_run_that_asked_replays_as_it_was_and_under_other_rules() -> None:
    run = asked()
    run.answer("stop")
    same = replayed(run)
    assert (same.run.stop, same.mismatch_seq) == (run.run.stop, 0)
    assert replayed(run, same_error_limit=5).continues_past_end
    earlier = replayed(run, same_error_limit=1).run.stop
    assert earlier is not None
    assert earlier.rule == "same_error"


def replayed(run: DrivenRun, **overrides: Any) -> ReplayOutcome:
    return replay_recording(run.events, lambda *_: run.plan, overrides or None)
