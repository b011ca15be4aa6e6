"""What a run may hold in sum: a result has its share, and the context stays one value's size."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests.kernel.driven_run import OLA, DrivenRun, chain, node

from handrail.kernel.input_checks import (
    RESULT_BYTES_MIN,
    RESULTS_BYTES_MAX,
    VALUE_BYTES_MAX,
    VALUE_ITEMS_MAX,
)
from handrail.kernel.result import Outcome, Result
from handrail.kernel.run import commands as c
from handrail.kernel.run.decide import RunDecision

CODER = "fix-1"
MANY = RESULTS_BYTES_MAX // RESULT_BYTES_MIN
"""Of so many dispatches, or more, each has the least share."""
FEW = MANY // 2
HALF = [0] * (VALUE_ITEMS_MAX * 6 // 10)
"""By itself it fits into a context; two of them do not, and they are far below 10 MB."""
SIX_BYTES = "\x01"
"""One character, which JSON writes as six."""


def held(dispatches: int, rules: dict[str, Any] | None = None, **start: Any) -> DrivenRun:
    """A run of at most so many dispatches; the first of them is in the coder's hands."""
    task = node("fix", max_attempts=dispatches, multi_dispatch=True)
    run = DrivenRun(chain(task, stop_rules=rules or {}), **start)
    run.claim("fix", CODER)
    return run


def bring(run: DrivenRun, size: int) -> RunDecision:
    """Report a result of exactly so many bytes."""
    around = len(msgspec.json.encode(Result(outcome=Outcome.CONTINUE, text="x"))) - 1
    return run.report(outcome=Outcome.CONTINUE, text="x" * (size - around))


def add_by_result(run: DrivenRun, data: dict[str, Any]) -> RunDecision:
    return run.report(outcome=Outcome.CONTINUE, data=data)


def add_by_hand(run: DrivenRun, data: dict[str, Any]) -> RunDecision:
    return run.do(c.Patch(by=OLA, patch=data))


Add = Callable[[DrivenRun, dict[str, Any]], RunDecision]
whoever_adds = pytest.mark.parametrize("add", [add_by_result, add_by_hand])


def refused(run: DrivenRun, act: Callable[[], RunDecision], code: str) -> str:
    """What was said when the act was refused, after a look that nothing has changed."""
    before, measure = run.run, run.measure
    decision = act()
    assert decision.refusal is not None, f"taken, and not refused as {code}"
    assert (decision.refusal.code, decision.events, decision.effects) == (code, (), ())
    assert run.run == before
    assert run.measure == measure
    token = run.run.positions["fix"]
    assert (token.phase, token.agent) == ("claimed", CODER), "the dispatch is still open"
    assert decision.refusal.hint
    return decision.refusal.message


def test_a_result_larger_than_its_share_is_refused_and_a_smaller_one_is_then_taken() -> None:
    run = held(FEW)
    share = RESULTS_BYTES_MAX // FEW
    said = refused(run, lambda: bring(run, share + 1), "result_too_large")
    assert said == (
        f"the result has {share + 1:,} bytes; "
        f"in a run of at most {FEW} dispatches each may have {share:,}"
    )
    assert bring(run, share).refusal is None
    assert run.replayed() == run.run


def test_a_definition_of_few_dispatches_allows_more_than_one_of_many() -> None:
    many, few = held(MANY), held(FEW)
    refused(many, lambda: bring(many, RESULTS_BYTES_MAX // FEW), "result_too_large")
    assert bring(few, RESULTS_BYTES_MAX // FEW).refusal is None


def test_of_very_many_dispatches_each_has_the_least_share_all_the_same() -> None:
    run = held(10 * MANY)
    refused(run, lambda: bring(run, RESULT_BYTES_MIN + 1), "result_too_large")
    assert bring(run, RESULT_BYTES_MIN).refusal is None


def test_a_single_dispatch_has_no_more_than_one_value_may_be() -> None:
    run = held(1)
    text = SIX_BYTES * (VALUE_BYTES_MAX // 6)
    said = refused(run, lambda: run.succeed(text=text), "result_too_large")
    assert said.endswith(f"in a run of at most 1 dispatches each may have {VALUE_BYTES_MAX:,}")
    assert run.succeed(text=text[: VALUE_BYTES_MAX // 60]).refusal is None


def test_the_share_goes_by_the_steps_that_the_beads_task_scope_leaves() -> None:
    rules = {"max_steps": MANY}
    small = held(MANY, rules, context={"task_scope": "small"})
    tiny = held(MANY, rules, context={"task_scope": "tiny"})
    refused(small, lambda: bring(small, 2 * RESULT_BYTES_MIN), "result_too_large")
    assert bring(tiny, 2 * RESULT_BYTES_MIN).refusal is None


def test_bytes_count_as_json_has_them_and_so_does_what_nobody_could_read() -> None:
    run = held(MANY)
    escaped = SIX_BYTES * (RESULT_BYTES_MIN // 6)
    refused(run, lambda: run.report(outcome=Outcome.CONTINUE, text=escaped), "result_too_large")
    fence = run.run.positions["fix"].fence
    unread = c.Report(fence=fence, agent=CODER, malformed="x" * RESULT_BYTES_MIN)
    refused(run, lambda: run.do(unread), "result_too_large")
    brief = msgspec.structs.replace(unread, malformed="no outcome in it")
    assert run.do(brief).refusal is None


@whoever_adds
def test_a_context_that_would_grow_too_large_is_refused_and_changes_nothing(add: Add) -> None:
    run = held(2, context={"first": HALF})
    said = refused(run, lambda: add(run, {"second": HALF}), "context_too_large")
    assert f"more than {VALUE_ITEMS_MAX:,} entries" in said
    assert add(run, {"second": "less"}).refusal is None
    assert (run.run.context["first"], run.run.context["second"]) == (HALF, "less")


@whoever_adds
def test_a_null_that_removes_a_key_makes_room(add: Add) -> None:
    run = held(2, context={"first": HALF, "notes": {"log": []}})
    refused(run, lambda: add(run, {"notes": {"log": HALF}}), "context_too_large")
    assert add(run, {"first": None, "notes": {"log": HALF}}).refusal is None
    assert run.run.context["notes"] == {"log": HALF}
    assert "first" not in run.run.context
    assert run.replayed() == run.run
