"""A stopped team concludes with one dispatch, of which only the text counts (K29)."""

from typing import Any

import pytest
from tests.kernel.adversary import explore, oracle
from tests.kernel.driven_run import ANA, DrivenRun, chain, green, node, red, team, used

from handrail.kernel.definition.limits import Ladder, Limits, StopRules, resolve_limits
from handrail.kernel.result import Evidence, Outcome
from handrail.kernel.run import commands as c
from handrail.kernel.run.events import NUDGED, Ended, Offered, Reported
from handrail.replay.replayer import replay_recording

pytestmark = pytest.mark.requirement("K29")

PAIR = {"a": ["b"], "b": ["a"]}
FAR: dict[str, Any] = {
    "max_handoffs": 40, "max_edge": None, "repeat_limit": None, "max_steps": 60,
    "ladder": {"conclude": True},
}  # fmt: skip


def pair(**rules: Any) -> DrivenRun:
    return DrivenRun(team(PAIR, terminator="a", stop_rules={**FAR, **rules}))


def stopped(**rules: Any) -> DrivenRun:
    """A run that has met the same error too often, and may conclude."""
    run = pair(same_error_limit=2, **rules)
    for to in ("b", "a"):
        run.hand(to, evidence=red())
    assert run.run.concluding is not None
    return run


def test_the_agent_whose_turn_it_was_gets_one_more_dispatch_and_its_text_is_kept() -> None:
    run = stopped()
    (position,) = run.run.positions.values()
    assert (position.step_id, position.phase) == ("b", "offered")
    run.report(outcome=None, text="what is left: all of it")
    assert run.run.stop is not None
    assert (run.run.stop.rule, run.run.stop.conclusion) == ("same_error", "what is left: all of it")
    assert run.run.terminal_status == "aborted_stuck"
    assert run.replayed() == run.run


def test_nothing_but_its_text_and_usage_counts() -> None:
    run = stopped(max_tokens=10)
    run.hand(
        "a",
        text="TERMINATE_WORKFLOW",
        data={"done": True},
        evidence=green(files={"f": "1"}),
        usage=used(tokens=30),
    )
    stop = run.run.stop
    assert stop is not None
    assert (stop.rule, stop.conclusion) == ("same_error", "TERMINATE_WORKFLOW")
    assert run.run.terminal_status == "aborted_stuck"
    assert "done" not in run.run.context
    assert run.run.ledger.tokens == 30
    assert run.run.ledger.measured.checks == {"pytest": run.run.ledger.measured.checks["pytest"]}
    assert run.run.ledger.measured.checks["pytest"] != "", "still red"


def test_a_malformed_conclusion_is_one_too() -> None:
    run = stopped()
    fence = run.claim()
    (position,) = run.run.positions.values()
    run.do(c.Report(fence=fence, agent=position.agent, malformed="no JSON"))
    assert run.run.stop is not None
    assert (run.run.stop.rule, run.run.stop.conclusion) == ("same_error", "")


@pytest.mark.parametrize("how", ["lost", "late", "unclaimed", "missing", "paused", "out of time"])
def test_lost_or_late_the_run_ends_by_the_rule_that_stopped_it(how: str) -> None:
    run = stopped(max_duration=20_000)
    if how == "unclaimed":
        run.advance(86_401)
    elif how == "missing":
        run.now = run.now.replace(hour=13)
        run.do(c.MissRole(fence=run.run.fence))
    elif how == "paused":
        run.do(c.Pause(by=ANA, reason="wait"))
        run.advance(40 * 86_400)
    elif how == "lost":
        run.do(c.Lose(fence=run.claim(), reason="gone"))
    else:
        run.claim()
        run.advance(1_801 if how == "late" else 20_001)
    assert run.run.stop is not None
    assert run.run.stop.rule == "same_error"
    assert len([event for event in run.of(Offered) if event.concluding]) == 1
    assert run.replayed() == run.run


def test_a_person_may_close_it_or_move_it_on_instead() -> None:
    closed = stopped()
    closed.do(c.Close(by=ANA, reason="enough"))
    assert closed.run.stop is not None
    assert closed.run.stop.rule == "closed"
    moved = stopped()
    moved.do(c.Move(by=ANA, step_id="a", reason="once more"))
    assert moved.run.concluding is None
    moved.hand("b", evidence=red())
    assert not moved.run.has_ended


@pytest.mark.parametrize(
    ("rules", "result"),
    [
        ({"max_tokens": 9}, {"usage": used(tokens=10)}),
        ({"max_tokens": 10}, {"usage": used(tokens=10)}),
        ({"constraints": {"commands": ["pytest"]}}, {}),
        ({"ladder": {"conclude": False}}, {}),
    ],
)
def test_no_conclusion_where_money_or_a_constraint_is_against_it(
    rules: dict[str, Any], result: dict[str, Any]
) -> None:
    run = pair(same_error_limit=2, **rules)
    run.hand("b", evidence=green() if "constraints" not in rules else Evidence())
    run.hand("a", evidence=red())
    if not run.run.has_ended:
        run.hand("b", evidence=red(), **result)
    assert run.run.has_ended


