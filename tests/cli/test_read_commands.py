"""Commands that look: the same of a database and of a server, in full in a file, safe to read."""

import json
import re

from tests.cli.command_line import CommandResult, run_command
from tests.cli.command_targets import CommandTargets
from tests.patience import PATIENCE

from handrail.teams import install_teams

pytest_plugins = ["tests.cli.fixtures_command_targets"]

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]")


def good(called: CommandResult) -> str:
    assert (called.code, called.err) == (0, "")
    assert not CONTROL.search(called.out)
    assert "Traceback" not in called.out
    return called.out


def test_every_command_that_looks_says_the_same_of_a_database_and_of_a_server(
    targets: CommandTargets,
):
    ended, waiting = targets.runs["ended"], targets.runs["waiting"]
    for arguments in (
        ["runs", "--status", "ended"],
        ["runs", "--status", "ended", "--json"],
        ["runs", "--status", "closed_by_human"],
        ["runs", "--workflow", "asks", "--status", "ended", "--text", "revis", "--limit", "3"],
        ["show", ended],
        ["show", ended, "--json"],
        ["show", waiting[-8:]],
        ["why", ended],
        ["why", waiting[-8:]],
        ["why", waiting[-8:], "--json"],
        ["report", ended],
        ["report", ended[-8:], "--json"],
        ["metrics"],
        ["metrics", "--workflow", "asks", "--since", "2002-01-01", "--json"],
        ["answer"],
        ["answer", "--json"],
        ["answer", f"{waiting}.q1"],
        ["answer", waiting[-8:], "--json"],
        ["agents"],
        ["agents", "--json"],
        ["token", "list"],
        ["token", "list", "--json"],
    ):
        out = good(targets.same(*arguments))
        if "--json" in arguments:
            assert json.loads(out)
        else:
            assert len(out.splitlines()) > 1, arguments


def test_runs_are_a_table_with_one_whole_line_each(targets: CommandTargets):
    heads, *rows = good(targets.database("runs")).splitlines()
    assert re.split(" {2,}", heads) == [
        "run", "status", "at, or by", "definition", "began", "took", "title",
    ]  # fmt: skip
    assert len(rows) == len(targets.runs)
    ids = [row.split()[0] for row in rows]
    assert set(ids) == set(targets.runs.values())
    assert ids == sorted(ids, reverse=True), "the newest first"
    row = next(row for row in rows if row.startswith(targets.runs["ended"]))
    assert row.split()[1:3] == ["done_success", "completed"]
    assert row.endswith("  ended")


def test_runs_that_are_not_shown_are_told(targets: CommandTargets):
    called = targets.database("runs", "--limit", "2")
    assert called.code == 0
    assert len(called.out.splitlines()) == 3
    assert called.err == (
        "only the newest 2 are listed; raise --limit, or filter with --text or --since\n"
    )


def test_runs_are_found_by_how_they_ended_when_they_began_and_what_they_are_called(
    targets: CommandTargets,
):
    def titles(*arguments: str) -> set[str]:
        shown = json.loads(good(targets.database("runs", "--json", *arguments)))
        return {run["title"] for run in shown["items"]}

    assert titles("--status", "aborted_stuck") == {"expired"}
    assert titles("--status", "paused") == {"paused"}
    assert titles("--text", "EXP") == {"expired"}
    assert titles("--text", targets.runs["queued"]) == {"queued"}
    assert titles("--workflow", "commits") == {"holder", "queued"}
    assert titles("--since", "2026-01-03") > {"ended", "paused"}
    assert titles("--since", "2026-01-03T00:00:00+00:00") == titles("--since", "2026-01-03")
    assert titles("--since", "0") == set()


