"""`handrail run coding`: in the current folder, with its report left there."""

import json
from pathlib import Path

import pytest
from tests.cli.command_line import run_command

from handrail.teams.coding.workspaces import load_sample_files, write_sample


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_sample(tmp_path, ("misspelt-name",))
    return tmp_path


@pytest.mark.requirement("S11")
def test_it_mends_what_is_in_the_current_folder_and_leaves_its_report(here: Path) -> None:
    called = run_command("run", "coding", "--context", json.dumps({"folder": str(here)}))
    assert called.code == 0, called.out
    assert (here / "shop/words.py").read_text() == load_sample_files()["shop/words.py"]
    left = sorted(path.suffix for path in (here / ".handrail/runs").iterdir())
    assert left == ["", ".json", ".md"]
    assert not (here / ".handrail/issues.md").exists()


@pytest.mark.requirement("S12")
def test_an_aborted_run_leaves_an_entry(here: Path) -> None:
    called = run_command("run", "coding", "--context", '{"demo": "same_error"}')
    assert called.code == 1
    assert (here / ".handrail/issues.md").read_text().startswith("## aborted_stuck: same_error in ")


def test_nothing_is_left_where_nothing_is_wanted(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HANDRAIL_RUNS_FOLDER", "-")
    monkeypatch.setenv("HANDRAIL_ISSUES_FILE", "-")
    assert run_command("run", "coding", "--context", '{"demo": "same_error"}').code == 1
    assert not (here / ".handrail").exists()


def test_a_folder_elsewhere_needs_the_setting(
    here: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path_factory.mktemp("other")
    write_sample(other, ("misspelt-name",))
    context = json.dumps({"folder": str(other)})
    called = run_command("run", "coding", "--context", context)
    assert called.code == 1
    assert "add it to the setting `workspaces`" in called.out
    monkeypatch.setenv("HANDRAIL_WORKSPACES", str(other))
    assert run_command("run", "coding", "--context", context).code == 0
