"""From what a user names to a document: a file, else a built-in definition, `-` for stdin; and a
bead's context."""

import difflib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from handrail.cli.database import InputError
from handrail.cli.lines import Lines
from handrail.cli.words import clean, placed
from handrail.engine.documents import Document, load, read
from handrail.kernel.definition import Problem
from handrail.kernel.reading import DOCUMENT_BYTES_MAX
from handrail.teams import NAMES, builtin


class Found(NamedTuple):
    """`builtin` is the name of a built-in definition, or ""; `missing`: there was nothing; `raw` is
    what stood in the file."""

    label: str
    document: Document
    problems: list[Problem]
    builtin: str = ""
    missing: bool = False
    raw: bytes = b""

    def told(self, problems: Sequence[Problem], severity: str) -> list[str]:
        """Each with the line that it stands on."""
        lines = Lines(self.raw if problems else b"")
        return [placed(one, self.label, severity, lines.of(one.path)) for one in problems]


def find(name: str) -> Found:
    if name == "-":
        raw = sys.stdin.buffer.read(DOCUMENT_BYTES_MAX + 1)
        document, problems = read(raw)
        return Found("standard input", document, problems, raw=raw)
    if name in NAMES and not Path(name).is_file():
        return Found(name, builtin(name), [], builtin=name)
    path = Path(name)
    try:
        there = path.exists()
    except (OSError, ValueError):  # too long, or a NUL in it
        there = False
    if not there:
        return Found(name, None, [_nothing(name)], missing=True)
    document, problems = load(path)
    if problems:  # these say line and column themselves
        missing = any(p.code == "unreadable" for p in problems)
        return Found(name, document, problems, missing=missing)
    # A pipe cannot be read twice: of what came through one, places are told without lines.
    return Found(name, document, problems, raw=path.read_bytes() if path.is_file() else b"")


def _nothing(name: str) -> Problem:
    close = difflib.get_close_matches(name, NAMES, n=1)
    meant = f"did you mean '{close[0]}'? " if close else ""
    hint = f"{meant}built in are {', '.join(NAMES)}"
    told = "there is no such file, and nothing built in has this name"
    return Problem(code="not_found", path="$", message=told, hint=hint)


def context_of(given: str) -> dict[str, Any]:
    """A JSON object, or @FILE with one."""
    if not given:
        return {}
    document, problems = load(Path(given[1:]) if given.startswith("@") else given)
    if problems:
        told = f"--context {clean(given)[:80]}: {problems[0].message}"
        raise InputError(f"{told}; give a JSON object")
    if not isinstance(document, dict):
        raise InputError(f"--context {clean(given)[:80]}: is no JSON object; give one such as {{}}")
    return document
