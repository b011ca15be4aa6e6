"""docs/definitions.md is complete: every field, every code, and its examples hold."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from handrail.engine.document_parser import load_document
from handrail.kernel.definition import model as d
from handrail.kernel.definition.plan import check_definition

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/definitions.md").read_text(encoding="utf-8")
SOURCES = (
    "kernel/definition/reader.py",
    "kernel/definition/plan.py",
    "kernel/definition/checks.py",
    "kernel/definition/context_keys.py",
    "kernel/definition/feasibility.py",
    "engine/document_parser.py",
    "cli/definitions.py",
)
MAKERS = {"_problem": 0, "_DocumentError": 0, "_check_covered": 2}
"""Functions that make a problem, and which of their arguments is its code."""


def texts(expression: ast.expr) -> Iterator[str]:
    """The texts an expression can be; the filled-in part of an f-string is a `*`."""
    match expression:
        case ast.Constant(value=str(text)):
            yield text
        case ast.IfExp(body=yes, orelse=no):
            yield from (*texts(yes), *texts(no))
        case ast.JoinedStr(values=values):
            parts = (v.value if isinstance(v, ast.Constant) else "*" for v in values)
            yield "".join(map(str, parts))
        case _:
            return


def codes_in(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords):
                if name in MAKERS and len(args) > MAKERS[name]:
                    yield from texts(args[MAKERS[name]])
                for keyword in keywords:
                    if keyword.arg == "code":
                        yield from texts(keyword.value)
            case ast.Assign(targets=[ast.Name(id="code")], value=value):
                yield from texts(value)
            case ast.FunctionDef(name="_problem_code"):
                for inner in ast.walk(node):
                    if isinstance(inner, ast.Return) and inner.value is not None:
                        yield from texts(inner.value)
            case _:
                pass


def used_codes() -> set[str]:
    files = (ROOT / "src/handrail" / name for name in SOURCES)
    return {code for file in files for code in codes_in(file.read_text(encoding="utf-8"))}


def section(title: str) -> str:
    """From this heading to the next one."""
    return re.split(r"^#+ ", PAGE.split(f"# {title}\n", 1)[1], maxsplit=1, flags=re.M)[0]


def rows(text: str) -> set[str]:
    return set(re.findall(r"^\| `(\w+)` \|", text, flags=re.M))


def documented_codes() -> set[str]:
    return rows(PAGE.split("## What can be wrong\n", 1)[1])


def test_every_code_is_documented():
    missing = [
        code
        for code in used_codes()
        if not any(re.fullmatch(code.replace("*", r"\w+"), known) for known in documented_codes())
    ]
    assert not missing, f"add a row to docs/definitions.md: {sorted(missing)}"


def test_every_documented_code_is_used():
    patterns = [code.replace("*", r"\w+") for code in used_codes()]
    stale = [
        known for known in documented_codes() if not any(re.fullmatch(p, known) for p in patterns)
    ]
    assert not stale, f"remove from docs/definitions.md: {sorted(stale)}"


@pytest.mark.parametrize(
    ("title", "cls"),
    [
        ("A workflow", d.Workflow),
        ("Nodes", d.Node),
        ("Config", d.NodeConfig),
        ("Edges", d.Edge),
        ("A team", d.Team),
        ("Agents", d.Agent),
        ("Tasks", d.Task),
        ("Review", d.Review),
        ("Stop rules", d.StopRules),
    ],
)
def test_every_field_is_documented(title: str, cls: type[msgspec.Struct]):
    fields = {field.encode_name for field in msgspec.structs.fields(cls)}
    tag = cls.__struct_config__.tag_field
    assert rows(section(title)) == fields | ({tag} if tag else set())


def test_the_defaults_of_both_profiles_are_those_of_the_table():
    from handrail.kernel.definition.limits import PROFILES

    table = re.findall(r"^\| `(\w+)` \| ([\d.]+) \| ([\d.]+) \|", section("Stop rules"), re.M)
    assert len(table) > 8
    for name, strict, yolo in table:
        assert getattr(PROFILES["strict"], name) == float(strict), name
        assert getattr(PROFILES["yolo"], name) == float(yolo), name


def test_the_examples_are_valid_without_warnings():
    examples = re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.S)
    assert len(examples) == 2
    for example in examples:
        document, problems = load_document(example)
        assert problems == []
        plan, checked = check_definition(document)
        assert plan is not None, checked.errors
        assert checked.warnings == ()
