"""What the researcher does: look up what the task and the failures name, and score what was found.

A name is what stands in the task or in a failure and looks like code: `words_with_underscores`,
`CamelCase`, `calls()`, `dotted.names`, files, and whatever stands in backticks. A place is a frame
of a traceback. The score is the share of names and places that the folder or the given documents
have an answer for, so it is the same for the same question, and better only if more was found.
"""

import ast
import re
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

from handrail.kernel.decision import Value
from handrail.teams.coding.failures import Failure
from handrail.teams.coding.workspace import NotAllowed, Workspace

NAMES_MAX = 50
FOUND_MAX = 100
_TICKED = re.compile(r"`([^`\n]{1,100})`")
_CODE = re.compile(
    r"[A-Za-z_][\w-]*\.(?:py|md|txt|toml|yaml|json)\b"
    r"|[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+"
    r"|[A-Za-z_]\w*(?=\(\))"
    r"|[A-Za-z]+(?:_\w+)+"
    r"|[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]+)+"
)
_WORD = re.compile(r"[A-Za-z_]\w{3,}")


class Definition(Value):
    """A function or class of the folder, by its lines."""

    path: str
    name: str
    first: int
    last: int


class Found(Value):
    """What the research came to."""

    score: float
    places: tuple[str, ...]
    """`path:line name`, in the order of their worth."""
    missing: tuple[str, ...]


def named(text: str) -> list[str]:
    """What the text names that looks like code."""
    ticked = [name.strip("() ") for name in _TICKED.findall(text)]
    names = [name for name in (*ticked, *_CODE.findall(text)) if name]
    return list(dict.fromkeys(names))[:NAMES_MAX]


def definitions(workspace: Workspace) -> list[Definition]:
    """Every function and class of the folder."""
    found: list[Definition] = []
    for path in workspace.sources():
        tree = parsed(workspace, path)
        for node in ast.walk(tree) if tree is not None else ():
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                last = node.end_lineno or node.lineno
                found.append(Definition(path=path, name=node.name, first=node.lineno, last=last))
    return found


def parsed(workspace: Workspace, path: str) -> ast.Module | None:
    """The file as a tree; None if it is no Python that can be read."""
    try:
        return ast.parse(workspace.read(path))
    except (NotAllowed, SyntaxError, ValueError, RecursionError):
        return None


def research(
    workspace: Workspace, task: str, failures: Iterable[Failure], documents: Mapping[str, str]
) -> Found:
    """Everything that task and failures name, looked up in the folder and in the documents."""
    known = definitions(workspace)
    files = workspace.files()
    wanted: dict[str, str] = {}
    for failure in failures:
        for frame in failure.frames:
            if frame.path in files:
                where = _enclosing(known, frame.path, frame.line)
                wanted[f"{frame.path}:{frame.line}"] = f"{frame.path}:{frame.line} {where}".strip()
        for name in called_in_test(workspace, failure):
            wanted[name] = _definition(known, name)
    for name in named(task):
        wanted[name] = _lookup(name, known, files) or _in_documents(name, documents)
    if not wanted:
        wanted = {word: _lookup(word, known, files) for word in _words(task)}
        wanted = {word: place for word, place in wanted.items() if place} or {task[:80]: ""}
    places = [place for place in wanted.values() if place]
    return Found(
        score=round(len(places) / len(wanted), 2),
        places=tuple(dict.fromkeys(places))[:FOUND_MAX],
        missing=tuple(name for name, place in wanted.items() if not place)[:FOUND_MAX],
    )


def _words(task: str) -> list[str]:
    """Of a task that names no code: its words, which may be names all the same."""
    return list(dict.fromkeys(word.lower() for word in _WORD.findall(task)))[:NAMES_MAX]


def called_in_test(workspace: Workspace, failure: Failure) -> list[str]:
    """Names that the test's function calls: where an assertion fails, one of them is wrong."""
    tests = [frame for frame in failure.frames if is_test(frame.path)]
    if not tests:
        return []
    tree = parsed(workspace, tests[0].path)
    found: list[str] = []
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (
            node.name == tests[0].name and node.lineno <= tests[0].line <= (node.end_lineno or 0)
        ):
            found += _calls(node)
    known = {one.name for one in definitions(workspace) if not is_test(one.path)}
    return [name for name in dict.fromkeys(found) if name in known]


def _calls(node: ast.AST) -> list[str]:
    found: list[str] = []
    for one in ast.walk(node):
        if isinstance(one, ast.Call):
            called = one.func
            if isinstance(called, ast.Name):
                found.append(called.id)
            elif isinstance(called, ast.Attribute):
                found.append(called.attr)
    return found


def is_test(path: str) -> bool:
    name = PurePosixPath(path).name
    return name.startswith("test_") or name.endswith("_test.py")


def _enclosing(known: Iterable[Definition], path: str, line: int) -> str:
    inside = [one for one in known if one.path == path and one.first <= line <= one.last]
    return max(inside, key=lambda one: one.first).name if inside else ""


def _definition(known: Iterable[Definition], name: str) -> str:
    for one in known:
        if one.name == name and not is_test(one.path):
            return f"{one.path}:{one.first} {one.name}"
    return ""


def _lookup(name: str, known: Iterable[Definition], files: Iterable[str]) -> str:
    last = name.rpartition(".")[2]
    return (
        next((path for path in files if path == name or path.endswith(f"/{name}")), "")
        or _definition(known, last)
        or _definition(known, name)
    )


def _in_documents(name: str, documents: Mapping[str, str]) -> str:
    for title, text in documents.items():
        for number, line in enumerate(text.splitlines(), start=1):
            if name in line:
                return f"{title}:{number}"
    return ""
