"""A run in memory: functions as agents, one person who answers, an honest end."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from tests.kernel.driving import chain, edge, node, plan_of, team, workflow

from handrail.engine.dispatch import Dispatch
from handrail.engine.local import LocalRun, Reply, Request, stand_in
from handrail.kernel.plan import Plan, check
from handrail.kernel.result import Evidence, Outcome, Result
from handrail.kernel.run.commands import Start
from handrail.kernel.run.events import (
    Claimed,
    Ended,
    Faulted,
    Lost,
    Offered,
    Reported,
    RunEvent,
    Started,
)
from handrail.kernel.run.machine import Run, measure, replay
from handrail.testing.clock import NOON, ManualClock


def succeed(dispatch: Dispatch) -> Result:
    return Result(outcome=Outcome.SUCCESS, text=f"{dispatch.node} done")


def everybody(agent: Callable[[Dispatch], object]):
    return lambda role: agent


def runs(document: dict[str, Any] | Plan, staff: Any, **rest: Any) -> LocalRun:
    plan = document if isinstance(document, Plan) else plan_of(document)
    start = rest.pop("start", {})
    local = LocalRun(plan, staff, **rest)
    refusal = local.to_its_end(Start(run_id="r1", bead_id="b1", **start))
    assert refusal is None, refusal
    return local


def of(local: LocalRun, kind: type[Any]) -> list[Any]:
    return [event for event in local.events if isinstance(event, kind)]


def test_a_workflow_of_willing_agents_ends_in_success():
    local = runs(chain(node("a"), node("b")), everybody(succeed))
    assert local.run.terminal_status == "done_success"
    assert [e.place for e in of(local, Offered)] == ["a", "b"]
    assert local.run == replay(local.events)


def test_listeners_hear_every_event_with_the_run_after_it():
    heard: list[tuple[RunEvent, Run]] = []
    local = runs(chain(node("a")), everybody(succeed), listen=lambda e, r: heard.append((e, r)))
    assert [event for event, _ in heard] == local.events
    assert [run.seq for _, run in heard] == list(range(1, len(local.events) + 1))
    assert isinstance(heard[0][0], Started)
    assert isinstance(heard[-1][0], Ended)


def test_the_clock_is_the_given_one():
    clock = ManualClock()
    local = runs(chain(node("a")), everybody(succeed), clock=clock.now)
    assert {event.at for event in local.events} == {NOON}


@pytest.mark.requirement("L9.6")
def test_a_dispatch_tells_what_the_agent_may_and_what_was_said_before():
    seen: list[Dispatch] = []

    def agent(dispatch: Dispatch) -> Result:
        seen.append(dispatch)
        long = "word " * 1_000
        if dispatch.agent == "boss" and len(seen) == 1:
            return Result(
                outcome=Outcome.HANDOFF, to="worker", reason="go", text=long, data={"k": 1}
            )
        return Result(outcome=Outcome.TERMINATE, reason="over")

    document = team({"boss": ["worker"], "worker": ["boss"]}, terminator="worker")
    local = runs(
        document, everybody(agent), start={"title": "t", "description": "d", "context": {"x": 0}}
    )
    first, second = seen
    assert (first.agent, first.node, first.role, first.attempt) == ("boss", "", "boss", 1)
    assert first.allowed.outcomes == ("handoff", "failure", "ask")
    assert first.allowed.to == ("worker",)
    assert first.history == first.handoff_sequence == ()
    assert (second.bead.title, second.bead.description) == ("t", "d")
    assert (second.bead.context["x"], second.bead.context["k"]) == (0, 1)
    assert [step.text for step in second.history] == ["word " * 1_000]
    assert [(h.from_, h.to, h.reason) for h in second.handoff_sequence] == [
        ("boss", "worker", "go")
    ]
    assert second.allowed.outcomes == ("handoff", "terminate", "failure", "ask")
    assert 0 < second.remaining < first.remaining
    assert measure(local.plan, local.run) == 0


def test_multi_dispatch_nodes_may_go_on_and_the_attempt_is_told():
    attempts: list[tuple[int, int]] = []

    def agent(dispatch: Dispatch) -> Result:
        attempts.append((dispatch.attempt, dispatch.max_attempts))
        more = dispatch.attempt < 3
        return Result(outcome=Outcome.CONTINUE if more else Outcome.SUCCESS)

    local = runs(chain(node("a", multi_dispatch=True, max_attempts=5)), everybody(agent))
    assert attempts == [(1, 5), (2, 5), (3, 5)]
    assert local.run.terminal_status == "done_success"


def test_a_function_that_raises_loses_its_attempt():
    def agent(dispatch: Dispatch) -> Result:
        if dispatch.attempt == 1:
            raise RuntimeError("no network")
        return succeed(dispatch)

    local = runs(chain(node("a")), everybody(agent))
    assert [e.reason for e in of(local, Lost)] == ["RuntimeError: no network"]
    assert local.run.terminal_status == "done_success"


class UntoldError(Exception):
    def __str__(self) -> str:
        raise ValueError


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (SystemExit(3), "SystemExit: 3"),
        (ValueError("\ud800"), "ValueError: ?"),
        (UntoldError(), "UntoldError"),
        (KeyError("x" * 9_000), f"KeyError: '{'x' * 1_989}"),
    ],
)
def test_whatever_is_raised_can_be_told(error: BaseException, told: str):
    def agent(dispatch: Dispatch) -> Result:
        raise error

    local = runs(chain(node("a", max_attempts=1)), everybody(agent))
    assert [e.reason for e in of(local, Lost)] == [told]


@pytest.mark.parametrize(
    ("returned", "told"),
    [
        (None, "NoneType"),
        ("done", "a str"),
        ({"outcome": "success"}, "a dict"),
        (Result(outcome=Outcome.SUCCESS, data={"x": object()}), "cannot be sent"),
        (Result(outcome=Outcome.SUCCESS, data={"x": "\ud800"}), "cannot be sent"),
        (Result(outcome=Outcome.SUCCESS, text=7), "cannot be sent"),  # pyright: ignore[reportArgumentType]
        (Result(outcome=Outcome.CONTINUE), "takes one dispatch"),
        (Result(outcome=Outcome.HANDOFF, to="x"), "says handoff"),
        (Result(), "neither success nor failure"),
    ],
)
def test_what_is_no_usable_result_costs_the_attempt_and_the_question_comes(
    returned: object, told: str
):
    asked: list[Request] = []

    def answer(request: Request) -> str:
        asked.append(request)
        return "ok"

    local = runs(chain(node("a")), everybody(lambda _: returned), answer=answer)
    faults = of(local, Faulted)
    assert len(faults) == 3
    assert all(told in fault.message for fault in faults)
    assert [request.question.kind for request in asked] == ["escalation"]
    assert local.run.terminal_status == "done_success"


def test_a_cyclic_result_is_malformed():
    loop: dict[str, Any] = {}
    loop["self"] = loop
    result = Result(outcome=Outcome.SUCCESS, data=loop)
    local = runs(chain(node("a")), everybody(lambda _: result))
    assert len(of(local, Faulted)) == 3


def test_a_role_that_nobody_has_escalates():
    local = runs(chain(node("a")), {}.get)
    assert [e.reason for e in of(local, Lost)] == ["nobody here works as 'backend-engineer'"] * 3
    assert next(iter(local.run.questions.values())).kind == "escalation"


def test_without_an_answer_the_run_stays_open_and_nothing_is_made_up():
    local = runs(chain(node("a", "approval")), everybody(succeed))
    assert not local.run.ended
    assert local.run.status == "waiting"
    assert len(local.run.questions) == 1


def test_an_unclear_answer_is_asked_again_with_the_reason():
    refusals: list[str] = []
    words = iter(["hm", "", "ok"])

    def answer(request: Request) -> str:
        refusals.append(request.refusal)
        return next(words)

    local = runs(chain(node("a", "approval")), everybody(succeed), answer=answer)
    assert refusals[0] == ""
    assert all("could mean either" in refusal for refusal in refusals[1:])
    assert local.run.terminal_status == "done_success"


def test_somebody_who_never_answers_clearly_leaves_the_run_open():
    local = runs(chain(node("a", "approval")), everybody(succeed), answer=lambda _: "hm")
    assert local.run.status == "waiting"


def test_an_explicit_decision_is_taken_as_it_is():
    reject = Reply(decision="reject", text="not now")
    local = runs(chain(node("a", "approval")), everybody(succeed), answer=lambda _: reject)
    assert local.run.terminal_status == "closed_by_human"
    assert local.run.stop is not None
    assert local.run.stop.reason == "not now"


def test_the_one_at_the_keyboard_stands_in_for_everybody_asked():
    names: list[str] = []

    def answer(request: Request) -> str:
        names.append(stand_in(request.question).name)
        return "ok"

    named = node("a", "approval", approvers=["ana", "bo"], quorum=2)
    by_role = node("b", "approval", quorum=3)
    local = runs(chain(named, by_role), everybody(succeed), answer=answer)
    assert names == ["ana", "bo", "you", "person 2", "person 3"]
    assert local.run.terminal_status == "done_success"


def test_the_person_is_shown_the_result_in_full():
    shown: list[str] = []

    def answer(request: Request) -> str:
        shown.append(request.result)
        return "ok"

    text = "line\n" * 500
    done = Result(outcome=Outcome.SUCCESS, text=text)
    runs(chain(node("a"), node("b", "approval")), everybody(lambda _: done), answer=answer)
    assert shown == [text]


def test_an_agents_own_question_brings_the_answer_with_the_next_dispatch():
    answers: list[str] = []

    def agent(dispatch: Dispatch) -> Result:
        answers.append(dispatch.answer)
        if not dispatch.answer:
            return Result(outcome=Outcome.ASK, question="euros or dollars?")
        return succeed(dispatch)

    local = runs(chain(node("a"), node("b")), everybody(agent), answer=lambda _: "euros")
    assert answers == ["", "euros", "", "euros"]
    assert local.run.terminal_status == "done_success"


def test_commit_locks_are_granted_at_once_and_one_after_the_other():
    commit = {"kind": "commit", "role": "engineering-manager"}
    local = runs(chain(node("a", **commit), node("b", **commit)), everybody(succeed))
    assert [e.lock for e in of(local, Offered)] == [1, 2]


def test_branches_take_turns():
    document = workflow(
        node("start", "start"),
        node("fork", "decision", parallel=True),
        node("a"),
        node("b"),
        node("join", "merge"),
        node("end", "end"),
        edges=[
            edge("start", "fork"),
            edge("fork", "a"),
            edge("fork", "b"),
            edge("a", "join"),
            edge("b", "join"),
            edge("join", "end"),
        ],
    )
    local = runs(document, everybody(succeed))
    assert {e.place for e in of(local, Reported)} == {"a", "b"}
    assert local.run.terminal_status == "done_success"


def test_only_trusted_roles_measure():
    claimed = Result(outcome=Outcome.SUCCESS, evidence=Evidence(ticket_state="x", measured=True))
    for trusted in (frozenset[str](), frozenset({"backend-engineer"})):
        local = runs(chain(node("a")), everybody(lambda _: claimed), trusted=trusted)
        assert of(local, Reported)[0].result.evidence.measured is bool(trusted)


def test_a_run_past_its_duration_ends_and_the_late_result_changes_nothing():
    clock = ManualClock()

    def slow(dispatch: Dispatch) -> Result:
        clock.advance(minutes=11)
        return Result(outcome=Outcome.TERMINATE, reason="done, but late")

    local = runs(team({"a": []}, terminator="a"), everybody(slow), clock=clock.now)
    assert local.run.stop is not None
    assert local.run.stop.rule == "max_duration"
    assert of(local, Reported) == []


def test_a_node_that_works_past_its_timeout_escalates():
    clock = ManualClock()

    def slow(dispatch: Dispatch) -> Result:
        clock.advance(minutes=31)
        return succeed(dispatch)

    local = runs(chain(node("a")), everybody(slow), clock=clock.now, answer=lambda _: "ok")
    assert local.run.terminal_status == "done_success"
    assert of(local, Reported) == []


def test_a_start_that_is_refused_says_why():
    local = LocalRun(plan_of(chain(node("a"))), everybody(succeed))
    refusal = local.to_its_end(Start(run_id="r", bead_id="b", review="required"))
    assert refusal is not None
    assert refusal.code == "no_review"
    assert local.events == []


def test_agents_that_hand_over_for_ever_are_stopped():
    def bounce(dispatch: Dispatch) -> Result:
        to = "b" if dispatch.agent == "a" else "a"
        return Result(outcome=Outcome.HANDOFF, to=to, reason="your turn")

    document = team({"a": ["b"], "b": ["a", "c"], "c": []}, terminator="c")
    local = runs(document, everybody(bounce))
    assert local.run.stop is not None
    assert local.run.stop.rule == "repeated_pattern"
    assert local.run.ledger.handoffs == 6


def test_the_longest_deadline_does_not_matter_while_somebody_answers():
    plan, _ = check(chain(node("a", "approval")))
    assert plan is not None
    clock = ManualClock()

    def answer(request: Request) -> str:
        clock.until(request.question.deadline - timedelta(seconds=1))
        return "ok"

    assert runs(plan, everybody(succeed), answer=answer, clock=clock.now).run.ended


def test_an_answer_after_the_deadline_is_too_late():
    clock = ManualClock()

    def answer(request: Request) -> str:
        clock.until(request.question.deadline)
        return "ok"

    local = runs(chain(node("a", "approval")), everybody(succeed), answer=answer, clock=clock.now)
    assert local.run.stop is not None
    assert local.run.stop.rule == "human_deadline"


def test_a_clock_that_runs_out_before_anybody_claims_ends_the_run():
    clock = ManualClock()
    document = team({"a": []}, terminator="a")
    finish = Result(outcome=Outcome.TERMINATE, reason="done")
    local = runs(document, everybody(lambda _: finish), clock=lambda: clock.advance(minutes=10))
    assert local.run.stop is not None
    assert local.run.stop.rule == "max_duration"
    assert of(local, Claimed) == []


def test_whoever_is_asked_once_more_is_told_what_the_person_said():
    people: list[list[tuple[str, str]]] = []

    def agent(dispatch: Dispatch) -> Result:
        people.append([(act.act, act.reason) for act in dispatch.people])
        done = bool(dispatch.people)
        return Result(outcome=Outcome.SUCCESS if done else Outcome.FAILURE, reason="cannot")

    once = chain(node("a", max_attempts=1))
    local = runs(once, everybody(agent), answer=lambda _: "try the other door")
    assert people == [[], [("revise", "try the other door")]]
    assert local.run.terminal_status == "done_success"
