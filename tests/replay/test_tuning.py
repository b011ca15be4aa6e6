"""Tuning: limits from how runs really went, with what they would have cut and saved."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from tests.kernel.driven_run import DrivenRun, Outcome, Usage, files, plan_of, team

from handrail.kernel.definition.plan import Plan
from handrail.kernel.run.events import RunEvent
from handrail.kernel.run.evolve import replay
from handrail.replay.replayer import replay_recording
from handrail.replay.tuning import (
    GOOD_RUNS_MIN,
    LIMIT_GRID,
    LimitProposal,
    TuningReport,
    cut_share_upper_bound,
    tune,
)

LOOSE = {"repeat_limit": None, "max_edge": 40, "max_handoffs": 100, "no_change_limit": 35}
Recording = Sequence[RunEvent]


def plan(**rules: Any) -> Plan:
    return plan_of(team({"a": ["b"], "b": ["a"]}, terminator="a", stop_rules={**LOOSE, **rules}))


PLAN = plan()


def good(handoffs: int, of: Plan | None = None, **result: Any) -> Recording:
    """So many handoffs, an even number of them, then the end."""
    d = DrivenRun(of or PLAN)
    for i in range(handoffs):
        d.now += timedelta(seconds=2)
        d.hand("ba"[i % 2], **result)
    d.report(outcome=Outcome.TERMINATE)
    assert d.run.terminal_status == "done_success"
    return d.events


def stuck(progress: int, idle: int, of: Plan | None = None, **result: Any) -> Recording:
    """Progress in so many steps, none in as many after it, until its limit of steps."""
    d = DrivenRun(of or plan(max_steps=progress + idle))
    for i in range(progress + idle):
        d.now += timedelta(seconds=2)
        news = files(a_py=f"{min(i, progress)}")
        d.hand("ba"[i % 2], evidence=news, **result)
    assert d.run.terminal_status == "aborted_stuck"
    return d.events


def tuned(
    recordings: Sequence[Recording], share: float = 0.0, of: Plan | None = None
) -> TuningReport:
    of = of or plan(max_steps=40)
    return tune(of, "pair", 3, recordings, lambda _id, _version: PLAN, share)


def row(tuning: TuningReport, limit: str) -> LimitProposal:
    (found,) = [one for one in tuning.proposals if one.limit == limit]
    return found


HISTORY = [*[good(4) for _ in range(11)], good(12), stuck(5, 30), stuck(3, 32)]


@pytest.mark.requirement("S16")
def test_the_limit_with_the_least_waste_is_proposed_that_cuts_no_good_run():
    found = tuned(HISTORY)
    assert (found.runs, found.good, found.aborted, found.aborted_steps) == (14, 12, 2, 70)
    steps = row(found, "max_steps")
    assert (steps.now, steps.proposed, steps.cut) == (40, 15, 0)
    assert steps.wasted_now == 60
    assert steps.wasted == (15 - 6) + (15 - 4)
    assert steps.why == "saves 40 wasted steps, cuts 0 good runs"


@pytest.mark.requirement("S16")
def test_no_proposed_limit_cuts_more_than_the_stated_share():
    for share in (0.0, 0.1, 0.5):
        found = tuned(HISTORY, share)
        assert all(one.cut <= share * found.good for one in found.proposals)
        assert found.together is not None
        assert found.together.cut <= share * found.good
    assert row(tuned(HISTORY, 0.1), "max_steps").cut == 1


@pytest.mark.requirement("S16")
def test_rates_are_those_of_real_replays():
    found = tuned(HISTORY)
    base = {name: getattr(plan(max_steps=40).limits, name) for name in LIMIT_GRID}
    for one in found.proposals:
        for tried in one.tried:
            given = {**base, one.limit: tried.value}
            ends = [replay_recording(events, lambda _id, _v: PLAN, given).run for events in HISTORY]
            was = [replay(events) for events in HISTORY]
            cut = sum(
                a.terminal_status == "done_success" != b.terminal_status and b.has_ended
                for a, b in zip(was, ends, strict=True)
            )
            assert tried.cut == cut, (one.limit, tried.value)


def test_proposals_together_are_the_fewest_that_save_something():
    found = tuned(HISTORY)
    assert found.rules == {"no_change_limit": 1}
    assert found.together is not None
    assert found.together.cut == 0
    assert found.told == (
        "14 ended runs, 12 good, 2 aborted: changing 1 limit saves 58 of 60 wasted steps "
        "and cuts 0 good runs"
    )


def test_the_same_history_gives_the_same_proposals():
    assert tuned(HISTORY) == tuned(HISTORY)


def test_a_tempting_limit_that_would_cut_good_runs_is_named():
    found = tuned([*HISTORY[:12], stuck(9, 2)])
    assert row(found, "max_steps").why == "10 would save 1 step, but cut 1 good run"


@pytest.mark.requirement("S16")
def test_a_small_history_proposes_nothing_and_says_so():
    found = tuned([*[good(2)] * (GOOD_RUNS_MIN - 1), stuck(1, 20)])
    assert found.proposals == ()
    assert found.rules == {}
    assert found.together is None
    assert found.told == (
        "the history is too small: 10 ended runs, 9 good, 1 aborted; it takes 10 good ones"
    )


def test_without_aborted_runs_nothing_is_to_be_saved():
    found = tuned([good(2)] * GOOD_RUNS_MIN)
    assert found.told == "nothing is to be saved: 10 ended runs, 10 good, 0 aborted"


def test_limits_that_are_right_stay():
    found = tuned([*[good(30)] * GOOD_RUNS_MIN, stuck(30, 1)])
    assert found.rules == {}
    assert "the limits are right as they are" in found.told
    assert row(found, "protocol_error_limit").why == "no other limit saves a step"


def test_a_limit_that_cuts_good_runs_of_the_history_is_loosened():
    """It was made tighter after they had ended."""
    found = tuned([*[good(12)] * GOOD_RUNS_MIN, stuck(2, 20)], of=plan(max_steps=8))
    steps = row(found, "max_steps")
    assert steps.proposed == 15
    assert steps.why == "the limit in force cuts 10 good runs of this history"


def test_a_rule_that_is_off_stays_off():
    found = tuned(HISTORY)
    assert "repeat_limit" not in {one.limit for one in found.proposals}


def test_a_budget_is_proposed_where_runs_told_what_they_used():
    spending: dict[str, Any] = {"usage": Usage(tokens=100)}
    history = [*[good(4, **spending)] * GOOD_RUNS_MIN, stuck(2, 30, **spending)]
    tokens = row(tuned(history), "max_tokens")
    assert (tokens.now, tokens.proposed) == (None, 500)
    assert "max_cost" not in {one.limit for one in tuned(history).proposals}


def test_how_many_runs_a_looser_limit_would_let_go_on_is_told():
    found = row(tuned(HISTORY, of=plan(max_steps=35)), "max_steps")
    beyond = {one.value: one.beyond for one in found.tried}
    assert (beyond[35], beyond[50]) == (0, 2)


def test_two_limits_that_only_together_cut_too_many_are_not_both_proposed():
    history = [*[good(4)] * 8, good(10), good(4, evidence=files(a_py="1")), stuck(4, 30)]
    found = tuned(history, 0.1)
    assert len([one for one in found.proposals if one.cut]) > 1
    assert found.together is not None
    assert found.together.cut <= 1


@pytest.mark.parametrize(
    ("cut", "of", "share"), [(0, 10, 0.2589), (0, 100, 0.0295), (1, 10, 0.3942), (10, 10, 1.0)]
)
def test_what_few_good_runs_can_tell(cut: int, of: int, share: float):
    assert cut_share_upper_bound(cut, of) == pytest.approx(share, abs=0.0002)
