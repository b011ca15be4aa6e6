"""Limits of single tools: so many calls are allowed in a stretch, and one more ends the run."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.kernel.driven_run import DrivenRun, files, red, team
from tests.kernel.test_rules import Bench, only, rules

from handrail.kernel.definition.limits import StopRules, resolve_limits
from handrail.kernel.definition.reader import read_stop_rules
from handrail.kernel.result import Check, Evidence, Usage
from handrail.kernel.stop.findings import FindingKind, StepFinding
from handrail.kernel.stop.ledger import WAIT_ASSESSMENT, Ledger, add_result, continue_thread, renew
from handrail.kernel.stop.tool_counts import STEPS_KEPT


def ran(*commands: str) -> Evidence:
    return Evidence(checks=tuple(Check(command=command, exit_code=0) for command in commands))


def called(*tools: str) -> Evidence:
    return Evidence(
        findings=tuple(
            StepFinding(kind=FindingKind.CALL, key=f"{n}", answer=f"{n}", tool=tool)
            for n, tool in enumerate(tools)
        ),
        measured=True,
    )


def test_as_many_calls_as_the_limit_are_allowed_and_one_more_ends_the_run() -> None:
    bench = Bench(only(tool_limits={"search": 3}))
    for _ in range(3):
        assert not bench.result(called("search", "read"))
    fired = bench.result(called("search"), agent="researcher")
    assert rules(fired) == ["tool_limit"]
    assert (fired[0].limit, fired[0].seen) == (3, 4)
    assert fired[0].evidence == ("step 1", "step 2", "step 3", "step 4")
    assert fired[0].reason == "search was asked for 4 times, the last time by researcher"
    assert fired[0].names == ("search",)


def test_a_limit_of_none_at_all_forbids_the_tool() -> None:
    bench = Bench(only(tool_limits={"pay": 0}))
    assert not bench.result(called("search"))
    assert rules(bench.result(called("search", "pay"))) == ["tool_limit"]


def test_a_command_counts_for_the_tool_that_it_begins_with() -> None:
    bench = Bench(only(tool_limits={"pytest": 2, "git push": 0}))
    assert not bench.result(ran("pytest", "pytest -q tests", "pytest-watch", "git pushed"))
    assert rules(bench.result(ran("git push origin"))) == ["tool_limit"]
    assert rules(bench.result(ran("pytest"))) == ["tool_limit"]


def test_a_call_that_is_shown_and_reported_counts_once() -> None:
    bench = Bench(only(tool_limits={"search": 1}))
    both = replace(called("search"), checks=ran("search {}").checks)
    assert not bench.result(both)


def test_polls_count_although_no_soft_rule_sees_them() -> None:
    limits = only(tool_limits={"status": 1})
    ledger = Ledger()
    for step in (1, 2):
        ledger = add_result(ledger, limits, step, called("status"), Usage(), WAIT_ASSESSMENT)
    assert ledger.tool_calls["status"].calls == 2


def test_progress_renews_nothing_and_a_new_stretch_all() -> None:
    bench = Bench(only(tool_limits={"search": 1}))
    assert not bench.result(called("search"))
    bench.progress("found")
    assert rules(bench.result(called("search"))) == ["tool_limit"]
    assert not Bench(bench.limits, renew(bench.ledger)).result(called("search"))
    assert not Bench(bench.limits, continue_thread(bench.ledger)).result(called("search"))


def test_the_status_is_that_of_a_limit_and_the_order_that_of_the_table() -> None:
    stop_rules = {"tool_limits": {"pytest": 1}, "same_error_limit": 2}
    d = DrivenRun(team({"a": ["a"]}, terminator="a", stop_rules=stop_rules))
    d.hand("a", evidence=red("pytest"))
    d.hand("a", evidence=red("pytest"))
    assert d.run.terminal_status == "aborted_stuck"
    assert d.run.stop is not None
    assert (d.run.stop.rule, d.run.stop.also) == ("tool_limit", ("same_error",))
    assert d.run.stop.code == "tool_limit_pytest"
    assert d.run.stop.limit_name == "tool_limits.pytest"


@given(st.lists(st.integers(0, 4), min_size=1, max_size=80), st.integers(0, 60))
def test_without_any_cited_step_the_limit_would_not_be_passed(calls: list[int], limit: int) -> None:
    bench = Bench(only(tool_limits={"t": limit}))
    for number, count in enumerate(calls, 1):
        fired = bench.result(called(*["t"] * count) if count else files(a=f"{number}"))
        assert bool(fired) == (sum(calls[:number]) > limit)
        if fired:
            for citation in fired[0].evidence:
                step = int(citation.removeprefix("step "))
                assert sum(calls[:number]) - calls[step - 1] <= limit
            assert len(bench.ledger.tool_calls["t"].by_step) <= STEPS_KEPT
            return


@pytest.mark.parametrize("wrong", [{"search": -1}, {"": 1}, {"search": "x"}, 3])
def test_wrong_limits_are_refused_with_their_place(wrong: object) -> None:
    checked, problems = read_stop_rules({"tool_limits": wrong})
    assert checked is None
    assert problems[0].path.startswith("stop_rules.tool_limits")


def test_they_are_off_by_default_and_stay_in_a_workflow() -> None:
    assert resolve_limits(StopRules()).tool_limits == {}
    limits = resolve_limits(StopRules(tool_limits={"search": 5}), "workflow")
    assert limits.tool_limits == {"search": 5}