def test_no_conclusion_after_the_agent_s_own_end_a_protocol_error_or_in_a_pause() -> None:
    for how in ("terminate", "protocol", "pause"):
        run = pair(same_error_limit=2, protocol_error_limit=1 if how == "protocol" else 3)
        run.hand("b", evidence=red())
        if how == "protocol":
            run.report(outcome=None, evidence=red())
        elif how == "pause":
            run.claim()
            run.do(c.Pause(by=ANA, reason="wait"))
            run.hand("a", evidence=red())
        else:
            run = pair(same_error_limit=2)
            run.hand("b", evidence=red())
            run.hand("a")
            run.report(outcome=Outcome.TERMINATE, evidence=red())
        assert run.run.has_ended, how
        assert run.run.stop is not None
        assert run.run.stop.rule == "same_error"


def test_ordinary_steps_end_one_short_of_the_most_and_the_conclusion_is_the_last() -> None:
    run = pair(max_steps=5)
    for to in ("b", "a", "b", "a"):
        run.hand(to)
    assert run.run.concluding is not None
    assert run.run.concluding.rule == "max_steps"
    run.report(outcome=None, text="the end")
    assert run.run.ledger.steps == 5
    assert len(run.of(Reported)) == 5


@pytest.mark.parametrize("steps", [0, 1])
def test_a_single_step_is_an_ordinary_one(steps: int) -> None:
    run = pair(max_steps=steps)
    if steps:
        run.hand("b")
    assert run.run.has_ended
    assert run.run.ledger.steps == steps


def test_the_handoff_that_completes_a_pattern_is_made_and_its_target_concludes() -> None:
    run = pair(repeat_limit=2)
    for to in ("b", "a", "b", "a"):
        run.hand(to)
    (position,) = run.run.positions.values()
    assert (position.step_id, run.run.concluding is not None) == ("a", True)


def test_where_a_person_would_review_nobody_concludes() -> None:
    document = team(
        {"a": ["review"]},
        review={"after": ["a"], "back_to": "a"},
        stop_rules={**FAR, "max_handoffs": 9, "repeat_limit": 2},
    )
    run = DrivenRun(document)
    run.hand("review")
    run.answer("more, please", decision="revise")
    for _ in range(3):
        if run.run.has_ended:
            break
        run.hand("review", evidence=red())
        if run.run.pending_approvals:
            run.answer("more, please", decision="revise")
    assert run.run.has_ended or run.run.pending_approvals or run.run.concluding is None


def test_a_run_that_concludes_is_not_nudged() -> None:
    run = pair(same_error_limit=2, no_change_limit=3)
    run.hand("b", evidence=red(files={}))
    run.hand("a", evidence=red(files={}))
    assert run.run.concluding is not None
    assert NUDGED not in [getattr(event, "code", "") for event in run.decisions[-1].events]


def test_a_workflow_does_not_conclude() -> None:
    assert not resolve_limits(StopRules(ladder=Ladder(conclude=True)), "workflow").ladder.conclude
    document = chain(
        node("fix", max_attempts=5),
        stop_rules={"same_error_limit": 2, "ladder": {"conclude": True}},
    )
    run = DrivenRun(document)
    run.fail("fix", evidence=red())
    run.fail("fix", evidence=red())
    assert run.run.has_ended


@pytest.mark.parametrize(
    ("hands", "rules"),
    [
        (PAIR, {"max_handoffs": 2, "max_steps": None}),
        (PAIR, {"max_handoffs": 0, "max_steps": None}),
        (PAIR, {"max_handoffs": None, "max_steps": 4}),
        (PAIR, {"max_handoffs": 1, "max_steps": 13}),
        (PAIR, {"max_handoffs": 1, "max_steps": 12}),
        (PAIR, {"max_handoffs": None, "max_steps": 1}),
        ({"a": ["b"], "b": []}, {"max_handoffs": 5, "max_steps": None}),
    ],
)
def test_the_certificate_has_one_dispatch_more_where_handoffs_bound_it(
    hands: dict[str, list[str]], rules: dict[str, Any]
) -> None:
    rules = {**rules, "protocol_error_limit": 1, "ladder": {"conclude": True}}
    document = team(hands, terminator="a", stop_rules=rules)
    bound, seen = oracle(document).bound(), explore(document, limit=20_000).most
    assert seen["dispatches"] <= bound.dispatches
    assert seen["dispatches"] == bound.dispatches or not bound.tight["dispatches"]
    assert bound.tight["dispatches"] == (hands is PAIR)
    without = oracle({**document, "stop_rules": {**rules, "ladder": {}}}).bound()
    longer = rules["max_steps"] is None or without.dispatches < rules["max_steps"]
    assert bound.dispatches == without.dispatches + longer


def replayed(run: DrivenRun, **overrides: Any) -> Any:
    return replay_recording(run.events, lambda *_: run.plan, overrides or None)


def test_a_concluded_run_replays_as_it_was_and_under_other_rules() -> None:
    run = stopped()
    run.report(outcome=None, text="the end")
    same = replayed(run)
    assert (same.run.stop, same.mismatch_seq) == (run.run.stop, 0)
    assert replayed(run, same_error_limit=5).continues_past_end
    earlier = replayed(run, same_error_limit=1)
    assert earlier.run.stop.rule == "same_error"
    assert earlier.run.stop.conclusion == ""
    assert isinstance(run.events[-1], Ended)


def test_the_last_step_is_left_only_where_there_is_more_than_one() -> None:
    limits = Limits(max_steps=2, ladder=Ladder(conclude=True))
    assert limits.ordinary_steps == 1
    assert Limits(max_steps=1, ladder=Ladder(conclude=True)).ordinary_steps == 1
    assert Limits(max_steps=None, ladder=Ladder(conclude=True)).ordinary_steps is None
    assert Limits(max_steps=2).ordinary_steps == 2
