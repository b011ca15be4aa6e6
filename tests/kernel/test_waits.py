"""Waits (K31): an agent waits for something outside of the run, so many times, until one deadline
that nothing renews."""

from datetime import timedelta
from random import Random
from typing import Any

import pytest
from tests.kernel.adversary import explore, oracle
from tests.kernel.driven_run import (
    ANA,
    NOON,
    DrivenRun,
    chain,
    edge,
    files,
    node,
    plan_of,
    red,
    team,
    used,
    workflow,
)

from handrail.kernel.definition.model import Settings
from handrail.kernel.definition.plan import check_definition
from handrail.kernel.result import Outcome, Result
from handrail.kernel.run import commands as c
from handrail.kernel.run.clocks import next_due
from handrail.kernel.run.decide import RunDecision
from handrail.kernel.run.events import Ended, Faulted, Offered, Reported
from handrail.kernel.run.state import PositionPhase
from handrail.kernel.stop.rules import StopRule
from handrail.testing.random_definitions import random_team, random_workflow

pytestmark = pytest.mark.requirement("K1", "K15", "K31")


def polls(max_waits: int = 3, **rest: Any) -> dict[str, Any]:
    return chain(node("poll", max_attempts=2, max_waits=max_waits, **rest))


def waiting_team(**rules: Any) -> dict[str, Any]:
    stop_rules = {"max_waits": 3, "wait_deadline": 100, "max_duration": 3600, **rules}
    return team({"a": ["b"], "b": ["a"]}, terminator="b", stop_rules=stop_rules)


def wait(run: DrivenRun, place: str = "", seconds: float = 10, **rest: Any) -> RunDecision:
    rest = {"waits_for": "CI", **rest}
    return run.report(place, outcome=Outcome.WAITING, retry_after=seconds, **rest)


def test_a_dispatch_that_waits_is_over_and_the_next_one_is_offered_after_retry_after() -> None:
    run = DrivenRun(polls())
    fence = run.claim("poll")
    wait(run, "poll")
    position = run.run.positions["poll"]
    assert position.phase is PositionPhase.WAITING
    assert next_due(run.plan, run.run) == NOON + timedelta(seconds=10)
    late = run.do(c.Report(fence=fence, agent="poll-1", result=Result(outcome=Outcome.SUCCESS)))
    assert late.refusal is not None
    assert late.refusal.code == "late"
    run.advance(9.999)
    assert len(run.of(Offered)) == 1
    run.advance(0.001)
    assert len(run.of(Offered)) == 2
    assert run.run.positions["poll"].since == run.now
    run.succeed("poll")
    assert run.run.terminal_status == "done_success"


def test_a_wait_uses_no_attempt_and_leaves_the_key_of_the_dispatch_as_it_was() -> None:
    run = DrivenRun(polls())
    before = run.run.positions["poll"].result
    for _ in range(3):
        wait(run, "poll")
        run.advance(10)
    assert [event.attempt for event in run.of(Offered)] == [1, 1, 1, 1]
    assert run.run.positions["poll"].result == before
    run.fail("poll")
    assert run.of(Offered)[-1].attempt == 2


def test_one_wait_more_than_allowed_escalates_in_a_workflow() -> None:
    run = DrivenRun(polls(max_waits=1))
    wait(run, "poll")
    run.advance(10)
    wait(run, "poll", waits_for="another thing")
    assert run.question().kind == "escalation"
    assert "still waits for another thing after 1 of 1 waits" in run.question().text
    assert run.run.ledger.waits == 2


def test_the_first_wait_sets_the_deadline_and_another_reason_renews_nothing() -> None:
    run = DrivenRun(polls(waits_within=25))
    wait(run, "poll", 20)
    first = run.run.positions["poll"].wait
    assert first is not None
    run.advance(20)
    wait(run, "poll", 20, waits_for="another thing")
    second = run.run.positions["poll"].wait
    assert second is not None
    assert (second.since, second.deadline, second.count) == (first.since, first.deadline, 2)
    assert next_due(run.plan, run.run) == first.deadline, "it comes before the next dispatch"
    run.advance(4.9)
    assert not run.run.pending_approvals
    run.advance(0.1)
    assert "still waits for another thing after 2 of 3 waits" in run.question().text


def test_a_wait_reported_past_the_deadline_escalates_at_once() -> None:
    run = DrivenRun(polls(waits_within=30))
    wait(run, "poll", 20)
    run.advance(20)
    run.claim("poll")
    run.advance(10)
    wait(run, "poll", 1)
    assert run.question().kind == "escalation"


