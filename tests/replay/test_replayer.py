"""Replay: recorded runs under other stop rules, by the kernel's own rules, without any agent.

The promise that carries all others: a recording under its own rules ends as it really ended, in the
same rule, at the same step, on the same evidence. It is tested over simulated runs of every shape,
with every fault that the simulator knows.
"""

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from tests.kernel import histories
from tests.kernel.driven_run import (
    ANA,
    NOON,
    DrivenRun,
    Evidence,
    Outcome,
    Usage,
    chain,
    edge,
    files,
    node,
    plan_of,
    red,
    team,
    workflow,
)

from handrail.kernel.definition.limits import PROFILES
from handrail.kernel.definition.model import Settings
from handrail.kernel.definition.plan import Plan
from handrail.kernel.run import commands as c
from handrail.kernel.run.events import Asked, Ended, Reported, RunEvent, TimedOut
from handrail.kernel.run.evolve import replay
from handrail.kernel.stop.budgets import BudgetState
from handrail.replay.replay_report import ReplayReport, Verdict, replay_report, summarize
from handrail.replay.replayer import replay_recording
from handrail.replay.rule_overrides import limits_with_overrides, read_overrides
from handrail.testing.seed_options import draw_options
from handrail.testing.simulator import Simulation

PAIR = team({"a": ["b"], "b": ["a"]}, terminator="a")
COMMITTING = chain(node("a"), node("c", kind="commit", role="engineering-manager"))


def under(d: DrivenRun, rules: object = None, plan: Plan | None = None) -> ReplayReport:
    """The driven run under these rules; without any, under its own."""
    given, problems = (None, []) if rules is None else read_overrides(rules)
    assert not problems, problems
    return replay_report(
        d.events, lambda _id, version: d.plan if version > 1 else plan or d.plan, given
    )


def handing(times: int, document: dict[str, Any] = PAIR, **result: Any) -> DrivenRun:
    """Two agents that hand over to each other, a second each."""
    d = DrivenRun(document, title="back and forth")
    for i in range(times):
        d.now += timedelta(seconds=1)
        d.hand("ba"[i % 2], **result)
    return d


def good(times: int = 4, **result: Any) -> DrivenRun:
    d = handing(times, **result)
    d.now += timedelta(seconds=1)
    d.report(outcome=Outcome.TERMINATE, reason="done")
    assert d.run.terminal_status == "done_success"
    return d


# Under its own rules


def test_an_unusable_answer_is_replayed_under_other_rules_as_it_was():
    d = handing(2)
    d.report(outcome=Outcome.SUCCESS, evidence=files(app_py="1"))
    d.report(outcome=Outcome.TERMINATE, reason="done")
    overrides, _ = read_overrides("yolo")
    found = replay_report(d.events, lambda _id, _version: d.plan, overrides)
    assert found.verdict is Verdict.SAME


@pytest.mark.requirement("K31")
def test_a_wait_that_passed_its_deadline_before_the_running_time_did_is_what_ended_the_run():
    rules = {"max_waits": 1, "wait_deadline": 1, "max_duration": 600}
    d = DrivenRun(team({"a": ["a"]}, terminator="a", stop_rules=rules))
    d.report(outcome=Outcome.WAITING, waits_for="CI", retry_after=30)
    d.advance(5_000)  # nobody looked at the clocks before
    assert d.run.stop is not None
    assert d.run.stop.rule == "wait_deadline"
    assert replay_recording(d.events, lambda _id, _version: d.plan).run == d.run


@pytest.mark.requirement("K31")
def test_a_wait_that_escalates_before_the_running_time_is_over_is_replayed_so():
    poll = node("poll", max_attempts=1, max_waits=1, waits_within=1)
    d = DrivenRun(chain(poll, stop_rules={"max_duration": 600}))
    d.report(outcome=Outcome.WAITING, waits_for="CI", retry_after=30)
    d.advance(5_000)
    assert d.of(Asked)
    replayed = replay_recording(d.events, lambda _id, _version: d.plan)
    assert (replayed.run, replayed.mismatch_seq) == (d.run, 0)


