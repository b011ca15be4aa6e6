"""Settings: one table, three places a value may come from, and what is said of a wrong one."""

import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
from msgspec import structs

from handrail.engine.settings import EngineSettings
from handrail.kernel.channel.state import TurnConfig
from handrail.kernel.definition.model import Settings
from handrail.kernel.lock import STALE_SECONDS
from handrail.server.settings import (
    CONFIG_FILE,
    PARTS,
    SETTINGS,
    SETTINGS_BY_NAME,
    BadSettingError,
    Configuration,
    LogLevel,
    ServerSettings,
    find_misspelled_variables,
    format_setting,
    load_configuration,
    parse_setting,
)


def settled(
    folder: Path, text: str = "", flags: dict[str, object] | None = None, **variables: str
) -> Configuration:
    if text:
        (folder / CONFIG_FILE).write_text(text)
    return load_configuration(variables, folder, flags)


def wrong(folder: Path, text: str = "", **variables: str) -> str:
    with pytest.raises(BadSettingError) as caught:
        settled(folder, text, None, **variables)
    (line,) = str(caught.value).splitlines()
    return line


def test_the_table_has_every_setting_of_every_part_and_no_other():
    for part, kind in PARTS.items():
        fields = {field.name for field in structs.fields(kind)} - {"kernel", "origins"}
        assert {row.name for row in SETTINGS if row.part == part} == fields
    assert len(SETTINGS_BY_NAME) == len(SETTINGS)
    assert all(row.help.endswith(".") or row.help.endswith("…") for row in SETTINGS)


def test_without_a_file_and_variables_everything_is_as_the_parts_say(tmp_path: Path):
    found = settled(tmp_path)
    own = EngineSettings(runs_folder=".handrail/runs", issues_file=".handrail/issues.md")
    assert found.engine == own  # embedded, an engine writes no files unless it is told to
    assert found.engine.kernel == Settings()
    assert found.server == ServerSettings()
    assert {given.origin for given in found.values.values()} == {"default"}


def test_the_defaults_are_those_that_are_promised(tmp_path: Path):
    found = settled(tmp_path)
    promised = {
        "role_grace": 60,
        "heartbeat": 15,
        "offline_after": 60,
        "lease": 60,
        "node_timeout": 30 * 60,
        "queue_timeout": 24 * 3600,
        "human_deadline": 7 * 86400,
        "pause_deadline": 30 * 86400,
        "dispatch_bound_max": 1_000_000,
        "turn_timeout": TurnConfig().default_timeout_seconds,
        "wait_timeout": TurnConfig().wait_timeout_seconds,
        "commit_lock_stale": STALE_SECONDS,
        "idempotency_keep": 24 * 3600,
        "wait_max": 60,
    }
    assert {name: found[name] for name in promised} == promised
    assert (promised["turn_timeout"], promised["wait_timeout"], STALE_SECONDS) == (60, 300, 300)


def test_a_flag_counts_before_a_variable_and_a_variable_before_the_file(tmp_path: Path):
    text = 'lease = "2m"\nheartbeat = 10\nport = 1\nroles = ["support", "lawyer"]\npage = false\n'
    found = settled(tmp_path, text, {"port": 3, "host": None}, HANDRAIL_PORT="2", HANDRAIL_LEASE="")
    assert (found["port"], found.values["port"].origin) == (3, "--port")
    assert (found["lease"], found.values["lease"].origin) == (120, CONFIG_FILE)
    assert found.values["host"].origin == "default"
    assert found.engine.kernel.roles == ("support", "lawyer")
    assert found.engine.heartbeat == 10
    assert found.server.page is False
    found = settled(tmp_path, HANDRAIL_PORT="2", HANDRAIL_ROLES="a, b", HANDRAIL_PAGE="Yes")
    assert (found["port"], found.values["port"].origin) == (2, "HANDRAIL_PORT")
    assert (found["roles"], found["page"]) == (("a", "b"), True)


@pytest.mark.parametrize(
    ("given", "seconds"), [("90", 90), ("10m", 600), ("1h30m", 5400), (2.5, 2.5), (7, 7)]
)
def test_durations_are_seconds_or_say_their_units(given: object, seconds: float):
    assert parse_setting(SETTINGS_BY_NAME["lease"], given) == seconds


