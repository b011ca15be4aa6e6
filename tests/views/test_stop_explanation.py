"""A stop in words: rule, profile, limit, what was alike, and the line that changes it."""

import pytest

from handrail import Guard, StopRules
from handrail.guard.errors import StoppedError
from handrail.kernel.run.state import Stop
from handrail.kernel.stop.alike import AlikeStep, EffectCall
from handrail.kernel.stop.rules import StopRule
from handrail.views.history import StopView, stop_view
from handrail.views.stop_explanation import explain_stop


def view(**fields: object) -> StopView:
    shown = stop_view(Stop(**({"rule": StopRule.NO_CHANGE, "reason": "r"} | fields)))  # type: ignore[arg-type]
    assert shown is not None
    return shown


def lines(**fields: object) -> dict[str, str]:
    return dict(explain_stop(view(**fields)))


def test_an_error_says_what_to_do_at_night() -> None:
    guard = Guard(StopRules(profile="observed"))
    with pytest.raises(StoppedError) as caught, guard.run("r") as run:
        run.called("clerk", "find_address", "ann", "ann@example.org")
        for _ in range(9):
            run.called("clerk", "send_mail", "to ann", "sent", effect=True)
    assert str(caught.value).splitlines() == [
        "no_change: clerk called send_mail with the same arguments and got the same answer 3 more "
        "times, with nothing new in between",
        "  limit: no_change_limit 3, seen 3, profile observed",
        "  alike: steps 3, 4 and 5: clerk, send_mail: same arguments, same answer",
        "  tools with effects since the last progress: send_mail of clerk (steps 2, 3, 4 and 5)",
        "  what would have let it go on: another call, another answer, or a higher no_change_limit",
        "  to allow more: Guard(StopRules(no_change_limit=5)) in a program under guard, "
        "stop_rules: {no_change_limit: 5} in a definition",
    ]


def test_a_stop_of_an_old_history_has_its_rule_as_code() -> None:
    assert view().code == "no_change"
    assert lines() == {"rule": "no_change"}


def test_a_code_that_says_more_than_the_rule_is_shown() -> None:
    shown = lines(code="same_call_bash", also=(StopRule.MAX_STEPS,))
    assert shown["rule"] == "no_change (same_call_bash), and max_steps"


@pytest.mark.parametrize(
    ("name", "limit", "line"),
    [
        ("no_change_limit", 3, "Guard(StopRules(no_change_limit=5))"),
        ("oscillation_limit", 2, "Guard(StopRules(oscillation_limit=3))"),
        ("max_edge", 8, "Guard(StopRules(max_edge=16))"),
        ("max_handoffs", 20, "Guard(StopRules(max_handoffs=30))"),
        ("max_duration", 600.0, "Guard(StopRules(max_duration=900))"),
        ("max_cost", 0.5, "Guard(StopRules(max_cost=1))"),
    ],
)
def test_the_line_raises_the_limit_by_about_half(name: str, limit: float, line: str) -> None:
    change = view(limit=limit, limit_name=name).change
    assert change is not None
    assert change.guard == line
    assert change.definition == f"stop_rules: {{{line[16:-2].replace('=', ': ')}}}"


@pytest.mark.parametrize(("limit", "name"), [(None, "no_change_limit"), ("*.env", "constraints")])
def test_where_no_number_is_the_limit_there_is_no_such_line(limit: object, name: str) -> None:
    shown = view(limit=limit, limit_name=name, profile="strict")
    assert shown.change is None
    assert "to allow more" not in dict(explain_stop(shown))


def test_what_was_alike_is_grouped_and_long_rows_of_numbers_are_short() -> None:
    alike = [AlikeStep(step=n, kind="handoff", what=f"{'ab'[n % 2]} -> c") for n in range(1, 40)]
    alike.append(AlikeStep(step=40, kind="text", what="c: same text"))
    shown = [text for name, text in explain_stop(view(alike=tuple(alike))) if name == "alike"]
    assert shown == [
        "handoffs 1 to 39, 20 in all: b -> c",
        "handoffs 2 to 38, 19 in all: a -> c",
        "step 40: c: same text",
    ]


def test_without_anything_alike_the_evidence_is_shown() -> None:
    assert lines(evidence=("step 1", "step 2"))["evidence"] == "step 1, step 2"


def test_effects_are_named_with_their_steps() -> None:
    effects = (
        EffectCall(step=3, agent="", tool="rm"),
        EffectCall(step=4, agent="clerk", tool="send_mail"),
    )
    shown = lines(effects=effects)["tools with effects since the last progress"]
    assert shown == "rm (step 3); send_mail of clerk (step 4)"
