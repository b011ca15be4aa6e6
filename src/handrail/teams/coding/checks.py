"""The checks of a coding run: which commands they are, what running them shows.

The functional goal (`context.goal.command`) comes first, then `context.checks`; without either the
tests that the folder has are found. A command is a list of words that no shell reads; `python` is
the workspace's own, by default the one that runs Handrail. A command that a constraint forbids is
not run, and its check says so. On the sample, for which anybody may file beads, nothing but its
tests is run.
"""

import asyncio
import importlib.util
import os
import re
import shlex
import sys
from typing import Any, cast

from handrail.agents.commands import EXIT_NOT_FOUND, CommandLimits, CompletedCommand, run_command
from handrail.kernel.decision import Value
from handrail.kernel.result import Check, Evidence
from handrail.teams.coding.failures import failing_tests
from handrail.teams.coding.workspace import CHANGED_MARK, NotAllowedError, Workspace

CHECKS_MAX = 10
OUTPUT_CHARS_MAX = 20_000
"""Characters of a command's output that are kept, from both ends."""
EXIT_REFUSED = 126
"""A shell's exit code for a command that may not be run."""
PYTEST_COMMAND, UNITTEST_COMMAND = "python -m pytest -q", "python -m unittest"
TEST_COMMAND_PATTERN = re.compile(
    r"python -m (?:unittest|pytest)(?: -[qv])?(?: --tb=native)?(?: [A-Za-z_][\w./:]*)*"
)
CHECK_VARIABLES = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"}
_PYTEST_FILES = ("pytest.ini", "conftest.py", "tests/conftest.py", ".pytest.ini")


class Checks(Value):
    """The commands to run. The goal is one of the commands; "" if there is none."""

    commands: tuple[str, ...]
    goal: str = ""


def find_checks(workspace: Workspace, context: dict[str, Any], goal: str = "") -> Checks:
    """Return the bead's checks. `goal` counts if the bead names none. Raises `NotAllowedError`."""
    goal_value: Any = context.get("goal")
    goal_command = (
        cast("dict[str, Any]", goal_value).get("command") if isinstance(goal_value, dict) else None
    )
    goal = goal_command if isinstance(goal_command, str) and goal_command.strip() else goal
    checks_value: Any = context.get("checks")
    check_commands = cast("list[object]", checks_value) if isinstance(checks_value, list) else []
    check_commands = [
        command for command in check_commands if isinstance(command, str) and command.strip()
    ]
    check_commands = check_commands or detect_test_commands(workspace)
    commands = tuple(dict.fromkeys([goal, *check_commands] if goal else check_commands))[
        :CHECKS_MAX
    ]
    if not commands:
        message = f"'{workspace.root.name}' has no tests, and the bead names no command"
        raise NotAllowedError(f"{message}; give context.goal.command or context.checks")
    return Checks(commands=commands, goal=goal)


def detect_test_commands(workspace: Workspace) -> list[str]:
    """Return the command that runs the tests of this folder."""
    files = set(workspace.files())
    tests = [path for path in files if re.fullmatch(r"(?:.*/)?(?:test_\w+|\w+_test)\.py", path)]
    if not tests:
        return []
    pyproject_text = workspace.read("pyproject.toml") if "pyproject.toml" in files else ""
    wants_pytest = not files.isdisjoint(_PYTEST_FILES) or "[tool.pytest" in pyproject_text
    is_ours = workspace.python == (sys.executable,)
    if wants_pytest and (not is_ours or importlib.util.find_spec("pytest") is not None):
        return [PYTEST_COMMAND]
    return [UNITTEST_COMMAND]


