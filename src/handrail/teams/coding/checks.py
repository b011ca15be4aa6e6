"""The checks of a coding run: which commands they are, what running them shows.

The functional goal (`context.goal.command`) comes first, then `context.checks`; without either the
tests that the folder has are found. A command is a list of words that no shell reads; `python` is
the one that runs Handrail. One that a constraint forbids is not run, and its check says so. On the
sample, which anybody may file beads for, nothing but its tests is run.
"""

import asyncio
import importlib.util
import re
import shlex
import sys
from typing import Any, cast

from handrail.agents.commands import NOT_FOUND, CommandLimits, Ran, run_command
from handrail.kernel.decision import Value
from handrail.kernel.result import Check, Evidence
from handrail.teams.coding.failures import failing
from handrail.teams.coding.workspace import CHANGED, NotAllowed, Workspace

CHECKS_MAX = 10
TOLD_MAX = 20_000
"""Characters of a command's output that are kept, from both ends."""
REFUSED = 126
"""What a shell says of a command that may not be run."""
PYTEST, UNITTEST = "python -m pytest -q", "python -m unittest"
HARMLESS = re.compile(
    r"python -m (?:unittest|pytest)(?: -[qv])?(?: --tb=native)?(?: [A-Za-z_][\w./:]*)*"
)
VARIABLES = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"}
_PYTEST_FILES = ("pytest.ini", "conftest.py", "tests/conftest.py", ".pytest.ini")


class Checks(Value):
    """What is to be run. The goal is one of the commands; "" if there is none."""

    commands: tuple[str, ...]
    goal: str = ""


def checks_of(workspace: Workspace, context: dict[str, Any], goal: str = "") -> Checks:
    """Of this bead. `goal` counts if the bead names none. Raises `NotAllowed`."""
    wanted: Any = context.get("goal")
    named = cast("dict[str, Any]", wanted).get("command") if isinstance(wanted, dict) else None
    goal = named if isinstance(named, str) and named.strip() else goal
    listed: Any = context.get("checks")
    more = cast("list[object]", listed) if isinstance(listed, list) else []
    more = [one for one in more if isinstance(one, str) and one.strip()]
    more = more or detected(workspace)
    commands = tuple(dict.fromkeys([goal, *more] if goal else more))[:CHECKS_MAX]
    if not commands:
        told = f"'{workspace.root.name}' has no tests, and the bead names no command"
        raise NotAllowed(f"{told}; give context.goal.command or context.checks")
    return Checks(commands=commands, goal=goal)


def detected(workspace: Workspace) -> list[str]:
    """The command that runs the tests of this folder."""
    files = set(workspace.files())
    tests = [path for path in files if re.fullmatch(r"(?:.*/)?(?:test_\w+|\w+_test)\.py", path)]
    if not tests:
        return []
    said = workspace.read("pyproject.toml") if "pyproject.toml" in files else ""
    wants_pytest = not files.isdisjoint(_PYTEST_FILES) or "[tool.pytest" in said
    if wants_pytest and importlib.util.find_spec("pytest") is not None:
        return [PYTEST]
    return [UNITTEST]


async def run_checks(workspace: Workspace, checks: Checks, limits: CommandLimits) -> Evidence:
    """All of them, one after the other: what they say, and which tests fail. A command that has
    touched what must not be is told by the files that it changed."""
    before = await asyncio.to_thread(workspace.protected)
    ran = [await run_check(workspace, command, limits) for command in checks.commands]
    failed = [name for check in ran for name in failing(check.stderr) if check.exit_code]
    red = any(check.exit_code for check in ran)
    known = tuple(dict.fromkeys(failed)) if failed or not red else None
    after = await asyncio.to_thread(workspace.protected)
    touched = sorted(path for path in {*before, *after} if before.get(path) != after.get(path))
    files = dict.fromkeys(touched, CHANGED) or None
    return Evidence(files=files, checks=tuple(ran), failures=known, measured=True)


async def run_check(workspace: Workspace, command: str, limits: CommandLimits) -> Check:
    """One command, if it may be run."""
    if why := refusal(workspace, command):
        return Check(command=command, exit_code=REFUSED, stderr=why)
    words = _words(command)
    ran = await run_command(words, workspace.root, limits=limits, variables=VARIABLES)
    return Check(command=command, exit_code=ran.exit_code, stderr=told(workspace, ran, limits))


def refusal(workspace: Workspace, command: str) -> str:
    """Why this command is not run; "" if it is."""
    if rule := workspace.forbidden_command(command):
        return f"not run: the constraint '{rule}' forbids it"
    if workspace.sample and not HARMLESS.fullmatch(command):
        return "not run: on the sample project only its tests are; set `workspaces` for others"
    try:
        words = _words(command)
    except ValueError as error:
        return f"not run: it cannot be read ({error})"
    return "" if words else "not run: it is empty"


def _words(command: str) -> list[str]:
    words = shlex.split(command)
    if words and words[0] in ("python", "python3"):
        words[0] = sys.executable
    return words


def told(workspace: Workspace, ran: Ran, limits: CommandLimits) -> str:
    """What it said: stderr, or stdout where that is empty, as test runners have it."""
    said = (ran.stderr if ran.stderr.strip() else ran.stdout).decode("utf-8", "replace")
    said = workspace.without_place(said).strip()
    if len(said) > TOLD_MAX:
        said = f"{said[: TOLD_MAX // 2]}\n…\n{said[-TOLD_MAX // 2 :]}"
    ended = {
        "time": f"ended after {limits.seconds:g} s, which is all it has",
        "output": f"ended: it wrote more than {limits.output_bytes} bytes",
    }.get(ran.ended_by, "")
    return f"{ended}\n{said}".strip() if ended else said


def is_elsewhere(check: Check) -> str:
    """Why no change of this folder can mend the failure; "" if one may."""
    if why := _CODES.get(check.exit_code):
        return why
    if check.stderr.startswith("ended after"):
        return "it takes too long"
    for sign, why in _ELSEWHERE:
        if sign.search(check.stderr):
            return why
    return ""


_CODES = {NOT_FOUND: "the command is not installed", REFUSED: "the command may not be run"}
_ELSEWHERE = tuple(
    (re.compile(pattern), why)
    for pattern, why in (
        (r"ModuleNotFoundError: No module named", "a module is missing"),
        (r"ConnectionRefusedError|Connection refused", "a service does not answer"),
        (r"Temporary failure in name resolution|Name or service not known", "there is no network"),
        (r"No space left on device", "the disk is full"),
    )
)