def test_a_wait_that_ends_in_time_is_offered_however_late_the_clock_is_looked_at() -> None:
    run = DrivenRun(polls(waits_within=30))
    wait(run, "poll", 30)
    run.advance(1_000)
    assert run.run.positions["poll"].phase is PositionPhase.OFFERED


def test_waits_belong_to_the_visit() -> None:
    document = chain(
        node("poll", max_attempts=1, max_waits=1),
        node("check", max_attempts=1, on_failure={"rework": "poll", "max": 1}),
    )
    run = DrivenRun(document)
    for _ in range(2):
        wait(run, "poll")
        run.advance(10)
        run.succeed("poll")
        run.fail("check")
    assert run.question().step_id == "check"
    assert len(run.of(Offered)) == 6 == run.plan.bound().dispatches


@pytest.mark.parametrize("at", ["plain", "team"])
def test_where_nobody_may_wait_a_wait_is_refused_and_costs_nothing(at: str) -> None:
    document = chain(node("plain")) if at == "plain" else waiting_team(max_waits=0)
    run = DrivenRun(document)
    run.claim()
    seq = run.run.seq
    decision = wait(run)
    assert decision.refusal is not None
    assert decision.refusal.code == "no_waits"
    assert run.run.seq == seq


@pytest.mark.parametrize(
    "result", [{"waits_for": " "}, {"seconds": 0}, {"seconds": 4_000}, {"waits_for": "x" * 201}]
)
def test_a_wait_without_a_reason_or_a_usable_time_is_refused_in_a_workflow(
    result: dict[str, Any],
) -> None:
    run = DrivenRun(polls())
    decision = wait(run, "poll", **result)
    assert decision.refusal is not None
    assert decision.refusal.code in ("bad_wait", "unusable")
    assert run.run.positions["poll"].phase is PositionPhase.CLAIMED


def test_a_wait_of_a_team_uses_a_step_and_is_of_the_stretch_not_of_the_turn() -> None:
    run = DrivenRun(waiting_team(max_waits=2))
    wait(run)
    run.advance(10)
    assert run.run.ledger.steps == 2
    run.hand("b")
    wait(run, waits_for="another thing")
    latest = run.run.positions["b"].wait
    assert latest is not None
    assert (latest.since, latest.count) == (NOON, 2)
    run.advance(10)
    wait(run)
    assert [event.fault for event in run.of(Faulted)] == ["too_many_waits"]
    assert run.run.positions["b"].faults == 1


def test_a_team_that_waits_past_its_deadline_ends() -> None:
    run = DrivenRun(waiting_team())
    wait(run, seconds=60)
    run.advance(60)
    wait(run, seconds=60, waits_for="the deployment")
    run.advance(39)
    assert not run.run.has_ended
    run.advance(1)
    stop = run.run.stop
    assert stop is not None
    assert (stop.rule, stop.limit, stop.seen) == (StopRule.WAIT_DEADLINE, 100, 100)
    assert "the deployment" in stop.reason
    assert run.run.terminal_status == "aborted_stuck"


def test_a_team_that_says_once_more_that_it_waits_past_its_deadline_ends() -> None:
    run = DrivenRun(waiting_team())
    wait(run, seconds=60)
    run.advance(60)
    run.claim()
    run.advance(50)
    wait(run, seconds=1)
    assert run.run.stop is not None
    assert run.run.stop.rule is StopRule.WAIT_DEADLINE
    assert run.run.stop.seen == 110


def test_work_that_goes_on_after_a_wait_is_not_bound_by_its_deadline() -> None:
    run = DrivenRun(waiting_team())
    wait(run)
    run.advance(10)
    run.claim()
    run.advance(1_000)
    run.hand("b")
    assert not run.run.has_ended


def test_a_wait_of_a_team_without_a_reason_is_a_fault() -> None:
    run = DrivenRun(waiting_team())
    wait(run, waits_for="")
    assert [event.fault for event in run.of(Faulted)] == ["bad_wait"]


def test_the_last_step_of_a_team_waits_and_no_other_follows() -> None:
    run = DrivenRun(waiting_team(max_steps=1))
    wait(run)
    run.advance(10)
    assert run.run.stop is not None
    assert run.run.stop.rule is StopRule.MAX_STEPS


def test_time_that_an_agent_waits_counts_to_the_running_time() -> None:
    run = DrivenRun(waiting_team(max_duration=5))
    wait(run)
    run.advance(5)
    assert run.run.stop is not None
    assert run.run.stop.rule is StopRule.MAX_DURATION


