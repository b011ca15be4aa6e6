"""The run as the API gives it, and the error on its bead."""

from datetime import timedelta

import msgspec
import pytest
from tests.kernel import histories
from tests.kernel.driven_run import ANA, NOON, DrivenRun, chain, node, plan_of

from handrail.kernel.result import Outcome
from handrail.kernel.run import commands as c
from handrail.kernel.run.measure import measure
from handrail.views.history import last_redirect
from handrail.views.run_view import bead_error, rework_limits, run_summary, run_view

FIELDS = {
    "id", "bead_id", "workflow_id", "workflow_version", "current_node_id", "current_node_ids",
    "status", "phase", "phase_detail", "terminal_status", "stop", "final_agent", "attempts",
    "loop_counters", "soft_rules", "handoff_sequence", "redirects", "warnings", "iterations",
    "usage",
    "last_progress_step", "total_steps", "waits", "remaining", "created_at", "updated_at",
    "ended_at", "duration", "nudges", "dry_run", "would_have", "unguarded",
}  # fmt: skip


EVENT_FIELDS = {"iterations", "nudges", "soft_rules", "updated_at"}


def viewed(d: DrivenRun) -> dict:
    view = run_view(d.plan, d.run, d.events, d.now)
    return msgspec.json.decode(msgspec.json.encode(view))


@pytest.mark.parametrize("make", histories.DRIVEN, ids=lambda make: make.__name__)
def test_a_run_is_shown_with_every_field_at_any_moment(make):
    d = make()
    view = viewed(d)
    assert set(view) == FIELDS
    assert view["status"] == d.run.status
    assert (view["status"] == "ended") == (view["terminal_status"] is not None)
    assert (view["ended_at"] is None) == (view["stop"] is None)
    assert (view["remaining"] == 0) == d.run.has_ended
    assert view["current_node_id"] == next(iter(view["current_node_ids"]), None)


@pytest.mark.parametrize("make", histories.DRIVEN, ids=lambda make: make.__name__)
def test_what_follows_from_the_state_alone_is_the_same_in_the_summary(make):
    d = make()
    view = viewed(d)
    summary = msgspec.json.decode(msgspec.json.encode(run_summary(d.plan, d.run, d.now)))
    events_tell = {"attempts", "loop_counters", "handoff_sequence", "redirects", "warnings"}
    events_tell |= {"would_have", "unguarded"}
    assert set(summary) == FIELDS - events_tell - EVENT_FIELDS
    places = summary.pop("current_node_ids")
    assert sorted(places) == sorted(view["current_node_ids"])
    assert summary.pop("current_node_id") == (places[0] if places else None)
    assert summary == {name: view[name] for name in summary}


@pytest.mark.requirement("S1", "S5", "H7.3", "H7.4", "H7.5")
def test_a_looping_team_is_shown_with_stop_counters_and_sequence():
    view = viewed(histories.looping())
    assert (view["status"], view["terminal_status"]) == ("ended", "aborted_stuck")
    assert (view["current_node_id"], view["current_node_ids"]) == (None, [])
    assert view["stop"]["rule"] == "repeated_pattern"
    assert view["stop"]["pattern"] == ["planner -> researcher", "researcher -> planner"]
    assert view["stop"]["evidence"] == [f"handoff {n}" for n in range(1, 7)]
    assert (view["stop"]["limit"], view["stop"]["seen"], view["stop"]["also"]) == (3, 3, [])
    assert view["loop_counters"]["planner_to_researcher"] == {
        "count": 3, "total": 3, "limit": 8, "reasons": ["need more facts"] * 3,
    }  # fmt: skip
    assert view["handoff_sequence"][0] == {
        "from": "planner", "to": "researcher", "reason": "need more facts", "accepted": True,
        "already_done": False, "task": "", "number": 1, "at": "2026-01-01T12:00:05Z",
        "proposed": "",
    }  # fmt: skip
    assert len(view["handoff_sequence"]) == 6
    assert (view["usage"]["tokens"], view["usage"]["cost"]) == (30, 1.5)
    assert (view["duration"], view["ended_at"]) == (15.0, "2026-01-01T12:00:15Z")
    assert view["final_agent"] == "researcher"