@pytest.mark.requirement("S16")
@pytest.mark.parametrize(
    ("known", "used", "end"),
    [
        (12, 1, "done_success"),
        (12, 8, "aborted_constraint"),
        (20, 1, "aborted_constraint"),
    ],
)
def test_a_run_that_shares_a_budget_is_replayed_with_what_was_known_of_it(
    known: float, used: float, end: str
):
    def spent(cost: float) -> tuple[BudgetState, ...]:
        return (BudgetState(name="support", per="day", cost=cost, cost_max=20),)

    chained = chain(node("a"), node("b"), stop_rules={"budgets": ["support"]})
    d = DrivenRun(chained, budgets=spent(12))
    d.claim()
    d.budgets = spent(known)
    d.report("a", outcome=Outcome.SUCCESS, usage=Usage(cost=used))
    if not d.run.has_ended:
        d.succeed("b")
    replayed = replay_recording(d.events, lambda _id, _version: d.plan)
    assert (replayed.run, replayed.mismatch_seq) == (d.run, 0)
    assert d.run.terminal_status == end


def simulated(seeds: range) -> Counter[str]:
    """How often each rule ended a run that was replayed to the very same end."""
    rules: Counter[str] = Counter()
    for seed in seeds:
        simulation = Simulation(draw_options(seed))
        simulation.play()
        events, plan = simulation.checker.events, simulation.plan
        walked = replay_recording(events, lambda _id, _version, plan=plan: plan)
        assert not walked.continues_past_end, seed
        assert not walked.mismatch_seq, seed
        assert walked.run == replay(events), seed
        assert walked.run.stop is not None
        rules[walked.run.stop.rule] += 1
    return rules


@pytest.mark.requirement("S16")
def test_a_run_under_its_own_rules_ends_as_it_really_ended():
    rules = simulated(range(2_000_000, 2_000_300))
    assert len(rules) >= 12, rules


@pytest.mark.heavy
@pytest.mark.requirement("S16")
@pytest.mark.parametrize("first", range(3_000_000, 3_005_000, 1_000))
def test_thousands_of_runs_under_their_own_rules_end_as_they_really_ended(first: int):
    rules = simulated(range(first, first + 1_000))
    assert len(rules) >= 15, rules


@pytest.mark.requirement("S16")
@pytest.mark.parametrize("make", histories.DRIVEN, ids=lambda make: make.__name__)
def test_every_kind_of_history_is_the_same_under_its_own_rules(make: Callable[[], DrivenRun]):
    d = make()
    first = d.plan
    if d.run.version > 1:
        first = plan_of(chain(node("a"), node("sign", "approval"), node("b")))
    found = under(d, plan=first)
    assert found.verdict in (Verdict.SAME, Verdict.OPEN)
    assert found.replayed == found.recorded
    assert found.saved.steps == 0


def test_a_text_that_wins_over_a_handoff_still_wins():
    d = DrivenRun(PAIR)
    d.hand("b", text="all done\nTERMINATE_WORKFLOW")
    assert d.run.has_ended
    assert under(d).verdict is Verdict.SAME


# Under other rules


@pytest.mark.requirement("S16")
def test_a_tighter_rule_stops_a_run_sooner_and_says_what_is_saved():
    d = handing(6, usage=Usage(tokens=10, cost=0.5))
    assert d.run.stop is not None
    assert d.run.stop.rule == "repeated_pattern"
    found = under(d, {"max_handoffs": 2})
    assert found.verdict is Verdict.SOONER
    assert found.replayed is not None
    assert found.replayed.stop.rule == "max_handoffs"
    assert found.replayed.stop.evidence == ("handoff 1", "handoff 2")
    assert (found.replayed.step, found.recorded and found.recorded.step) == (3, 6)
    saved = found.saved
    assert (saved.steps, saved.tokens, saved.cost, saved.seconds) == (3, 30, 1.5, 3.0)
    assert found.told.startswith("max_handoffs (aborted_stuck) stops it at step 3 of 6: ")
    assert not found.cut


