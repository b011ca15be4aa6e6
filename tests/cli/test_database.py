"""`handrail verify`, `doctor` and `db`: what they print, and how they exit."""

import json
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.cli.command_line import CommandResult, run_command
from tests.engine.sample_database import SampleDatabase

from handrail.cli.connection import DATABASE_VARIABLE
from handrail.server.settings import DATABASE_DEFAULT, SETTINGS_BY_NAME
from handrail.store.urls import sqlite_path

pytest_plugins = ["tests.engine.fixtures_sample_database"]

DEFAULT_FILE = Path(sqlite_path(DATABASE_DEFAULT))
COMMANDS = (
    ["verify"],
    ["doctor"],
    ["db"],
    ["db", "archive", "FILE"],
    ["db", "backup", "FILE"],
)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nobody's folder, and nobody's database."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.delenv(DATABASE_VARIABLE, raising=False)
    return folder


def one_line(called: CommandResult, code: int = 2) -> str:
    """Wrong usage, told in one line and nothing else."""
    assert called.code == code, called
    assert called.out == ""
    (line,) = called.err.splitlines()
    assert line.startswith("handrail ")
    assert "Traceback" not in line
    return line


@pytest.mark.requirement("L16")
def test_verify_says_what_was_checked_and_the_head(sample_database: SampleDatabase):
    called = run_command("verify", "--database", sample_database.url)
    ((head,),) = sample_database.sql("SELECT hash FROM commits ORDER BY n DESC LIMIT 1")
    assert (called.code, called.err) == (0, "")
    first, second, last = called.out.splitlines()
    assert re.fullmatch(r".*work\.db: \d+ commits with \d+ entries, 10 runs", first)
    assert second.startswith(f"head {head.hex()} of 2026-01-03T12:00:0")
    assert last == "unaltered"
    assert (
        run_command("verify", "--head", head.hex().upper(), "--database", sample_database.url).code
        == 0
    )


@pytest.mark.requirement("L16")
def test_verify_names_each_finding_in_one_line(sample_database: SampleDatabase):
    run = sample_database.runs["ended"]
    sample_database.sql(
        "UPDATE approvals SET answered_by = ? WHERE execution_id = ?", "eve\x1b[2J\n", run
    )
    called = run_command("verify", "--database", sample_database.url)
    assert called.code == 1
    finding, last = called.out.splitlines()[2:]
    assert finding.startswith(f"row_changed: run {run}: approvals.answered_by of")
    assert "by the events 'ana'" in finding
    assert "\x1b" not in finding
    assert last == "ALTERED: 1 finding"


def test_verify_as_json(sample_database: SampleDatabase):
    good = run_command("verify", "--json", "--database", sample_database.url)
    document = json.loads(good.out)
    assert (good.code, document["unaltered"], document["findings"]) == (0, True, [])
    assert document["runs"] == 10
    assert len(document["head"]) == 64
    wrong = run_command("verify", "--json", "--head", "0" * 64, "--database", sample_database.url)
    document = json.loads(wrong.out)
    assert (wrong.code, document["unaltered"]) == (1, False)
    (finding,) = document["findings"]
    assert set(finding) == {"code", "stream", "seq", "message"}
    assert finding["code"] == "head_missing"


@pytest.mark.parametrize("head", ["x", "0" * 63, "0" * 65, "zz" * 32])
def test_a_head_that_is_none_is_wrong_usage(sample_database: SampleDatabase, head: str):
    line = one_line(run_command("verify", "--head", head, "--database", sample_database.url))
    assert "give the 64 hexadecimal digits" in line


def test_doctor_is_quiet_about_health_and_tells_what_is_wrong(sample_database: SampleDatabase):
    good = run_command("doctor", "--database", sample_database.url)
    assert (good.code, good.err) == (0, "")
    assert re.fullmatch(r".*work\.db: \d+ checks, healthy\n", good.out)
    sample_database.sql("UPDATE workflow_executions SET next_due = NULL WHERE status = 'paused'")
    wrong = run_command("doctor", "--database", sample_database.url)
    assert wrong.code == 1
    finding, last = wrong.out.splitlines()
    assert finding.startswith("no_clock: an active run has no deadline, so it may never end: ")
    assert sample_database.runs["paused"] in finding
    assert last.endswith("checks, 1 finding")
    document = json.loads(run_command("doctor", "--json", "--database", sample_database.url).out)
    assert (document["healthy"], document["findings"][0]["code"]) == (False, "no_clock")


