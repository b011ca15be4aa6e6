"""`handrail replay` and `handrail tune`: what other rules would have made of recorded runs."""

import asyncio
import gzip
import json
from itertools import cycle
from pathlib import Path

import pytest
from tests.cli.command_line import CommandResult, run_command, write_definition
from tests.cli.command_targets import CommandTargets
from tests.kernel.driven_run import team

import handrail
from handrail.engine.dispatch.dispatch import Dispatch
from handrail.engine.dispatch.replies import hand_to, terminate
from handrail.kernel.result import Result

pytest_plugins = ["tests.cli.fixtures_command_targets"]

PAIR = {**team({"a": ["b"], "b": ["a"]}, terminator="a"), "name": "pair"}


def told(called: CommandResult) -> str:
    assert (called.code, called.err) == (0, "")
    return called.out


def wrong(called: CommandResult) -> str:
    """The one line that says what is wrong."""
    assert (called.code, called.out) == (2, "")
    (line,) = called.err.splitlines()
    return line


@pytest.fixture
def pairs(here: Path) -> str:
    """A database with 12 good runs of four steps or less, and one that went round and round."""
    url = "sqlite:///pairs.db"

    def a(dispatch: Dispatch) -> Result:
        rounds = 9 if dispatch.bead.title == "loop" else 1
        handed = sum(one.from_ == "a" for one in dispatch.handoff_sequence)
        return hand_to("b", "your turn") if handed < rounds else terminate("done")

    async def play() -> None:
        async with handrail.open(url) as engine:
            await engine.define(PAIR)
            engine.add_agent(a, "a")
            engine.add_agent(lambda dispatch: hand_to("a", "yours"), "b")
            for _, title in zip(range(13), cycle([*["good"] * 12, "loop"]), strict=False):
                await (await engine.start("pair", title=title)).result()

    asyncio.run(play())
    return url


@pytest.mark.requirement("S16")
def test_both_say_the_same_of_a_database_and_of_a_server(targets: CommandTargets):
    ended = targets.runs["ended"]
    for arguments in (
        ["replay", ended, "--rules", "yolo"],
        ["replay", ended[-8:], targets.runs["closed"], "--rules", "strict", "--json"],
        ["replay", "--workflow", "asks", "--rules", "yolo"],
        ["tune"],
        ["tune", "asks"],
        ["tune", "asks", "--share", "0.2", "--runs", "5", "--json"],
        ["tune", "--json"],
    ):
        out = told(targets.same(*arguments))
        if "--json" in arguments:
            assert json.loads(out)


@pytest.mark.requirement("S16")
def test_a_table_says_what_becomes_of_each_run_and_of_all_together(pairs: str, here: Path):
    rules = write_definition(here, {"max_handoffs": 3})
    *rows, last = told(
        run_command("replay", "--workflow", "pair", "--rules", rules, "--database", pairs)
    ).splitlines()
    assert rows[0].split("  ")[0] == "run"
    assert len(rows) == 14
    assert "max_handoffs (aborted_stuck) stops it at step 4 of 6: 3 handoffs were made" in rows[1]
    assert rows[1].partition("  2 steps, ")[1]
    assert rows[2].endswith("  ends as recorded, by terminated (done_success) at step 3")
    assert last.startswith("13 runs: 12 same, 1 sooner; 0 of 12 good runs cut; saved: 2 steps, ")


def test_a_good_run_that_is_cut_is_told(pairs: str, here: Path):
    rules = write_definition(here, {"stop_rules": {"max_steps": 2}})
    out = told(run_command("replay", "--workflow", "pair", "--rules", rules, "--database", pairs))
    assert "12 of 12 good runs cut; saved: 4 steps, " in out
    assert out.count("a good run is cut: max_steps (aborted_stuck) stops it at step 2 of 3") == 12


@pytest.mark.requirement("S16")
def test_tune_prints_a_table_and_lines_to_copy(pairs: str):
    lines = told(run_command("tune", "pair", "--database", pairs)).splitlines()
    assert lines[0] == (
        "pair, version 1: 13 ended runs, 12 good, 1 aborted: changing 1 limit saves 3 of "
        "6 wasted steps and cuts 0 good runs"
    )
    assert lines[1].startswith("limit ")
    row = next(line for line in lines if line.startswith("repeat_limit"))
    assert "0 of 12, at most 22.1%" in row
    assert lines[-2:] == ["stop_rules:", "  max_edge: 1"]


def test_tune_says_when_there_is_too_little_to_go_by(pairs: str):
    (line,) = told(run_command("tune", "pair", "--runs", "5", "--database", pairs)).splitlines()
    assert line == (
        "pair, version 1: the history is too small: 5 ended runs, 4 good, 1 aborted; "
        "it takes 10 good ones"
    )


