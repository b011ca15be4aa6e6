"""`handrail init`: what it writes is valid, runs, and passes its own test at once."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.command_line import run_command

FILES = ("notes.yaml", "agents.py", "test_notes.py", "pytest.ini")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    called = run_command("init", str(tmp_path / "mine"))
    assert (called.code, called.err) == (0, "")
    return tmp_path / "mine"


def test_it_writes_a_definition_an_agent_module_and_a_test(folder: Path):
    assert sorted(one.name for one in folder.iterdir()) == sorted(FILES)
    assert run_command("check", str(folder / "notes.yaml")).code == 0


def test_the_test_passes_at_once(folder: Path):
    plain = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", folder.name]
    done = subprocess.run(command, cwd=folder.parent, env=plain, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_the_definition_can_be_rehearsed_at_once(folder: Path, tmp_path: Path):
    (tmp_path / "answers").write_text("OK\n")
    answers = str(tmp_path / "answers")
    assert run_command("run", str(folder / "notes.yaml"), "--answers", answers).code == 0


def test_it_never_writes_over_what_is_there(folder: Path):
    (folder / "agents.py").write_text("mine")
    (folder / "notes.yaml").unlink()
    called = run_command("init", str(folder))
    assert called.code == 2
    assert called.err.startswith(
        "handrail init: agents.py, test_notes.py, pytest.ini already exist in "
    )
    assert (folder / "agents.py").read_text() == "mine"
    assert not (folder / "notes.yaml").exists()