def test_db_shows_sizes(sample_database: SampleDatabase):
    called = run_command("db", "--database", sample_database.url)
    assert called.code == 0
    assert re.search(r"work\.db: [\d.]+ kB", called.out)
    assert re.search(r"workflow_executions +10 rows +[\d.]+ kB", called.out)
    document = json.loads(run_command("db", "--json", "--database", sample_database.url).out)
    rows = {table["name"]: table["rows"] for table in document["tables"]}
    assert rows["approvals"] == 7


@pytest.mark.parametrize("name", ["old.jsonl", "old.jsonl.gz"])
def test_archive_moves_what_is_old_and_verify_accepts_it(
    sample_database: SampleDatabase, name: str
):
    nothing = run_command(
        "db", "archive", name, "--older-than", "9000d", "--database", sample_database.url
    )
    assert (nothing.code, Path(name).exists()) == (0, False)
    assert nothing.out == "no run ended more than 9000d ago; nothing was archived\n"
    called = run_command(
        "db", "archive", name, "--older-than", "0", "--by", "ana", "--database", sample_database.url
    )
    assert called.code == 0
    assert re.fullmatch(
        rf"{re.escape(name)}: 4 runs with \d+ entries archived by ana\n", called.out
    )
    after = run_command("verify", "--archive", name, "--database", sample_database.url)
    assert after.code == 0
    assert ", 6 runs, 4 archived" in after.out
    Path(name).write_bytes(Path(name).read_bytes()[:-40])
    cut = run_command("verify", "--archive", name, "--database", sample_database.url)
    assert cut.code == 1
    assert "archive_changed: " in cut.out