@pytest.mark.requirement("S16")
def test_a_good_run_that_would_have_been_stopped_is_cut():
    found = under(good(), {"max_steps": 3})
    assert found.cut
    assert found.verdict is Verdict.SOONER
    assert found.told.startswith("a good run is cut: max_steps (aborted_stuck) stops it at step 3")


@pytest.mark.requirement("S16")
def test_a_looser_rule_lets_a_run_go_on_and_nothing_is_recorded_beyond():
    found = under(handing(6), {"repeat_limit": 4})
    assert found.verdict is Verdict.BEYOND
    assert found.replayed is None
    assert found.told == (
        "goes on past its recorded stop, repeated_pattern (aborted_stuck) at step 6; "
        "there is no recording beyond step 6"
    )


def test_a_refused_handoff_that_would_have_been_made_goes_beyond():
    d = handing(3, {**PAIR, "stop_rules": {"max_handoffs": 2}})
    assert d.run.has_ended
    assert under(d, {"max_handoffs": 3}).verdict is Verdict.BEYOND


def test_sooner_is_a_matter_of_steps_where_no_time_passed():
    d = DrivenRun(PAIR)
    for to in "baba":
        d.hand(to)
    d.report(outcome=Outcome.TERMINATE)
    assert under(d, {"max_steps": 3}).verdict is Verdict.SOONER


def test_another_rule_at_the_same_step_is_told():
    found = under(handing(6), {"repeat_limit": None, "max_handoffs": 5})
    assert found.verdict is Verdict.OTHERWISE
    assert found.told == (
        "max_handoffs (aborted_stuck) ends it at step 6, "
        "instead of repeated_pattern (aborted_stuck)"
    )


def test_a_good_run_that_ends_otherwise_at_its_last_step_is_cut():
    d = good(2)
    last = d.events[-2]
    assert isinstance(last, Reported)
    d.events[-2] = replace(last, result=replace(last.result, usage=Usage(tokens=9)))
    found = under(d, {"max_tokens": 5})
    assert found.verdict is Verdict.OTHERWISE
    assert found.cut
    assert found.told.startswith("a good run is cut: budget (aborted_constraint) ends it at step 3")


def test_a_run_that_still_goes_is_open_or_stopped():
    d = handing(3)
    found = under(d, "strict")
    assert found.verdict is Verdict.OPEN
    assert found.told == "is still running at step 4, and these rules do not stop it"
    assert found.recorded is None
    sooner = under(d, {"max_steps": 2})
    assert sooner.verdict is Verdict.SOONER
    assert sooner.saved.steps == 2


def test_progress_is_weighed_anew_because_it_depends_on_the_limits():
    """While an error persists, file changes count as progress `same_error_limit` times."""
    d = DrivenRun(team({"a": ["a"]}, terminator="a", stop_rules={"repeat_limit": None}))
    for i in range(4):
        evidence = Evidence(files={"a.py": f"{i}"}, checks=red().checks, measured=True)
        d.hand("a", evidence=evidence)
    assert not d.run.has_ended
    found = under(d, {"same_error_limit": 1})
    assert found.replayed is not None
    assert found.replayed.stop.rule == "same_error"
    assert found.replayed.step == 1


@pytest.mark.requirement("S13")
def test_a_profile_fills_only_what_the_definition_does_not_set():
    plan = plan_of({**PAIR, "stop_rules": {"max_steps": 7}})
    given, _ = read_overrides("yolo")
    assert given is not None
    found = limits_with_overrides(plan, given, "large")
    assert (found.max_steps, found.max_edge) == (14, PROFILES["yolo"].max_edge)


def test_a_profile_leaves_off_what_is_off_in_a_workflow():
    d = DrivenRun(chain(node("a")))
    d.now += timedelta(hours=20)
    d.succeed("a")
    assert under(d, "yolo").verdict is Verdict.SAME


