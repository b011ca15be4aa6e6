"""`handrail check`: errors with file, place, message and hint; or the certificate."""

import json
from pathlib import Path

import pytest
from tests.cli.command_line import run_command, write_definition
from tests.kernel.driven_run import chain, edge, node, team, workflow

from handrail.cli import definitions
from handrail.cli.output import (
    first_line,
    format_certificate,
    format_count,
    format_duration,
    printable,
)
from handrail.kernel.definition.plan import check_definition
from handrail.teams import BUILTIN_IDS


def test_the_certificate_of_the_auto_bug_workflow_in_words():
    called = run_command("check", "auto-bug-workflow")
    assert called.code == 0
    assert called.out.splitlines() == [
        "auto-bug-workflow: valid workflow 'auto-bug-workflow'",
        "  at most 84 dispatches, 30 transitions, 18 questions; "
        "1 d 18 h of work, 84 d in queues, 126 d of waiting for people",
        "  besides 10 questions of the agents' own, 70 d long",
        "  every figure is reachable",
    ]


def test_the_certificate_of_a_team_comes_with_its_slack():
    called = run_command("check", "helpdesk")
    assert called.code == 0
    assert "at most 73 dispatches, 20 handoffs; 10 min of running time" in called.out
    assert "slack 13 in max_handoffs: the shortest way through all milestones takes 7" in called.out


def test_every_built_in_definition_passes_without_warnings():
    called = run_command("check", *BUILTIN_IDS)
    assert called.code == 0
    assert called.out.count(": valid ") == len(BUILTIN_IDS)
    assert "warning" not in called.out


@pytest.mark.requirement("L13.7")
def test_every_error_is_printed_with_file_place_message_and_hint(tmp_path: Path):
    document = workflow(
        node("start", "start"),
        node("a", role="wizard", max_attempts=0),
        node("b"),
        node("end", "end"),
        edges=[edge("start", "a"), edge("a", "end"), edge("a", "nowhere", "severity >")],
    )
    path = write_definition(tmp_path, document)
    called = run_command("check", path)
    assert called.code == 1
    for code in ("bad_limit", "undefined_role", "dangling_edge", "bad_condition", "unreachable"):
        assert f"[{code}]" in called.out
    assert " error at $.nodes[1].role: 'a' has the role 'wizard'" in called.out
    assert "    use one of backend-engineer, ceo" in called.out
    assert called.out.splitlines()[-1].startswith(f"{path}: not valid, ")


WRONG = """\
name: fix
kind: workflow
nodes:
  - {id: start, type: start}
  - id: fix
    type: task
    role: wizard
  - {id: end, type: end}
edges:
  - {from_node_id: start, to_node_id: fix}
  - {from_node_id: fix}
metadata: {}
tite: a typo
"""


@pytest.mark.requirement("L13.7")
def test_an_error_names_the_line_it_stands_on(tmp_path: Path):
    path = write_definition(tmp_path, WRONG)
    out = run_command("check", path).out
    assert f"{path}:7: error at $.nodes[1].role: " in out
    assert f"{path}:11: error at $.edges[1].to_node_id: 'to_node_id' is missing" in out
    assert f"{path}:13: warning at $.tite: " in out
    assert (
        "standard input:7: error at $.nodes[1].role: " in run_command("check", "-", stdin=WRONG).out
    )


def test_the_lines_of_json_are_named_too(tmp_path: Path):
    document = chain(node("a", role="wizard"))
    path = write_definition(tmp_path, json.dumps(document, indent=1), "definition.json")
    line = Path(path).read_text().splitlines().index('   "role": "wizard"') + 1
    assert f"{path}:{line}: error at $.nodes[1].role: " in run_command("check", path).out


def test_a_place_that_no_line_can_be_named_for_is_named_alone(tmp_path: Path):
    """Looking for it in a long file would take seconds."""
    document = chain(node("a", role="wizard"))
    path = write_definition(
        tmp_path,
        json.dumps(document | {"description": "x" * definitions.FILE_BYTES_MAX}),
        "d.json",
    )
    assert f"{path}: error at $.nodes[1].role: " in run_command("check", path).out


def test_warnings_are_printed_and_no_error(tmp_path: Path):
    document = team({"a": ["b"], "b": []}, terminator="b", stop_rules={"max_handoffs": 1}, tite="x")
    called = run_command("check", write_definition(tmp_path, document))
    assert called.code == 0
    assert "warning at $.stop_rules.max_handoffs: slack 0" in called.out
    assert (
        "warning at $.tite: 'tite' is not a known key and is ignored [unknown_field]" in called.out
    )


