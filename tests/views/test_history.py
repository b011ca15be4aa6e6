"""Projections of a run's events: complete, in order, and the same as what the run counted."""

from datetime import timedelta

import pytest
from tests.kernel import histories
from tests.kernel.driven_run import (
    ANA,
    NOON,
    OLA,
    DrivenRun,
    Outcome,
    chain,
    files,
    green,
    node,
    red,
    team,
)

from handrail.kernel.run import commands as c
from handrail.kernel.run.evolve import replay
from handrail.kernel.run.state import RunStatus
from handrail.kernel.stop.ledger import edge_key
from handrail.views.history import (
    handoff_sequence,
    human_acts,
    iterations,
    loop_counters,
    normalize_number,
    open_step_ids,
    rebuild_run,
    transitions,
)
from handrail.views.steps import (
    attempts,
    count_nudges,
    enumerate_events,
    last_command,
    last_progress,
    retries,
    started_event,
    steps,
    warnings,
)
from handrail.views.view_types import View

DRIVEN = pytest.mark.parametrize("make", histories.DRIVEN, ids=lambda make: make.__name__)


@DRIVEN
def test_standing_is_the_run_that_was_driven(make):
    d = make()
    run, ran = rebuild_run(d.events)
    assert run == d.run
    assert 0 <= ran <= (d.events[-1].at - d.events[0].at).total_seconds()


@DRIVEN
def test_steps_and_handoffs_carry_the_numbers_of_the_ledger(make):
    d = make()
    assert [step.n for step in steps(d.events)] == list(range(1, d.run.ledger.steps + 1))
    numbers = [h.number for h in handoff_sequence(d.events) if h.accepted]
    assert numbers == list(range(1, d.run.ledger.handoffs + 1))
    *_, (seq, step, _) = enumerate_events(d.events)
    assert (seq, step) == (d.run.seq, d.run.ledger.steps)


def test_running_time_leaves_out_pauses_waits_and_outages_and_spans_all_stretches():
    _, ran = rebuild_run(histories.overridden().events)
    assert ran == 10 + (20 - 15) + 7


@pytest.mark.parametrize("make", histories.GUARDED, ids=lambda make: make.__name__)
def test_what_a_guard_recorded_is_taken_by_every_projection(make):
    events = make()
    run, ran = rebuild_run(events)
    assert ran == (events[-1].at - events[0].at).total_seconds()
    assert run.status is (RunStatus.ENDED if run.has_ended else RunStatus.RUNNING)
    numbers = [h.number for h in handoff_sequence(events) if h.accepted]
    assert numbers == list(range(1, run.ledger.handoffs + 1))
    assert open_step_ids(run, events) == ()
    assert attempts(events) == retries(events) == {}
    assert iterations(events) == human_acts(events) == ()
    assert {warning.code for warning in warnings(events)} <= {"nudged"}
    assert all(step.n <= run.ledger.steps for step in steps(events))


def test_a_guarded_run_has_the_steps_counters_and_milestones_of_its_ledger():
    events = histories.guarded()
    run, _ = rebuild_run(events)
    assert (run.ledger.steps, run.ledger.handoffs, run.ledger.tokens) == (7, 4, 6)
    assert [step.n for step in steps(events)] == [1, 2, 4, 5]
    assert (run.phase, run.final_agent) == ("planned", "coder")
    found = last_progress(events)
    assert found is not None
    assert (found.step, found.what) == (2, ("milestone:planned",))
    assert loop_counters(run, events)["planner_to_coder"].total == 2