async def run_checks(workspace: Workspace, checks: Checks, limits: CommandLimits) -> Evidence:
    """Run all checks in order; return their output, and which tests fail.

    A command that has changed protected files shows in the files of the evidence.
    """
    before = await asyncio.to_thread(workspace.protected_files)
    results = [await run_check(workspace, command, limits) for command in checks.commands]
    failed = [name for check in results for name in failing_tests(check.stderr) if check.exit_code]
    red = any(check.exit_code for check in results)
    failures = tuple(dict.fromkeys(failed)) if failed or not red else None
    after = await asyncio.to_thread(workspace.protected_files)
    changed_paths = sorted(
        path for path in {*before, *after} if before.get(path) != after.get(path)
    )
    files = dict.fromkeys(changed_paths, CHANGED_MARK) or None
    return Evidence(files=files, checks=tuple(results), failures=failures, measured=True)


async def run_check(workspace: Workspace, command: str, limits: CommandLimits) -> Check:
    """Run one command, if it may be run."""
    if reason := refusal_reason(workspace, command):
        return Check(command=command, exit_code=EXIT_REFUSED, stderr=reason)
    args = _split_command(command, workspace.python)
    variables = {**CHECK_VARIABLES, "PYTHONPATH": _import_path(workspace)}
    completed = await run_command(args, workspace.root, limits=limits, variables=variables)
    return Check(
        command=command,
        exit_code=completed.exit_code,
        stderr=format_output(workspace, completed, limits),
    )


def refusal_reason(workspace: Workspace, command: str) -> str:
    """Return why this command is not run; "" if it is."""
    if rule := workspace.command_constraint(command):
        return f"not run: the constraint '{rule}' forbids it"
    if workspace.is_sample and not TEST_COMMAND_PATTERN.fullmatch(command):
        return "not run: on the sample project only its tests are; set `workspaces` for others"
    try:
        args = _split_command(command, workspace.python)
    except ValueError as error:
        return f"not run: it cannot be read ({error})"
    return "" if args else "not run: it is empty"


def _split_command(command: str, python: tuple[str, ...]) -> list[str]:
    args = shlex.split(command)
    if args and args[0] in ("python", "python3"):
        return [*python, *args[1:]]
    return args


def _import_path(workspace: Workspace) -> str:
    """Return where Python looks first: this folder, not the one that an environment installed the
    same packages from."""
    folders = [workspace.root, workspace.root / "src"]
    return os.pathsep.join(str(folder) for folder in folders if folder.is_dir())


def format_output(workspace: Workspace, completed: CompletedCommand, limits: CommandLimits) -> str:
    """Return the output: stderr, or stdout where that is empty, as test runners have it."""
    output = (completed.stderr if completed.stderr.strip() else completed.stdout).decode(
        "utf-8", "replace"
    )
    output = workspace.strip_root(output).strip()
    if len(output) > OUTPUT_CHARS_MAX:
        output = f"{output[: OUTPUT_CHARS_MAX // 2]}\n…\n{output[-OUTPUT_CHARS_MAX // 2 :]}"
    limit_text = {
        "time": f"ended after {limits.seconds:g} s, which is all it has",
        "output": f"ended: it wrote more than {limits.output_bytes} bytes",
    }.get(completed.ended_by, "")
    return f"{limit_text}\n{output}".strip() if limit_text else output


def external_cause(check: Check) -> str:
    """Return why no change of this folder can fix the failure; "" if one may."""
    if cause := _EXIT_CODE_CAUSES.get(check.exit_code):
        return cause
    if check.stderr.startswith("ended after"):
        return "it takes too long"
    for pattern, cause in _OUTPUT_CAUSES:
        if pattern.search(check.stderr):
            return cause
    return ""


_EXIT_CODE_CAUSES = {
    EXIT_NOT_FOUND: "the command is not installed",
    EXIT_REFUSED: "the command may not be run",
}
_OUTPUT_CAUSES = tuple(
    (re.compile(pattern), why)
    for pattern, why in (
        (r"ModuleNotFoundError: No module named", "a module is missing"),
        (r"ConnectionRefusedError|Connection refused", "a service does not answer"),
        (r"Temporary failure in name resolution|Name or service not known", "there is no network"),
        (r"No space left on device", "the disk is full"),
    )
)
