"""The tree stays tidy: sizes, headers, purity of the kernel, nothing that belongs to one machine.

A ratchet: what is over a limit today stands in `LONGER_FILES` or `LONGER_FUNCTIONS` with its size,
and may only shrink. An entry that is no longer needed, or larger than needed, fails too. Complexity
and line length are ruff's business.

Every check is a function from a path and a text to complaints `path:line: what; remedy`, so that
the tests at the end can show that each of them does find what it looks for.
"""

import ast
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

KERNEL_LINES_MAX = 400
FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 60

LONGER_FILES: dict[str, int] = {}
"""path: lines"""
LONGER_FUNCTIONS: dict[str, int] = {}
"""path:function: lines"""

IMPURE_MODULES = {"random", "secrets", "time", "uuid"}
IMPURE_CALLS = {
    "date.today",
    "datetime.now",
    "datetime.today",
    "datetime.utcnow",
    "time.monotonic",
    "time.perf_counter",
    "time.time",
}
PLAIN = {"Any", "Kind", "PersonRole", "Role"}
"""Names of types that are no structs."""
NEVER_TRACKED = {"uv.lock", "node_modules", "dist", ".venv"}

# Spelt in pieces: this file is checked as well.
UNFINISHED = re.compile(r"\b(?:" + "TO" + "DO|FIX" + r"ME)\b")
MACHINE_PATH = re.compile(r"(?<![\w.~-])/(?:" + "wo" + "rk|ro" + "ot|fa" + "rm)/")
REGISTRY = re.compile(
    r"https?://[a-z.]*(?:py" + "pi|python" + "hosted|np" + "mjs|deb" + "ian)|index-" + r"url\b"
)

Check = Callable[[str, str], Iterator[str]]


def kernel(path: str) -> bool:
    return path.startswith("src/handrail/kernel/")


def length_of_file(path: str, text: str) -> Iterator[str]:
    limit = LONGER_FILES.get(path, KERNEL_LINES_MAX if kernel(path) else FILE_LINES_MAX)
    lines = len(text.splitlines())
    if lines > limit:
        yield f"{path}:{limit + 1}: {lines} lines, at most {limit}; split the file by subject"
    elif path in LONGER_FILES and lines < limit:
        yield f"{path}:{lines}: is down to {lines} lines; lower or remove it in LONGER_FILES"


