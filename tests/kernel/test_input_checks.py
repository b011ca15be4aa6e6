"""What cannot be stored as JSON and read back the same is refused before anything happens."""

import pytest
from tests.kernel.driven_run import ANA, NOON, DrivenRun, chain, node, plan_of

from handrail.kernel.input_checks import (
    DEPTH_MAX,
    VALUE_BYTES_MAX,
    VALUE_ITEMS_MAX,
    are_simple_texts,
    find_json_problem,
)
from handrail.kernel.result import Check, Evidence, Outcome, Result, Usage
from handrail.kernel.run import commands as c
from handrail.kernel.run.decide import decide
from handrail.kernel.run.state import Person


def nested(depth: int) -> object:
    value: object = "leaf"
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value", [None, True, 1, 2**80, 1.5, "é", "", [1, {"a": [None]}], nested(64)]
)
def test_json_values_are_plain(value: object) -> None:
    assert find_json_problem(value) == ""


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("\ud800", "surrogate"),
        ("a\0b", "NUL"),
        ({"a\0": 1}, "NUL"),
        ({"a": ["\udfff"]}, "surrogate"),
        ({"\ud800": 1}, "surrogate"),
        (float("nan"), "nan"),
        ([float("inf")], "inf"),
        ({1: 2}, "key"),
        ({"a": {1, 2}}, "set"),
        (b"raw", "bytes"),
        (nested(DEPTH_MAX + 1), "nested"),
        (nested(100_000), "nested"),
        pytest.param(
            "x" * (VALUE_BYTES_MAX + 1), "larger", id="large"
        ),  # else its name is that long too
        ([0] * (VALUE_ITEMS_MAX + 1), "entries"),
    ],
)
def test_everything_else_is_not_and_says_why(value: object, told: str) -> None:
    assert told in find_json_problem(value)


@pytest.mark.parametrize(
    "result",
    [
        Result(outcome=Outcome.SUCCESS, text="\ud800"),
        Result(outcome=Outcome.SUCCESS, data={"a": {1}}),
        Result(outcome=Outcome.SUCCESS, data={"a": nested(2_000)}),
        Result(outcome=Outcome.SUCCESS, usage=Usage(cost=float("nan"))),
        Result(outcome=Outcome.SUCCESS, usage=Usage(tokens=-5)),
        Result(outcome=Outcome.SUCCESS, usage=Usage(cost=-0.1)),
        Result(outcome=Outcome.SUCCESS, evidence=Evidence(score=float("inf"))),
        Result(outcome=Outcome.SUCCESS, evidence=Evidence(files={"\ud800": "1"})),
        Result(
            outcome=Outcome.SUCCESS,
            evidence=Evidence(checks=(Check(command="\ud800", exit_code=0),)),
        ),
    ],
)
def test_a_result_that_cannot_be_kept_is_refused_and_changes_nothing(result: Result) -> None:
    run = DrivenRun(chain(node("a")))
    fence = run.claim()
    before = run.run
    decision = run.do(c.Report(fence=fence, agent="a-1", result=result))
    assert decision.refusal is not None
    assert decision.refusal.code == "unusable"
    assert decision.events == ()
    assert run.run == before


def test_titles_contexts_patches_and_answers_are_looked_at_too() -> None:
    plan = plan_of(chain(node("ok", "approval")))
    for start in (
        c.Start(run_id="r", bead_id="b", title="\ud800"),
        c.Start(run_id="r", bead_id="b", context={"x": float("nan")}),
    ):
        refused = decide(plan, None, start, NOON).refusal
        assert refused is not None
        assert refused.code == "unusable"
    run = DrivenRun(chain(node("ok", "approval")))
    for command in (
        c.Patch(by=ANA, patch={"x": nested(99)}),
        c.Answer(approval_id=run.question().id, by=ANA, text="ok \ud800"),
        c.Close(by=ANA, reason="\ud800"),
        c.Close(by=Person(name="\ud800"), reason="x"),
        c.Move(by=ANA, step_id="\ud800", reason="x"),
    ):
        refused = run.do(command).refusal
        assert refused is not None
        assert refused.code == "unusable"


def test_what_is_plain_at_a_glance_is_plain_and_the_rest_is_looked_at() -> None:
    assert are_simple_texts("a result", "", "b")
    assert find_json_problem(["a result", "", "b"]) == ""
    for doubtful in ("\ud800", "\N{SNOWMAN}", "x" * VALUE_BYTES_MAX, 3, None, ["a"]):
        assert not are_simple_texts("a result", doubtful)  # pyright: ignore[reportArgumentType]
