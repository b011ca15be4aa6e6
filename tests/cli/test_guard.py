"""`handrail guard`: somebody's own team from the command line, unchanged."""

import json
import re
import shlex
import sys

import pytest
from tests.cli.command_line import run_command
from tests.client.live_server import Server

NOBODY = "http://127.0.0.1:1"
TEAM = """
from handrail.guard.plain import agent


@agent("planner")
def plan(): ...


@agent("coder")
def code(): ...


def loop(task):
    while True:
        plan()
        code()


def rounds(task):
    for _ in range(10):
        plan()
        code()


def once(task):
    plan()
    code()
    return f"did {task}"


async def later(task):
    return once(task)


def ran(task):
    print("it ran")


def broken(task):
    raise RuntimeError("no such luck")


nothing = 7
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "their_team", raising=False)
    (tmp_path / "their_team.py").write_text(TEAM)
    return tmp_path


def test_a_team_that_loops_is_stopped_and_is_on_record():
    told = run_command("guard", "their_team:loop", "--input", "ticket 4711", "--rules", "strict")
    assert told.code == 1
    assert "Stuck: planner and coder handed over the same way 3 times in a row" in told.err
    runs = json.loads(run_command("runs", "--json").out)["items"]
    assert [run["stop_rule"] for run in runs] == ["repeated_pattern"]
    assert runs[0]["id"] in told.err
    assert "planner" in run_command("report", runs[0]["id"]).out
    assert "then run that program again, under guard" in run_command("why", runs[0]["id"]).out
    assert "ends as recorded" in run_command("replay", runs[0]["id"], "--rules", "strict").out
    assert "unaltered" in run_command("verify").out


def test_a_loop_of_names_that_shows_nothing_else_ends_at_the_step_limit():
    told = run_command("guard", "their_team:loop")
    assert told.code == 1
    (run,) = json.loads(run_command("runs", "--json").out)["items"]
    assert run["stop_rule"] == "max_steps"


def test_a_dry_run_stops_nothing_and_says_what_would_have_been_stopped():
    told = run_command("guard", "their_team:rounds", "--dry-run", "--rules", "strict")
    assert told.code == 0, told.err
    assert "dry run: would have stopped at step 6, repeated_pattern" in told.err
    (run,) = json.loads(run_command("runs", "--json").out)["items"]
    assert run["terminal_status"] == "done_success"
    assert "unaltered" in run_command("verify").out
    document = json.loads(
        run_command("guard", "their_team:once", "--dry-run", "--input", "x", "--json").out
    )
    assert document["would_have"] == []
    quiet = run_command("guard", "their_team:once", "--dry-run", "--input", "x")
    assert "dry run: no rule would have stopped it" in quiet.err


@pytest.mark.parametrize("name", ["once", "later"])
def test_the_teams_own_result_is_what_is_printed(name):
    told = run_command("guard", f"their_team:{name}", "--input", "ticket 4711")
    assert (told.code, told.out) == (0, "did ticket 4711\n")


def test_the_input_may_stand_in_a_file_and_the_answer_may_be_json(folder):
    (folder / "ticket.txt").write_text("ticket 12")
    told = run_command("guard", "their_team:once", "--input", "@ticket.txt", "--json")
    document = json.loads(told.out)
    assert (told.code, document["result"]) == (0, "did ticket 12")
    assert document["report"]["terminal_status"] == "done_success"


def test_rules_come_from_a_file(folder):
    (folder / "rules.yaml").write_text("max_handoffs: 2")
    told = run_command("guard", "their_team:loop", "--rules", "rules.yaml")
    assert told.code == 1
    assert "max_handoffs" in told.err


def test_an_error_of_the_team_is_told_with_its_place_and_is_on_record():
    told = run_command("guard", "their_team:broken")
    assert (told.code, told.out) == (1, "")
    raised, record = told.err.splitlines()
    place = r"\(their_team\.py, line \d+\)"
    wanted = rf"handrail guard: their_team:broken raised RuntimeError: no such luck {place}"
    assert re.fullmatch(wanted, raised)
    assert record.strip().startswith("recorded as ")


@pytest.mark.parametrize(
    ("target", "options", "named"),
    [
        ("their_team", (), "MODULE:NAME"),
        ("no_such_module:x", (), "no_such_module"),
        ("their_team:absent", (), "absent"),
        ("their_team:nothing", (), "type int is no team"),
        ("their_team:once", ("--rules", "wild"), "wild"),
        ("their_team:once", ("--input", "@absent.txt"), "absent.txt"),
        ("their_team:ran", ("--database", "foo"), "'foo' is not a database that Handrail supports"),
        ("their_team:ran", ("--server", NOBODY), f"no server answers at {NOBODY}"),
    ],
)
def test_wrong_usage_is_told_in_one_line_before_the_team_runs(target, options, named):
    told = run_command("guard", target, *options)
    assert (told.code, told.out) == (2, "")
    assert named in told.err
    assert told.err.count("\n") == 1


def test_the_command_that_it_names_finds_the_record(folder):
    told = run_command("guard", "their_team:once", "--database", "sqlite:///my own.db")
    named = told.err.splitlines()[-1].partition(": ")[2]
    assert named.endswith(" --database 'sqlite:///my own.db'")
    assert "planner" in run_command(*shlex.split(named)[1:]).out


def test_it_is_recorded_on_a_server_that_is_named(tmp_path, monkeypatch):
    monkeypatch.delenv("HANDRAIL_TOKEN", raising=False)
    with Server(f"sqlite:///{tmp_path / 'served.db'}") as server:
        refused = run_command("guard", "their_team:ran", "--server", server.url)
        assert (refused.code, refused.out) == (2, "")
        assert "the server requires a token, but HANDRAIL_TOKEN is not set" in refused.err
        monkeypatch.setenv("HANDRAIL_TOKEN", server.token("viewer", "vic"))
        less = run_command("guard", "their_team:ran", "--server", server.url)
        assert (less.code, less.out) == (2, "")
        assert "vic (viewer) may not record guarded runs" in less.err
        monkeypatch.setenv("HANDRAIL_TOKEN", server.token("operator", "program"))
        told = run_command(
            "guard", "their_team:once", "--input", "it", "--server", server.url, "--json"
        )
        state = server.do(server.engine.runs.state(json.loads(told.out)["run"]))
    assert (told.code, state.terminal_status) == (0, "done_success")
    assert not (tmp_path / ".handrail").exists()
