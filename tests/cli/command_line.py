"""Calling the command line in tests, in this process."""

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import typer.testing
import yaml
from typer.testing import CliRunner

from handrail.cli.app import app

# The runner makes the commands anew for every call, which takes longer than most of them.
typer.testing._get_command = cache(typer.testing._get_command)  # pyright: ignore[reportPrivateImportUsage] (no public way)


class CommandResult(NamedTuple):
    code: int
    out: str
    err: str


def run_command(*arguments: str, stdin: str | bytes = "") -> CommandResult:
    """Runs `handrail ARGUMENTS`. An exception other than an exit is a failure of the test."""
    result = CliRunner().invoke(app, list(arguments), input=stdin, catch_exceptions=False)
    return CommandResult(result.exit_code, result.stdout, result.stderr)


def write_definition(folder: Path, document: Any, name: str = "definition.yaml") -> str:
    path = folder / name
    path.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
    return str(path)