# Clocks


def test_the_running_time_is_up_when_it_is_due_not_when_somebody_next_looked():
    d = DrivenRun(PAIR)
    d.claim()
    d.now += timedelta(seconds=500)
    d.hand("b")
    found = under(d, {"max_duration": "1m"})
    assert found.replayed is not None
    assert found.replayed.stop.rule == "max_duration"
    assert found.replayed.at == NOON + timedelta(seconds=60)
    assert found.saved.seconds == 440


def test_a_running_time_that_was_noticed_late_is_noticed_late_again():
    d = handing(1)
    d.advance(700)
    assert d.run.stop is not None
    assert d.run.stop.rule == "max_duration"
    found = under(d)
    assert found.verdict is Verdict.SAME
    assert found.replayed == found.recorded


def test_a_run_that_would_have_had_more_time_goes_beyond():
    d = handing(1)
    d.advance(700)
    assert under(d, {"max_duration": "1h"}).verdict is Verdict.BEYOND


def test_the_clock_that_runs_out_first_fires_first():
    """Both have run out when somebody looks: the timeout of the work and the time of the run."""
    rules = {"max_duration": 1900, "protocol_error_limit": 3}
    d = DrivenRun({**PAIR, "stop_rules": rules})
    d.claim()
    d.advance(2000)
    assert [type(event).__name__ for event in d.events[-2:]] == ["TimedOut", "Ended"]
    assert under(d).replayed == under(d).recorded
    sooner = under(d, {"max_duration": 1700})
    assert sooner.replayed is not None
    assert sooner.replayed.at == NOON + timedelta(seconds=1700)
    assert under(d, {"max_duration": 3600}).verdict is Verdict.BEYOND


def test_the_time_of_a_run_may_be_up_while_a_person_is_asked():
    document = chain(node("a", timeout=50), stop_rules={"max_duration": 60})
    d = DrivenRun(document)
    d.claim("a")
    d.advance(100)
    assert [type(event) for event in d.events[-3:]] == [TimedOut, Asked, Ended]
    assert under(d).replayed == under(d).recorded


def test_a_question_and_the_time_of_the_run_run_out_together():
    document = workflow(
        node("start", "start"),
        node("fork", "decision", parallel=True),
        node("left"),
        node("ask", "approval", deadline=50),
        node("join", "merge"),
        node("end", "end"),
        edges=[
            edge("start", "fork"),
            edge("fork", "left", "true"),
            edge("fork", "ask"),
            edge("left", "join"),
            edge("ask", "join"),
            edge("join", "end"),
        ],
        stop_rules={"max_duration": 60},
    )
    d = DrivenRun(document)
    d.advance(100)
    assert d.run.stop is not None
    assert d.run.stop.rule == "human_deadline"
    assert under(d).verdict is Verdict.SAME
    assert under(d, {"max_duration": 40}).verdict is Verdict.SOONER


def test_settings_of_today_do_not_make_clocks_fire_that_did_not():
    d = DrivenRun(chain(node("a")))
    d.claim("a")
    d.now += timedelta(seconds=1000)
    d.succeed("a")
    today = plan_of(chain(node("a")), Settings(node_timeout=5))
    found = replay_report(d.events, lambda _id, _version: today, None)
    assert found.verdict is Verdict.SAME


def test_an_outage_does_not_count_as_running_time():
    d = DrivenRun(PAIR)
    d.now += timedelta(seconds=5000)
    d.do(c.PushClocks(seconds=4990))
    d.hand("b")
    d.hand("a")
    d.report(outcome=Outcome.TERMINATE)
    assert under(d, {"max_duration": "1m"}).verdict is Verdict.SAME


# The commit lock


def test_a_commit_lock_that_comes_when_no_step_is_left_ends_the_run_there():
    d = DrivenRun({**COMMITTING, "stop_rules": {"max_steps": 1}})
    d.succeed("a")
    d.now += timedelta(seconds=5)
    d.do(c.GrantLock(step_id="c", lock=1))
    assert d.run.stop is not None
    assert d.run.stop.rule == "max_steps"
    assert under(d).verdict is Verdict.SAME
    assert under(d, {"max_steps": 2}).verdict is Verdict.BEYOND


