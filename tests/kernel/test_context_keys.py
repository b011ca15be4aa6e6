"""Who may write which key of a bead's context, and who is warned of what is left open."""

from typing import Any

import pytest
from tests.kernel.driven_run import DrivenRun, edge, node, team, workflow

from handrail.kernel.definition.plan import check_definition
from handrail.kernel.run import commands as c
from handrail.kernel.run.events import Warned
from handrail.kernel.run.state import Person

OPAL = Person(name="opal", role="operator")
CARA = Person(name="cara", role="ceo")
VERA = Person(name="vera", role="viewer")
RESERVED = {
    "severity": {"type": "integer", "writable_by": "ceo"},
    "team": {"writable_by": "operator"},
}


def review_by_severity(context: object, **rest: Any) -> dict[str, Any]:
    """Work, and an approval of it where the bead is severe."""
    return workflow(
        node("s", "start"),
        node("work"),
        node("approve", "approval"),
        node("done", "end"),
        edges=[
            edge("s", "work"),
            edge("work", "approve", "severity >= 3"),
            edge("work", "done"),
            edge("approve", "done"),
        ],
        metadata={"context": context},
        **rest,
    )


def warnings_of(document: dict[str, Any]) -> list[str]:
    plan, checked = check_definition(document)
    assert plan is not None, checked.errors
    return [w.message for w in checked.warnings if w.code == "steerable_approval"]


def test_an_agent_cannot_steer_around_an_approval_by_a_reserved_key():
    run = DrivenRun(review_by_severity(RESERVED), context={"severity": 5})
    run.claim()
    run.succeed(data={"severity": 0, "team": "x", "note": "small"})
    assert run.question().step_id == "approve"
    assert run.run.context["severity"] == 5
    assert "team" not in run.run.context
    assert run.run.context["note"] == "small"
    [warned] = [w for w in run.of(Warned) if w.code == "key_reserved"]
    assert "'work' may not write 'severity', 'team'" in warned.message


def test_an_agent_cannot_remove_a_reserved_key_either():
    run = DrivenRun(review_by_severity(RESERVED), context={"severity": 5})
    run.claim()
    run.succeed(data={"severity": None})
    assert run.question().step_id == "approve"


def test_the_agents_of_a_team_write_no_reserved_key():
    document = team({"a": ["b"], "b": []}, terminator="b", metadata={"context": RESERVED})
    run = DrivenRun(document, context={"severity": 5})
    run.claim()
    run.hand("b", data={"severity": 0, "seen": True})
    assert (run.run.context["severity"], run.run.context["seen"]) == (5, True)


@pytest.mark.parametrize(
    ("by", "key", "code"),
    [
        (OPAL, "severity", "key_reserved"),
        (OPAL, "team", ""),
        (OPAL, "note", ""),
        (CARA, "severity", ""),
        (VERA, "team", "not_allowed"),
    ],
)
def test_a_person_writes_the_keys_of_their_level(by: Person, key: str, code: str):
    run = DrivenRun(review_by_severity(RESERVED), context={"severity": 5})
    refusal = run.do(c.Patch(by=by, patch={key: 1})).refusal
    assert (refusal.code if refusal is not None else "") == code
    if code == "key_reserved":
        assert refusal is not None
        assert "opal (operator) may not write 'severity'" in refusal.message
        assert "the role ceo or above" in refusal.hint


@pytest.mark.parametrize(
    ("starter", "context", "code"),
    [
        (OPAL, {"severity": 0}, "key_reserved"),
        (OPAL, {"team": "x"}, ""),
        (CARA, {"severity": 0}, ""),
        (None, {"severity": 0}, ""),
    ],
)
def test_who_files_a_bead_writes_the_keys_of_their_level(
    starter: Person | None, context: dict[str, Any], code: str
):
    run = DrivenRun(review_by_severity(RESERVED), context=context, starter=starter)
    refusal = run.decisions[0].refusal
    assert (refusal.code if refusal is not None else "") == code


@pytest.mark.parametrize(
    ("starter", "step_id", "code"),
    [
        (OPAL, "done", "behind_approval"),
        (OPAL, "work", ""),
        (OPAL, "approve", ""),
        (CARA, "done", ""),
    ],
)
def test_a_start_behind_an_approval_is_an_override(starter: Person, step_id: str, code: str):
    run = DrivenRun(review_by_severity(RESERVED), starter=starter, from_step_id=step_id)
    refusal = run.decisions[0].refusal
    assert (refusal.code if refusal is not None else "") == code


def test_an_operator_may_start_a_team_at_any_agent():
    run = DrivenRun(team({"a": ["b"], "b": []}, terminator="b"), starter=OPAL, from_step_id="b")
    assert run.decisions[0].refusal is None


def test_a_check_warns_where_agents_decide_whether_a_person_is_asked():
    [warning] = warnings_of(review_by_severity(["severity"]))
    assert warning == ("whether 'approve' is asked depends on 'severity', which agents may write")
    assert warnings_of(review_by_severity({"severity": {}}))
    assert warnings_of(review_by_severity({"severity": "how bad it is"}))
    assert warnings_of(review_by_severity(RESERVED)) == []


def test_the_warning_looks_through_the_nodes_before_an_approval():
    document = workflow(
        node("s", "start"),
        node("choose", "decision"),
        node("draft"),
        node("approve", "approval"),
        node("quick"),
        node("done", "end"),
        edges=[
            edge("s", "choose"),
            edge("choose", "draft", "cost > 10 || risky"),
            edge("choose", "quick"),
            edge("draft", "approve"),
            edge("quick", "done"),
            edge("approve", "done"),
        ],
        metadata={"context": {"cost": {}, "risky": {"writable_by": "operator"}}},
    )
    assert warnings_of(document) == [
        "whether 'approve' is asked depends on 'cost', which agents may write"
    ]


def test_a_condition_behind_an_approval_or_that_always_leads_to_it_is_no_warning():
    document = workflow(
        node("s", "start"),
        node("choose", "decision"),
        node("a"),
        node("b"),
        node("approve", "approval"),
        node("c"),
        node("done", "end"),
        edges=[
            edge("s", "choose"),
            edge("choose", "a", "x > 1"),
            edge("choose", "b"),
            edge("a", "approve"),
            edge("b", "approve"),
            edge("approve", "c", "x > 2"),
            edge("approve", "done"),
            edge("c", "done"),
        ],
        metadata={"context": ["x"]},
    )
    assert warnings_of(document) == []


@pytest.mark.parametrize(
    "described",
    [{"writable_by": "admin"}, {"type": "date"}, {"writable": "ceo"}, {"enum": 1}],
)
def test_a_key_that_is_described_wrongly_is_an_error(described: dict[str, Any]):
    plan, checked = check_definition(review_by_severity({"severity": described}))
    assert plan is None
    [problem] = [e for e in checked.errors if e.code == "bad_context_key"]
    assert problem.path == "$.metadata.context.severity"
    assert "'severity' is described wrongly" in problem.message


def test_keys_that_the_definition_does_not_declare_are_anybodys():
    run = DrivenRun(review_by_severity(["severity"]), context={"severity": 5})
    run.claim()
    run.succeed(data={"severity": 0, "other": 1})
    assert run.run.terminal_status == "done_success"
    assert run.of(Warned) == []


def test_data_without_reserved_keys_is_taken_whole():
    run = DrivenRun(review_by_severity(RESERVED), context={"severity": 5})
    run.claim()
    run.succeed(data={"note": "small"})
    assert run.run.context["note"] == "small"
    assert run.of(Warned) == []
