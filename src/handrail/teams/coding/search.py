"""The researcher's work: look up what the task and the failures name, and score the results.

A name is what stands in the task or in a failure and looks like code: `words_with_underscores`,
`CamelCase`, `calls()`, `dotted.names`, files, and whatever stands in backticks. A location is a
frame of a traceback. The score is the share of names and locations that the folder or the given
documents have an answer for, so it is the same for the same question, and better only if more was
found.
"""

import ast
import re
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

from handrail.kernel.decision import Value
from handrail.teams.coding.failures import Failure
from handrail.teams.coding.workspace import NotAllowedError, Workspace

NAMES_MAX = 50
LOCATIONS_MAX = 100
_BACKTICKED = re.compile(r"`([^`\n]{1,100})`")
_CODE_NAME = re.compile(
    r"[A-Za-z_][\w-]*\.(?:py|md|txt|toml|yaml|json)\b"
    r"|[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+"
    r"|[A-Za-z_]\w*(?=\(\))"
    r"|[A-Za-z]+(?:_\w+)+"
    r"|[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]+)+"
)
_WORD = re.compile(r"[A-Za-z_]\w{3,}")


class CodeDefinition(Value):
    """A function or class of the folder, by its lines."""

    path: str
    name: str
    first_line: int
    last_line: int


class ResearchResult(Value):
    """The outcome of the research."""

    score: float
    locations: tuple[str, ...]
    """`path:line name`, the most relevant first."""
    missing: tuple[str, ...]


def find_code_names(text: str) -> list[str]:
    """Return the names in the text that look like code."""
    backticked = [name.strip("() ") for name in _BACKTICKED.findall(text)]
    names = [name for name in (*backticked, *_CODE_NAME.findall(text)) if name]
    return list(dict.fromkeys(names))[:NAMES_MAX]


def find_definitions(workspace: Workspace) -> list[CodeDefinition]:
    """Return every function and class of the folder."""
    results: list[CodeDefinition] = []
    for path in workspace.python_files():
        tree = parse_source(workspace, path)
        for node in ast.walk(tree) if tree is not None else ():
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                last_line = node.end_lineno or node.lineno
                results.append(
                    CodeDefinition(
                        path=path, name=node.name, first_line=node.lineno, last_line=last_line
                    )
                )
    return results


def parse_source(workspace: Workspace, path: str) -> ast.Module | None:
    """Parse the file; None if it is no Python that can be read."""
    try:
        return ast.parse(workspace.read(path))
    except (NotAllowedError, SyntaxError, ValueError, RecursionError):
        return None


def research(
    workspace: Workspace, task: str, failures: Iterable[Failure], documents: Mapping[str, str]
) -> ResearchResult:
    """Look up everything that task and failures name, in the folder and in the documents."""
    code_definitions = find_definitions(workspace)
    files = workspace.files()
    locations_by_name: dict[str, str] = {}
    for failure in failures:
        for frame in failure.frames:
            if frame.path in files:
                enclosing = _enclosing_name(code_definitions, frame.path, frame.line)
                locations_by_name[f"{frame.path}:{frame.line}"] = (
                    f"{frame.path}:{frame.line} {enclosing}".strip()
                )
        for name in find_called_names(workspace, failure):
            locations_by_name[name] = _locate_definition(code_definitions, name)
    for name in find_code_names(task):
        locations_by_name[name] = _locate_name(
            name, code_definitions, files
        ) or _locate_in_documents(name, documents)
    if not locations_by_name:
        locations_by_name = {
            word: _locate_name(word, code_definitions, files) for word in _task_words(task)
        }
        locations_by_name = {
            word: location for word, location in locations_by_name.items() if location
        } or {task[:80]: ""}
    locations = [location for location in locations_by_name.values() if location]
    return ResearchResult(
        score=round(len(locations) / len(locations_by_name), 2),
        locations=tuple(dict.fromkeys(locations))[:LOCATIONS_MAX],
        missing=tuple(name for name, location in locations_by_name.items() if not location)[
            :LOCATIONS_MAX
        ],
    )


def _task_words(task: str) -> list[str]:
    """Return the words of a task that names no code: they may be names all the same."""
    return list(dict.fromkeys(word.lower() for word in _WORD.findall(task)))[:NAMES_MAX]


def find_called_names(workspace: Workspace, failure: Failure) -> list[str]:
    """Return names that the test's function calls: where an assertion fails, one of them is
    wrong.
    """
    tests = [frame for frame in failure.frames if is_test(frame.path)]
    if not tests:
        return []
    tree = parse_source(workspace, tests[0].path)
    names: list[str] = []
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (
            node.name == tests[0].name and node.lineno <= tests[0].line <= (node.end_lineno or 0)
        ):
            names += _called_names(node)
    defined_names = {
        definition.name
        for definition in find_definitions(workspace)
        if not is_test(definition.path)
    }
    return [name for name in dict.fromkeys(names) if name in defined_names]


def _called_names(node: ast.AST) -> list[str]:
    names: list[str] = []
    for child in ast.walk(node):
        if isinstance(child, ast.Call):
            function = child.func
            if isinstance(function, ast.Name):
                names.append(function.id)
            elif isinstance(function, ast.Attribute):
                names.append(function.attr)
    return names


def is_test(path: str) -> bool:
    name = PurePosixPath(path).name
    return name.startswith("test_") or name.endswith("_test.py")


def _enclosing_name(code_definitions: Iterable[CodeDefinition], path: str, line: int) -> str:
    enclosing = [
        definition
        for definition in code_definitions
        if definition.path == path and definition.first_line <= line <= definition.last_line
    ]
    return max(enclosing, key=lambda definition: definition.first_line).name if enclosing else ""


def _locate_definition(code_definitions: Iterable[CodeDefinition], name: str) -> str:
    for definition in code_definitions:
        if definition.name == name and not is_test(definition.path):
            return f"{definition.path}:{definition.first_line} {definition.name}"
    return ""


def _locate_name(
    name: str, code_definitions: Iterable[CodeDefinition], files: Iterable[str]
) -> str:
    bare_name = name.rpartition(".")[2]
    return (
        next((path for path in files if path == name or path.endswith(f"/{name}")), "")
        or _locate_definition(code_definitions, bare_name)
        or _locate_definition(code_definitions, name)
    )


def _locate_in_documents(name: str, documents: Mapping[str, str]) -> str:
    for title, text in documents.items():
        for number, line in enumerate(text.splitlines(), start=1):
            if name in line:
                return f"{title}:{number}"
    return ""