def test_a_commit_lock_that_does_not_come_is_as_recorded():
    d = DrivenRun(COMMITTING)
    d.succeed("a")
    d.advance(90_000)
    assert isinstance(d.events[-1], Asked)
    assert under(d).verdict is Verdict.OPEN


def test_a_migrated_run_has_the_other_rules_in_both_versions():
    old = plan_of(PAIR)
    d = DrivenRun(old)
    d.hand("b")
    d.plan = plan_of({**PAIR, "stop_rules": {"max_handoffs": 3}})
    d.do(c.Migrate(by=ANA, definition_id="t", version=2, step_id="a", reason="new"))
    for to in "bab":
        d.hand(to)
    found = under(d, {"max_handoffs": 2}, plan=old)
    assert found.replayed is not None
    assert found.replayed.step == 5
    assert under(d, plan=old).verdict is Verdict.OPEN


# What cannot be replayed


def test_a_recording_that_does_not_follow_from_its_definition_says_where():
    d = good()
    other = plan_of(team({"a": ["b"], "b": ["a"]}, start="b", terminator="b"))
    given, _ = read_overrides("strict")
    found = replay_report(d.events, lambda _id, _version: other, given)
    assert found.verdict is Verdict.UNLIKE
    assert found.told == (
        "cannot be replayed: event 22 does not follow from version 1 of 't'; "
        "it may have been recorded by another version of Handrail"
    )


@pytest.mark.parametrize("cut_out", [1, 3])
def test_a_recording_with_a_hole_says_where(cut_out: int):
    d = good()
    holed = [*d.events[:cut_out], *d.events[cut_out + 1 :]]
    walked = replay_recording(holed[:6], lambda _id, _version: d.plan)
    assert walked.mismatch_seq


def test_a_question_out_of_nowhere_does_not_follow():
    d = histories.reviewed()
    asked = next(event for event in d.events if isinstance(event, Asked))
    claimed = DrivenRun(chain(node("a")))
    claimed.claim("a")
    stray = replace(asked, approval=replace(asked.approval, step_id="a"))
    events: list[RunEvent] = [*claimed.events, stray]
    assert replay_recording(events, lambda _id, _version: claimed.plan).mismatch_seq == len(events)


@pytest.mark.parametrize("event", ["offered", "moved"])
def test_a_step_out_of_nowhere_does_not_follow(event: str):
    d = DrivenRun(chain(node("a"), node("b")))
    d.succeed("a")
    kinds = {type(one).__name__.lower(): one for one in d.events}
    events = [*d.events, kinds[event]]
    assert replay_recording(events, lambda _id, _version: d.plan).mismatch_seq == len(events)


def test_a_redirect_under_its_own_rules_is_replayed_and_under_others_leads_beyond_the_record():
    d = histories.redirected()
    assert not replay_recording(d.events, lambda _id, _version: d.plan).mismatch_seq
    for rules in ({"max_edge": 8}, {"max_edge": 1}):
        found = under(d, rules)
        assert found.verdict is Verdict.BEYOND
    assert found.told == "goes another way after step 3: there is no recording of that"


def test_a_redirect_in_place_of_a_recorded_end_goes_on_past_it():
    agents = {"a": {"when_exhausted": {"b": "c"}}}
    document = team({"a": ["b", "c"], "b": ["a"], "c": ["a"]}, terminator="a", agents=agents)
    d = DrivenRun({**document, "stop_rules": {"repeat_limit": None, "max_handoffs": 2}})
    for to in "bab":
        d.hand(to)
    assert d.run.has_ended
    assert under(d, {"max_handoffs": 5, "max_edge": 1}).verdict is Verdict.BEYOND


# The sum


