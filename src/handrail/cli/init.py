"""`handrail init`: write a definition, an agent module and a test that passes at once."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from handrail.cli.command import InputError, as_input_error
from handrail.cli.formatting import program_name

STARTER_FOLDER = Path(__file__).parent / "starter"
STARTER_FILES = ("notes.yaml", "agents.py", "test_notes.py", "pytest.ini")
NEXT_COMMANDS = (
    ("{handrail} check {folder}/notes.yaml", "what a run can cost at most"),
    ("{pytest} {folder}", "the workflow with its agents"),
    ("{handrail} run {folder}/notes.yaml", "watch a rehearsal, and be asked"),
    ("{handrail} serve", "then for real: agents.py says how its worker is started"),
)
COMMAND_COLUMNS = 40
PYTEST_COMMANDS = {
    "handrail": f"uv run --no-project --python {shlex.quote(sys.executable)} --with pytest pytest",
    "uv run handrail": "uv run --with pytest pytest",
}
"""By how the command line was called: how to run tests, also beside a tool's own environment."""


def init(
    folder: Annotated[str, typer.Argument(help="The folder; created if it is missing.")] = ".",
) -> None:
    """Write a definition, an agent and a test to start from."""
    target = Path(folder)
    with as_input_error(OSError):
        _write_files(target)
    for name in STARTER_FILES:
        print(f"wrote {target / name}")
    print("Next:")
    program = program_name()
    for command, purpose in NEXT_COMMANDS:
        command_line = command.format(
            handrail=program, pytest=PYTEST_COMMANDS[program], folder=target
        )
        if len(command_line) > COMMAND_COLUMNS:  # then its description stands below it
            print(f"  {command_line}")
            command_line = ""
        print(f"  {command_line:<{COMMAND_COLUMNS}} {purpose}")


def _write_files(target: Path) -> None:
    """Write the files, and never over others."""
    existing = [name for name in STARTER_FILES if (target / name).exists()]
    if existing:
        message = f"{', '.join(existing)} already exist in {target}"
        raise InputError(f"{message}; name another folder: handrail init FOLDER")
    target.mkdir(parents=True, exist_ok=True)
    for name in STARTER_FILES:
        (target / name).write_bytes((STARTER_FOLDER / name).read_bytes())
