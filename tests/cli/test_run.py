"""`handrail run`: one bead to its end, watched, with a person to ask."""

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from inline_snapshot import snapshot
from tests.cli.command_line import run_command, write_definition
from tests.engine.interactive_runs import run_to_end
from tests.kernel import histories
from tests.kernel.driven_run import chain, edge, node, team, workflow

from handrail.cli.local_run import TerminalPerson, read_reply
from handrail.cli.run_view import EventFormatter, PlainView, RichView
from handrail.engine.dispatch.dispatch import Dispatch
from handrail.engine.services.runs import ApprovalPrompt, InteractiveRun, PromptReply
from handrail.kernel.definition.plan import check_definition
from handrail.kernel.result import Outcome, Result
from handrail.teams.scripted import generic_agents


def anonymous(text: str) -> str:
    """Without the ids of runs, which differ each time."""
    return re.sub(r"[0-9a-f]{32}", "RUN", text)


def without_times(text: str) -> str:
    """The last figure of a run is how long it took."""
    lines = text.splitlines()
    return "\n".join(line.rpartition(", ")[0] if line.endswith(" s") else line for line in lines)


def test_a_helpdesk_ticket_from_start_to_end():
    called = run_command("run", "helpdesk")
    assert called.code == 0
    assert called.err == ""
    assert without_times(called.out) == snapshot("""\
helpdesk: VPN drops every hour
  at most 73 dispatches, 20 handoffs; 10 min of running time
   1/20  orchestrator -> memory             was a ticket like this resolved before?
         memory: No ticket like this one is known. [memory_checked, miss]
   2/20  memory -> orchestrator             miss
   3/20  orchestrator -> ticketing          nothing known: analyze the ticket
         ticketing: The ticket concerns: network. [ticket_analyzed]
   4/20  ticketing -> orchestrator          analyzed: network
   5/20  orchestrator -> network            the ticket concerns network
         network: Runbook NET-01, VPN drops. [resolution_obtained]
   6/20  network -> orchestrator            resolution found: runbook NET-01, VPN drops
   7/20  orchestrator -> memory             keep the resolution
         memory: Kept the resolution of 'VPN drops every hour'. [memory_checked, stored]
   8/20  memory -> orchestrator             stored
   9/20  orchestrator -> summarization      the resolution is kept; write the summary
         summarization: About your ticket 'VPN drops every hour': [summary_complete]
  10/20  summarization -> orchestrator      summary written
  11/20  orchestrator -> ticketing          the summary is complete: close the ticket
         ticketing: Ticket resolved: Runbook NET-01, VPN drops.

Done: ticket resolved.
  done_success (terminated), the last one was ticketing
  12 of 73 dispatches, 11 of 20 handoffs\
""")


@pytest.mark.requirement("H7.2")
def test_each_handoff_is_shown_with_source_target_and_reason():
    out = run_command("run", "helpdesk").out
    assert "1/20  orchestrator -> memory             was a ticket like this" in out


@pytest.mark.requirement("H7.4", "H3.2")
def test_a_loop_ends_with_the_pattern_the_evidence_and_the_remedy():
    called = run_command("run", "helpdesk", "--context", '{"demo": "stuck"}')
    assert called.code == 1
    assert "'orchestrator' hands to 'network' twice in a row [same_target_twice]" in called.out
    assert without_times(called.out).splitlines()[-9:] == snapshot(
        [
            "Stuck: orchestrator and network handed over the same way 3 times in a row without progress (limit 3).",  # noqa: E501
            "  aborted_stuck (repeated_pattern), the last one was orchestrator",
            "  9 of 73 dispatches, 9 of 20 handoffs",
            "  limit: repeat_limit 3, seen 3, profile strict",
            "  pattern: orchestrator -> network",
            "  alike: handoffs 7, 8 and 9: orchestrator -> network",
            "  what would have let it go on: progress in between, another way, or a higher"
            " repeat_limit",
            "  to allow more: Guard(StopRules(repeat_limit=5)) in a program under guard,"
            " stop_rules: {repeat_limit: 5} in a definition",
            "  4 warnings, 1 nudge",
        ]
    )