def test_all_runs_together():
    rules = {"max_steps": 3}
    items = [under(good(), rules), under(good(2), rules), under(handing(6), rules)]
    found = summarize(items)
    assert (found.runs, found.good, found.cut) == (3, 2, 1)
    assert found.verdicts == {"same": 1, "sooner": 2}
    assert found.saved == items[2].saved, "what a good run needed is not saved by cutting it"


def test_a_replay_reads_the_same_after_json():
    found = under(handing(6), {"max_handoffs": 2})
    assert msgspec.json.decode(msgspec.json.encode(found), type=ReplayReport) == found


# Rules as they are given


@pytest.mark.parametrize(
    ("document", "given"),
    [
        ("yolo", {"profile": "yolo"}),
        ({"max_edge": 4}, {"max_edge": 4}),
        ({"stop_rules": {"max_duration": "10m"}}, {"max_duration": 600}),
        ({"max_steps": None}, {"max_steps": None}),
        ({}, {}),
    ],
)
def test_rules_are_a_profile_or_fields_or_a_definition(document: object, given: dict[str, Any]):
    assert read_overrides(document) == (given, [])


@pytest.mark.parametrize(
    ("document", "path", "told"),
    [
        ("fast", "profile", "'fast' is no profile"),
        ({"max_edg": 4}, "stop_rules.max_edg", "'max_edg' is no stop rule"),
        ({"zzz": 4}, "stop_rules.zzz", "'zzz' is no stop rule"),
        ({"max_edge": "four"}, "stop_rules.max_edge", "'four' does not fit"),
        ([1], "stop_rules", "rules are an object"),
        ({"stop_rules": 3}, "stop_rules", "rules are an object"),
    ],
)
def test_wrong_rules_are_refused_with_their_place(document: object, path: str, told: str):
    given, (problem,) = read_overrides(document)
    assert given is None
    assert problem.path == path
    assert told in problem.message


def test_a_typo_is_told_with_what_was_meant():
    _, (problem,) = read_overrides({"max_edg": 4})
    assert problem.hint == "did you mean 'max_edge'?"


def test_changed_files_are_seen_in_a_replay():
    d = DrivenRun(team({"a": ["a"]}, terminator="a", stop_rules={"no_change_limit": None}))
    for _ in range(2):
        d.hand("a", evidence=files(a_py="1"))
    assert under(d, {"no_change_limit": 1}).verdict is Verdict.SOONER


def waiting(*seconds: float) -> DrivenRun:
    """A team that waits for so long, each time."""
    rules = {"max_waits": 5, "wait_deadline": 100, "max_duration": 3600}
    d = DrivenRun({**PAIR, "stop_rules": rules})
    for length in seconds:
        d.report(outcome=Outcome.WAITING, waits_for="CI", retry_after=length)
        d.advance(length)
    return d


def test_waits_are_replayed_at_their_times_under_another_deadline() -> None:
    d = waiting(30, 30, 60)
    assert d.run.stop is not None
    assert d.run.stop.rule == "wait_deadline"
    assert under(d).verdict is Verdict.SAME
    assert under(d, {"wait_deadline": 50}).verdict is Verdict.SOONER
    assert under(d, {"wait_deadline": 1000}).verdict is Verdict.BEYOND


def test_a_wait_that_has_been_offered_again_is_ended_sooner_by_a_shorter_deadline() -> None:
    d = waiting(30)
    d.report(outcome=Outcome.TERMINATE)
    assert under(d).verdict is Verdict.SAME
    assert under(d, {"wait_deadline": 10}).verdict is Verdict.SOONER


def test_a_wait_of_the_last_step_ends_as_recorded() -> None:
    rules = {"max_waits": 5, "wait_deadline": 100, "max_steps": 2}
    d = DrivenRun({**PAIR, "stop_rules": rules})
    for _ in range(2):
        d.report(outcome=Outcome.WAITING, waits_for="CI", retry_after=10)
        d.advance(10)
    assert d.run.stop is not None
    assert d.run.stop.rule == "max_steps"
    assert under(d).verdict is Verdict.SAME
