"""From what a user names to a document: a file, else a built-in definition, `-` for stdin."""

import difflib
import sys
from pathlib import Path
from typing import NamedTuple

from handrail.engine.documents import Document, load, read
from handrail.kernel.definition import Problem
from handrail.kernel.reading import DOCUMENT_BYTES_MAX
from handrail.teams import NAMES, builtin


class Found(NamedTuple):
    """`builtin` is the name of a built-in definition, or ""; `missing`: there was nothing."""

    label: str
    document: Document
    problems: list[Problem]
    builtin: str = ""
    missing: bool = False


def find(name: str) -> Found:
    if name == "-":
        document, problems = read(sys.stdin.buffer.read(DOCUMENT_BYTES_MAX + 1))
        return Found("standard input", document, problems)
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
    return Found(name, document, problems, missing=any(p.code == "unreadable" for p in problems))


def _nothing(name: str) -> Problem:
    close = difflib.get_close_matches(name, NAMES, n=1)
    meant = f"did you mean '{close[0]}'? " if close else ""
    hint = f"{meant}built in are {', '.join(NAMES)}"
    told = "there is no such file, and nothing built in has this name"
    return Problem(code="not_found", path="$", message=told, hint=hint)
