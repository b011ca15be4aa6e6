"""`handrail settings`: each setting with its value, and where that came from."""

import json
from pathlib import Path

import pytest
from tests.cli.command_line import run_command

from handrail.server.settings import SETTINGS

pytest_plugins = ["tests.cli.fixtures_command_targets"]


@pytest.fixture(autouse=True)
def _here(here: Path) -> None:
    """Nobody's folder."""


def shown(*arguments: str) -> dict[str, list[str]]:
    called = run_command("settings", *arguments)
    assert (called.code, called.err) == (0, "")
    heads, *rows = called.out.splitlines()
    assert heads.split()[:3] == ["setting", "value", "from"]
    return {row.split()[0]: row.split()[1:] for row in rows}


def test_every_setting_is_listed_with_its_value_and_origin(
    here: Path, monkeypatch: pytest.MonkeyPatch
):
    (here / "handrail.toml").write_text("lease = 90\nnode_timeout = '45m'\n")
    monkeypatch.setenv("HANDRAIL_PORT", "99")
    rows = shown("--database", "sqlite:///a.db")
    assert list(rows) == [row.name for row in SETTINGS]
    assert rows["lease"][:2] == ["1m30s", "handrail.toml"]
    assert rows["node_timeout"][:2] == ["45m", "handrail.toml"]
    assert rows["port"][:2] == ["99", "HANDRAIL_PORT"]
    assert rows["database"][:2] == ["sqlite:///a.db", "--database"]
    assert rows["heartbeat"][:2] == ["15s", "default"]


def test_settings_as_json_have_unit_and_default_too(here: Path):
    (here / "handrail.toml").write_text("lease = '90s'\n")
    items = {one["name"]: one for one in json.loads(run_command("settings", "--json").out)["items"]}
    assert items["lease"] == {
        "name": "lease",
        "value": 90,
        "origin": "handrail.toml",
        "default": 60,
        "unit": "seconds",
        "help": "An agent silent for so long loses what it has claimed.",
    }


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_password_is_not_shown(form: list[str]):
    out = run_command("settings", "--database", "postgresql://ana:secret@host/db", *form).out
    assert "secret" not in out
    assert "postgresql://ana:***@host/db" in out


def test_a_wrong_setting_is_one_line_and_exit_code_2(here: Path):
    (here / "handrail.toml").write_text("lease = 'soon'\n")
    called = run_command("settings")
    assert (called.code, called.out) == (2, "")
    told = "handrail.toml: lease is 'soon'; give seconds, or a duration such as 10m"
    assert called.err == f"handrail settings: {told}\n"


def test_a_variable_that_was_meant_as_a_setting_is_pointed_out(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HANDRAIL_LEESE", "3")
    called = run_command("settings")
    assert called.code == 0
    assert called.err == "HANDRAIL_LEESE is not a setting; did you mean HANDRAIL_LEASE?\n"