def test_a_run_is_shown_with_where_it_went_and_what_it_waits_for(targets: CommandTargets):
    run = targets.runs["waiting"]
    lines = good(targets.database("show", run)).splitlines()
    assert lines[0] == f"run {run} of asks 1: waiting"
    assert lines[1].startswith("Waiting for a person: ")
    assert re.fullmatch(r"  1 of \d+ dispatches, 2 of \d+ transitions, .*", lines[2])
    since, _, told = lines[-2].partition("Z: ")
    assert re.fullmatch(r"  ok, since 20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d", since)
    assert told == "a person is asked: Approve 'ok'?"
    to_do = f"    what to do: answer (ceo or above): `handrail answer {run}.q1 TEXT`; "
    assert lines[-1].startswith(to_do)


def test_why_names_the_rule_its_evidence_and_what_would_have_helped(targets: CommandTargets):
    lines = good(targets.database("why", targets.runs["expired"])).splitlines()
    assert lines[0].startswith("Stuck: ")
    assert lines[1] == "  rule: human_deadline"
    assert lines[-1].startswith("  what to do: answer sooner, or give the question a longer ")
    lines = good(targets.database("why", targets.runs["queued"])).splitlines()
    assert "waits for the commit lock of 'shop', which run" in lines[1]
    assert lines[2].startswith("    what to do: wait for its turn; `handrail why ")


def test_a_report_in_a_file_is_the_markdown_itself(targets: CommandTargets):
    run = targets.runs["revised"]
    out = good(targets.database("report", run))
    assert out.startswith(f"# Run {run}: revised\n\nDone: ")
    assert "\n## Rounds of review\n" in out
    shown = json.loads(good(targets.database("report", run, "--json")))
    assert (shown["run_id"], len(shown["iterations"])) == (run, 2)


def test_an_ended_run_that_is_watched_is_told_from_its_first_event_to_its_last(
    targets: CommandTargets,
):
    lines = good(targets.same("show", "--watch", targets.runs["revised"])).splitlines()
    assert lines[0].endswith(" of asks 1: revised")
    assert sum(line.startswith("  asks: ") for line in lines) == 2
    assert any("ana, revise: not so" in line for line in lines)
    assert any(line.startswith("Done: ") for line in lines)
    failed = targets.same("show", "--watch", targets.runs["expired"])
    assert (failed.code, failed.err) == (1, "")
    events = good(targets.same("show", "--watch", "--json", targets.runs["revised"])).splitlines()
    shown = [json.loads(line) for line in events]
    assert [event["seq"] for event in shown] == list(range(1, len(shown) + 1))
    assert (shown[0]["type"], shown[-1]["type"]) == ("started", "ended")


def test_a_question_is_shown_with_the_result_that_it_is_about(targets: CommandTargets):
    run = targets.runs["waiting"]
    lines = good(targets.database("answer", run[-8:])).splitlines()
    assert lines[0] == "  | é waiting"
    assert lines[1].startswith("approval at ok: ")
    assert lines[-1].startswith("open until ")
    assert "  revise: goes back with your text" in lines


def test_metrics_come_with_what_they_mean(targets: CommandTargets):
    out = good(targets.database("metrics"))
    assert out.startswith("asks: 4 runs ended; ")
    assert re.search(r"success rate +50% +runs that ended as done_success", out)
    assert re.search(r"escalation rate +0% +runs in which the CEO was asked because", out)


def test_the_team_that_mends_bugs_is_measured_against_its_targets(targets: CommandTargets):
    engine = targets.served.engine

    async def mend(demo: str) -> None:
        run = await engine.start("auto-bug-workflow", title="a bug", context={"demo": demo})
        for question in await run.questions(PATIENCE):
            await run.answer(question.id, "ok", by="ana")
        await run.result(PATIENCE)

    targets.served.do(install_teams(engine, ["auto-bug-workflow"]))
    targets.served.do(mend(""))
    targets.served.do(mend("rework"))
    out = good(targets.same("metrics", "--workflow", "auto-bug-workflow"))
    assert out.startswith("auto-bug-workflow: 2 runs ended; ")
    figures = {line[:28].strip(): line[28:] for line in out.splitlines()}
    assert " < 5 min " in figures["median time to resolution"]
    assert re.match(r" *0% +< 10% +runs in which", figures["escalation rate"])
    assert re.match(r" *100% +> 80% +of the runs", figures["root cause found"])
    assert re.match(r" *100% +> 90% +of the runs", figures["fixes that pass verification"])
    assert re.match(r" *1.5 +< 1.5 +how often", figures["apply and verify cycles"])


