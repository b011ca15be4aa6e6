"""Tasks that leave their holder fewer answers (K33): `ends`, `then`, and once-only ones that need a
marker. Whatever an agent says, nothing else gets through."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernel.driven_run import DrivenRun, Outcome, plan_of, team

from handrail.kernel.definition.plan import check_definition
from handrail.kernel.run.events import Faulted, HandedOff, Reported
from handrail.teams import load_builtin

pytestmark = pytest.mark.requirement("K33")

HANDS = {
    "hub": ["clerk", "scribe", "other"],
    "other": ["hub"],
    "clerk": ["hub"],
    "scribe": ["hub", "other"],
}
CLOSE = {"id": "close", "ends": True, "when": "phase == 'told'"}
TELL = {"id": "tell", "once": True, "milestone": "told", "then": "hub"}


def desk(**agents: dict[str, Any]) -> dict[str, Any]:
    """The hub asks a scribe, and a clerk ends the run once the scribe has told."""
    usual = {
        "clerk": {"tasks": [CLOSE, {"id": "read"}]},
        "scribe": {"marker": "ALL_SAID", "tasks": [TELL]},
    }
    return team(HANDS, terminator="clerk", agents={**usual, **agents})


def codes(document: dict[str, Any]) -> list[str]:
    return [problem.code for problem in check_definition(document)[1].errors]


def told() -> DrivenRun:
    """The scribe has told, and the clerk holds the task that ends the run."""
    run = DrivenRun(desk())
    run.hand("scribe")
    run.hand("hub", marker="ALL_SAID")
    run.hand("clerk")
    assert run.run.positions["clerk"].task == "close"
    return run


def rule(run: DrivenRun) -> str:
    assert run.run.stop is not None
    return run.run.stop.rule


def faults(run: DrivenRun) -> list[str]:
    return [event.fault for event in run.of(Faulted)]


@pytest.mark.requirement("H5.1", "H5.2")
def test_the_holder_of_a_task_that_ends_the_run_cannot_hand_off() -> None:
    run = told()
    before = run.measure
    run.hand("hub")
    assert faults(run) == ["task_ends"]
    assert run.measure < before
    assert run.claim("clerk")
    run.report("clerk", outcome=Outcome.TERMINATE, reason="closed")
    assert rule(run) == "terminated"


def test_an_agent_that_goes_on_disobeying_ends_the_run_as_a_protocol_error() -> None:
    run = told()
    for _ in range(3):
        run.hand("hub")
    assert (rule(run), len(faults(run))) == ("protocol", 3)
    assert run.replayed() == run.run


def test_the_holder_of_a_task_that_ends_may_ask_and_fail() -> None:
    run = told()
    run.report("clerk", outcome=Outcome.FAILURE, reason="the printer is away")
    assert faults(run) == ["failure"]
    run.report("clerk", outcome=Outcome.ASK, question="which one?")
    run.answer("this one")
    run.report("clerk", outcome=Outcome.TERMINATE, reason="closed")
    assert rule(run) == "terminated"


@pytest.mark.requirement("H6.2")
def test_after_a_task_that_says_then_the_turn_goes_there_and_nowhere_else() -> None:
    run = DrivenRun(desk())
    run.hand("scribe")
    run.hand("other", marker="ALL_SAID")
    run.report("scribe", outcome=Outcome.TERMINATE, reason="enough")
    assert faults(run) == ["task_then", "task_then"]
    run.hand("hub", marker="ALL_SAID")
    assert "hub" in run.run.positions


@pytest.mark.requirement("H2.3", "H6.4")
def test_a_result_without_its_marker_is_asked_for_again_and_spends_nothing() -> None:
    run = DrivenRun(desk())
    run.hand("scribe")
    run.hand("hub", text="so much for that")
    assert faults(run) == ["no_marker"]
    assert "ALL_SAID" in run.of(Faulted)[0].message
    assert not run.run.done
    run.hand("hub", text="so much for that\nALL_SAID", marker="ALL_SAID")
    assert (run.run.phase, [*run.run.done]) == ("told", ["scribe/tell"])


def test_a_once_only_task_without_a_milestone_is_spent_by_its_first_accepted_result() -> None:
    run = DrivenRun(desk(other={"tasks": [{"id": "t", "once": True}]}))
    run.hand("other")
    run.report("other", outcome=Outcome.ASK, question="which one?")
    assert not run.run.done
    run.answer("this one")
    run.hand("hub")
    assert [*run.run.done] == ["other/t"]


def test_no_handoff_gets_around_a_task_that_applies_by_naming_another() -> None:
    run = DrivenRun(desk())
    run.hand("clerk", task="read")
    assert run.run.positions["clerk"].task == "read"
    run.hand("hub")
    run.hand("scribe")
    run.hand("hub", marker="ALL_SAID")
    run.hand("clerk", task="read")
    assert run.run.positions["clerk"].task == "close"


def test_a_task_that_leads_somewhere_is_not_redirected() -> None:
    document = desk(
        hub={"tasks": [{"id": "to_other", "then": "other"}], "when_exhausted": {"other": "clerk"}}
    )
    document["stop_rules"] = {"max_edge": 1, "repeat_limit": None}
    run = DrivenRun(document)
    run.hand("other")
    run.hand("hub")
    assert run.run.positions["hub"].task == "to_other"
    run.hand("other")
    assert rule(run) == "max_edge"


@pytest.mark.parametrize(
    ("task", "code"),
    [
        ({"id": "t", "ends": True, "then": "hub"}, "bad_task_end"),
        ({"id": "t", "ends": True}, "bad_task_end"),
        ({"id": "t", "then": "clerk"}, "bad_task_then"),
        ({"id": "t", "then": "nobody"}, "bad_task_then"),
    ],
)
def test_a_task_that_leaves_no_answer_is_refused(task: dict[str, Any], code: str) -> None:
    assert codes(desk(other={"tasks": [task]})) == [code]


def test_a_reviewed_agent_may_have_a_task_that_ends_and_none_that_leads_to_the_review() -> None:
    document = desk(other={"tasks": [{"id": "t", "ends": True}]})
    document["review"] = {"after": ["other"], "back_to": "hub"}
    assert codes(document) == []
    document["agents"][1]["hands_off_to"] = ["hub", "review"]
    document["agents"][1]["tasks"] = [{"id": "t", "then": "review"}]
    assert codes(document) == ["bad_task_then"]


def test_narrow_tasks_make_the_figures_of_a_team_safe_only() -> None:
    plain = plan_of(team(HANDS, terminator="clerk")).bound()
    narrow = plan_of(desk(scribe={"tasks": [{"id": "t", "then": "hub"}]})).bound()
    assert (plain.tight["handoffs"], narrow.tight["handoffs"]) == (True, False)
    assert (plain.handoffs, plain.dispatches) == (narrow.handoffs, narrow.dispatches)


ANSWERS = st.sampled_from(
    [
        {"outcome": Outcome.TERMINATE, "reason": "done", "text": "TERMINATE_WORKFLOW"},
        {"outcome": Outcome.FAILURE, "reason": "no"},
        {"outcome": Outcome.ASK, "question": "which?"},
        {"outcome": Outcome.HANDOFF, "text": "WORKFLOW_COMPLETE"},
        {"outcome": Outcome.HANDOFF, "data": {"memory": "hit"}},
        {"outcome": Outcome.HANDOFF, "data": {"resolution": "none"}},
        {"outcome": Outcome.HANDOFF, "task": "analyze"},
        {"outcome": Outcome.HANDOFF, "task": "route"},
        {"outcome": Outcome.HANDOFF, "task": "retrieve"},
    ]
)


@pytest.mark.no_cover
@given(st.lists(st.tuples(ANSWERS, st.integers(0, 6)), max_size=40))
def test_the_helpdesk_ends_after_its_summary_whatever_its_agents_say(answers: list[Any]) -> None:
    """After the summary the orchestrator hands to ticketing, and ticketing ends the run."""
    run = DrivenRun(load_builtin("helpdesk"))
    is_summarized = False
    for answer, number in answers:
        if run.run.has_ended:
            break
        if run.run.pending_approvals:
            run.answer("yes")
        (step_id,) = run.run.positions
        targets = run.plan.agents[step_id].hands_off_to
        run.report(step_id, **answer, to=targets[number % len(targets)])
        handoffs = [event for event in run.of(HandedOff) if event.accepted]
        summaries = [e for e in run.of(Reported) if e.phase == "summary_complete"]
        if is_summarized and handoffs:
            assert handoffs[-1].target in ("orchestrator", "ticketing")
            assert handoffs[-1].source != "ticketing"
        is_summarized = bool(summaries)
    assert run.replayed() == run.run
