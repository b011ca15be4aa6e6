"""The built-in definitions: valid, bounded, and right in what is a matter of structure."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from tests.engine.interactive_runs import run_to_end
from tests.kernel.driven_run import plan_of, team

from handrail.engine.dispatch.dispatch import Dispatch
from handrail.engine.services.runs import ApprovalPrompt, InteractiveRun, PromptReply
from handrail.kernel.definition.model import Workflow
from handrail.kernel.definition.plan import Plan, check_definition
from handrail.kernel.result import Check, Evidence, Outcome, Result
from handrail.kernel.run.commands import Report
from handrail.kernel.run.decide import decide
from handrail.kernel.run.events import (
    Asked,
    Claimed,
    Faulted,
    HandedOff,
    Moved,
    Offered,
    Reported,
    Started,
)
from handrail.teams import BUILTIN_IDS, helpdesk, load_builtin, load_scripted_agents
from handrail.teams.scripted import ScriptedAgent, generic_agents, next_hops
from handrail.testing.clock import ManualClock
from handrail.views.history import handoff_sequence, iterations, transitions
from handrail.views.report import build_report
from handrail.views.run_view import bead_error
from handrail.views.steps import steps


def plan(name: str) -> Plan:
    return plan_of(load_builtin(name))


def plays(
    name: str,
    answers: Iterable[str | PromptReply] = (),
    *,
    staff: dict[str, ScriptedAgent] | None = None,
    **start: Any,
) -> InteractiveRun:
    """One bead through a built-in definition, with its own agents or these instead of some."""
    own, trusted = load_scripted_agents(name)
    lines = iter(answers)

    def answer(request: ApprovalPrompt) -> str | PromptReply | None:
        return next(lines, None)

    start = {"title": "VPN drops every hour", **start}
    return run_to_end(
        load_builtin(name),
        {**own, **(staff or {})},
        answer=answer,
        trusted=trusted,
        clock=ManualClock().now,
        **start,
    )


def of(local: InteractiveRun, kind: type[Any]) -> list[Any]:
    return [event for event in local.events if isinstance(event, kind)]


def ways(local: InteractiveRun) -> list[tuple[str, str]]:
    return [(h.from_, h.to) for h in handoff_sequence(local.events) if h.accepted]


def rule(local: InteractiveRun) -> str:
    assert local.run.stop is not None
    return local.run.stop.rule.value


def hand(to: str, **more: Any) -> Result:
    return Result(outcome=Outcome.HANDOFF, to=to, reason="because", **more)


def always(result: Result) -> ScriptedAgent:
    return lambda dispatch: result


@pytest.mark.parametrize("name", BUILTIN_IDS)
def test_every_built_in_definition_is_valid_without_a_warning_and_with_slack(name: str):
    found, checked = check_definition(load_builtin(name))
    assert found is not None
    assert checked.errors == checked.warnings == ()
    assert all(one.slack > 0 for one in checked.feasibility)
    assert found.definition.id == found.definition.name == name


def test_an_unknown_name_is_an_error_that_lists_the_known_ones():
    with pytest.raises(KeyError, match="helpdesk, coding, finance, auto-bug-workflow"):
        load_builtin("nope")


@pytest.mark.parametrize("name", BUILTIN_IDS)
def test_the_documents_are_fresh_for_every_caller(name: str):
    load_builtin(name)["name"] = "changed"
    assert load_builtin(name)["name"] == name


@pytest.mark.parametrize("name", BUILTIN_IDS)
def test_no_scripted_run_exceeds_its_certificate(name: str):
    demos = ("", "stuck", "ask", "partial", "research", "same_error", "no_change", "constraint",
             "rework", "escalate", "unclear")  # fmt: skip
    for demo in demos if name != "coding" else ("partial", "research", "constraint"):
        local = plays(name, ["ok"] * 9, context={"demo": demo})
        bound = plan(name).bound()
        assert local.run.has_ended
        assert len(of(local, Offered)) <= bound.dispatches
        assert len(of(local, HandedOff)) <= max(bound.handoffs, 0) + 1
        assert len(of(local, Moved)) <= bound.transitions
        assert len([e for e in of(local, Asked) if not e.approval.own]) <= bound.questions


# Helpdesk


@pytest.mark.requirement("H4.1", "H4.2", "H4.3", "H4.4", "H4.5")
def test_a_new_ticket_passes_every_phase_in_order():
    local = plays("helpdesk")
    reached = [(e.phase, e.phase_detail) for e in of(local, Reported) if e.phase]
    assert of(local, Started)[0].phase == "memory_check_pending"
    assert reached == [
        ("memory_checked", "miss"),
        ("ticket_analyzed", ""),
        ("resolution_obtained", ""),
        ("memory_checked", "stored"),
        ("summary_complete", ""),
    ]
    assert local.run.phase == "terminated"
    assert local.run.terminal_status == "done_success"


@pytest.mark.requirement("H1.1", "H2.1", "H2.2", "H2.5", "H5.2", "H7.1", "H7.3")
def test_ticketing_ends_the_run_with_its_final_update_and_nobody_hands_off_after_it():
    local = plays("helpdesk")
    last = of(local, Reported)[-1]
    assert last.step_id == "ticketing"
    assert last.result.text.splitlines()[-1] == "TERMINATE_WORKFLOW"
    assert local.events.index(last) == len(local.events) - 2  # only the end follows
    told = build_report(local.events)
    assert (told.final_agent, told.first_agent) == ("ticketing", "orchestrator")
    assert told.bead_id == local.run.bead_id
    assert told.stop is not None
    assert (told.stop.rule, told.stop.reason) == ("terminated", "ticket resolved")
    assert told.duration == 0


@pytest.mark.requirement("H1.2", "H1.3", "H4.6", "H5.3")
def test_after_the_end_a_handoff_is_refused_and_changes_nothing():
    local = plays("helpdesk")
    for agent in ("orchestrator", "ticketing"):
        command = Report(fence=local.run.fence, agent=agent, result=hand("memory"))
        decision = decide(plan("helpdesk"), local.run, command, ManualClock().now())
        assert decision.events == ()
        assert decision.refusal is not None
        assert decision.refusal.code == "ended"


@pytest.mark.requirement("H2.3", "H6.2")
def test_on_the_complete_summary_the_orchestrator_hands_to_ticketing_exactly_once():
    local = plays("helpdesk")
    summary = next(e for e in of(local, Reported) if e.step_id == "summarization")
    assert summary.result.text.splitlines()[-1] == "WORKFLOW_COMPLETE"
    after = [e for e in local.events[local.events.index(summary) :] if isinstance(e, HandedOff)]
    assert [(e.source, e.target) for e in after] == [
        ("summarization", "orchestrator"),
        ("orchestrator", "ticketing"),
    ]


@pytest.mark.requirement("H6.3", "H6.4")
def test_memory_and_summarization_hand_back_exactly_once_a_task():
    done = Counter(ways(plays("helpdesk")))
    assert done[("memory", "orchestrator")] == 2  # retrieval and storage
    assert done[("summarization", "orchestrator")] == 1


@pytest.mark.requirement("H5.1")
def test_a_cached_resolution_ends_the_run_on_a_shorter_way():
    staff = helpdesk.scripted_agents()
    first = plays("helpdesk", staff=staff, title="I forgot my password")
    cached = plays("helpdesk", staff=staff, title="Forgotten password")
    assert ways(cached) == [
        ("orchestrator", "memory"),
        ("memory", "orchestrator"),
        ("orchestrator", "ticketing"),
    ]
    assert cached.run.terminal_status == "done_success"
    assert len(ways(cached)) < len(ways(first))


@pytest.mark.requirement("H5.1")
def test_a_similar_ticket_is_answered_from_the_memory_of_the_first_and_another_is_not():
    staff = helpdesk.scripted_agents()
    first = plays("helpdesk", staff=staff)
    again = plays("helpdesk", staff=staff, title="the VPN drops every hour")
    other = plays("helpdesk", staff=staff, title="my mail app crashes")
    assert [len(ways(local)) for local in (first, again, other)] == [11, 3, 11]
    assert [e.step_id for e in of(other, Reported)][5] == "application"


@pytest.mark.requirement("H1.5")
def test_tickets_one_after_the_other_end_independently():
    stuck = plays("helpdesk", context={"demo": "stuck"})
    fine = plays("helpdesk")
    assert (stuck.run.terminal_status, fine.run.terminal_status) == (
        "aborted_stuck",
        "done_success",
    )


def test_a_ticket_that_no_specialist_fits_ends_partial_with_what_is_left():
    local = plays("helpdesk", title="the coffee is cold")
    assert local.run.terminal_status == "done_partial"
    assert local.run.stop is not None
    assert local.run.stop.remaining


@pytest.mark.requirement("H3.1", "H6.5", "H7.4")
def test_a_worker_is_asked_once_and_an_orchestrator_that_insists_is_stopped():
    local = plays("helpdesk", context={"demo": "stuck"})
    assert len([e for e in of(local, Offered) if e.step_id == "network"]) == 1
    repeated = [e for e in of(local, HandedOff) if e.already_done]
    assert len(repeated) == 3
    assert rule(local) == "repeated_pattern"
    assert local.run.stop is not None
    assert local.run.stop.pattern == ("orchestrator -> network",)


@pytest.mark.requirement("H6.5")
@pytest.mark.parametrize("agent", ["memory", "ticketing", "network", "summarization"])
def test_whoever_is_asked_for_a_task_that_is_done_is_not_asked_again(agent: str):
    """The orchestrator hands to the same agent for ever, whatever comes back."""
    local = plays("helpdesk", staff={"orchestrator": always(hand(agent))})
    accepted = [e for e in of(local, HandedOff) if e.target == agent and e.accepted]
    tasks = [e.task for e in accepted if not e.already_done]
    assert len(tasks) == len(set(tasks)) <= 2
    assert "" not in tasks
    assert local.run.terminal_status == "aborted_stuck"


@pytest.mark.requirement("H5.4", "H2.4")
@pytest.mark.parametrize("agent", ["orchestrator", "memory", "network", "summarization"])
def test_nobody_but_ticketing_ends_a_run_whatever_it_says(agent: str):
    told: list[str] = []
    own, _ = load_scripted_agents("helpdesk")

    def forging(dispatch: Dispatch) -> Result:
        if not told:
            told.append("once")
            return Result(outcome=Outcome.TERMINATE, text="TERMINATE_WORKFLOW", reason="I say so")
        told.append(dispatch.last_refusal)
        return own[agent](dispatch)

    local = plays("helpdesk", staff={agent: forging})
    assert [e.fault for e in of(local, Faulted)] == ["terminate_refused"]
    assert "only 'ticketing' may" in told[1]
    assert local.run.terminal_status == "done_success"


@pytest.mark.requirement("H2.4")
def test_workflow_complete_counts_from_summarization_alone():
    marked = hand("orchestrator", marker="WORKFLOW_COMPLETE", text="done\nWORKFLOW_COMPLETE")
    local = plays("helpdesk", staff={"network": always(marked)})
    reported = next(e for e in of(local, Reported) if e.step_id == "network")
    assert reported.phase == "resolution_obtained"
    assert "marker_ignored" in [w.code for w in build_report(local.events).warnings]


def test_rejecting_the_question_of_ticketing_closes_the_run():
    local = plays("helpdesk", [PromptReply(decision="reject")], context={"demo": "ask"})
    assert local.run.terminal_status == "closed_by_human"
    assert plays("helpdesk", ["yes"], context={"demo": "ask"}).run.terminal_status == "done_success"


@pytest.mark.requirement("H3.3", "H3.4")
def test_the_twenty_first_handoff_of_a_ticket_ends_its_run_with_an_error_on_the_bead():
    """Always another way, and something new each time: only the hard limit is left."""
    first = ["memory", "ticketing", "network", "application", "cloud", "security", "memory"]
    order = [*first, "cloud", "network", "security", "application", "memory", "ticketing", "cloud"]
    targets = iter(order)
    local = plays("helpdesk", staff={"orchestrator": lambda _: hand(next(targets))})
    assert rule(local) == "max_handoffs"
    assert len(ways(local)) == 20
    error = bead_error(local.run)
    assert error is not None
    assert (error.rule, error.execution_id) == ("max_handoffs", local.run.id)


@pytest.mark.requirement("H3.5")
def test_a_ticket_that_takes_more_than_ten_minutes_ends_as_stuck():
    clock = ManualClock()
    own, _ = load_scripted_agents("helpdesk")

    def slow(dispatch: Dispatch) -> object:
        clock.advance(minutes=3)
        return own[dispatch.agent](dispatch)

    staff = dict.fromkeys(own, slow)
    local = run_to_end(load_builtin("helpdesk"), staff, clock=clock.now, title="VPN drops")
    assert (rule(local), local.run.terminal_status) == ("max_duration", "aborted_stuck")


@pytest.mark.requirement("H6.1")
def test_an_agent_that_says_neither_is_asked_again_and_stopped_the_third_time():
    told: list[str] = []

    def vague(dispatch: Dispatch) -> Result:
        told.append(dispatch.last_refusal)
        return Result(text="I will look into it.")

    local = plays("helpdesk", staff={"memory": vague})
    assert told[0] == ""
    assert all("Say explicitly: hand off or terminate" in refusal for refusal in told[1:])
    assert (rule(local), len(told)) == ("protocol", 3)


# Coding


@pytest.mark.parametrize(
    ("demo", "status", "stopped_by"),
    [
        ("", "done_success", "terminated"),
        ("partial", "done_partial", "terminated"),
        ("research", "aborted_stuck", "research_exhausted"),
        ("same_error", "aborted_stuck", "same_error"),
        ("no_change", "aborted_stuck", "no_change"),
        ("constraint", "aborted_constraint", "constraint"),
    ],
)
@pytest.mark.requirement("S1", "S14")
def test_the_coding_team_shows_each_of_its_endings(demo: str, status: str, stopped_by: str):
    local = plays("coding", context={"demo": demo})
    assert (local.run.terminal_status, rule(local)) == (status, stopped_by)


@pytest.mark.requirement("S2", "S15")
def test_planner_and_researcher_that_bounce_are_stopped():
    """Each visit brings the same score, and a little detour hides the pattern."""

    def planner(dispatch: Dispatch) -> Result:
        turn = len(dispatch.history) // 2
        return hand("snitch" if turn in (1, 4) else "researcher")

    local = plays("coding", staff={"planner": planner, "snitch": always(hand("planner"))})
    assert rule(local) == "research_exhausted"
    assert len(of(local, Offered)) <= 12


@pytest.mark.requirement("S3", "S15")
def test_the_same_red_command_again_and_again_is_stopped():
    red = Check(command="npm test", exit_code=1, stderr="TypeError: x is undefined at 0x{:08x}")

    def verifier(dispatch: Dispatch) -> Result:
        at = red.stderr.format(len(dispatch.history) * 64)
        return hand(
            "planner",
            evidence=Evidence(checks=(Check(command=red.command, exit_code=1, stderr=at),)),
        )

    local = plays("coding", staff={"verifier": verifier, "planner": always(hand("verifier"))})
    assert rule(local) in ("same_error", "repeated_pattern")
    assert len(of(local, Offered)) <= 8


@pytest.mark.requirement("S4", "S15")
@pytest.mark.parametrize("files", [{}, {"count.py": "same"}], ids=["empty", "identical"])
def test_a_coder_with_empty_or_identical_patches_is_stopped(files: dict[str, str]):
    coder = always(hand("verifier", evidence=Evidence(files=files)))
    local = plays("coding", staff={"coder": coder}, context={"demo": "same_error"})
    assert rule(local) in ("no_change", "same_error")
    assert len(of(local, Offered)) <= 14


# Finance


@pytest.mark.requirement("R1.1", "R1.2", "R1.3", "R3.2", "R3.3", "R3.4")
def test_a_specialists_result_is_shown_to_a_person_and_approval_completes():
    local = plays("finance", ["OK"], title="Invoice for 3 x 19.99 and 2 x 5.00")
    asked = of(local, Asked)
    assert [e.approval.kind for e in asked] == ["clarification_request"]
    assert ways(local) == [("planner", "invoice"), ("invoice", "review")]
    (only,) = iterations(local.events)
    assert only.result.splitlines()[-1] == "total 83.96"
    assert local.run.terminal_status == "done_success"


@pytest.mark.requirement("R1.4", "R2.1", "R2.2", "R2.3", "R2.4", "R4.3")
def test_a_revision_goes_to_the_planner_with_everything_said_before_and_may_change_specialist():
    seen: list[Dispatch] = []
    own, _ = load_scripted_agents("finance")

    def planner(dispatch: Dispatch) -> Result:
        seen.append(dispatch)
        return own["planner"](dispatch)

    said = ["  use 10% tax, please \n  (as agreed)", "rather an audit of the sample", "ok"]
    local = plays("finance", said, staff={"planner": planner}, title="Invoice for 2 x 5")
    assert [h[1] for h in ways(local) if h[0] == "planner"] == ["invoice", "invoice", "audit"]
    assert [len(d.iterations) for d in seen] == [0, 1, 2]
    assert {d.bead.title for d in seen} == {"Invoice for 2 x 5"}
    last = seen[-1].iterations
    assert [one.text for one in last] == said[:2]
    assert [one.task for one in last] == ["Invoice for 2 x 5", said[0]]
    assert "tax 10%" in last[1].result
    kept = iterations(local.events)
    assert [one.n for one in kept] == [1, 2, 3]
    assert [one.decision for one in kept] == ["revise", "revise", "approve"]


@pytest.mark.requirement("R3.1")
def test_a_task_set_to_skip_review_completes_after_the_specialist():
    local = plays("finance", title="closing of May", review="skip")
    assert of(local, Asked) == []
    assert [step.place for step in steps(local.events)] == ["planner", "closing"]
    assert local.run.terminal_status == "done_success"


@pytest.mark.requirement("R5.1", "R5.2", "R5.3", "R5.4", "R5.5")
def test_fifty_revisions_in_a_row_pass_under_the_default_limits():
    revisions = [f"use {i}% tax" for i in range(1, 51)]
    local = plays("finance", [*revisions, "looks good"], title="Invoice for 2 x 50")
    kept = iterations(local.events)
    assert [one.text for one in kept] == [*revisions, "looks good"]
    assert all(f"tax {i}%" in one.result for i, one in enumerate(kept[1:], 1))
    assert ways(local) == [("planner", "invoice"), ("invoice", "review")] * 51
    assert (local.run.stretch, local.run.terminal_status) == (51, "done_success")


def test_a_person_may_also_close_a_finance_task():
    local = plays("finance", [PromptReply(decision="reject", text="not ours")], title="an invoice")
    assert local.run.terminal_status == "closed_by_human"


# The auto-bug workflow


def bug_nodes() -> dict[str, Any]:
    definition = plan("auto-bug-workflow").definition
    assert isinstance(definition, Workflow)
    return {node.id: node for node in definition.nodes}


@pytest.mark.requirement("L11.1", "L11.2", "L11.3", "L11.4", "L11.5")
def test_the_auto_bug_workflow_has_the_agreed_nodes_roles_and_attempts():
    nodes = bug_nodes()
    assert [node.description.partition(":")[0] for node in nodes.values()] == [
        "Start",
        "QA Triage",
        "Specialist Investigation",
        "CEO Approval",
        "Engineering Manager Apply/Commit",
        "QA Verification",
        "End",
    ]
    looked_into = nodes["investigation"]
    assert (looked_into.config.multi_dispatch, looked_into.max_attempts) == (True, 5)
    assert (looked_into.config.role_from, looked_into.role) == ("specialist", "backend-engineer")
    assert (nodes["apply"].config.kind, nodes["apply"].role) == ("commit", "engineering-manager")
    assert nodes["verification"].config.kind == "verification"
    assert nodes["verification"].role == "qa-engineer"


def test_the_auto_bug_workflow_takes_at_most_84_dispatches_30_transitions_and_18_questions():
    bound = plan("auto-bug-workflow").bound()
    assert (bound.dispatches, bound.transitions, bound.questions) == (84, 30, 18)
    assert all(bound.tight.values())


@pytest.mark.requirement("L11.6")
def test_the_approval_carries_the_proposed_fix():
    shown: list[ApprovalPrompt] = []

    def answer(request: ApprovalPrompt) -> str:
        shown.append(request)
        return "ok"

    staff, _ = load_scripted_agents("auto-bug-workflow")
    local = run_to_end(load_builtin("auto-bug-workflow"), staff, answer=answer, title="IndexError")
    (request,) = shown
    assert request.approval.kind == "approval"
    assert "Proposal: in count.py" in request.result
    assert local.run.context["proposal"] == request.result
    assert local.run.terminal_status == "done_success"


def test_a_revision_of_the_fix_goes_back_to_the_investigation_with_the_text():
    local = plays("auto-bug-workflow", ["keep the old name", "ok"])
    passed = [t.to_node_id for t in transitions(local.events)]
    assert passed.count("investigation") == passed.count("approval") == 2
    assert "As asked: keep the old name" in local.run.context["proposal"]


@pytest.mark.parametrize(
    ("title", "role"), [("IndexError", "backend-engineer"), ("css of the page", "web-designer")]
)
def test_triage_names_the_specialist_who_investigates(title: str, role: str):
    local = plays("auto-bug-workflow", ["ok"], title=title)
    worked = {e.step_id: e.agent.partition("@")[0] for e in of(local, Claimed)}
    assert worked["investigation"] == role


@pytest.mark.requirement("L11.7")
def test_a_failed_verification_goes_back_to_apply():
    local = plays("auto-bug-workflow", ["ok"], context={"demo": "rework"})
    assert [e.targets for e in of(local, Moved) if e.spends] == [("apply",)]
    assert local.run.terminal_status == "done_success"


@pytest.mark.requirement("L11.7", "L11.8")
def test_after_three_reworks_the_ceo_is_asked_with_the_details():
    local = plays("auto-bug-workflow", ["ok"], context={"demo": "escalate"})
    assert len([e for e in of(local, Moved) if e.spends]) == 3
    (question,) = local.run.pending_approvals.values()
    assert (question.kind, question.step_id) == ("escalation", "verification")
    assert "3 reworks used up: test_total is red" in question.text


@pytest.mark.requirement("L11.3")
def test_an_investigation_without_end_escalates_after_five_dispatches():
    local = plays("auto-bug-workflow", context={"demo": "unclear"})
    assert len([e for e in of(local, Offered) if e.step_id == "investigation"]) == 5
    (question,) = local.run.pending_approvals.values()
    assert question.kind == "escalation"


# Any definition


@pytest.mark.parametrize(
    "document",
    [
        team({"a": ["b", "c"], "b": ["d"], "c": ["a"], "d": ["e"], "e": []}, terminator="e"),
        team({"a": []}, terminator="a"),
        team({"a": ["b"], "b": ["review"]}, review={"after": ["b"], "back_to": "a"}),
        *(load_builtin(name) for name in BUILTIN_IDS),
    ],
    ids=lambda document: document["name"],
)
def test_one_scripted_agent_fits_any_definition(document: dict[str, Any]):
    made = plan_of(document)
    local = run_to_end(document, generic_agents(made), answer=lambda _: "ok")
    assert local.run.terminal_status == "done_success"


def test_the_shortest_way_is_the_shortest():
    document = team({"a": ["b", "c"], "b": ["c"], "c": []}, terminator="c")
    assert next_hops(plan_of(document).team) == {"c": "", "a": "c", "b": "c"}