@pytest.mark.requirement("H7.2", "H7.5")
def test_the_handoff_sequence_is_complete_with_source_target_reason_and_time():
    found = handoff_sequence(histories.looping().events)
    assert [(h.from_, h.to, h.reason) for h in found] == [
        ("planner", "researcher", "need more facts"),
        ("researcher", "planner", "here they are"),
    ] * 3
    assert all(h.accepted for h in found)
    assert [h.at for h in found] == [
        NOON + timedelta(seconds=5 * (i // 2 + 1)) for i in range(len(found))
    ]


@pytest.mark.requirement("H7.2", "H6.5")
def test_refused_and_already_done_handoffs_stay_in_the_sequence():
    refused = handoff_sequence(histories.terminated().events)[0]
    assert (refused.to, refused.accepted, refused.number) == ("nobody", False, 0)
    again = handoff_sequence(histories.once_only().events)[-1]
    assert (again.to, again.task, again.accepted, again.already_done) == (
        "memory", "look", True, True,
    )  # fmt: skip


@pytest.mark.requirement("L4.3", "L4.4", "L10.8", "L14.7")
def test_every_transition_of_a_workflow_is_kept_with_its_time():
    found = transitions(histories.bug().events)
    assert [(t.from_node_id, t.to_node_id, t.outcome) for t in found] == [
        ("", "start", "started"),
        ("start", "triage", "start"),
        ("triage", "fix", "success"),
        ("fix", "verify", "success"),
        ("verify", "fix", "rework"),
        ("fix", "verify", "success"),
        ("verify", "verify", "once_more"),
        ("verify", "sign", "success"),
        ("sign", "fix", "revise"),
        ("fix", "verify", "success"),
        ("verify", "sign", "success"),
        ("sign", "end", "approve"),
    ]
    assert len({t.id for t in found}) == len(found)
    assert [t.timestamp for t in found] == sorted(t.timestamp for t in found)
    assert [t.actor for t in found if t.outcome in ("revise", "approve")] == ["ana", "ana"]
    assert found[4].reason == "still red"


@DRIVEN
@pytest.mark.requirement("L4.2", "L4.3")
def test_following_the_transitions_leads_to_where_the_run_stands(make):
    d = make()
    for n in range(1, len(d.events) + 1):
        run = replay(d.events[:n])
        entered = {t.to_node_id for t in transitions(d.events[:n])}
        assert set(run.positions) <= entered
        assert set(open_step_ids(run, d.events[:n])) == set(run.positions)


def test_a_fork_is_one_transition_for_each_branch():
    found = [t for t in transitions(histories.forked().events) if t.from_node_id == "fork"]
    assert [(t.to_node_id, t.id) for t in found] == [("left", "r1.3"), ("ask", "r1.3.1")]


@pytest.mark.requirement("L4.4")
def test_handoffs_and_revisions_of_a_team_are_its_transitions():
    found = transitions(histories.reviewed().events)
    assert [(t.from_node_id, t.to_node_id, t.outcome, t.actor) for t in found] == [
        ("", "planner", "started", ""),
        ("planner", "invoice", "handoff", "planner"),
        ("invoice", "review", "handoff", "invoice"),
        ("review", "planner", "revise", "ola"),
        ("planner", "audit", "handoff", "planner"),
        ("audit", "review", "handoff", "audit"),
    ]


def test_an_answer_given_again_leaves_the_run_where_it_was():
    found = transitions(histories.once_only().events)[-1]
    assert (found.from_node_id, found.to_node_id, found.outcome) == ("desk", "desk", "already_done")
    assert "memory has done this already" in found.reason


@pytest.mark.requirement("L2.5", "L4.5", "L6.7")
def test_attempts_and_retries_are_counted_per_node_and_each_keeps_its_times():
    d = histories.bug()
    assert attempts(d.events) == {"fix": 4, "triage": 1, "verify": 4}
    assert retries(d.events) == {"fix": 1}
    tried = [s for s in steps(d.events) if s.place == "fix"]
    assert [(s.attempt, s.outcome) for s in tried] == [
        (1, "failure"), (2, "success"), (1, "success"), (1, "success"),
    ]  # fmt: skip
    assert all(s.offered_at and s.claimed_at and s.ended_at for s in tried)


def test_a_step_says_what_became_of_its_dispatch():
    found = {(s.place, s.outcome) for s in steps(histories.terminated().events)}
    assert found == {
        ("planner", "bad_target"), ("planner", "says_neither"), ("planner", "handoff"),
        ("coder", "lost"), ("coder", "malformed"), ("coder", "ask"), ("coder", "handoff"),
        ("planner", "terminate"),
    }  # fmt: skip
    assert [s.outcome for s in steps(histories.timed_out().events)] == ["timed_out", "timed_out"]
    assert [s.outcome for s in steps(histories.once_only().events)] == [
        "handoff", "handoff", "handoff", "already_done", "",
    ]  # fmt: skip
    cancelled = [s.outcome for s in steps(histories.small_moves().events)]
    assert cancelled.count("cancelled") == 3
    assert [s.outcome for s in steps(histories.fork_moved().events)] == ["cancelled", ""]


def test_a_branch_still_at_work_stays_open_when_its_sibling_arrives():
    found = {s.place: s.outcome for s in steps(histories.racing().events)}
    assert found == {"left": "success", "right": ""}


@pytest.mark.requirement("H3.3")
def test_the_handoff_that_was_one_too_many_is_on_record_and_counts_for_nothing():
    events = histories.guarded_refused()
    run, _ = rebuild_run(events)
    assert [h.accepted for h in handoff_sequence(events)] == [True, False]
    assert list(loop_counters(run, events)) == ["a_to_b"]


def test_a_clock_that_runs_out_before_an_offer_ends_no_step():
    d = histories.nobody_came()
    assert [(s.place, s.outcome) for s in steps(d.events)] == [("a", "timed_out"), ("c", "failure")]


def test_a_result_without_an_outcome_was_reported():
    assert {s.outcome for s in steps(histories.guarded())} == {"reported"}


@pytest.mark.requirement("R2.1", "R2.4")
def test_every_round_of_review_is_kept_with_the_original_task_first():
    found = iterations(histories.approved().events)
    assert [(i.n, i.task, i.agent, i.result, i.decision, i.text, i.by) for i in found] == [
        (
            1, "Pay invoice 7\n\nby Friday", "invoice", "10 EUR\npaid", "revise",
            "pay 20 instead", "ola",
        ),
        (2, "pay 20 instead", "audit", "audited 20", "approve", "OK", "ola"),
    ]  # fmt: skip
    assert found[0].at == NOON + timedelta(seconds=60)


@pytest.mark.requirement("R2.4", "R5.5")
def test_fifty_rounds_are_kept_complete_and_in_order():
    d = DrivenRun(histories.REVIEWED, title="Pay")
    long = "x" * 10_000
    for n in range(50):
        d.hand("invoice")
        d.hand("review", text=f"{n} {long}")
        d.answer(f"again {n}", decision="revise")
    found = iterations(d.events)
    assert [i.result for i in found] == [f"{n} {long}" for n in range(50)]
    assert [i.task for i in found] == ["Pay", *(f"again {n}" for n in range(49))]


@pytest.mark.requirement("R2.4")
def test_a_round_that_nobody_has_settled_is_there_without_a_decision():
    last = iterations(histories.reviewed().events)[-1]
    assert (last.n, last.decision, last.by, last.text) == (2, None, "", "")


def test_an_approval_names_everybody_who_gave_it_a_revision_its_author_alone():
    (both,) = iterations(histories.quorum_approved().events)
    assert (both.decision, both.by, both.text) == ("approve", "ana, bo", "ok\nlooks good")
    (one,) = iterations(histories.quorum_revised().events)
    assert (one.decision, one.by, one.text) == ("revise", "bo", "make it 30")
    (open_one,) = iterations(histories.quorum_open().events)
    assert open_one.decision is None


def test_in_a_workflow_a_round_is_an_answered_question_of_an_approval_node():
    found = iterations(histories.bug().events)
    assert [(i.agent, i.result, i.decision, i.text) for i in found] == [
        ("verify-1", "", "revise", "use a lock"),
        ("verify-1", "green", "approve", "fine"),
    ]
    assert found[1].task == "use a lock"
    assert iterations(histories.unanswered().events) == ()


def test_an_approval_before_any_result_shows_nobodys():
    d = DrivenRun(chain(node("sign", "approval")))
    d.answer(decision="approve")
    (one,) = iterations(d.events)
    assert (one.agent, one.result, one.decision) == ("", "", "approve")


@pytest.mark.requirement("L7.4")
def test_what_people_did_is_listed_with_person_and_reason():
    found = human_acts(histories.overridden().events)
    assert [(a.act, a.by, a.reason, a.place) for a in found] == [
        ("pause", "ana", "lunch", ""),
        ("resume", "bo", "back", ""),
        ("pause", "ana", "dinner", ""),
        ("resume", "ana", "back", ""),
        ("move", "ana", "once again", "a"),
        ("move", "ana", "skip it", "b"),
        ("migrate", "ana", "new version", "w version 2"),
        ("close", "ana", "no longer needed", ""),
    ]
    reviewed = human_acts(histories.approved().events)
    assert [(a.act, a.by, a.reason, a.place) for a in reviewed] == [
        ("revise", "ola", "pay 20 instead", "review"),
        ("patch", "ola", "urgent", ""),
        ("approve", "ola", "OK", "review"),
    ]
    (one,) = human_acts(histories.rejected().events)
    assert (one.act, one.reason) == ("reject", "too dear")


@pytest.mark.requirement("S5", "S7")
def test_loop_counters_count_since_progress_keep_totals_and_the_last_five_reasons():
    d = DrivenRun(team({"a": ["b"], "b": ["a"]}, terminator="a", stop_rules={"max_handoffs": 40}))
    for n in range(7):
        seen = files(x_py=str(n))
        d.hand("b", f"reason {n}", evidence=seen)
        d.hand("a", "back")
    counters = loop_counters(d.run, d.events)
    assert counters["a_to_b"].count == d.run.ledger.edges[edge_key("a", "b")].count < 7
    assert (counters["a_to_b"].total, counters["a_to_b"].limit) == (7, 8)
    assert counters["a_to_b"].reasons == tuple(f"reason {n}" for n in range(2, 7))


@pytest.mark.requirement("S5")
def test_a_new_stretch_counts_afresh_and_the_totals_go_on():
    d = DrivenRun(histories.REVIEWED)
    d.hand("invoice", "first")
    d.hand("review")
    d.answer("again", decision="revise", by=OLA)
    assert loop_counters(d.run, d.events)["planner_to_invoice"].count == 0
    d.hand("invoice", "second")
    found = loop_counters(d.run, d.events)["planner_to_invoice"]
    assert (found.count, found.total, found.reasons) == (1, 2, ("first", "second"))


def test_ways_back_of_a_workflow_are_loop_counters_too():
    d = DrivenRun(histories.BUG)
    d.succeed("triage")
    d.succeed("fix")
    d.fail("verify", reason="red")
    found = loop_counters(d.run, d.events, {"verify": 1})
    assert {key: (c.count, c.total, c.limit) for key, c in found.items()} == {
        "verify_to_fix": (1, 1, 1)
    }
    assert loop_counters(d.run, d.events)["verify_to_fix"].limit is None


def test_transitions_that_a_workflows_rules_count_are_its_handoffs():
    d = histories.counted()
    assert d.run.stop is not None
    found = {f"handoff {h.number}": (h.from_, h.to) for h in handoff_sequence(d.events)}
    assert [found[name] for name in d.run.stop.evidence] == [("start", "a"), ("a", "b")]
    assert handoff_sequence(histories.bug().events) == ()


@pytest.mark.requirement("S5", "S6")
def test_the_last_progress_names_the_step_and_what_it_was():
    d = DrivenRun(team({"a": ["a"]}, terminator="a"))
    assert last_progress(d.events) is None
    d.hand("a", evidence=red())
    d.hand("a", evidence=green())
    d.hand("a")
    found = last_progress(d.events)
    assert found is not None
    assert (found.step, found.agent) == (2, "a-1")
    assert found.what[0].startswith("green:pytest")
    assert found.step == d.run.ledger.last_progress_step


@pytest.mark.requirement("S9", "S12")
def test_the_last_command_has_its_signature_and_how_often_it_was_met():
    d = DrivenRun(team({"a": ["a"]}, terminator="a"))
    assert last_command(d.events) is None
    d.hand("a", evidence=red())
    d.hand("a", evidence=red())
    found = last_command(d.events)
    assert found is not None
    assert (found.command, found.exit_code, found.seen, found.step) == ("pytest", 1, 2, 2)
    assert found.signature == d.run.ledger.measured.checks["pytest"]
    d.report(evidence=green("make"), outcome=Outcome.TERMINATE, reason="done")
    found = last_command(d.events)
    assert found is not None
    assert (found.command, found.signature, found.seen) == ("make", "", 0)


@pytest.mark.requirement("H3.2")
def test_warnings_name_the_step_in_which_they_were_seen():
    d = histories.looping()
    assert [(w.code, w.step) for w in warnings(d.events)] == [
        ("same_target_twice", 3),
        ("nudged", 4),
        ("same_target_twice", 5),
    ]
    assert count_nudges(d.events) == 1


def test_the_place_entered_longest_ago_comes_first():
    d = DrivenRun(histories.FORKED)
    assert open_step_ids(d.run, d.events) == ("left", "ask")
    d.do(c.Move(by=ANA, step_id="left", reason="again"))
    assert open_step_ids(d.run, d.events) == ("left",)


def test_a_history_begins_with_its_start():
    with pytest.raises(AssertionError, match="begins with Started"):
        started_event(())


@pytest.mark.parametrize(
    ("given", "shown"), [(3.0, 3), (3, 3), (0.5, 0.5), ("x", "x"), (None, None)]
)
def test_numbers_that_json_cannot_tell_apart_are_shown_in_one_form(given, shown):
    assert normalize_number(given) == shown
    assert type(normalize_number(given)) is type(shown)


def test_everything_shown_writes_all_its_fields():
    assert all(not cls.__struct_config__.omit_defaults for cls in View.__subclasses__())
