"""The tree stays tidy: sizes, names, headers, purity of the kernel, nothing of one machine.

A ratchet: what is over a limit today stands in `LONGER_FUNCTIONS`, `LARGER_CLASSES`,
`SHARED_NAMES` or `BANNED_NAMES_MAX` with its size, and may only shrink. An entry that is no longer
needed, or larger than needed, fails too. Complexity and line length are ruff's business.

Classes are measured with the methods they inherit, because a limit on the lines of a file is met by
slicing one object into mixins.

A check of one file is a function from a path and a text to complaints `path:line: what; remedy`,
so that the tests at the end can show that each of them does find what it looks for. A check of the
whole source takes all modules at once.
"""

import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

FUNCTION_LINES_MAX = 60
METHODS_MAX = 40
"""Of a class, with those of its bases in this project."""
IMPORT_CHAIN_MAX = 25
"""Modules, each imported by the one before when that is imported itself."""

LONGER_FUNCTIONS: dict[str, int] = {}
"""path:function: lines"""
LARGER_CLASSES: dict[str, int] = {}
"""class: methods"""
SHARED_NAMES: dict[str, str] = {}
"""class: why its name occurs more than once"""
BANNED_NAMES = {"told", "said", "found", "one", "known", "kept", "given", "asked"}
"""Say what is in it: `message`, `reason`, `match`, `row`."""
BANNED_NAMES_MAX = 4
"""Assignments to them in all of src."""

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
PLAIN = {"Any", "PersonRole", "Role", "WebhookEventType"}
"""Names of types that are no structs."""
NEVER_TRACKED = {"uv.lock", "node_modules", "dist", ".venv"}

# Spelt in pieces: this file is checked as well.
UNFINISHED = re.compile(r"\b(?:" + "TO" + "DO|FIX" + r"ME)\b")
MACHINE_PATH = re.compile(r"(?<![\w.~-])/(?:" + "wo" + "rk|ro" + "ot|fa" + "rm)/")
REGISTRY = re.compile(
    r"https?://[a-z.]*(?:py" + "pi|python" + "hosted|np" + "mjs|deb" + "ian)|index-" + r"url\b"
)

Check = Callable[[str, str], Iterator[str]]
Modules = Mapping[str, str]
"""path: text"""


def kernel(path: str) -> bool:
    return path.startswith("src/handrail/kernel/")


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


def class_names(modules: Modules) -> Iterator[str]:
    """Whoever greps for a class finds one."""
    places: dict[str, list[str]] = defaultdict(list)
    for path, node in _classes_in(modules):
        places[node.name].append(f"{path}:{node.lineno}")
    for name, where in sorted(places.items()):
        if len(where) > 1 and name not in SHARED_NAMES:
            yield f"{where[0]}: {name} is also at {', '.join(where[1:])}; name each by its subject"
    for name in sorted(SHARED_NAMES):
        if len(places[name]) < 2:
            yield f"tests/test_tidy.py:1: {name} occurs once; remove it from SHARED_NAMES"


