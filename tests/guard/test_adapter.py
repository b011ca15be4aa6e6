"""What tools find, as every adapter tells it: what is something new, and what is the same again."""

from itertools import permutations
from typing import Any

import pytest

from handrail import Guard, NoProgress, StopRules
from handrail.guard.adapter import RunWatch, watching
from handrail.guard.tool_calls import declares_effect
from handrail.kernel.run.events import Reported


@pytest.fixture(autouse=True)
def _strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under the profile that counts names, too; what is new by findings has tests of its own."""
    monkeypatch.setattr("handrail.guard.adapter.DEFAULT_PROFILE", "strict")


def found(watch: RunWatch, *calls: tuple[Any, ...]) -> None:
    """A step: a model answers, and its tools are called."""
    watch.begin_step()
    watch.raise_if_stopped()
    watch.record_answer("looking", 1)
    for call in calls:
        watch.record_tool_call(*call)


def rounds(*each: tuple[Any, ...]) -> None:
    """A planner sends a worker, whose step each of these is, and gets the turn back."""
    with watching(Guard(), "r") as watch:
        watch.activate("planner", source="")
        for call in each:
            watch.activate("worker")
            watch.raise_if_stopped()
            found(watch, call)
            watch.activate("planner")
            watch.raise_if_stopped()


def artefacts(watch: RunWatch) -> list[dict[str, str] | None]:
    watch.begin_step()
    told = [event for event in watch.run.events if isinstance(event, Reported)]
    return [event.result.evidence.files for event in told]


def test_another_tool_with_news_in_each_round_is_progress_in_each():
    tools = ("search", "fetch", "extract", "sum", "plot", "translate", "save", "send", "close")
    rounds(*((tool, "topic", f"what {tool} says") for tool in tools))


def test_one_failure_of_a_tool_that_works_again_does_not_stand_in_the_way_of_later_news():
    news = [("search", f"topic {word}", f"all of {word}") for word in "abcdefgh"]
    rounds(("search", "topic", "", "HTTP 404"), *news)


@pytest.mark.requirement("S10")
def test_agents_that_read_the_same_one_after_the_other_are_no_loop_and_one_that_does_is():
    with watching(Guard(), "r") as watch:
        for number in range(6):
            watch.activate(f"stage {number}")
            found(watch, ("read", "brief", "the brief"))
    with pytest.raises(NoProgress) as caught, watching(Guard(), "r") as watch:
        watch.activate("stage 1")
        for _ in range(6):
            found(watch, ("read", "brief", "the brief"))
    stop = caught.value.stop
    assert stop.rule == "no_change"
    told = "3 turns found only what tools had found before, the last one of stage 1"
    remedy = "a tool that finds something new, or a higher no_change_limit"
    assert (stop.reason, stop.remedy) == (told, remedy)


def test_calls_beside_each_other_are_the_same_in_whichever_order_they_come_back():
    calls = [("read", {"place": n}, f"nothing in {n}") for n in range(3)]
    with watching(Guard(StopRules(no_change_limit=9)), "r") as watch:
        watch.activate("a")
        for order in permutations(calls):
            found(watch, *order)
        assert len({str(one) for one in artefacts(watch)}) == 1


def test_who_goes_back_to_what_was_found_earlier_is_told_so():
    with pytest.raises(NoProgress) as caught, watching(Guard(), "r") as watch:
        watch.activate("a")
        for place in "abcabcabc":
            found(watch, ("read", place, f"nothing in {place}"))
    stop = caught.value.stop
    assert stop.rule == "oscillation"
    told = "3 turns went back to what tools had found earlier, the last one of a"
    assert stop.reason == told
    assert stop.remedy == "a tool that finds something new, or a higher oscillation_limit"


@pytest.mark.parametrize(
    "names",
    [
        [f"2026-03-0{n}" for n in range(1, 9)],
        [f"123e4567-e89b-12d3-a456-42661417400{n}" for n in range(8)],
        [f"9f86d081884c7d65{n}" for n in range(8)],
    ],
    ids=["days", "ids", "digests"],
)
def test_what_a_tool_is_asked_about_goes_by_its_name_though_the_answer_is_the_same(names):
    with watching(Guard(), "r") as watch:
        watch.activate("a")
        for name in names:
            found(watch, ("status", {"of": name}, "shipped"))


def test_times_and_ids_in_what_a_tool_returns_are_nothing_new():
    with pytest.raises(NoProgress), watching(Guard(), "r") as watch:
        watch.activate("a")
        for n in range(8):
            told = f"nothing at 2026-03-01T10:00:0{n}Z, 123e4567-e89b-12d3-a456-42661417400{n}"
            found(watch, ("status", "of all", told))


class Annotations:
    def __init__(self, **hints: object) -> None:
        self.__dict__ |= hints


@pytest.mark.parametrize(
    ("annotations", "effect"),
    [
        ({"destructiveHint": True}, True),
        (Annotations(destructiveHint=True), True),
        (Annotations(destructive_hint=True), True),
        ({"destructive_hint": True}, True),
        (Annotations(destructive_hint=False), False),
        ({"destructiveHint": False}, False),
        ({"destructiveHint": "yes"}, False),
        ({"readOnlyHint": False}, False),
        (Annotations(), False),
        (None, False),
    ],
)
def test_only_a_tool_that_says_it_is_destructive_has_an_effect(annotations, effect):
    assert declares_effect(annotations) is effect
