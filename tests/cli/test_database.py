"""`handrail verify`, `doctor` and `db`: what they print, and how they exit."""

import json
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.cli.calling import Called, call
from tests.engine.filled import Filled

from handrail.cli.connection import DATABASE_VARIABLE
from handrail.server.settings import DATABASE_DEFAULT, SETTINGS_BY_NAME
from handrail.store.urls import sqlite_path

pytest_plugins = ["tests.engine.fixtures_filled"]

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


def one_line(called: Called, code: int = 2) -> str:
    """Wrong usage, told in one line and nothing else."""
    assert called.code == code, called
    assert called.out == ""
    (line,) = called.err.splitlines()
    assert line.startswith("handrail ")
    assert "Traceback" not in line
    return line


@pytest.mark.requirement("L16")
def test_verify_says_what_was_checked_and_the_head(filled: Filled):
    called = call("verify", "--database", filled.url)
    ((head,),) = filled.sql("SELECT hash FROM commits ORDER BY n DESC LIMIT 1")
    assert (called.code, called.err) == (0, "")
    first, second, last = called.out.splitlines()
    assert re.fullmatch(r".*work\.db: \d+ commits with \d+ entries, 10 runs", first)
    assert second.startswith(f"head {head.hex()} of 2026-01-03T12:00:0")
    assert last == "unaltered"
    assert call("verify", "--head", head.hex().upper(), "--database", filled.url).code == 0


@pytest.mark.requirement("L16")
def test_verify_names_each_finding_in_one_line(filled: Filled):
    run = filled.runs["ended"]
    filled.sql("UPDATE approvals SET answered_by = ? WHERE execution_id = ?", "eve\x1b[2J\n", run)
    called = call("verify", "--database", filled.url)
    assert called.code == 1
    finding, last = called.out.splitlines()[2:]
    assert finding.startswith(f"row_changed: run {run}: approvals.answered_by of")
    assert "by the events 'ana'" in finding
    assert "\x1b" not in finding
    assert last == "ALTERED: 1 finding"


def test_verify_as_json(filled: Filled):
    good = call("verify", "--json", "--database", filled.url)
    document = json.loads(good.out)
    assert (good.code, document["unaltered"], document["findings"]) == (0, True, [])
    assert document["runs"] == 10
    assert len(document["head"]) == 64
    wrong = call("verify", "--json", "--head", "0" * 64, "--database", filled.url)
    document = json.loads(wrong.out)
    assert (wrong.code, document["unaltered"]) == (1, False)
    (finding,) = document["findings"]
    assert set(finding) == {"code", "stream", "seq", "message"}
    assert finding["code"] == "head_missing"


@pytest.mark.parametrize("head", ["x", "0" * 63, "0" * 65, "zz" * 32])
def test_a_head_that_is_none_is_wrong_usage(filled: Filled, head: str):
    line = one_line(call("verify", "--head", head, "--database", filled.url))
    assert "give the 64 hexadecimal digits" in line


def test_doctor_is_quiet_about_health_and_tells_what_is_wrong(filled: Filled):
    good = call("doctor", "--database", filled.url)
    assert (good.code, good.err) == (0, "")
    assert re.fullmatch(r".*work\.db: \d+ checks, healthy\n", good.out)
    filled.sql("UPDATE workflow_executions SET next_due = NULL WHERE status = 'paused'")
    wrong = call("doctor", "--database", filled.url)
    assert wrong.code == 1
    finding, last = wrong.out.splitlines()
    assert finding.startswith("no_clock: a run goes on without a clock, so it may never end: ")
    assert filled.runs["paused"] in finding
    assert last.endswith("checks, 1 finding")
    document = json.loads(call("doctor", "--json", "--database", filled.url).out)
    assert (document["healthy"], document["findings"][0]["code"]) == (False, "no_clock")


def test_db_shows_sizes(filled: Filled):
    called = call("db", "--database", filled.url)
    assert called.code == 0
    assert re.search(r"work\.db: [\d.]+ kB", called.out)
    assert re.search(r"workflow_executions +10 rows +[\d.]+ kB", called.out)
    document = json.loads(call("db", "--json", "--database", filled.url).out)
    rows = {table["name"]: table["rows"] for table in document["tables"]}
    assert rows["approvals"] == 7


@pytest.mark.parametrize("name", ["old.jsonl", "old.jsonl.gz"])
def test_archive_moves_what_is_old_and_verify_accepts_it(filled: Filled, name: str):
    nothing = call("db", "archive", name, "--older-than", "9000d", "--database", filled.url)
    assert (nothing.code, Path(name).exists()) == (0, False)
    assert nothing.out == "no run ended more than 9000d ago; nothing was archived\n"
    called = call(
        "db", "archive", name, "--older-than", "0", "--by", "ana", "--database", filled.url
    )
    assert called.code == 0
    assert re.fullmatch(
        rf"{re.escape(name)}: 4 runs with \d+ entries archived by ana\n", called.out
    )
    after = call("verify", "--archive", name, "--database", filled.url)
    assert after.code == 0
    assert ", 6 runs, 4 archived" in after.out
    Path(name).write_bytes(Path(name).read_bytes()[:-40])
    cut = call("verify", "--archive", name, "--database", filled.url)
    assert cut.code == 1
    assert "archive_changed: " in cut.out