def test_a_limit_that_no_run_can_meet_is_a_warning_in_stronger_words(tmp_path: Path):
    hands = {"a": ["b"], "b": ["c"], "c": []}
    called = run_command(
        "check",
        write_definition(tmp_path, team(hands, terminator="c", stop_rules={"max_handoffs": 1})),
    )
    assert "[infeasible]" in called.out


def test_files_are_checked_one_after_the_other_and_one_error_is_enough(tmp_path: Path):
    good = write_definition(tmp_path, chain(node("a")), "good.yaml")
    bad = write_definition(tmp_path, chain(node("a", role="wizard")), "bad.yaml")
    called = run_command("check", good, bad, "finance")
    assert called.code == 1
    assert called.out.count("valid ") == 2
    assert "bad.yaml: not valid, 1 error" in called.out


def test_a_file_that_is_no_document_says_line_and_column(tmp_path: Path):
    called = run_command("check", write_definition(tmp_path, "name: x\nname: y\n"))
    assert called.code == 1
    assert "$.name: line 2, column 1: the key 'name' occurs twice" in called.out


@pytest.mark.parametrize("name", ["nowhere.yaml", "helpdes", "x" * 5_000, "a\0b"])
def test_a_file_that_is_not_there_is_one_line_and_exit_code_2(name: str):
    called = run_command("check", name)
    assert called.code == 2
    assert called.out == ""
    assert len(called.err.splitlines()) == 1
    assert "built in are helpdesk, coding, finance, auto-bug-workflow" in called.err
    assert ("did you mean 'helpdesk'?" in called.err) is (name == "helpdes")


def test_a_folder_cannot_be_read(tmp_path: Path):
    called = run_command("check", str(tmp_path))
    assert called.code == 2
    assert "cannot be read: Is a directory" in called.err


def test_standard_input_is_read_for_a_dash():
    called = run_command("check", "-", stdin=json.dumps(chain(node("a"))))
    assert called.code == 0
    assert called.out.startswith("standard input: valid workflow 'w'")
    assert run_command("check", "-", stdin=b"\xff\xfe").code == 1


def test_a_file_with_the_name_of_a_built_in_one_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    write_definition(tmp_path, chain(node("a")), "helpdesk")
    assert run_command("check", "helpdesk").out.startswith("helpdesk: valid workflow 'w'")


def test_json_has_the_same_for_programs(tmp_path: Path):
    bad = write_definition(tmp_path, chain(node("a", role="wizard")))
    called = run_command("check", "helpdesk", bad, "nowhere", "--json")
    assert called.code == 2
    shown = json.loads(called.out)
    assert shown["valid"] is False
    good, wrong, missing = shown["definitions"]
    assert (good["valid"], good["kind"], good["bound"]["dispatches"]) == (True, "team", 73)
    assert {one["slack"] for one in good["feasibility"]} == {19, 98, 13, 92}
    assert (wrong["errors"][0]["code"], wrong["bound"]) == ("undefined_role", None)
    assert set(wrong["errors"][0]) == {"code", "path", "message", "hint"}
    assert missing["errors"][0]["code"] == "not_found"


def test_a_name_cannot_steer_the_terminal(tmp_path: Path):
    called = run_command(
        "check", write_definition(tmp_path, {**chain(node("a")), "name": "x\x1b[2Jy\u202e"})
    )
    assert "\x1b" not in called.out
    assert "\u202e" not in called.out


def test_ten_thousand_nodes_are_checked(tmp_path: Path):
    nodes = [node(f"n{i}") for i in range(10_000)]
    path = tmp_path / "large.json"
    path.write_text(json.dumps(chain(*nodes)))
    called = run_command("check", str(path))
    assert called.code == 0
    assert "at most 30,000 dispatches" in called.out


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (0.01, "0.01 s"),
        (59, "59 s"),
        (60, "1 min"),
        (5_400, "1 h 30 min"),
        (57_600, "16 h"),
        (90_061, "1 d 1 h"),
        (86_401, "1 d 1 s"),
    ],
)
def test_durations_are_told_in_their_two_largest_units(seconds: float, words: str):
    assert format_duration(seconds) == words


def test_one_is_not_many():
    assert format_count(1, "question") == "1 question"
    assert format_count(1_000, "question") == "1,000 questions"
    plan, checked = check_definition(chain(node("a", max_attempts=1)))
    assert plan is not None
    assert checked.bound is not None
    assert "1 dispatch," in format_certificate(checked.bound, plan.kind)


def test_lines_are_cut_and_cleaned_for_the_terminal():
    assert first_line("\n\n  a\x1bb  \nc") == "a\N{REPLACEMENT CHARACTER}b"
    assert first_line("x" * 200) == "x" * 99 + "…"
    assert printable("a\tb\nc") == "a\tb\nc"
