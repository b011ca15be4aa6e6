"""The wheel without extras, in an environment that has nothing else."""

import os
import subprocess
import sys
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest

from handrail.cli import SERVER_PACKAGES

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
GUARDED = """
import handrail
with handrail.Guard(record="sqlite:///guarded.db").run("pipeline") as run:
    run.handoff("planner", "coder")
assert run.recorded and not run.unrecorded
"""


@pytest.fixture(scope="module")
def small_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An interpreter that finds msgspec and this source, and none of our other packages."""
    import msgspec

    folder = tmp_path_factory.mktemp("small")
    (folder / "msgspec").symlink_to(Path(msgspec.__file__).parent)
    executable = getattr(sys, "_base_executable", sys.executable)
    launcher = folder / "python"
    launcher.write_text(f'#!/bin/sh\nPYTHONPATH="{folder}:{SOURCE}" exec "{executable}" -S "$@"\n')
    launcher.chmod(0o755)
    return str(launcher)


def run_small(python: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, *arguments],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_guard_with_a_record_needs_msgspec_alone(small_python: str, tmp_path: Path):
    done = run_small(small_python, tmp_path, "-c", GUARDED)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_hook_needs_msgspec_alone(small_python: str, tmp_path: Path):
    done = run_small(small_python, tmp_path, "-m", "handrail", "hook", "--help")
    assert done.returncode == 0, done.stderr


def test_a_command_of_the_server_says_the_line_that_installs_it(small_python: str, tmp_path: Path):
    done = run_small(small_python, tmp_path, "-m", "handrail", "serve")
    assert done.returncode == 2
    assert "uv tool install --force '.[server]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_extra_server_is_what_the_commands_look_for():
    needed = {
        requirement.partition(";")[0].strip().split("[")[0].split(">")[0].split("<")[0]
        for requirement in requires("handrail") or ()
        if "extra == 'server'" in requirement or 'extra == "server"' in requirement
    }
    distributions = packages_distributions()
    found = {
        name.lower().replace("_", "-")
        for package in SERVER_PACKAGES
        for name in distributions[package]
    }
    assert needed == found
    plain = [line for line in requires("handrail") or () if "extra ==" not in line]
    assert [line.split(">")[0] for line in plain] == ["msgspec"]
