"""Read the definition that a user names: a file, else a built-in definition, `-` for stdin.

A problem in a file that could be read is shown with its line: people edit lines, not paths such as
`$.nodes[2].role`. A missing part has the line where it would have to be added: that of the part
that lacks it.
"""

import difflib
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from handrail.cli.output import format_problem
from handrail.engine.document_parser import Document, load_document, parse_document
from handrail.kernel.definition.model import DocumentProblem
from handrail.kernel.definition.reader import DOCUMENT_BYTES_MAX
from handrail.teams import BUILTIN_IDS, load_builtin

FILE_BYTES_MAX = 1_000_000
"""In a longer file only the path is shown: the search for its line would take seconds."""
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_YAML: Any = yaml  # its nodes have no usable types
_INDEX_PATTERN = re.compile(r"\[(\d{1,9})\]")


class LineIndex:
    """The lines of one file; JSON is as good as YAML here."""

    def __init__(self, raw: bytes) -> None:
        self._root: Any = None
        if 0 < len(raw) <= FILE_BYTES_MAX:
            try:
                self._root = _YAML.compose(raw.decode("utf-8-sig"), Loader=_LOADER)
            except (yaml.YAMLError, UnicodeDecodeError):
                return  # JSON that YAML cannot read, such as with tabs

    def line_of(self, path: str) -> int | None:
        """Return the line, from 1; None if it is unknown."""
        node, rest, line = self._root, path.removeprefix("$"), None
        while node is not None and rest:
            inner = _descend(node, rest)
            if inner is None:
                break
            line, node, rest = inner
        return line


def _descend(node: Any, rest: str) -> tuple[int, Any, str] | None:  # noqa: ANN401 - as above
    """Return the part that the path goes on with: its line, itself, and the rest of the path."""
    if isinstance(node, yaml.SequenceNode) and (number := _INDEX_PATTERN.match(rest)):
        index, parts = int(number[1]), node.value
        return (
            (parts[index].start_mark.line + 1, parts[index], rest[number.end() :])
            if index < len(parts)
            else None
        )
    if isinstance(node, yaml.MappingNode) and rest.startswith("."):
        for key, value in node.value:
            name = f".{key.value[:80]}"
            if rest == name or rest.startswith((f"{name}.", f"{name}[")):
                return key.start_mark.line + 1, value, rest[len(name) :]
    return None


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
    if not os.path.exists(name):  # noqa: PTH110 - also false for a name that is too long
        return DefinitionSource(name, None, [_not_found_problem(name)], missing=True)
    path = Path(name)
    document, problems = load_document(path)
    if problems:  # these say line and column themselves
        return DefinitionSource(
            name, document, problems, missing=any(p.code == "unreadable" for p in problems)
        )
    # A pipe cannot be read twice: problems in its content have no line numbers.
    return DefinitionSource(
        name, document, problems, raw=path.read_bytes() if path.is_file() else b""
    )


def _not_found_problem(name: str) -> DocumentProblem:
    matches = difflib.get_close_matches(name, BUILTIN_IDS, n=1)
    suggestion = f"did you mean '{matches[0]}'? " if matches else ""
    return DocumentProblem(
        code="not_found",
        path="$",
        message="there is no such file, and nothing built in has this name",
        hint=f"{suggestion}built in are {', '.join(BUILTIN_IDS)}",
    )
