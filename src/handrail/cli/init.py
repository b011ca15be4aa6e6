"""`handrail init`: a definition, an agent module and a test that passes at once, to begin with."""

import shlex
import sys
from pathlib import Path

from handrail.cli.database import InputError, complain
from handrail.cli.words import called

STARTER = Path(__file__).parent / "starter"
FILES = ("notes.yaml", "agents.py", "test_notes.py", "pytest.ini")
NEXT = (
    ("{handrail} check {folder}/notes.yaml", "what a run can cost at most"),
    ("{pytest} {folder}", "the workflow with its agents"),
    ("{handrail} run {folder}/notes.yaml", "watch a rehearsal, and be asked"),
    ("{handrail} serve", "then for real: agents.py says how its worker is started"),
)
WIDE = 40
PYTEST = {
    "handrail": f"uv run --no-project --python {shlex.quote(sys.executable)} --with pytest pytest",
    "uv run handrail": "uv run --with pytest pytest",
}
"""How tests are run where the command line is called so: also beside a tool's own environment."""


def write_starter(folder: str) -> int:
    """Writes the files, and never over others; the exit code."""
    target = Path(folder)
    try:
        _write(target)
    except (InputError, OSError) as error:
        complain("init", error)
        return 2
    for name in FILES:
        print(f"wrote {target / name}")
    print("Next:")
    handrail = called()
    for command, what in NEXT:
        typed = command.format(handrail=handrail, pytest=PYTEST[handrail], folder=target)
        if len(typed) > WIDE:  # then what it does stands below it
            print(f"  {typed}")
            typed = ""
        print(f"  {typed:<{WIDE}} {what}")
    return 0


def _write(target: Path) -> None:
    there = [name for name in FILES if (target / name).exists()]
    if there:
        told = f"{', '.join(there)} are in {target} already, and stay as they are"
        raise InputError(f"{told}; name another folder: handrail init FOLDER")
    target.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        (target / name).write_bytes((STARTER / name).read_bytes())