def test_archive_as_json_names_the_systems_user(filled: Filled, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LOGNAME", "ola")
    called = call("db", "archive", "a", "--json", "--older-than", "0", "--database", filled.url)
    document = json.loads(called.out)
    assert (document["runs"], document["by"], document["file"]) == (4, "ola", "a")


@pytest.mark.parametrize("age", ["soon", "", "-1d", "90000d"])
def test_an_age_that_is_none_is_wrong_usage(filled: Filled, age: str):
    line = one_line(call("db", "archive", "a", "--older-than", age, "--database", filled.url))
    assert "write 30d, 12h or 0" in line


def test_backup_and_restore(filled: Filled):
    backup = call("db", "backup", "copy", "--database", filled.url)
    assert backup.code == 0
    size, head = backup.out.splitlines()
    assert re.fullmatch(r"copy: [\d.]+ kB", size)
    kept = head.split()[1]
    assert call("db", "archive", "a", "--older-than", "0", "--database", filled.url).code == 0
    line = one_line(call("db", "restore", "copy", "--database", filled.url))
    assert "is not empty" in line
    assert line.endswith("back it up, then pass --yes")
    restored = call("db", "restore", "copy", "--yes", "--database", filled.url)
    assert restored.code == 0
    assert restored.out.splitlines()[1] == head
    assert call("verify", "--head", kept, "--database", filled.url).code == 0
    document = json.loads(call("db", "backup", "two", "--json", "--database", filled.url).out)
    assert (document["file"], document["head"]) == ("two", kept)
    document = json.loads(
        call("db", "restore", "two", "--yes", "--json", "--database", filled.url).out
    )
    assert document["head"] == kept


def test_a_backup_is_restored_into_the_folders_own_database(filled: Filled):
    assert call("db", "backup", "copy", "--database", filled.url).code == 0
    assert call("db", "restore", "copy").code == 0
    assert DEFAULT_FILE.is_file()
    assert call("verify").out.splitlines()[0].startswith(f"{DEFAULT_FILE}: ")
    assert call("doctor").code == 0


def test_a_backup_that_is_not_fit_is_wrong_input(filled: Filled):
    shutil.copy(filled.path, "forged")
    with closing(sqlite3.connect("forged")) as db:
        db.execute("UPDATE workflow_transitions SET actor = 'eve'")
        db.commit()
    Path("text").write_text("no database")
    for name, why in (
        ("forged", "does not pass its check"),
        ("text", "no backup of a Handrail database"),
        ("missing", "there is no such file"),
        ("\0", "there is no such file"),
    ):
        line = one_line(call("db", "restore", name, "--yes", "--database", filled.url))
        assert why in line
    assert call("verify", "--database", filled.url).code == 0


@pytest.mark.parametrize("command", ["archive", "backup"])
def test_a_file_that_cannot_be_made_is_wrong_usage(filled: Filled, command: str):
    Path("there").write_text("mine")
    for name, why in (
        ("there", "exists already; name a new file"),
        (".", "names no file"),
        ("", "names no file"),
        ("no/such", "there is no folder no; make it first"),
        ("a\0b", "name another file"),
    ):
        line = one_line(call("db", command, name, "--database", filled.url))
        assert why in line
    assert Path("there").read_text() == "mine"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_database_that_is_not_there_is_wrong_usage(command: list[str], here: Path):
    line = one_line(call(*command))
    assert f"there is no database {DEFAULT_FILE}; `handrail serve` makes one here; else " in line
    assert line.endswith(f"name one with --database or {DATABASE_VARIABLE}")
    for url, why in (
        ("sqlite:///no.db", "there is no database no.db"),
        ("sqlite://", "in memory"),
        ("mysql://x", "'mysql' is no kind of database"),
        ("sqlite:no", "'sqlite' is no kind of database"),
    ):
        assert why in one_line(call(*command, "--database", url))
    Path("text").write_text("no database")
    assert "name a Handrail database" in one_line(call(*command, "--database", "sqlite:///text"))
    assert sorted(path.name for path in here.iterdir()) == ["text"]


def test_the_environment_names_the_database(filled: Filled, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(DATABASE_VARIABLE, filled.url)
    assert call("verify").code == 0
    assert call("db", "backup", "copy").code == 0
    monkeypatch.setenv(DATABASE_VARIABLE, "sqlite:///no.db")
    assert call("verify", "--database", filled.url).code == 0


def test_the_database_may_be_named_before_the_command(filled: Filled):
    """It must not be another one than the user thinks."""
    assert call("db", "--database", filled.url, "backup", "copy").code == 0
    assert "there is no database no.db" in one_line(
        call("db", "--database", "sqlite:///no.db", "backup", "other")
    )


def test_a_damaged_database_fails_its_check_in_one_line(filled: Filled):
    whole = filled.path.read_bytes()
    assert call("db", "backup", "copy", "--database", filled.url).code == 0
    ((root,),) = filled.sql("SELECT rootpage FROM sqlite_master WHERE name = 'journal'")
    page = slice((root - 1) * 4096, root * 4096)
    filled.path.write_bytes(whole[: page.start] + b"\xff" * 4096 + whole[page.stop :])
    for command in (["verify"], ["doctor"], ["db", "archive", "a", "--older-than", "0"]):
        line = one_line(call(*command, "--database", filled.url), 1)
        assert line.endswith("restore a backup with `handrail db restore FILE`")
    assert call("db", "restore", "copy", "--yes", "--database", filled.url).code == 0
    assert call("verify", "--database", filled.url).code == 0
    filled.path.write_bytes(whole[:20_000])
    line = one_line(call("db", "restore", "copy", "--yes", "--database", filled.url))
    assert line.endswith("move it away, and restore again")


def test_the_variable_is_that_of_the_setting():
    assert SETTINGS_BY_NAME["database"].variable == DATABASE_VARIABLE