def methods_of_classes(modules: Modules) -> Iterator[str]:
    own: dict[str, tuple[str, set[str], list[str]]] = {}
    for path, node in _classes_in(modules):
        methods = {
            x.name for x in node.body if isinstance(x, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        bases = [ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases]
        own[node.name] = f"{path}:{node.lineno}", methods, bases
    for name, (where, _, _) in own.items():
        count = len(_methods(own, name, set()))
        limit = LARGER_CLASSES.get(name, METHODS_MAX)
        if count > limit:
            yield f"{where}: {name} has {count} methods with its bases, at most {limit}; compose it"
        elif name in LARGER_CLASSES and count < limit:
            yield f"{where}: {name} is down to {count} methods; lower it in LARGER_CLASSES"
    for name in sorted(LARGER_CLASSES.keys() - own.keys()):
        yield f"tests/test_tidy.py:1: there is no {name}; remove it from LARGER_CLASSES"


def _methods(
    own: dict[str, tuple[str, set[str], list[str]]], name: str, seen: set[str]
) -> set[str]:
    if name not in own or name in seen:
        return set()
    seen.add(name)
    _, methods, bases = own[name]
    return methods.union(*(_methods(own, base, seen) for base in bases))


def _classes_in(modules: Modules) -> Iterator[tuple[str, ast.ClassDef]]:
    for path, text in modules.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef):
                yield path, node


def banned_names(modules: Modules) -> Iterator[str]:
    places = [
        f"{path}:{node.lineno}: {node.id}"
        for path, text in modules.items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        if node.id in BANNED_NAMES
    ]
    if len(places) > BANNED_NAMES_MAX:
        shown = "\n".join(places[:20])
        yield f"{len(places)} of {BANNED_NAMES_MAX} assignments; say what is in it:\n{shown}"
    elif len(places) < BANNED_NAMES_MAX:
        yield f"tests/test_tidy.py:1: lower BANNED_NAMES_MAX to {len(places)}"


def import_chain(modules: Modules) -> Iterator[str]:
    """How many files must be understood, at the most, to understand one."""
    imports = _imports(modules)
    chains: dict[str, list[str]] = {}

    def longest_chain(name: str) -> list[str]:
        if name not in chains:
            chains[name] = []  # ends a circle
            rest = max((longest_chain(other) for other in imports[name]), key=len, default=[])
            chains[name] = [name, *rest]
        return chains[name]

    chain = max((longest_chain(name) for name in imports), key=len)
    if len(chain) > IMPORT_CHAIN_MAX:
        path = " -> ".join(name.removeprefix("handrail.") for name in chain)
        yield f"{len(chain)} modules import each other, at most {IMPORT_CHAIN_MAX}: {path}"


def _imports(modules: Modules) -> dict[str, list[str]]:
    """By module, the modules of this project that its top-level statements import."""
    paths = {
        path.removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", "."): (
            path
        )
        for path in modules
    }
    imports: dict[str, list[str]] = {}
    for name, path in paths.items():
        targets: set[str] = set()
        for node in ast.parse(modules[path]).body:
            if isinstance(node, ast.Import):
                targets |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                parts = {f"{node.module}.{alias.name}" for alias in node.names}
                targets |= parts & paths.keys() or {node.module or ""}
        imports[name] = sorted((targets & paths.keys()) - {name})
    return imports


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
        if not isinstance(node, ast.stmt | ast.expr):
            continue
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
    """A type that threads may read for the first time together: see `decision.prepare_types`.
    The commands and the simulator have one thread."""
    if path.startswith(("src/handrail/cli/", "src/handrail/testing/")):
        return
    tree = ast.parse(text)
    known: set[str] = set()
    for statement in tree.body:
        if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for call in _calls(statement, "prepare_types", "Decoder"):
                known |= {name for part in call.args for name in _classes(part)}
    for call in _calls(tree, "convert", "decode"):
        kinds = [part.value for part in call.keywords if part.arg == "type"]
        if ast.unparse(call.func) == "msgspec.convert":
            kinds += call.args[1:2]
        for name in sorted({name for kind in kinds for name in _classes(kind)} - known):
            remedy = f"write prepare_types({name}) in the module"
            yield f"{path}:{call.lineno}: {name} is prepared late; {remedy}"


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


def shipped(path: str) -> bool:
    """What `handrail init` writes is for others to go on from."""
    return not path.startswith("src/handrail/cli/starter/")


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
    [length_of_functions, header, printing, impurity, late],
    ids=lambda check: check.__name__,
)
def test_source_files_are_tidy(check: Check):
    expect_none(check, SOURCE)


@pytest.mark.parametrize(
    "check",
    [class_names, methods_of_classes, banned_names, import_chain],
    ids=lambda check: check.__name__,
)
def test_the_source_as_a_whole_is_tidy(check: Callable[[Modules], Iterator[str]]):
    complaints = list(check({path: (ROOT / path).read_text() for path in SOURCE if shipped(path)}))
    if complaints:
        pytest.fail("\n".join(complaints), pytrace=False)


