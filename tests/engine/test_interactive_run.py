"""A run that somebody watches and answers for: everything is heard, nothing is made up."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from tests.engine.interactive_runs import run_to_end
from tests.kernel.driven_run import chain, node, plan_of

from handrail.engine.dispatch.dispatch import Dispatch
from handrail.engine.services.runs import (
    ApprovalPrompt,
    InteractiveRun,
    PromptReply,
    answering_person,
)
from handrail.kernel.result import Outcome, Result
from handrail.kernel.run.events import Ended, Offered, RunEvent, Started
from handrail.kernel.run.evolve import replay
from handrail.kernel.run.state import Run
from handrail.teams.scripted import generic_agents
from handrail.testing.clock import ManualClock


def succeed(dispatch: Dispatch) -> Result:
    return Result(outcome=Outcome.SUCCESS, text=f"{dispatch.node} done")


def runs(
    document: dict[str, Any], agent: Callable[[Dispatch], object], **rest: Any
) -> InteractiveRun:
    return run_to_end(document, dict.fromkeys(generic_agents(plan_of(document)), agent), **rest)


def of(local: InteractiveRun, kind: type[Any]) -> list[Any]:
    return [event for event in local.events if isinstance(event, kind)]


def test_a_workflow_of_willing_agents_ends_in_success():
    local = runs(chain(node("a"), node("b")), succeed)
    assert local.run.terminal_status == "done_success"
    assert [e.step_id for e in of(local, Offered)] == ["a", "b"]
    assert local.run == replay(local.events)


def test_listeners_hear_every_event_with_the_run_after_it():
    heard: list[tuple[RunEvent, Run]] = []
    local = runs(chain(node("a")), succeed, listen=lambda e, r: heard.append((e, r)))
    assert [event for event, _ in heard] == local.events
    assert [run.seq for _, run in heard] == list(range(1, len(local.events) + 1))
    assert isinstance(heard[0][0], Started)
    assert isinstance(heard[-1][0], Ended)


class UntoldError(Exception):
    def __str__(self) -> str:
        raise ValueError


def test_without_an_answer_the_run_stays_open_and_nothing_is_made_up():
    local = runs(chain(node("a", "approval")), succeed)
    assert not local.run.has_ended
    assert local.run.status == "waiting"
    assert len(local.run.pending_approvals) == 1


def test_an_unclear_answer_is_asked_again_with_the_reason():
    refusals: list[str] = []
    words = iter(["hm", "", "ok"])

    def answer(request: ApprovalPrompt) -> str:
        refusals.append(request.refusal)
        return next(words)

    local = runs(chain(node("a", "approval")), succeed, answer=answer)
    assert refusals[0] == ""
    assert all("neither a clear approval" in refusal for refusal in refusals[1:])
    assert local.run.terminal_status == "done_success"


def test_somebody_who_never_answers_clearly_leaves_the_run_open():
    local = runs(chain(node("a", "approval")), succeed, answer=lambda _: "hm")
    assert local.run.status == "waiting"


def test_an_explicit_decision_is_taken_as_it_is():
    reject = PromptReply(decision="reject", text="not now")
    local = runs(chain(node("a", "approval")), succeed, answer=lambda _: reject)
    assert local.run.terminal_status == "closed_by_human"
    assert local.run.stop is not None
    assert local.run.stop.reason == "not now"


def test_the_one_at_the_keyboard_stands_in_for_everybody_asked():
    names: list[str] = []

    def answer(request: ApprovalPrompt) -> str:
        names.append(answering_person(request.approval).name)
        return "ok"

    named = node("a", "approval", approvers=["ana", "bo"], quorum=2)
    by_role = node("b", "approval", quorum=3)
    local = runs(chain(named, by_role), succeed, answer=answer)
    assert names == ["ana", "bo", "you", "person 2", "person 3"]
    assert local.run.terminal_status == "done_success"


def test_the_person_is_shown_the_result_in_full():
    shown: list[str] = []

    def answer(request: ApprovalPrompt) -> str:
        shown.append(request.result)
        return "ok"

    text = "line\n" * 500
    done = Result(outcome=Outcome.SUCCESS, text=text)
    runs(chain(node("a"), node("b", "approval")), lambda _: done, answer=answer)
    assert shown == [text]


def test_an_agents_own_question_brings_the_answer_with_the_next_dispatch():
    answers: list[str] = []

    def agent(dispatch: Dispatch) -> Result:
        answers.append(dispatch.answer)
        if not dispatch.answer:
            return Result(outcome=Outcome.ASK, question="euros or dollars?")
        return succeed(dispatch)

    local = runs(chain(node("a"), node("b")), agent, answer=lambda _: "euros")
    assert answers == ["", "euros", "", "euros"]
    assert local.run.terminal_status == "done_success"


def test_the_longest_deadline_does_not_matter_while_somebody_answers():
    clock = ManualClock()

    def answer(request: ApprovalPrompt) -> str:
        clock.until(request.approval.deadline - timedelta(seconds=1))
        return "ok"

    assert runs(chain(node("a", "approval")), succeed, answer=answer, clock=clock.now).run.has_ended


def test_an_answer_after_the_deadline_is_too_late():
    clock = ManualClock()

    def answer(request: ApprovalPrompt) -> str:
        clock.until(request.approval.deadline)
        return "ok"

    local = runs(chain(node("a", "approval")), succeed, answer=answer, clock=clock.now)
    assert local.run.stop is not None
    assert local.run.stop.rule == "human_deadline"


def test_whoever_is_asked_once_more_is_told_what_the_person_said():
    people: list[list[tuple[str, str]]] = []

    def agent(dispatch: Dispatch) -> Result:
        people.append([(act.act, act.reason) for act in dispatch.people])
        done = bool(dispatch.people)
        return Result(outcome=Outcome.SUCCESS if done else Outcome.FAILURE, reason="cannot")

    once = chain(node("a", max_attempts=1))
    local = runs(once, agent, answer=lambda _: "try the other door")
    assert people == [[], [("revise", "try the other door")]]
    assert local.run.terminal_status == "done_success"