NOWHERE = f"there is no run '{'0' * 32}'; `handrail runs` lists them"
UNKNOWN = "there is no run 'zzz'; `handrail runs` lists them"
WHEN = "write how long ago, such as 2h or 7d, or a date"
NOT_THERE = (
    (["show", "zzz"], UNKNOWN),
    (["show", ""], "there is no run ''; `handrail runs` lists them"),
    (["why", "0" * 32], NOWHERE),
    (["report", "."], "there is no run '.'; `handrail runs` lists them"),
    (["show", "--watch", "zzz"], UNKNOWN),
    (["show", "--watch", "0" * 32], NOWHERE),
    (["runs", "--workflow", "no"], "there is no definition 'no'; store the definition first"),
    (["metrics", "--workflow", "no"], "there is no definition 'no'; store the definition first"),
    (["runs", "--since", "soon"], f"--since is 'soon'; {WHEN}"),
    (["metrics", "--since", "99999999d"], f"--since is '99999999d'; {WHEN}"),
    (["answer", "zzz"], "there is no open question 'zzz'; `handrail answer` lists them"),
)


def test_what_is_not_there_is_told_in_one_line(targets: CommandTargets):
    for arguments, told in NOT_THERE:
        called = targets.same(*arguments)
        assert (called.code, called.out) == (2, "")
        assert called.err == f"handrail {arguments[0]}: {told}\n"


def test_half_an_id_is_enough_if_it_is_one_run_only(targets: CommandTargets):
    run = targets.runs["ended"]
    whole = good(targets.database("show", run))
    assert good(targets.same("show", run[-5:])) == whole
    assert good(targets.same("show", run[:31])) == whole
    called = targets.same("show", run[:4])
    assert called.code == 2
    assert called.err.startswith(f"handrail show: '{run[:4]}' matches 10 runs: ")
    assert called.err.endswith(", …; type more of the id\n")


def test_a_status_that_is_none_is_wrong_usage_and_the_known_ones_are_named(targets: CommandTargets):
    called = targets.database("runs", "--status", "gone")
    assert called.code == 2
    assert "'aborted_stuck'" in called.err


def test_texts_of_agents_and_people_cannot_steer_the_terminal(targets: CommandTargets, tmp_path):
    evil = "\x1b]0;owned\x07 a\u202eb\x9b31m\r\nsecond"
    shown = json.loads(targets.database("bead", "create", "asks", "--title", evil, "--json").out)
    run = shown["execution_id"]
    for arguments in (
        ["runs"],
        ["show", run],
        ["why", run],
        ["report", run],
        ["override", run, "close", "--reason", evil],
        ["show", "--watch", run],
        ["token", "create", "--role", "viewer", "--name", "a\u202eb"],
        ["token", "list"],
        ["show", "\x1b[2J"],
        ["runs", "--workflow", "\x1b[2J"],
        ["runs", "--since", "\x1b[2J"],
        ["bead", "create", "\x1b[2J", "--title", "x"],
    ):
        called = targets.database(*arguments)
        assert not CONTROL.search(called.out + called.err), arguments


def test_looking_changes_nothing(targets: CommandTargets):
    """No clock runs out, nobody is heard of, nothing is committed because somebody looked."""
    targets.served.stop()
    tables = ("journal", "commits", "engines", "agents", "outages", "dispatches")

    def everything() -> list[list[tuple]]:
        return [targets.sample_database.sql(f"SELECT * FROM {table}") for table in tables]

    before = everything()
    for command in ("runs", "answer", "agents", "metrics"):
        good(targets.database(command))
    for run in targets.runs.values():
        assert targets.database("show", run).code == 0
        assert targets.database("why", run).code == 0
    assert everything() == before
    assert run_command("verify", "--database", targets.url).code == 0
