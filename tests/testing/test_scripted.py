"""Scripted agents and the clock by hand: runs played offline, to their end, at once."""

from datetime import timedelta

import pytest

from handrail.kernel.result import Result
from handrail.kernel.run.events import Faulted, Moved
from handrail.kernel.run.state import PendingApproval
from handrail.testing import (
    SHAPES,
    ManualClock,
    ScriptedDefinitionError,
    ScriptedDispatch,
    ask,
    carry_on,
    failure,
    hand_to,
    play,
    scripted_runs,
    success,
    terminate,
)
from handrail.testing.clock import NOON


@pytest.mark.parametrize("shape", sorted(SHAPES))
def test_every_shape_ends_well_when_everybody_obliges(shape: str):
    played = play(SHAPES[shape])
    assert played.run.terminal_status == "done_success"


@pytest.mark.parametrize("shape", sorted(SHAPES))
def test_every_shape_ends_when_nobody_says_anything_useful(shape: str):
    agents = {place: [Result()] for place in _places(shape)}
    played = play(SHAPES[shape], agents, people=lambda question: None)
    assert played.run.terminal_status == "aborted_stuck"


def _places(shape: str) -> list[str]:
    document = SHAPES[shape]
    return [part["id"] for part in document.get("agents") or document["nodes"]]


def test_a_list_of_results_is_given_one_by_one_and_the_last_for_ever():
    played = play(SHAPES["bug"], {"verify": [failure("2 red"), success("green")]})
    assert played.run.terminal_status == "done_success"
    outcomes = [event.outcome for event in played.events if isinstance(event, Moved)]
    assert outcomes.count("rework") == 1


def test_a_function_sees_what_it_is_asked_and_why_its_last_answer_would_not_do():
    seen: list[ScriptedDispatch] = []

    def coder(dispatch: ScriptedDispatch) -> Result:
        seen.append(dispatch)
        return hand_to("nobody") if len(seen) == 1 else hand_to("planner", "done")

    def planner(dispatch: ScriptedDispatch) -> Result:
        return hand_to("closer" if seen else "coder", "next")

    played = play(SHAPES["engineers"], {"coder": coder, "planner": planner}, title="a title")
    assert played.run.stop is not None
    assert played.run.stop.rule == "terminated"
    assert [dispatch.attempt for dispatch in seen] == [1, 2]
    assert "may not hand off to 'nobody'" in seen[1].refusal
    assert seen[0].title == "a title"


def test_an_answer_that_a_node_does_not_take_costs_the_attempt():
    played = play(SHAPES["nest"], {"inner": [carry_on("more"), terminate("no"), success()]})
    assert [e.fault for e in played.events if isinstance(e, Faulted)] == ["malformed", "malformed"]


def test_people_are_asked_and_their_revision_goes_back():
    answers = iter(("use euros", "ok"))
    asked: list[PendingApproval] = []

    def boss(question: PendingApproval) -> str | None:
        asked.append(question)
        return next(answers)

    played = play(SHAPES["invoices"], people=boss)
    assert played.run.stretch == 2
    assert len(asked) == 2
    assert played.run.terminal_status == "done_success"


def test_an_agent_may_ask_and_goes_on_with_the_answer():
    played = play(SHAPES["nest"], {"inner": [ask("which?", "a", "b"), success()]})
    assert played.run.terminal_status == "done_success"
    assert played.run.asks == 1


def test_time_jumps_to_the_deadline_when_nobody_answers():
    clock = ManualClock()
    played = play(SHAPES["invoices"], people=lambda question: None, clock=clock)
    assert played.run.stop is not None
    assert played.run.stop.rule == "human_deadline"
    assert clock.now() == NOON + timedelta(days=7)


def test_people_who_revise_for_ever_are_told_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(scripted_runs, "COMMANDS_MAX", 500)
    with pytest.raises(RuntimeError, match="people kept the run going"):
        play(SHAPES["invoices"], people=lambda question: "once more")


def test_an_invalid_document_is_named_with_its_problems():
    with pytest.raises(ScriptedDefinitionError) as caught:
        play({"kind": "team", "name": "t", "start": "a", "agents": []})
    assert "unknown_start" in [problem.code for problem in caught.value.problems]


def test_a_clock_by_hand_goes_forward_only():
    clock = ManualClock()
    clock.advance(minutes=10)
    assert clock.until(NOON) == NOON + timedelta(minutes=10) == clock.now()
    with pytest.raises(AssertionError):
        clock.advance(-1)
