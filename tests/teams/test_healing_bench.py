"""The short form of `python -m benchmarks.healing`: a shop that is served, asked what fails, and
healed by the real server, engine and lane."""

import asyncio
from pathlib import Path

import pytest
from benchmarks.healing.__main__ import figures
from benchmarks.healing.healed import Case, Round, heal

from handrail.views.statistics import DefinitionStatistics, DurationStatistics
from handrail.views.view_types import UsageView

BUGS = ("missing-self", "template", "not-reproduced", "service-down")


@pytest.mark.requirement("L15", "L11.8", "L6.4", "L12.1")
def test_errors_of_a_served_app_are_healed_and_those_that_nobody_can_mend_reach_the_ceo(
    tmp_path: Path,
):
    found = asyncio.run(heal(tmp_path, BUGS))
    assert {case.bug: (case.ended, case.healed) for case in found.cases} == {
        "missing-self": ("done_success", True),
        "template": ("done_success", True),
        "not-reproduced": ("closed_by_human", False),
        "service-down": ("closed_by_human", False),
    }
    assert [case.bug for case in found.cases if case.dossier] == ["not-reproduced", "service-down"]
    assert (found.commits, found.overlapping) == (2, 0)
    shown = found.figures
    assert shown.investigation_success == pytest.approx(2 / 3), "one was never investigated"
    assert (shown.fix_success, shown.fix_cycles) == (1.0, 1.0)
    told = {one.name: one.value for one in figures(found) if "seconds" not in one.name}
    assert told == {
        "root cause found": 1.0,
        "fixes verified": 1.0,
        "escalations": 0.0,
        "cycles": 1.0,
        "healed": 1.0,
        "escalated with a dossier": 1.0,
        "endless": 0,
        "overlapping commits": 0,
    }


def round_of(*cases: Case) -> Round:
    seconds = DurationStatistics(p50=1, p90=1, p99=1, mean=1)
    nothing = DefinitionStatistics(
        workflow_id="auto-bug-workflow",
        runs=1,
        time_to_resolution=seconds,
        success_rate=0,
        escalation_rate=0,
        retries={},
        dispatch_cycles={},
        usage=UsageView(tokens=0, cost=0),
    )
    return Round(cases=cases, figures=nothing, commits=0, overlapping=1)


def case(**more: object) -> Case:
    usual = {
        "bug": "a",
        "fixable": True,
        "ended": "done_success",
        "seconds": 10.0,
        "cause_found": True,
        "applied": 1,
        "escalated": False,
        "dossier": False,
        "healed": True,
    }
    return Case(**{**usual, **more})


def test_a_target_that_is_missed_is_told():
    bad = round_of(
        case(seconds=301.0, cause_found=False, ended="endless", healed=False, applied=2),
        case(seconds=301.0, escalated=True, ended="closed_by_human", applied=2),
        case(fixable=False, ended="closed_by_human", escalated=True),
    )
    assert [one.name for one in figures(bad) if one.met] == []


def test_targets_that_are_reached_are_told():
    good = round_of(case(), case(fixable=False, escalated=True, dossier=True, healed=False))
    assert [one.name for one in figures(good) if not one.met] == ["overlapping commits"]
