"""The clocks of a run: every wait has a deadline, and only running time counts."""

from datetime import timedelta

import pytest
from tests.kernel.driven_run import ANA, NOON, DrivenRun, chain, node, plan_of, team

from handrail.kernel.definition.model import Settings
from handrail.kernel.run import commands as c
from handrail.kernel.run.clocks import next_due
from handrail.kernel.run.decide import decide
from handrail.kernel.run.decision_builder import CancelDispatch
from handrail.kernel.run.events import Ended, TimedOut
from handrail.kernel.run.evolve import evolve

DAY = 86_400
QUICK = chain(node("a", timeout=60, queue_timeout=30), node("b"))


def code(decision) -> str | None:
    return decision.refusal.code if decision.refusal else None


@pytest.mark.requirement("K17", "L8.5")
def test_a_dispatch_that_nobody_claims_goes_to_a_person() -> None:
    run = DrivenRun(QUICK)
    assert next_due(run.plan, run.run) == NOON + timedelta(seconds=30)
    run.advance(29)
    assert not run.run.pending_approvals
    run.advance(1)
    assert run.question().kind == "escalation"
    assert "nobody" in run.question().text


@pytest.mark.requirement("K17", "L8.5", "K3")
def test_work_past_its_timeout_goes_to_a_person_at_once_and_is_cancelled() -> None:
    run = DrivenRun(QUICK)
    fence = run.claim()
    decision = run.advance(60)
    assert run.of(TimedOut)[0].clock == "work"
    assert run.question().kind == "escalation"
    assert CancelDispatch(fence=fence, agent="a-1") in decision.effects


@pytest.mark.requirement("L3.6", "K17")
def test_a_role_that_no_live_agent_has_goes_to_a_person_after_the_grace_time() -> None:
    run = DrivenRun(chain(node("a")))
    assert code(run.do(c.MissRole(fence=1))) == "too_early"
    run.now += timedelta(seconds=60)
    run.do(c.MissRole(fence=1))
    assert "no live agent has the role" in run.question().text
    assert code(run.do(c.MissRole(fence=1))) == "not_offered"


@pytest.mark.requirement("K15")
def test_a_question_nobody_answers_ends_the_run_after_seven_days() -> None:
    run = DrivenRun(chain(node("ok", "approval")))
    run.advance(7 * DAY - 1)
    assert not run.run.has_ended
    run.advance(1)
    assert run.run.stop is not None
    assert (run.run.terminal_status, run.run.stop.rule) == ("aborted_stuck", "human_deadline")


@pytest.mark.requirement("K15")
def test_an_approval_after_the_deadline_is_refused_though_nobody_looked_at_the_clock() -> None:
    run = DrivenRun(chain(node("ok", "approval", deadline=3600)))
    run.now += timedelta(seconds=3600)
    decision = run.answer("ok")
    assert code(decision) == "ended"
    assert run.run.stop is not None
    assert run.run.stop.rule == "human_deadline"


@pytest.mark.requirement("K15")
def test_a_pause_has_a_deadline_of_its_own_and_stops_the_other_clocks() -> None:
    run = DrivenRun(QUICK)
    run.claim()
    run.do(c.Pause(by=ANA, reason="x"))
    run.advance(DAY)
    assert not run.of(TimedOut)
    run.do(c.Resume(by=ANA, reason="x"))
    run.advance(59)
    assert not run.of(TimedOut)
    run.advance(1)
    assert run.of(TimedOut)
    run = DrivenRun(QUICK)
    run.do(c.Pause(by=ANA, reason="x"))
    run.advance(30 * DAY)
    assert run.run.stop is not None
    assert run.run.stop.rule == "pause_deadline"


@pytest.mark.requirement("K15")
def test_a_paused_question_gets_the_time_of_the_pause_back() -> None:
    run = DrivenRun(chain(node("ok", "approval", deadline=3600)))
    run.do(c.Pause(by=ANA, reason="x"))
    run.now += timedelta(seconds=5000)
    run.do(c.Resume(by=ANA, reason="x"))
    run.advance(3599)
    assert not run.run.has_ended
    run.advance(1)
    assert run.run.has_ended


@pytest.mark.requirement("H3.5")
def test_the_duration_of_a_run_does_not_count_the_time_it_waits_for_a_person() -> None:
    document = team(
        {"p": ["i"], "i": []},
        review={"after": ["i"], "back_to": "p"},
        stop_rules={"max_duration": "10m"},
    )
    run = DrivenRun(document)
    run.now += timedelta(seconds=500)
    run.hand("i")
    run.hand("review")
    run.advance(DAY)
    assert not run.run.has_ended
    assert run.run.elapsed_seconds(run.now) == 500
    run.answer("do it again")
    assert run.run.elapsed_seconds(run.now) == 0, "a revision opens a new stretch"