def test_archive_as_json_names_the_systems_user(
    sample_database: SampleDatabase, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("LOGNAME", "ola")
    called = run_command(
        "db", "archive", "a", "--json", "--older-than", "0", "--database", sample_database.url
    )
    document = json.loads(called.out)
    assert (document["runs"], document["by"], document["file"]) == (4, "ola", "a")


@pytest.mark.parametrize("age", ["soon", "", "-1d", "90000d"])
def test_an_age_that_is_none_is_wrong_usage(sample_database: SampleDatabase, age: str):
    line = one_line(
        run_command("db", "archive", "a", "--older-than", age, "--database", sample_database.url)
    )
    assert "write 30d, 12h or 0" in line


def test_backup_and_restore(sample_database: SampleDatabase):
    backup = run_command("db", "backup", "copy", "--database", sample_database.url)
    assert backup.code == 0
    size, head = backup.out.splitlines()
    assert re.fullmatch(r"copy: [\d.]+ kB", size)
    kept = head.split()[1]
    assert (
        run_command(
            "db", "archive", "a", "--older-than", "0", "--database", sample_database.url
        ).code
        == 0
    )
    line = one_line(run_command("db", "restore", "copy", "--database", sample_database.url))
    assert "is not empty" in line
    assert line.endswith("back it up, then pass --yes")
    restored = run_command("db", "restore", "copy", "--yes", "--database", sample_database.url)
    assert restored.code == 0
    assert restored.out.splitlines()[1] == head
    assert run_command("verify", "--head", kept, "--database", sample_database.url).code == 0
    document = json.loads(
        run_command("db", "backup", "two", "--json", "--database", sample_database.url).out
    )
    assert (document["file"], document["head"]) == ("two", kept)
    document = json.loads(
        run_command(
            "db", "restore", "two", "--yes", "--json", "--database", sample_database.url
        ).out
    )
    assert document["head"] == kept


def test_a_backup_is_restored_into_the_folders_own_database(sample_database: SampleDatabase):
    assert run_command("db", "backup", "copy", "--database", sample_database.url).code == 0
    assert run_command("db", "restore", "copy").code == 0
    assert DEFAULT_FILE.is_file()
    assert run_command("verify").out.splitlines()[0].startswith(f"{DEFAULT_FILE}: ")
    assert run_command("doctor").code == 0


def test_a_backup_that_is_not_fit_is_wrong_input(sample_database: SampleDatabase):
    shutil.copy(sample_database.path, "forged")
    with closing(sqlite3.connect("forged")) as db:
        db.execute("UPDATE workflow_transitions SET actor = 'eve'")
        db.commit()
    Path("text").write_text("no database")
    for name, why in (
        ("forged", "does not pass its check"),
        ("text", "not a backup of a Handrail database"),
        ("missing", "there is no such file"),
        ("\0", "there is no such file"),
    ):
        line = one_line(
            run_command("db", "restore", name, "--yes", "--database", sample_database.url)
        )
        assert why in line
    assert run_command("verify", "--database", sample_database.url).code == 0


@pytest.mark.parametrize("command", ["archive", "backup"])
def test_a_file_that_cannot_be_made_is_wrong_usage(sample_database: SampleDatabase, command: str):
    Path("there").write_text("mine")
    for name, why in (
        ("there", "exists already; name a new file"),
        (".", "is not a file name"),
        ("", "is not a file name"),
        ("no/such", "there is no folder no; make it first"),
        ("a\0b", "name another file"),
    ):
        line = one_line(run_command("db", command, name, "--database", sample_database.url))
        assert why in line
    assert Path("there").read_text() == "mine"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_database_that_is_not_there_is_wrong_usage(command: list[str], here: Path):
    line = one_line(run_command(*command))
    assert f"there is no database {DEFAULT_FILE}; `handrail serve` makes one here; else " in line
    assert line.endswith(f"name one with --database or {DATABASE_VARIABLE}")
    for url, why in (
        ("sqlite:///no.db", "there is no database no.db"),
        ("sqlite://", "in memory"),
        ("mysql://x", "'mysql' is not a database that Handrail supports"),
        ("sqlite:no", "'sqlite' is not a database that Handrail supports"),
    ):
        assert why in one_line(run_command(*command, "--database", url))
    Path("text").write_text("no database")
    assert "name a Handrail database" in one_line(
        run_command(*command, "--database", "sqlite:///text")
    )
    assert sorted(path.name for path in here.iterdir()) == ["text"]


def test_the_environment_names_the_database(
    sample_database: SampleDatabase, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(DATABASE_VARIABLE, sample_database.url)
    assert run_command("verify").code == 0
    assert run_command("db", "backup", "copy").code == 0
    monkeypatch.setenv(DATABASE_VARIABLE, "sqlite:///no.db")
    assert run_command("verify", "--database", sample_database.url).code == 0


def test_the_database_may_be_named_before_the_command(sample_database: SampleDatabase):
    """It must not be another one than the user thinks."""
    assert run_command("db", "--database", sample_database.url, "backup", "copy").code == 0
    assert "there is no database no.db" in one_line(
        run_command("db", "--database", "sqlite:///no.db", "backup", "other")
    )


def test_a_damaged_database_fails_its_check_in_one_line(sample_database: SampleDatabase):
    whole = sample_database.path.read_bytes()
    assert run_command("db", "backup", "copy", "--database", sample_database.url).code == 0
    ((root,),) = sample_database.sql("SELECT rootpage FROM sqlite_master WHERE name = 'journal'")
    page = slice((root - 1) * 4096, root * 4096)
    sample_database.path.write_bytes(whole[: page.start] + b"\xff" * 4096 + whole[page.stop :])
    for command in (["verify"], ["doctor"], ["db", "archive", "a", "--older-than", "0"]):
        line = one_line(run_command(*command, "--database", sample_database.url), 1)
        assert line.endswith("restore a backup with `handrail db restore FILE`")
    assert (
        run_command("db", "restore", "copy", "--yes", "--database", sample_database.url).code == 0
    )
    assert run_command("verify", "--database", sample_database.url).code == 0
    sample_database.path.write_bytes(whole[:20_000])
    line = one_line(
        run_command("db", "restore", "copy", "--yes", "--database", sample_database.url)
    )
    assert line.endswith("move it away, and restore again")


def test_the_variable_is_that_of_the_setting():
    assert SETTINGS_BY_NAME["database"].variable == DATABASE_VARIABLE