def test_rules_that_cannot_be_used_are_told_with_their_place(pairs: str, here: Path):
    def of(rules: str) -> str:
        return wrong(
            run_command("replay", "--workflow", "pair", "--rules", rules, "--database", pairs)
        )

    assert of(write_definition(here, {"max_edg": 4})) == (
        "handrail replay: the rules cannot be used: stop_rules.max_edg: 'max_edg' is no stop rule "
        "(did you mean 'max_edge'?)"
    )
    assert of(write_definition(here, "max_edge: [")).startswith("handrail replay: ")
    assert "write lines such as max_edge: 4" in of(write_definition(here, "[1]"))
    assert of("fast") == (
        "handrail replay: --rules is 'fast', which is neither a file nor a profile; "
        "profiles are strict, yolo, observed, conversation"
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "name runs, or a definition with --workflow"),
        (("x" * 32, "--workflow", "pair"), "name runs, or a definition with --workflow"),
        (("x" * 32,), "there is no run"),
        (("--workflow", "none"), "there is no definition 'none'"),
    ],
)
def test_what_is_not_there_is_told(pairs: str, arguments: tuple[str, ...], says: str):
    assert says in wrong(run_command("replay", *arguments, "--rules", "yolo", "--database", pairs))


def test_a_definition_without_ended_runs_has_nothing_to_replay(here: Path):
    async def define() -> None:
        async with handrail.open("sqlite:///empty.db") as engine:
            await engine.define(PAIR)

    url = "sqlite:///empty.db"
    asyncio.run(define())
    line = wrong(run_command("replay", "--workflow", "pair", "--rules", "yolo", "--database", url))
    assert line == "handrail replay: no run of 'pair' has ended; there is nothing to replay"
    assert "the history is too small" in told(run_command("tune", "--database", url))


TRACE = {
    "dataset": "mine",
    "id": "17",
    "success": False,
    "events": [
        {"k": "say", "agent": "coder", "text": "I look."},
        {"k": "tool", "agent": "coder", "tool": "bash", "args": "ls", "result": "a", "rc": 0},
    ]
    * 10,
}


def test_runs_that_others_recorded_are_judged(here: Path):
    good = {**TRACE, "id": "18", "success": True}
    Path("runs.jsonl").write_text(f"{json.dumps(TRACE)}\n{json.dumps(good)}\n")
    Path("runs.jsonl.gz").write_bytes(gzip.compress(Path("runs.jsonl").read_bytes()))
    shown = told(run_command("replay", "--traces", "runs.jsonl"))
    assert "stopped at 3 of 10: no_change" in shown
    assert "mine: 1 of 1 good run cut, 1 of 1 failed run stopped, which saves 70.0%" in shown
    as_json = ("replay", "--traces", "runs.jsonl.gz", "--view", "A", "--json")
    document = json.loads(told(run_command(*as_json)))
    assert [item["step"] for item in document["items"]] == [3, 3]
    assert document["groups"][0]["steps_saved"] == 7
    assert document["items"][0] == {
        "file": "runs.jsonl.gz",
        "dataset": "mine",
        "id": "17",
        "success": False,
        "steps": 10,
        "stopped": True,
        "step": 3,
        "rule": "no_change",
        "reason": "coder called bash with the same arguments and got the same answer 3 times, and "
        "nothing else has been found",
        "evidence": ["step 1", "step 2", "step 3"],
        "warnings": [],
        "nudges": [2],
        "asks": [],
    }
    Path("mine.yaml").write_text("no_change_limit: null\n")
    spared = told(run_command("replay", "--traces", "runs.jsonl", "--rules", "mine.yaml"))
    assert "ended by itself after 10" in spared


def test_limits_are_proposed_from_runs_that_others_recorded(here: Path):
    def line(number: int, steps: int, success: bool) -> str:
        says = [{"k": "say", "agent": "a", "text": f"thought {n}"} for n in range(steps)]
        return json.dumps({"id": f"{success}{number}", "success": success, "events": says})

    good = [line(n, 10, True) for n in range(15)]
    Path("runs.jsonl").write_text("\n".join([*good, *(line(n, 40, False) for n in range(15))]))
    shown = told(run_command("tune", "--traces", "runs.jsonl"))
    assert "on runs that it had not seen the choice cuts 0 good runs (now 0)" in shown
    assert "0 of 15" in shown
    assert "stop_rules:\n  max_steps: 12" in shown
    report = json.loads(told(run_command("tune", "--traces", "runs.jsonl", "--json")))
    assert (report["rules"], report["view"]) == ({"max_steps": 12}, "B")
    Path("few.jsonl").write_text(good[0])
    few = told(run_command("tune", "--traces", "few.jsonl", "--profile", "strict", "--view", "A"))
    assert few.startswith("nothing is proposed: 1 good and 0 failed runs")
    Path("bad.jsonl").write_text("{")
    assert "bad.jsonl, line 1" in wrong(run_command("tune", "--traces", "bad.jsonl"))
    assert "name one definition" in wrong(run_command("tune", "a", "b"))


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--traces",), "name the files of recorded runs after --traces"),
        (("--traces", "none.jsonl"), "cannot read 'none.jsonl': [Errno 2]"),
        (("--traces", "bad.jsonl.gz"), "cannot read 'bad.jsonl.gz': Not a gzipped file"),
        (("--traces", "bad.json"), "bad.json, line 1: "),
        (("--traces", "bad.json", "--rules", "bad.yaml"), "stop_rules.max_egde: "),
    ],
)
def test_what_is_wrong_with_recorded_runs_is_said_in_one_line(
    here: Path, arguments: tuple[str, ...], line: str
):
    Path("bad.json").write_text("{")
    Path("bad.jsonl.gz").write_text("plain")
    Path("bad.yaml").write_text("max_egde: 4\n")
    assert wrong(run_command("replay", *arguments)).startswith(f"handrail replay: {line}")