def test_soft_rules_do_not_see_a_wait() -> None:
    rules = {"no_change_limit": 1, "same_error_limit": 1, "max_waits": 5}
    run = DrivenRun(waiting_team(**rules))
    for evidence in (files(), red(), files(a_py="1")):
        wait(run, evidence=evidence)
        run.advance(10)
    ledger = run.run.ledger
    assert (ledger.waits, ledger.idle.count, ledger.errors, ledger.epoch) == (3, 0, {}, 0)
    assert ledger.measured == ledger.claimed


@pytest.mark.parametrize("document", [polls(), waiting_team()])
def test_a_budget_and_a_constraint_see_a_wait(document: dict[str, Any]) -> None:
    limited = {**document.get("stop_rules", {}), "max_tokens": 5, "constraints": {"paths": ["x"]}}
    spent = DrivenRun({**document, "stop_rules": limited})
    wait(spent, usage=used(tokens=6))
    assert spent.run.stop is not None
    assert spent.run.stop.rule is StopRule.BUDGET
    touched = DrivenRun({**document, "stop_rules": limited})
    wait(touched, evidence=files(x="1"))
    assert touched.run.stop is not None
    assert touched.run.stop.rule is StopRule.CONSTRAINT


def test_a_wait_reaches_no_milestone_and_completes_no_task() -> None:
    document = waiting_team()
    document["agents"][0]["tasks"] = [{"id": "t", "once": True, "milestone": "built"}]
    run = DrivenRun(document)
    wait(run)
    assert run.run.phase == ""
    assert not run.run.done


@pytest.mark.requirement("K15")
def test_a_pause_stops_the_clocks_of_a_wait() -> None:
    run = DrivenRun(polls(waits_within=30))
    wait(run, "poll", 10)
    run.advance(4)
    run.do(c.Pause(by=ANA, reason="lunch"))
    run.advance(1_000)
    run.do(c.Resume(by=ANA, reason="back"))
    assert next_due(run.plan, run.run) == run.now + timedelta(seconds=6)
    latest = run.run.positions["poll"].wait
    assert latest is not None
    assert latest.deadline == run.now + timedelta(seconds=26)


def test_a_wait_that_begins_in_a_pause_takes_its_time_after_it() -> None:
    run = DrivenRun(polls(waits_within=30))
    wait(run, "poll", 10)
    run.advance(10)
    run.claim("poll")
    run.do(c.Pause(by=ANA, reason="lunch"))
    run.advance(1_000)
    wait(run, "poll", 10)
    run.advance(5)
    run.do(c.Resume(by=ANA, reason="back"))
    assert next_due(run.plan, run.run) == run.now + timedelta(seconds=10)
    latest = run.run.positions["poll"].wait
    assert latest is not None
    assert latest.deadline == run.now + timedelta(seconds=20)


def test_an_outage_pushes_the_clocks_of_a_wait() -> None:
    run = DrivenRun(polls(waits_within=30))
    wait(run, "poll", 10)
    run.now += timedelta(seconds=500)
    run.do(c.PushClocks(seconds=498))
    assert next_due(run.plan, run.run) == run.now + timedelta(seconds=8)
    latest = run.run.positions["poll"].wait
    assert latest is not None
    assert latest.deadline == run.now + timedelta(seconds=28)


def test_no_wait_is_offered_past_its_deadline_when_clocks_are_pushed() -> None:
    run = DrivenRun(polls(waits_within=5))
    wait(run, "poll", 10)
    run.now += timedelta(seconds=500)
    run.do(c.PushClocks(seconds=1))
    assert run.run.positions["poll"].phase is PositionPhase.WAITING
    run.advance(0)
    assert run.question().kind == "escalation"


def test_a_persons_act_gives_new_waits_and_a_new_deadline() -> None:
    run = DrivenRun(waiting_team(max_waits=1))
    wait(run)
    run.do(c.Move(by=ANA, step_id="a", reason="again"))
    assert run.run.ledger.waits == 0
    run.now += timedelta(seconds=500)
    wait(run)
    latest = run.run.positions["a"].wait
    assert latest is not None
    assert latest.since == run.now


def test_a_replayed_run_that_waits_equals_the_live_one() -> None:
    run = DrivenRun(waiting_team())
    wait(run)
    run.advance(10)
    run.hand("b")
    assert run.replayed() == run.run
    assert run.of(Reported)[0].wait is not None


