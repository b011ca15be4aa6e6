"""Read the definition that a user names: a file, else a built-in definition, `-` for stdin."""

import difflib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from handrail.cli.formatting import format_problem
from handrail.cli.line_numbers import LineIndex
from handrail.engine.document_parser import Document, load_document, parse_document
from handrail.kernel.definition.model import DocumentProblem
from handrail.kernel.definition.reader import DOCUMENT_BYTES_MAX
from handrail.teams import BUILTIN_IDS, load_builtin


class DefinitionSource(NamedTuple):
    """`builtin` is the name of a built-in definition, or ""; `missing`: there was nothing; `raw` is
    the file's content.
    """

    label: str
    document: Document
    problems: list[DocumentProblem]
    builtin: str = ""
    missing: bool = False
    raw: bytes = b""

    def format_problems(self, problems: Sequence[DocumentProblem], severity: str) -> list[str]:
        """Format each problem with its line."""
        line_index = LineIndex(self.raw if problems else b"")
        return [
            format_problem(problem, self.label, severity, line_index.line_of(problem.path))
            for problem in problems
        ]


def find_definition(name: str) -> DefinitionSource:
    if name == "-":
        raw = sys.stdin.buffer.read(DOCUMENT_BYTES_MAX + 1)
        document, problems = parse_document(raw)
        return DefinitionSource("standard input", document, problems, raw=raw)
    if name in BUILTIN_IDS and not Path(name).is_file():
        return DefinitionSource(name, load_builtin(name), [], builtin=name)
    path = Path(name)
    try:
        exists = path.exists()
    except (OSError, ValueError):  # too long, or a NUL in it
        exists = False
    if not exists:
        return DefinitionSource(name, None, [_not_found_problem(name)], missing=True)
    document, problems = load_document(path)
    if problems:  # these say line and column themselves
        missing = any(p.code == "unreadable" for p in problems)
        return DefinitionSource(name, document, problems, missing=missing)
    # A pipe cannot be read twice: problems in its content have no line numbers.
    return DefinitionSource(
        name, document, problems, raw=path.read_bytes() if path.is_file() else b""
    )


def _not_found_problem(name: str) -> DocumentProblem:
    matches = difflib.get_close_matches(name, BUILTIN_IDS, n=1)
    suggestion = f"did you mean '{matches[0]}'? " if matches else ""
    hint = f"{suggestion}built in are {', '.join(BUILTIN_IDS)}"
    message = "there is no such file, and nothing built in has this name"
    return DocumentProblem(code="not_found", path="$", message=message, hint=hint)