def length_of_functions(path: str, text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        key = f"{path}:{node.name}"
        limit = LONGER_FUNCTIONS.get(key, FUNCTION_LINES_MAX)
        lines = (node.end_lineno or node.lineno) - node.lineno + 1
        if lines > limit:
            yield (
                f"{path}:{node.lineno}: {node.name} has {lines} lines, at most {limit}; "
                f"take a part out and give it a name"
            )
        elif key in LONGER_FUNCTIONS and lines < limit:
            yield f"{path}:{node.lineno}: {node.name} is down to {lines}; lower LONGER_FUNCTIONS"


def header(path: str, text: str) -> Iterator[str]:
    if not ast.get_docstring(ast.parse(text)):
        yield f"{path}:1: no header; begin the file with a docstring that says how it works"


def printing(path: str, text: str) -> Iterator[str]:
    if path.startswith("src/handrail/cli/"):
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "print":
            yield f"{path}:{node.lineno}: prints; return the text, cli/ prints it"


def impurity(path: str, text: str) -> Iterator[str]:
    """In the kernel, time, ids and chance come in as arguments."""
    if not kernel(path):
        return
    for node in ast.walk(ast.parse(text)):
        found: set[str] = set()
        if isinstance(node, ast.Import):
            found = {alias.name.partition(".")[0] for alias in node.names} & IMPURE_MODULES
        elif isinstance(node, ast.ImportFrom):
            found = {(node.module or "").partition(".")[0]} & IMPURE_MODULES
        elif isinstance(node, ast.Attribute):
            owner = ast.unparse(node.value).rpartition(".")[2]
            found = {f"{owner}.{node.attr}"} & IMPURE_CALLS
        for name in sorted(found):
            yield f"{path}:{node.lineno}: uses {name}; take time, ids and chance as arguments"


def bare_except(path: str, text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ExceptHandler) and node.type is None:
            yield f"{path}:{node.lineno}: bare except; name the errors that are expected here"


def late(path: str, text: str) -> Iterator[str]:
    """A type that threads may read for the first time together; see `kernel/decision.learn`. The
    commands and the simulator have one thread."""
    if path.startswith(("src/handrail/cli/", "src/handrail/testing/")):
        return
    tree = ast.parse(text)
    known: set[str] = set()
    for statement in tree.body:
        if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for call in _calls(statement, "learn", "Decoder"):
                known |= {name for part in call.args for name in _classes(part)}
    for call in _calls(tree, "convert", "decode"):
        kinds = [part.value for part in call.keywords if part.arg == "type"]
        if ast.unparse(call.func) == "msgspec.convert":
            kinds += call.args[1:2]
        for name in sorted({name for kind in kinds for name in _classes(kind)} - known):
            yield f"{path}:{call.lineno}: {name} is learnt late; write learn({name}) in the module"


def _calls(tree: ast.AST, *names: str) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in names:
            yield node


def _classes(kind: ast.AST) -> set[str]:
    names = {node.id for node in ast.walk(kind) if isinstance(node, ast.Name)}
    names |= {node.attr for node in ast.walk(kind) if isinstance(node, ast.Attribute)}
    return {name for name in names if name[0].isupper() and name not in PLAIN}


def matches(pattern: re.Pattern[str], what: str) -> Check:
    def check(path: str, text: str) -> Iterator[str]:
        for number, line in enumerate(text.splitlines(), start=1):
            if found := pattern.search(line):
                yield f"{path}:{number}: {found.group()!r}: {what}"

    return check


unfinished = matches(UNFINISHED, "unfinished; finish it or file an issue")
machine_path = matches(MACHINE_PATH, "a path of one machine; make it relative or a setting")
registry = matches(REGISTRY, "a package registry's address; leave the choice to the installer")


def project_files() -> list[str]:
    """What is or would be tracked; without git, everything but hidden and built folders."""
    git = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(git, capture_output=True, text=True, check=False)
    if listed.returncode == 0:
        return sorted(path for path in listed.stdout.splitlines() if (ROOT / path).is_file())
    paths = (path.relative_to(ROOT) for path in ROOT.rglob("*") if path.is_file())
    skipped = NEVER_TRACKED | {"__pycache__", "build"}
    return sorted(
        path.as_posix()
        for path in paths
        if not any(part in skipped or part.startswith(".") for part in path.parts)
    )


FILES = project_files()
PYTHON = [path for path in FILES if path.endswith(".py")]
SOURCE = [path for path in PYTHON if path.startswith("src/")]


def expect_none(check: Check, paths: list[str]) -> None:
    found: list[str] = []
    for path in paths:
        try:
            text = (ROOT / path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # not text
        found.extend(check(path, text))
    if found:
        pytest.fail("\n".join(found), pytrace=False)


@pytest.mark.parametrize(
    "check",
    [length_of_file, length_of_functions, header, printing, impurity, late],
    ids=lambda check: check.__name__,
)
def test_source_files_are_tidy(check: Check):
    expect_none(check, SOURCE)


def test_no_python_file_has_a_bare_except():
    expect_none(bare_except, PYTHON)


@pytest.mark.parametrize(
    "check", [unfinished, machine_path, registry], ids=["unfinished", "machine_path", "registry"]
)
def test_no_file_of_the_project_holds(check: Check):
    expect_none(check, FILES)


def test_exceptions_name_files_and_functions_that_exist():
    named = {*LONGER_FILES, *(key.rpartition(":")[0] for key in LONGER_FUNCTIONS)}
    assert named <= set(SOURCE), f"remove from the exceptions: {sorted(named - set(SOURCE))}"


def test_nothing_built_or_locked_is_tracked():
    tracked = [path for path in FILES if NEVER_TRACKED & set(Path(path).parts)]
    assert not tracked, f"git rm --cached, and keep in .gitignore: {tracked}"


@pytest.mark.parametrize(
    ("check", "path", "text", "line"),
    [
        (length_of_file, "src/handrail/kernel/a.py", "\n" * (KERNEL_LINES_MAX + 1), 401),
        (length_of_file, "src/handrail/engine/a.py", "\n" * (FILE_LINES_MAX + 1), 501),
        (length_of_functions, "src/a.py", "\ndef f():\n" + "    pass\n" * FUNCTION_LINES_MAX, 2),
        (header, "src/a.py", "import os\n", 1),
        (printing, "src/handrail/engine/a.py", "x = 1\nprint(x)\n", 2),
        (impurity, "src/handrail/kernel/a.py", "import json\nimport uuid\n", 2),
        (impurity, "src/handrail/kernel/a.py", "from random import choice\n", 1),
        (impurity, "src/handrail/kernel/a.py", "import datetime as d\nd.datetime.now()\n", 2),
        (late, "src/a.py", "def f(x):\n    return msgspec.convert(x, list[Node])\n", 2),
        (late, "src/a.py", "def f(x):\n    return json.decode(x, type=Node)\n", 2),
        (bare_except, "src/a.py", "try:\n    pass\nexcept :\n    pass\n", 3),
        (unfinished, "README.md", "later\nTO" + "DO: write\n", 2),
        (machine_path, "README.md", "cd /wo" + "rk/x\n", 1),
        (registry, "README.md", "https://py" + "pi.org/x\n", 1),
    ],
)
def test_each_check_finds_what_it_looks_for(check: Check, path: str, text: str, line: int):
    found = list(check(path, text))
    assert len(found) == 1
    assert found[0].startswith(f"{path}:{line}: ")


@pytest.mark.parametrize(
    ("check", "path", "text"),
    [
        (length_of_file, "src/handrail/kernel/a.py", "\n" * KERNEL_LINES_MAX),
        (printing, "src/handrail/cli/a.py", "print(1)\n"),
        (impurity, "src/handrail/engine/a.py", "import uuid\n"),
        (late, "src/a.py", "learn(Node)\ndef f(x):\n    return msgspec.convert(x, Node)\n"),
        (late, "src/a.py", "def f(x):\n    return json.decode(x, type=dict[str, Any])\n"),
        (machine_path, "README.md", "docs/wo" + "rk/x and https://example.org/ro" + "ot/x\n"),
        (registry, "README.md", "installed with pip from PyPI\n"),
    ],
)
def test_no_check_finds_what_is_allowed(check: Check, path: str, text: str):
    assert not list(check(path, text))
