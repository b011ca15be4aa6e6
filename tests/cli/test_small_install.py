"""The wheel without extras, in an environment that has nothing else."""

import json
import os
import re
import subprocess
import sys
import tarfile
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest
from benchmarks import install_size
from tests.cli.command_line import run_command
from typer.main import get_command

from handrail.cli import SERVER_PACKAGES
from handrail.cli.app import app

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
GUARDED = """
import handrail
with handrail.Guard(record="sqlite:///guarded.db").run("pipeline") as run:
    run.handoff("planner", "coder")
assert run.recorded and not run.unrecorded
"""
TEAM = """
from handrail.guard.plain import agent

@agent("planner")
def plan(): ...

@agent("coder")
def code(): ...

def rounds(task):
    for _ in range(10):
        plan()
        code()
    return f"did {task}"
"""
RUN = {
    "id": "run 1",
    "success": False,
    "messages": [
        message
        for number in range(9)
        for message in (
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [
                    {
                        "id": f"call {number}",
                        "type": "function",
                        "function": {"name": "search", "arguments": "{}"},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": f"call {number}", "content": "nothing found"},
        )
    ],
}
PAYLOAD = {
    "session_id": "s1",
    "hook_event_name": "PreToolUse",
    "tool_name": "Bash",
    "tool_input": {"command": "ls"},
    "cwd": "/",
    "transcript_path": "/t",
    "permission_mode": "default",
    "tool_use_id": "u1",
}
DECLARED = """
from importlib import import_module
import json
from handrail.cli.small_install import COMMANDS, make_parser
print(json.dumps({
    name: sorted(
        [action.dest, *action.option_strings]
        for action in make_parser(getattr(import_module("handrail.cli." + name), name))._actions
        if action.dest != "help"
    )
    for name in COMMANDS
}))
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


def run_small(
    python: str | Path, folder: Path, *arguments: str, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, *arguments],
        cwd=folder,
        input=stdin,
        env={"PATH": os.environ["PATH"], "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_guard_with_a_record_needs_msgspec_alone(small_python: str, tmp_path: Path):
    done = run_small(small_python, tmp_path, "-c", GUARDED)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture
def team(tmp_path: Path) -> Path:
    (tmp_path / "team.py").write_text(TEAM)
    (tmp_path / "runs.jsonl").write_text(json.dumps(RUN))
    return tmp_path


def test_the_wheel_brings_msgspec_alone_and_runs_guard_hook_and_replay(team: Path):
    wheel = install_size.build("wheel", team / "dist")
    installed = install_size.install(wheel, team / "environment")
    assert installed.packages == ["handrail", "msgspec"]
    assert installed.megabytes < 10
    python, folder = installed.python, team
    arguments = ("team:rounds", "--input", "it", "--rules", "strict")
    dry = run_small(python, folder, "-m", "handrail", "guard", *arguments, "--dry-run")
    assert (dry.returncode, dry.stdout) == (0, "did it\n"), dry.stderr
    assert "dry run: would have stopped at step 6, repeated_pattern" in dry.stderr
    stopped = run_small(python, folder, "-m", "handrail", "guard", *arguments, "--json")
    assert stopped.returncode == 1, stopped.stderr
    assert json.loads(stopped.stdout)["report"]["stop"]["rule"] == "repeated_pattern"
    state = str(folder / "state")
    hook = run_small(
        python, folder, "-m", "handrail", "hook", "--state", state, stdin=json.dumps(PAYLOAD)
    )
    assert (hook.returncode, hook.stderr) == (0, "")
    replayed = run_small(python, folder, "-m", "handrail", "replay", "--traces", "runs.jsonl")
    assert replayed.returncode == 0, replayed.stderr
    assert "stopped at 3 of 9: no_change" in replayed.stdout


def test_the_source_distribution_has_neither_images_nor_tests_nor_benchmarks(tmp_path: Path):
    with tarfile.open(install_size.build("sdist", tmp_path)) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    assert "src/handrail/cli/guard.py" in names
    assert not [name for name in names if re.match(r"(tests|benchmarks|docs)/", name)]
    assert not [name for name in names if name.endswith((".png", ".jpg", ".gif", ".webp"))]


def test_replay_of_traces_prints_the_same_as_with_every_package(
    small_python: str, team: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(team)
    for arguments in (("--json",), ()):
        command = ("replay", "--traces", "runs.jsonl", *arguments)
        small = run_small(small_python, team, "-m", "handrail", *command)
        assert small.stdout == run_command(*command).out


def test_commands_take_the_same_options_as_with_every_package(small_python: str, tmp_path: Path):
    done = run_small(small_python, tmp_path, "-c", DECLARED)
    assert done.returncode == 0, done.stderr
    commands = getattr(get_command(app), "commands", {})
    for name, declared in json.loads(done.stdout).items():
        assert declared == sorted(
            [parameter.name, *(parameter.opts if parameter.param_type_name == "option" else ())]
            for parameter in commands[name].params
        )


@pytest.mark.parametrize(
    ("arguments", "package"),
    [
        (("guard", "team:rounds", "--server", "http://127.0.0.1:1"), "httpx"),
        (("guard", "team:rounds", "--database", "postgresql://127.0.0.1/x"), "psycopg"),
        (("guard", "team:rounds", "--rules", "rules.yaml"), "yaml"),
    ],
)
def test_what_needs_a_package_of_the_server_says_the_line_that_installs_it(
    small_python: str, team: Path, arguments: tuple[str, ...], package: str
):
    (team / "rules.yaml").write_text("max_handoffs: 3")
    done = run_small(small_python, team, "-m", "handrail", *arguments)
    assert done.returncode == 2
    assert f"'{package}'" in done.stderr
    assert "uv tool install --force '.[server]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_key_that_stands_twice_in_json_is_named_without_a_reader_of_yaml(
    small_python: str, team: Path
):
    (team / "rules.json").write_text('{"max_steps": 3, "max_steps": 4}')
    rules = ("--rules", "rules.json")
    done = run_small(small_python, team, "-m", "handrail", "guard", "team:rounds", *rules)
    assert done.returncode == 2
    assert "the key 'max_steps' occurs twice" in done.stderr


def test_wrong_usage_is_one_line(small_python: str, tmp_path: Path):
    done = run_small(small_python, tmp_path, "-m", "handrail", "replay", "--format", "none")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.endswith("see 'handrail replay --help'")


def test_help_names_what_there_is_and_how_to_install_the_rest(small_python: str, tmp_path: Path):
    done = run_small(small_python, tmp_path, "-m", "handrail", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "replay --traces" in done.stdout
    assert "uv tool install --force '.[server]'" in done.stdout


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
