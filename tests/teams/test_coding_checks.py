"""Which commands check a coding run, and what is read of what they say."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from handrail.agents.commands import CommandLimits
from handrail.kernel.definition.limits import Constraints
from handrail.kernel.result import Check, Evidence
from handrail.kernel.stop.error_signature import error_signature
from handrail.teams.coding.checks import (
    CHECK_VARIABLES,
    PYTEST_COMMAND,
    UNITTEST_COMMAND,
    external_cause,
    find_checks,
    run_checks,
)
from handrail.teams.coding.failures import failing_tests, parse_tracebacks
from handrail.teams.coding.workspace import NotAllowedError, Workspace
from handrail.teams.coding.workspaces import write_sample

FAST = CommandLimits(seconds=100)


def made(folder: Path, *bugs: str, sample: bool = False) -> Workspace:
    folder.mkdir(exist_ok=True)
    write_sample(folder, bugs)
    return Workspace(folder, Constraints(commands=("git push", "rm")), is_sample=sample)


def ran(workspace: Workspace, limits: CommandLimits = FAST, **context: Any) -> Evidence:
    return asyncio.run(run_checks(workspace, find_checks(workspace, context), limits))


def test_the_goal_comes_first_then_what_the_bead_names(tmp_path: Path) -> None:
    workspace = made(tmp_path)
    context = {"goal": {"command": "make goal"}, "checks": ["make test", "make goal", " ", 7]}
    found = find_checks(workspace, context)
    assert found.commands == ("make goal", "make test")
    assert found.goal == "make goal"


def test_without_them_the_folders_own_tests_are_found(tmp_path: Path) -> None:
    workspace = made(tmp_path)
    assert find_checks(workspace, {}).commands == (UNITTEST_COMMAND,)
    workspace.write("pyproject.toml", "[tool.pytest.ini_options]\n")
    assert find_checks(workspace, {}).commands == (PYTEST_COMMAND,)


def test_a_folder_without_tests_needs_a_bead_that_names_a_command(tmp_path: Path) -> None:
    with pytest.raises(NotAllowedError, match=r"give context\.goal\.command or context\.checks"):
        find_checks(Workspace(tmp_path, Constraints()), {"goal": {"command": " "}})


@pytest.mark.requirement("S9")
@pytest.mark.parametrize("command", [UNITTEST_COMMAND, PYTEST_COMMAND])
def test_what_fails_is_measured_by_name_and_signature(
    tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(
        CHECK_VARIABLES, "PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1"
    )  # they are slow to load
    red = ran(made(tmp_path / "one", "wrong-operator"), checks=[command])
    again = ran(made(tmp_path / "two", "wrong-operator"), checks=[command])
    (check,) = red.checks
    assert (check.exit_code, red.measured) == (1, True)
    assert red.failures is not None
    (name,) = red.failures
    assert name.endswith("test_shipping_is_added")
    assert str(tmp_path) not in check.stderr
    assert error_signature(command, check.stderr) == error_signature(
        command, again.checks[0].stderr
    )


@pytest.mark.requirement("S9")
def test_another_failure_has_another_signature(tmp_path: Path) -> None:
    bugs = ("wrong-operator", "wrong-comparison")
    (one,), (other,) = (ran(made(tmp_path / bug, bug)).checks for bug in bugs)
    assert error_signature(UNITTEST_COMMAND, one.stderr) != error_signature(
        UNITTEST_COMMAND, other.stderr
    )


def test_green_is_green_and_nothing_fails(tmp_path: Path) -> None:
    green = ran(made(tmp_path))
    assert [check.exit_code for check in green.checks] == [0]
    assert green.failures == ()


def test_a_command_that_names_no_tests_says_nothing_about_failures(tmp_path: Path) -> None:
    red = ran(made(tmp_path), checks=["test -f nowhere"])
    assert ([check.exit_code for check in red.checks], red.failures) == ([1], None)


@pytest.mark.requirement("S14")
@pytest.mark.parametrize("command", ["git push --force", "rm -r shop", "sh -c 'rm -r shop'"])
def test_a_forbidden_command_is_not_run_and_is_evidence(tmp_path: Path, command: str) -> None:
    workspace = made(tmp_path)
    (check,) = ran(workspace, checks=[command]).checks
    assert (check.command, check.exit_code) == (command, 126)
    assert "the constraint" in check.stderr
    assert (tmp_path / "shop").is_dir()


@pytest.mark.parametrize(
    "command",
    ["touch here", "python -c 'open(\"here\", \"w\")'", "python -m unittest; touch here",
     "python -m pytest -p here", "python -m http.server"],
)  # fmt: skip
def test_on_the_sample_nothing_but_its_tests_is_run(tmp_path: Path, command: str) -> None:
    workspace = made(tmp_path, sample=True)
    (check,) = ran(workspace, checks=[command]).checks
    assert check.exit_code == 126
    assert not (tmp_path / "here").exists()
    (test,) = ran(workspace, checks=["python -m unittest tests.test_totals"]).checks
    assert test.exit_code == 0


def test_no_shell_reads_a_command(tmp_path: Path) -> None:
    workspace = made(tmp_path)
    (check,) = ran(workspace, checks=["echo a; touch here"]).checks
    assert check.exit_code == 0
    assert not (tmp_path / "here").exists()


def test_one_that_takes_too_long_is_red_and_says_so(tmp_path: Path) -> None:
    workspace = made(tmp_path)
    (check,) = ran(workspace, CommandLimits(seconds=0.2), checks=["sleep 100"]).checks
    assert check.exit_code != 0
    assert check.stderr.startswith("ended after 0.2 s")
    assert external_cause(check) == "it takes too long"


def test_a_failure_whose_cause_is_not_in_the_folder_is_known(tmp_path: Path) -> None:
    (missing,) = ran(made(tmp_path, "no-such-service")).checks
    assert external_cause(missing) == "a module is missing"
    (absent,) = ran(Workspace(tmp_path, Constraints()), checks=["no-such-program"]).checks
    assert external_cause(absent) == "the command is not installed"
    own = Check(command="t", exit_code=1, stderr="AssertionError: 1 != 2")
    assert external_cause(own) == ""


def test_frames_and_what_was_raised_are_read(tmp_path: Path) -> None:
    (check,) = ran(made(tmp_path, "missing-empty-check")).checks
    (failure,) = parse_tracebacks(check.stderr)
    assert (failure.exception, failure.message) == ("ZeroDivisionError", "division by zero")
    assert [(frame.path, frame.name) for frame in failure.frames][-1] == (
        "shop/totals.py",
        "average",
    )


@pytest.mark.parametrize(
    ("said", "names"),
    [
        ("FAIL: test_a (tests.test_x.T.test_a)", ["tests.test_x.T.test_a"]),
        ("ERROR: test_a (tests.test_x.T)", ["tests.test_x.T.test_a"]),
        ("ERROR: tests.test_x (unittest.loader._FailedTest.tests.test_x)", ["tests.test_x"]),
        ("FAILED tests/test_x.py::test_a - assert 1", ["tests/test_x.py::test_a"]),
        ("ERROR tests/test_x.py", ["tests/test_x.py"]),
        ("nothing FAILED here", []),
    ],
)
def test_failing_tests_are_read_by_name(said: str, names: list[str]) -> None:
    assert failing_tests(f"...\n{said}\n---") == names