@pytest.mark.parametrize(
    ("demo", "title", "end"),
    [
        (
            "partial",
            "Total counts one too few, and initials are wrong",
            "done_partial (terminated)",
        ),
        (
            "research",
            "The function frobnicate_ledger loses the reconciliation_buffer",
            "aborted_stuck (research_exhausted)",
        ),
        ("no_change", "Initials are wrong", "aborted_stuck (no_change)"),
        ("constraint", "Prices in dollars are wrong", "aborted_constraint (constraint)"),
    ],
)
def test_a_demo_of_the_coding_team_is_about_its_own_bug_and_ends_as_documented(
    demo: str, title: str, end: str
):
    called = run_command("run", "coding", "--context", json.dumps({"demo": demo}))
    assert called.out.splitlines()[0] == f"coding: {title}"
    assert f"  {end}, the last one was" in called.out


def test_a_partial_end_is_not_exit_code_0():
    called = run_command("run", "coding", "--context", '{"demo": "partial"}')
    assert called.code == 1
    assert "Left to do: tests.test_words.Words.test_initials fails." in called.out


def test_the_bead_is_what_the_options_say(tmp_path: Path):
    context = tmp_path / "context.yaml"
    context.write_text("demo: partial\n")
    arguments = ["--title", "T", "--description", "D", "--context", f"@{context}", "--json"]
    called = run_command("run", "coding", *arguments)
    assert called.out.startswith("{")
    assert "coding: T" in called.err
    assert json.loads(called.out)["terminal_status"] == "done_partial"


@pytest.mark.requirement("H7.5")
def test_json_is_the_run_as_the_api_gives_it():
    shown = json.loads(run_command("run", "helpdesk", "--json").out)
    assert shown["terminal_status"] == "done_success"
    assert shown["stop"]["rule"] == "terminated"
    assert [h["to"] for h in shown["handoff_sequence"]][:3] == [
        "memory",
        "orchestrator",
        "ticketing",
    ]
    assert shown["remaining"] == 0
    assert shown["questions"] == []


def test_without_a_terminal_an_open_question_is_printed_and_the_exit_code_is_1():
    called = run_command("run", "auto-bug-workflow")
    assert called.code == 1
    assert "| Proposal: in count.py" in called.out
    assert "approval at approval: CEO Approval: apply the proposed fix?" in called.out
    assert anonymous(called.err).splitlines() == [
        "handrail run: approval 'RUN.q1' is open, and there is no terminal to ask in; "
        "run it in a terminal, or give --answers FILE"
    ]


def test_answers_that_are_used_up_are_told_as_such(tmp_path: Path):
    called = run_command(
        "run", "auto-bug-workflow", "--answers", write_definition(tmp_path, "hm\n", "answers")
    )
    assert called.code == 1
    assert anonymous(called.err).splitlines() == [
        "handrail run: all 1 answers of --answers are used, "
        "and approval 'RUN.q1' is open; add a line"
    ]


def test_json_of_an_open_run_names_the_question():
    shown = json.loads(run_command("run", "auto-bug-workflow", "--json").out)
    assert shown["status"] == "waiting"
    assert [question["id"] for question in shown["questions"]] == [f"{shown['id']}.q1"]


@pytest.mark.requirement("R1.3", "R3.4", "R4.2")
def test_answers_come_from_a_file_one_a_line(tmp_path: Path):
    answers = write_definition(tmp_path, "use 10% tax\nhm\nOK.\n", "answers")
    called = run_command("run", "finance", "--answers", answers)
    assert called.code == 0
    assert "| tax 10% 7.00" in called.out
    assert "is neither a clear approval nor a clear rejection" in called.out
    assert "Done: you approved the result." in called.out
    assert "4 of 20 handoffs in 2 stretches" in called.out


def test_answers_come_from_standard_input_for_a_dash():
    called = run_command("run", "finance", "--answers", "-", stdin="use 10% tax\nOK.\n")
    assert called.code == 0
    assert "Done: you approved the result." in called.out


def test_an_escalation_says_what_an_ok_does_to_it():
    """There is no result to approve: an "OK" skips the work."""

    def agent(dispatch: Dispatch) -> Result:
        return Result(outcome=Outcome.FAILURE, text="cannot")

    out, attended = watched(agent, chain(node("a", max_attempts=1)), ["OK"])
    assert "OK goes on without it, as if 'a' had succeeded; any other text has it tried" in out
    assert attended.run.terminal_status == "done_success"


