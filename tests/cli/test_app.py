"""The command line as a whole: quick help, completion, and a page that has everything in it."""

import ast
import asyncio
import inspect
import os
import re
import resource
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import cast

import pytest
import typer
from tests.cli.command_line import run_command

from handrail.cli.app import app
from handrail.cli.arguments import find_approval_id
from handrail.client.clients import AsyncClient
from handrail.server.settings import SETTINGS, format_setting

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/cli.md").read_text(encoding="utf-8")
CPU_SECONDS_MAX = 0.5
HEAVY = {
    "asyncio", "handrail.engine.engine", "handrail.server.app", "handrail.testing", "httpx",
    "litestar", "psycopg", "rich.live", "sqlite3", "structlog", "uvicorn", "yaml",
}  # fmt: skip


def by_stem(path: Path) -> str:
    return path.stem


def command_modules(group: typer.Typer = app) -> set[Path]:
    """The files in which commands stand."""
    files = {Path(inspect.getfile(c.callback)) for c in group.registered_commands if c.callback}
    for inner in group.registered_groups:
        assert inner.typer_instance is not None
        files |= command_modules(inner.typer_instance)
    return files


def commands(group: typer.Typer = app, before: str = "") -> list[str]:
    """Every command by its whole name."""
    names = [
        before + (command.name or command.callback.__name__)  # pyright: ignore[reportOptionalMemberAccess]
        for command in group.registered_commands
    ]
    for inner in group.registered_groups:
        assert inner.typer_instance is not None
        names += commands(inner.typer_instance, f"{before}{inner.name} ")
    return names


def test_every_command_of_the_contract_is_there():
    wanted = {
        "demo", "serve", "init", "worker", "run", "check", "sim", "runs", "show", "report", "why",
        "metrics", "answer", "override", "verify", "doctor", "db archive", "db backup",
        "db restore", "token create", "token list", "token revoke", "sign-in", "settings", "agents",
    }  # fmt: skip
    assert wanted <= set(commands())


def test_it_says_its_version():
    called = run_command("--version")
    assert (called.code, called.out) == (0, f"handrail {version('handrail')}\n")


@pytest.mark.parametrize("command", commands())
def test_every_command_has_a_help_that_says_what_it_does(command: str):
    called = run_command(*command.split(), "--help")
    assert called.code == 0
    assert len(called.out.splitlines()[2].strip()) > 10


def test_no_line_of_the_help_is_cut_off():
    assert "..." not in run_command("--help").out.partition("Commands:")[2]
    for group in ("db", "token", "bead"):
        assert "..." not in run_command(group, "--help").out.partition("Commands:")[2]


def test_help_takes_less_than_half_a_second():
    command = [sys.executable, "-m", "handrail", "--help"]
    taken: list[float] = []
    for _ in range(3):  # whatever else the machine does counts against the slowest
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, capture_output=True, check=True, timeout=60)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(taken) < CPU_SECONDS_MAX


def test_help_imports_nothing_that_only_some_commands_need():
    code = (
        "import sys; from handrail.cli.app import app\n"
        "try: app(['token', 'create', '--help'])\n"
        "except SystemExit: pass\n"
        "print(*sorted(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert not HEAVY & set(done.stdout.splitlines()[-1].split())


def test_the_modules_of_the_commands_import_nothing_heavy():
    code = "import sys; import handrail.cli.app; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    heavy = HEAVY | {"handrail.client.clients", "handrail.server.settings", "rich"}
    assert not heavy & set(done.stdout.split())


@pytest.mark.parametrize("module", sorted((ROOT / "src/handrail/cli").glob("*.py")), ids=by_stem)
def test_no_module_imports_a_command(module: Path):
    """But `app.py`: what two commands need stands in a module beside them."""
    names = {path.stem for path in command_modules()}
    imported = {
        name
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module is not None
        if node.module.startswith("handrail.cli")
        for name in (node.module.removeprefix("handrail.cli."), *(a.name for a in node.names))
    }
    assert module.stem == "app" or not names & imported


def completing(**variables: str) -> str:
    """What the shell is told by the installed command."""
    command = [str(Path(sys.executable).parent / "handrail")]
    environment = {**os.environ, **variables}
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=60, check=True
    )
    return done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_can_be_shown_for_the_usual_shells(shell: str):
    assert "complete_" in completing(_HANDRAIL_COMPLETE=f"source_{shell}")


def test_commands_are_completed():
    asked = {"COMP_WORDS": "handrail s", "COMP_CWORD": "1"}
    found = completing(_HANDRAIL_COMPLETE="complete_bash", **asked)
    assert set(found.split()) == {"serve", "settings", "show", "sign-in", "sim"}


@pytest.mark.parametrize("command", commands())
def test_every_command_stands_on_the_page_of_the_command_line(command: str):
    assert re.search(rf"`handrail {command}[ `]", PAGE)


@pytest.mark.parametrize("row", SETTINGS, ids=lambda row: row.name)
def test_every_setting_stands_on_the_page_with_its_default(row):
    default = format_setting(row, row.default)
    cell = f"`{default}`" if default else ""
    assert f"| `{row.name}` | {cell} | {row.unit} | {row.help} |" in PAGE


def test_a_full_id_of_a_question_is_never_the_beginning_of_another():
    nobody = cast("AsyncClient", None)  # it would be asked for the open ones
    full_id = f"{'0' * 32}.q1"
    assert asyncio.run(find_approval_id(nobody, full_id)) == full_id