@pytest.mark.parametrize("row", SETTINGS, ids=lambda row: row.name)
def test_what_is_shown_can_be_written_in_the_file(row):
    if row.default not in ("", ()):
        assert parse_setting(row, format_setting(row, row.default)) == row.default


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (0.5, "0.5s"), (60, "1m"), (90, "1m30s"), (5400, "1h30m"), (86400, "1d")],
)
def test_a_duration_is_shown_in_the_fewest_units(seconds: float, text: str):
    assert format_setting(SETTINGS_BY_NAME["drain"], seconds) == text


DURATION = "give seconds, or a duration such as 10m"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("lease = 'soon'", f"{CONFIG_FILE}: lease is 'soon'; {DURATION}"),
        ("lease = 0", f"{CONFIG_FILE}: lease is '0'; {DURATION}, from 1s to 3650d"),
        ("lease = true", f"{CONFIG_FILE}: lease is 'True'; {DURATION}"),
        ("lease = nan", f"{CONFIG_FILE}: lease is 'nan'; {DURATION}, from 1s to 3650d"),
        ("drain = -1", f"{CONFIG_FILE}: drain is '-1'; {DURATION}, from 0s to 3650d"),
        (
            "port = 70000",
            f"{CONFIG_FILE}: port is '70000'; give the number of a port, from 0 to 65535",
        ),
        ("port = 80.5", f"{CONFIG_FILE}: port is '80.5'; give the number of a port"),
        (
            "log_level = 'loud'",
            f"{CONFIG_FILE}: log_level is 'loud'; give one of {', '.join(get_args(LogLevel))}",
        ),
        ("page = 3", f"{CONFIG_FILE}: page is '3'; give yes or no"),
        (
            "roles = [1]",
            f"{CONFIG_FILE}: roles is '[1]'; give names, in a list or with commas between",
        ),
        ("host = ['a']", f"{CONFIG_FILE}: host is \"['a']\"; give a line of text"),
        ("leese = 3", f"{CONFIG_FILE}: there is no setting 'leese'; did you mean 'lease'?"),
        (
            "[zz]\na=1",
            f"{CONFIG_FILE}: there is no setting 'zz'; `handrail settings` lists them all",
        ),
    ],
)
def test_a_wrong_line_of_the_file_is_named_with_what_to_write(tmp_path: Path, text: str, told: str):
    assert wrong(tmp_path, text) == told


def test_a_wrong_variable_is_named_with_what_to_write(tmp_path: Path):
    told = f"HANDRAIL_LEASE is 'x'; {DURATION}"
    assert wrong(tmp_path, HANDRAIL_LEASE="x") == told
    assert wrong(tmp_path, HANDRAIL_WAITING_MAX="1e3").endswith("; give a whole number")


def test_a_file_that_cannot_be_read_is_told_in_one_line(tmp_path: Path):
    assert wrong(tmp_path, "lease = ").startswith(f"{CONFIG_FILE} is not valid TOML: ")
    (tmp_path / CONFIG_FILE).write_bytes(b"\xff")
    assert wrong(tmp_path).startswith(f"{CONFIG_FILE} is not valid TOML: ")
    (tmp_path / CONFIG_FILE).unlink()
    (tmp_path / CONFIG_FILE).mkdir()
    assert wrong(tmp_path) == f"{CONFIG_FILE} cannot be read: Is a directory; make it readable"


def test_a_heartbeat_has_to_come_before_the_lease_is_over(tmp_path: Path):
    assert wrong(tmp_path, "heartbeat = 60") == (
        "heartbeat is 60 s and lease is 60 s; agents would count as lost between two heartbeats; "
        "make heartbeat shorter"
    )
    assert "offline_after is 5 s" in wrong(tmp_path, "heartbeat = 9\noffline_after = 5")


def test_a_variable_that_looks_like_a_setting_is_pointed_out():
    environment = {"HANDRAIL_LEESE": "1", "HANDRAIL_TOKEN": "x", "HANDRAIL_PORT": "1", "LEASE": ""}
    (line,) = find_misspelled_variables(environment)
    assert line == "HANDRAIL_LEESE is not a setting; did you mean HANDRAIL_LEASE?"


def test_the_table_imports_nothing_heavy():
    code = "import sys, handrail.server.settings; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"litestar", "uvicorn", "httpx", "sqlite3", "psycopg", "asyncio", "rich", "structlog"}
    assert not heavy & set(done.stdout.split())