def test_the_time_before_a_pause_and_after_it_adds_up() -> None:
    run = DrivenRun(team({"a": ["a"]}, terminator="a"))
    run.advance(300)
    run.do(c.Pause(by=ANA, reason="x"))
    run.advance(DAY)
    run.do(c.Resume(by=ANA, reason="x"))
    run.advance(299)
    assert not run.run.has_ended
    run.advance(1)
    assert run.run.has_ended


def test_an_outage_pushes_every_clock_before_it_fires() -> None:
    run = DrivenRun(QUICK)
    run.claim()
    run.now += timedelta(seconds=5000)
    run.do(c.PushClocks(seconds=4990))
    run.do(c.Tick())
    assert not run.of(TimedOut)
    run.advance(50)
    assert run.of(TimedOut)
    paused = DrivenRun(QUICK)
    paused.do(c.Pause(by=ANA, reason="x"))
    paused.now += timedelta(days=40)
    paused.do(c.PushClocks(seconds=39 * DAY))
    paused.do(c.Tick())
    assert not paused.run.has_ended
    busy = DrivenRun(team({"a": ["a"]}, terminator="a"))
    busy.now += timedelta(seconds=700)
    busy.do(c.PushClocks(seconds=650))
    busy.do(c.Tick())
    assert not busy.run.has_ended


@pytest.mark.parametrize("amount", [0, -5, float("inf"), float("nan"), 1e30])
def test_clocks_cannot_be_pushed_by_nonsense(amount: float) -> None:
    run = DrivenRun(QUICK)
    assert code(run.do(c.PushClocks(seconds=amount))) == "bad_seconds"


@pytest.mark.requirement("K17")
def test_an_agent_of_a_team_that_is_lost_uses_up_its_turn() -> None:
    run = DrivenRun(team({"a": ["a"]}, terminator="a"))
    for _ in range(3):
        fence = run.claim()
        run.do(c.Lose(fence=fence, reason="no heartbeat"))
    assert run.run.stop is not None
    assert run.run.stop.rule == "agent_lost"


def test_work_of_a_team_past_the_timeout_is_a_lost_turn_and_an_empty_role_ends_the_run() -> None:
    settings = Settings(node_timeout=10, queue_timeout=100, role_grace=5)
    run = DrivenRun(team({"a": ["a"]}, terminator="a"), settings=settings)
    run.claim()
    run.advance(10)
    assert run.run.positions["a"].faults == 1
    run.advance(5)
    run.do(c.MissRole(fence=run.run.fence))
    assert run.run.stop is not None
    assert run.run.stop.rule == "agent_lost"
    assert "no live agent" in run.run.stop.reason
    run = DrivenRun(team({"a": ["a"]}, terminator="a"), settings=settings)
    run.advance(100)
    assert run.run.stop is not None
    assert "nobody with the role" in run.run.stop.reason


def test_a_result_after_the_timeout_comes_too_late() -> None:
    run = DrivenRun(QUICK)
    fence = run.claim()
    run.now += timedelta(seconds=61)
    decision = run.do(c.Report(fence=fence, agent="a-1"))
    assert code(decision) == "late"
    assert run.question()


def test_an_ended_run_has_no_clock_and_a_living_one_always_has() -> None:
    run = DrivenRun(QUICK)
    assert next_due(run.plan, run.run) is not None
    run.succeed("a")
    run.succeed("b")
    assert next_due(run.plan, run.run) is None


def test_a_tick_that_ends_the_run_is_no_refusal() -> None:
    run = DrivenRun(chain(node("ok", "approval", deadline=1)))
    decision = run.advance(1)
    assert decision.refusal is None
    assert run.run.has_ended


@pytest.mark.requirement("K17")
def test_a_turn_in_a_program_elsewhere_of_which_nothing_more_is_heard_ends_the_run() -> None:
    """A guarded run: nothing of it is offered here, and it is told of by its guard."""
    settings, rules = Settings(guard_silence=100), {"max_duration": None}
    document = team({"a": []}, terminator="a", stop_rules=rules)
    begun = DrivenRun(plan_of(document)).events[0]
    plan = plan_of({**document, "metadata": {"guarded": True}}, settings)
    run = evolve(None, begun)
    assert next_due(plan, run) == NOON + timedelta(seconds=100)
    decision = decide(plan, run, c.Tick(), NOON + timedelta(seconds=100))
    (ended,) = decision.events
    assert isinstance(ended, Ended)
    assert ended.stop.rule == "agent_lost"
    assert "nothing was heard for 100 s of the program elsewhere in which 'a'" in ended.stop.reason