def test_siblings_go_on_while_one_branch_waits() -> None:
    document = workflow(
        node("s", "start"), node("f", "decision", parallel=True),
        node("a", max_attempts=1, max_waits=2), node("b", max_attempts=1, max_waits=2),
        node("m", "merge", wait="any"), node("e", "end"),
        edges=[
            edge("s", "f"), edge("f", "a"), edge("f", "b"), edge("a", "m"), edge("b", "m"),
            edge("m", "e"),
        ],
    )  # fmt: skip
    run = DrivenRun(document)
    wait(run, "a", 10)
    wait(run, "b", 20)
    run.advance(10)
    assert [run.run.positions[place].phase for place in "ab"] == ["offered", "waiting"]
    run.succeed("a")
    assert isinstance(run.events[-1], Ended)


# Definitions


def codes(document: dict[str, Any], **settings: Any) -> list[str]:
    return [problem.code for problem in check_definition(document, Settings(**settings))[1].errors]


@pytest.mark.parametrize(
    ("document", "path"),
    [
        (polls(max_waits=61, waits_within="1m"), "max_waits"),
        (polls(max_waits=1_801), "max_waits"),
        (polls(max_waits=0, waits_within=10), "waits_within"),
        (
            chain(node("c", kind="commit", role="engineering-manager", max_waits=1)),
            "max_waits",
        ),
        (waiting_team(max_waits=101), "max_waits"),
    ],
)
def test_waits_that_cannot_be_are_errors(document: dict[str, Any], path: str) -> None:
    (problem,) = check_definition(document)[1].errors
    assert problem.code == "bad_waits"
    assert problem.path.endswith(path)


def test_waits_on_a_node_without_agents_are_misplaced() -> None:
    assert codes(chain(node("d", "decision", max_waits=1))) == ["misplaced_config"]


def test_the_installation_says_how_long_agents_wait_where_the_definition_does_not() -> None:
    assert not codes(polls(max_waits=1_801), wait_deadline=3_600)
    document = waiting_team()
    del document["stop_rules"]["wait_deadline"]
    assert plan_of(document, Settings(wait_deadline=50)).limits.wait_deadline == 50


def test_a_running_time_that_leaves_no_room_for_waits_is_warned_of() -> None:
    def warned(**rules: Any) -> bool:
        found = check_definition(waiting_team(**rules))[1].warnings
        return "short_duration" in [warning.code for warning in found]

    assert warned(max_duration=100)
    assert not warned(max_duration=101)
    assert not warned(max_duration=None)
    assert not warned(max_waits=0, max_duration=5)


# Certificate


@pytest.mark.requirement("K23", "K26")
def test_a_visit_makes_as_many_dispatches_as_attempts_and_waits_together() -> None:
    document = chain(
        node("poll", max_attempts=2, max_waits=3),
        node("check", max_attempts=1, max_waits=1, on_failure={"rework": "poll", "max": 1}),
    )
    most = explore(document, limit=20_000, asks=False).most
    assert most["dispatches"] == oracle(document).bound().dispatches == 14


@pytest.mark.requirement("K19", "K23", "K26")
def test_a_team_makes_one_dispatch_more_for_each_wait() -> None:
    rules = {"max_handoffs": 1, "max_steps": None, "protocol_error_limit": 2, "max_waits": 2}
    document = waiting_team(**rules)
    most = explore(document, limit=20_000).most
    assert most["dispatches"] == oracle(document).bound().dispatches == 2 * 2 + 10 + 2


@pytest.mark.requirement("K18")
def test_the_time_of_waits_is_part_of_the_certificate() -> None:
    clocks: dict[str, Any] = {"queue_timeout": 5, "timeout": 7}
    without = plan_of(chain(node("poll", max_attempts=2, **clocks))).bound()
    plan = plan_of(chain(node("poll", max_attempts=2, max_waits=3, waits_within=60, **clocks)))
    bound = plan.bound()
    assert bound.time.queue == without.time.queue + 3 * 5 + 60
    assert bound.time.work == without.time.work + 3 * 7
    assert without.tight["time"]
    assert not bound.tight["time"]
    endless = plan_of(waiting_team(max_duration=None)).bound().time
    none = plan_of(waiting_team(max_duration=None, max_waits=0)).bound().time
    assert endless.queue == none.queue + 3 * 86400 + 100


def test_at_least_three_in_ten_random_definitions_have_waits() -> None:
    teams = [random_team(Random(seed), agents=2) for seed in range(300)]
    assert sum(bool(team["stop_rules"].get("max_waits")) for team in teams) >= 90
    for size in (1, 5):
        flows = [random_workflow(Random(seed), size=size) for seed in range(300)]
        assert sum(has_waits(flow) for flow in flows) >= 90, size


def has_waits(document: dict[str, Any]) -> bool:
    return any(part.get("config", {}).get("max_waits") for part in document["nodes"])