def test_a_typo_in_a_definition_is_told_before_it_is_run(tmp_path: Path):
    path = write_definition(tmp_path, chain(node("a"), tite="x"))
    called = run_command("run", path)
    assert called.code == 0
    line = Path(path).read_text().splitlines().index("tite: x") + 1
    told = (
        f"{path}:{line}: warning at $.tite: 'tite' is not a known key and is ignored "
        "[unknown_field]"
    )
    assert called.err.startswith(f"handrail run: {told}")


def test_when_the_answers_run_out_the_question_stays_open(tmp_path: Path):
    called = run_command(
        "run", "finance", "--answers", write_definition(tmp_path, "use 10% tax\n", "answers")
    )
    assert called.code == 1
    assert "'RUN.q2' is open" in anonymous(called.err)


@pytest.mark.requirement("R3.1")
def test_review_can_be_skipped_and_required(tmp_path: Path):
    assert run_command("run", "finance", "--review", "skip").code == 0
    assert run_command("run", "finance", "--review", "required").code == 1
    refused = run_command("run", "helpdesk", "--review", "required")
    assert refused.code == 2
    assert "'helpdesk' has none; leave `review` out" in refused.err


@pytest.mark.parametrize(
    ("line", "reply"),
    [
        ("OK", PromptReply(text="OK")),
        (" keep  spaces ", PromptReply(text=" keep  spaces ")),
        ("/approve", PromptReply(decision="approve")),
        ("/Reject  not ours", PromptReply(decision="reject", text="not ours")),
        ("/revise use euros", PromptReply(decision="revise", text="use euros")),
        ("/tmp is full", PromptReply(text="/tmp is full")),
    ],
)
def test_an_answer_is_a_text_or_an_explicit_decision(line: str, reply: PromptReply):
    assert read_reply(line) == reply