def test_no_python_file_has_a_bare_except():
    expect_none(bare_except, PYTHON)


@pytest.mark.parametrize(
    "check", [unfinished, machine_path, registry], ids=["unfinished", "machine_path", "registry"]
)
def test_no_file_of_the_project_holds(check: Check):
    expect_none(check, FILES)


def test_exceptions_name_files_and_functions_that_exist():
    named = {key.rpartition(":")[0] for key in LONGER_FUNCTIONS}
    assert named <= set(SOURCE), f"remove from the exceptions: {sorted(named - set(SOURCE))}"


def test_nothing_built_or_locked_is_tracked():
    tracked = [path for path in FILES if NEVER_TRACKED & set(Path(path).parts)]
    assert not tracked, f"git rm --cached, and keep in .gitignore: {tracked}"


@pytest.mark.parametrize(
    ("check", "path", "text", "line"),
    [
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
        (printing, "src/handrail/cli/a.py", "print(1)\n"),
        (impurity, "src/handrail/engine/a.py", "import uuid\n"),
        (late, "src/a.py", "prepare_types(Node)\ndef f(x):\n    return msgspec.convert(x, Node)\n"),
        (late, "src/a.py", "def f(x):\n    return json.decode(x, type=dict[str, Any])\n"),
        (machine_path, "README.md", "docs/wo" + "rk/x and https://example.org/ro" + "ot/x\n"),
        (registry, "README.md", "installed with pip from PyPI\n"),
    ],
)
def test_no_check_finds_what_is_allowed(check: Check, path: str, text: str):
    assert not list(check(path, text))


MIXED = """
class A:
    def a(self): ...
    def b(self): ...
class B(A):
    def b(self): ...
    def c(self): ...
"""


def test_a_class_is_measured_with_what_it_inherits(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys.modules[__name__], "METHODS_MAX", 2)
    monkeypatch.setattr(sys.modules[__name__], "LARGER_CLASSES", {})
    (complaint,) = methods_of_classes({"src/a.py": MIXED})
    assert complaint.startswith("src/a.py:5: B has 3 methods with its bases, at most 2;")
    monkeypatch.setattr(sys.modules[__name__], "LARGER_CLASSES", {"B": 4})
    assert "B is down to 3 methods" in "".join(methods_of_classes({"src/a.py": MIXED}))


def test_a_class_name_that_occurs_twice_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys.modules[__name__], "SHARED_NAMES", {})
    twice = {"src/a.py": "class A: ...\n", "src/b.py": "\nclass A: ...\n"}
    assert "src/a.py:1: A is also at src/b.py:2" in "".join(class_names(twice))


def test_a_long_chain_of_imports_is_named(monkeypatch: pytest.MonkeyPatch):
    modules = {
        "src/handrail/a.py": "from handrail import b\n",
        "src/handrail/b.py": "from handrail.c import x\n\ndef late():\n    import handrail.d\n",
        "src/handrail/c/__init__.py": "import os\n",
        "src/handrail/d.py": "import handrail.a\n",
    }
    monkeypatch.setattr(sys.modules[__name__], "IMPORT_CHAIN_MAX", 3)
    (complaint,) = import_chain(modules)
    assert complaint.endswith("at most 3: d -> a -> b -> c")
    monkeypatch.setattr(sys.modules[__name__], "IMPORT_CHAIN_MAX", 4)
    assert not list(import_chain(modules))


@pytest.mark.parametrize(
    "text", ["told = 1\n", "for one in x:\n    pass\n", "y = [one for one in x]\n"]
)
def test_a_banned_name_is_named_where_it_is_assigned(text: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys.modules[__name__], "BANNED_NAMES_MAX", 0)
    (complaint,) = banned_names({"src/a.py": text})
    assert "src/a.py:1: " in complaint
    assert not list(banned_names({"src/a.py": "message = x.told\n"}))