@pytest.mark.requirement("S8")
def test_a_handoff_that_went_elsewhere_is_shown_with_the_proposal_and_the_rule():
    view = viewed(histories.redirected())
    assert view["redirects"] == [
        {"from": "planner", "proposed": "researcher", "to": "coder", "rule": "max_edge", "step": 5}
    ]
    assert [h["proposed"] for h in view["handoff_sequence"]] == [""] * 4 + ["researcher", ""]
    assert view["warnings"][-1]["code"] == "redirected"


@pytest.mark.requirement("S8")
def test_the_agent_that_gets_the_turn_instead_sees_why():
    d = histories.redirected()
    shown = [last_redirect(d.events[:n]) for n in range(1, len(d.events) + 1)]
    agents = [r.to for r in shown if r is not None]
    assert agents
    assert set(agents) == {"coder"}
    assert shown[0] is None
    assert shown[-1] is None, "the coder has handed back"
    d.do(c.Move(by=ANA, step_id="coder", reason="go on there"))
    assert last_redirect(d.events) is None


@pytest.mark.requirement("H4.2")
def test_phase_and_its_detail_are_shown():
    view = viewed(histories.once_only())
    assert (view["phase"], view["phase_detail"], view["status"]) == ("checked", "miss", "running")
    assert view["current_node_id"] == "desk"


def test_a_run_that_goes_on_lasts_until_now_and_shows_its_measure():
    d = DrivenRun(histories.BUG)
    d.now += timedelta(seconds=9)
    view = run_view(d.plan, d.run, d.events, d.now)
    assert view.duration == 9
    assert view.remaining == measure(d.plan, d.run) > 0
    assert (view.created_at, view.updated_at, view.ended_at) == (NOON, NOON, None)
    assert run_view(d.plan, d.run, d.events, NOON - timedelta(seconds=5)).duration == 0


def test_branches_are_shown_with_the_oldest_place_first():
    d = DrivenRun(histories.FORKED)
    view = run_view(d.plan, d.run, d.events, d.now)
    assert (view.current_node_id, view.current_node_ids) == ("left", ("left", "ask"))


def test_the_limit_of_a_way_back_comes_from_the_definition():
    d = DrivenRun(histories.BUG)
    d.succeed("triage")
    d.succeed("fix")
    d.fail("verify")
    view = run_view(d.plan, d.run, d.events, d.now)
    assert view.loop_counters["verify_to_fix"].limit == 1
    assert rework_limits(plan_of(histories.CODING)) == {}


@pytest.mark.requirement("H3.4", "H7.4")
def test_an_aborted_run_leaves_the_loop_on_its_bead():
    error = bead_error(histories.looping().run)
    assert msgspec.to_builtins(error) == {
        "rule": "repeated_pattern",
        "reason": "the same handoffs 3 times in a row without progress: "
        "planner -> researcher, researcher -> planner",
        "pattern": ("planner -> researcher", "researcher -> planner"),
        "execution_id": "r1",
    }


@pytest.mark.requirement("H3.4")
def test_only_an_aborted_run_leaves_an_error():
    for make in histories.DRIVEN:
        run = make().run
        aborted = run.terminal_status in ("aborted_stuck", "aborted_constraint")
        assert (bead_error(run) is not None) == aborted, make.__name__


def test_a_closed_run_shows_who_stands_behind_it():
    d = DrivenRun(histories.CODING)
    d.do(c.Close(by=ANA, reason="no need"))
    view = run_view(d.plan, d.run, d.events, d.now)
    assert view.stop is not None
    assert (view.stop.rule, view.stop.reason) == ("closed", "no need")


def test_a_run_whose_agent_waits_shows_how_often_since_when_and_until_when():
    poll = chain(node("poll", max_attempts=2, max_waits=3, waits_within="1h"))
    d = DrivenRun(poll)
    assert viewed(d)["waits"] == {"count": 0, "since": None, "deadline": None}
    d.claim("poll")
    d.report("poll", outcome=Outcome.WAITING, waits_for="CI", retry_after=10)
    shown = viewed(d)["waits"]
    assert shown["count"] == 1
    assert shown["since"] == "2026-01-01T12:00:00Z"
    assert shown["deadline"] == "2026-01-01T13:00:00Z"