def test_rejecting_closes_the_run(tmp_path: Path):
    called = run_command(
        "run", "finance", "--answers", write_definition(tmp_path, "/reject not ours\n", "answers")
    )
    assert called.code == 1
    assert "closed_by_human (closed)" in called.out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["nowhere.yaml"], "nothing built in has this name"),
        (["helpdesk", "--context", "{"], "--context {: line 1"),
        (["helpdesk", "--context", "[1]"], "is not a JSON object"),
        (["helpdesk", "--context", "@nowhere.json"], "cannot be read"),
        (["helpdesk", "--review", "maybe"], "--review is 'maybe'; write required or skip"),
        (["helpdesk", "--answers", "nowhere"], "--answers nowhere: No such file"),
        (["helpdesk", "--report", "no/where.md"], "--report no/where.md: No such file"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(arguments: list[str], told: str):
    called = run_command("run", *arguments)
    assert called.code == 2
    assert told in called.err
    assert len(called.err.splitlines()) == 1


def test_a_definition_with_errors_is_not_run(tmp_path: Path):
    path = write_definition(tmp_path, chain(node("a", role="wizard"), node("a")))
    called = run_command("run", path)
    assert called.code == 2
    assert "2 nodes have the id 'a'" in called.err
    assert f"more: handrail check {path})" in called.err
    assert len(called.err.splitlines()) == 1


def test_the_whole_report_is_written_where_it_is_wanted(tmp_path: Path):
    for name in ("report.md", "report.json"):
        assert run_command("run", "helpdesk", "--report", str(tmp_path / name)).code == 0
    assert anonymous((tmp_path / "report.md").read_text()).startswith(
        "# Run RUN: VPN drops every hour"
    )
    assert json.loads((tmp_path / "report.json").read_text())["terminal_status"] == "done_success"


@pytest.mark.parametrize(
    "document",
    [
        chain(node("a"), node("b", kind="commit", role="engineering-manager")),
        team({"a": ["b"], "b": ["c", "a"], "c": []}, terminator="c"),
        workflow(
            node("start", "start"),
            node("fork", "decision", parallel=True),
            node("a"),
            node("b"),
            node("join", "merge"),
            node("end", "end"),
            edges=[
                edge("start", "fork"), edge("fork", "a"), edge("fork", "b"),
                edge("a", "join"), edge("b", "join"), edge("join", "end"),
            ],
        ),
    ],
    ids=["workflow", "team", "branches"],
)  # fmt: skip
def test_somebodys_own_definition_runs_with_a_scripted_agent(
    tmp_path: Path, document: dict[str, Any]
):
    called = run_command("run", write_definition(tmp_path, document))
    assert called.code == 0
    assert "Done: " in called.out


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def watched(agent: Any, document: dict[str, Any], lines: list[str]) -> tuple[str, InteractiveRun]:
    """The run as a terminal shows it."""
    plan, checked = check_definition(document)
    assert plan is not None
    assert checked.bound is not None
    out = Terminal()
    view = RichView(EventFormatter(checked.bound, plan.kind), out)
    person = TerminalPerson(view, lines, is_present=False)
    staff = dict.fromkeys(generic_agents(plan), agent)
    local = run_to_end(
        document,
        staff,
        answer=person.answer,
        listen=lambda event, _: view.show_event(event),
        title="t",
    )
    view.close()
    return out.getvalue(), local


def test_in_a_terminal_a_bar_shows_how_much_of_the_certificate_is_used():
    def agent(dispatch: Dispatch) -> Result:
        return Result(outcome=Outcome.SUCCESS, text="[red]not markup[/red] :smile:")

    out, _ = watched(agent, chain(node("a"), node("b", "approval")), ["ok"])
    assert "1/3 dispatches, 2/3 moves of the certificate" in out
    assert "[red]not markup[/red] :smile:" in out
    assert "━━━━━━━━┄┄" in out


def test_everything_that_goes_wrong_on_the_way_is_shown():
    def agent(dispatch: Dispatch) -> object:
        match len(dispatch.history):
            case 0:
                raise RuntimeError("no \x1b[31mnetwork")
            case 1:
                return Result(outcome=Outcome.HANDOFF, to="nobody", reason="x")
            case 2:
                return Result(outcome=Outcome.ASK, question="really?", options=("yes", "no"))
            case _:
                return Result(outcome=Outcome.TERMINATE, reason="enough")

    out, local = watched(agent, team({"a": []}, terminator="a"), ["yes"])
    assert local.run.terminal_status == "done_success"
    for told in (
        "a was lost: RuntimeError: no \N{REPLACEMENT CHARACTER}[31mnetwork",
        "a gave no usable answer: 'a' may not hand off to 'nobody'",
        "refused: a -> nobody",
        "clarification_request at a: really?",
        "answer (yes, no), or /reject to close the run",
        "you, answer: yes",
    ):
        assert told in out


@pytest.mark.parametrize(
    ("history", "line"),
    [
        ("redirected", "instead of researcher, by max_edge: need more facts"),
        ("polled", ": waits for "),
    ],
)
def test_what_comes_short_of_a_stop_is_shown(history: str, line: str):
    formatter = EventFormatter(None, "team")
    shown = [
        text for event in histories.every()[history] for text, _ in formatter.format_event(event)
    ]
    assert any(line in text for text in shown), shown


def test_a_plain_view_reads_the_terminal_too(monkeypatch: pytest.MonkeyPatch):
    document = chain(node("a", "approval"))
    _, checked = check_definition(document)
    assert checked.bound is not None
    out = io.StringIO()
    view = PlainView(EventFormatter(checked.bound, "workflow"), out)
    person = TerminalPerson(view, [], is_present=True)
    monkeypatch.setattr("sys.stdin", io.StringIO("hm\nok\n"))
    local = run_to_end(
        document, {}, answer=person.answer, listen=lambda event, _: view.show_event(event)
    )
    assert local.run.has_ended
    assert out.getvalue().count("  > ") == 2
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    again = run_to_end(document, {}, answer=person.answer)
    assert not again.run.has_ended


def test_a_text_of_an_agent_cannot_steer_the_terminal():
    request_text = "\x1b]0;owned\x07 approve me \u202e"

    def agent(dispatch: Dispatch) -> Result:
        return Result(outcome=Outcome.SUCCESS, text=request_text)

    document = chain(node("a"), node("b", "approval"))
    plan, checked = check_definition(document)
    assert plan is not None
    assert checked.bound is not None
    out = io.StringIO()
    view = PlainView(EventFormatter(checked.bound, plan.kind), out)
    seen: list[ApprovalPrompt] = []
    person = TerminalPerson(view, ["ok"], is_present=False)

    def answer(request: ApprovalPrompt) -> PromptReply | None:
        seen.append(request)
        return person.answer(request)

    run_to_end(
        document,
        dict.fromkeys(generic_agents(plan), agent),
        answer=answer,
        listen=lambda event, _: view.show_event(event),
    )
    assert seen[0].result == request_text
    assert not set("\x1b\x07\u202e") & set(out.getvalue())
