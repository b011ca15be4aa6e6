"""Repair patterns: what is commonly wrong in a function, and how it would read put right.

A pattern is a function from a `Site` (a function of a file, and what failed there) to edits; an
edit replaces a stretch of the file's text, so everything else of the file stays as it was written.
Which patterns are tried, and in which order, depends on what was raised (`ORDER`). A pattern
proposes; whether it was right is for the tests to say.

Adding one: a function here, its name in PATTERNS, and where it fits in ORDER.
"""

import ast
import builtins
import difflib
import re
import sys
from collections.abc import Callable, Iterator

from handrail.kernel.decision import Value
from handrail.teams.coding.failures import Failure

NEAR = 0.7
"""How alike two names must be for one to be a misspelling of the other."""
SIMILAR_MAX = 3
_NAME = re.compile(r"'([A-Za-z_]\w*)'")
_COMPARISONS: dict[type[ast.cmpop], tuple[str, ...]] = {
    ast.Lt: ("<=", ">"),
    ast.LtE: ("<", ">="),
    ast.Gt: (">=", "<"),
    ast.GtE: (">", "<="),
    ast.Eq: ("!=",),
    ast.NotEq: ("==",),
    ast.In: ("not in",),
    ast.NotIn: ("in",),
    ast.Is: ("is not",),
    ast.IsNot: ("is",),
}
_OPERATORS: dict[type[ast.operator], tuple[str, ...]] = {
    ast.Add: ("-", "*"),
    ast.Sub: ("+",),
    ast.Mult: ("/", "+"),
    ast.Div: ("//", "*"),
    ast.FloorDiv: ("/", "%"),
    ast.Mod: ("//",),
}
_EMPTY = (
    "TypeError",
    "ZeroDivisionError",
    "IndexError",
    "KeyError",
    "ValueError",
    "AttributeError",
)


class Edit(Value):
    """Characters `start` to `end` of the file are replaced."""

    start: int
    end: int
    text: str
    told: str


Function = ast.FunctionDef | ast.AsyncFunctionDef
_DEFINED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class Site:
    """A function under suspicion. Without one (`node` is None) the whole file is."""

    def __init__(
        self,
        source: str,
        tree: ast.Module,
        node: Function | None,
        failure: Failure,
        expected: tuple[str, ...] = (),
        names: frozenset[str] = frozenset(),
    ) -> None:
        self.source, self.tree, self.node, self.failure = source, tree, node, failure
        self.expected = expected
        """What the failing test expects, as it writes it."""
        self.names = names
        """Names that the project knows."""
        lengths = [len(line) for line in source.splitlines(keepends=True)]
        self._starts = [sum(lengths[:i]) for i in range(len(lengths) + 1)]
        self._lines = source.splitlines(keepends=True)

    @property
    def scope(self) -> ast.AST:
        """What is looked at: the function, or what stands in the file outside of any."""
        if self.node is not None:
            return self.node
        outside = [one for one in self.tree.body if not isinstance(one, _DEFINED)]
        return ast.Module(body=outside, type_ignores=[])

    def at(self, line: int, column: int) -> int:
        """The position of a place as the tree has it: columns count bytes there."""
        before = self._lines[line - 1].encode()[:column].decode(errors="ignore")
        return self._starts[line - 1] + len(before)

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        end_line, end_column = node.end_lineno, node.end_col_offset
        assert end_line is not None
        assert end_column is not None
        return self.at(node.lineno, node.col_offset), self.at(end_line, end_column)

    def text(self, node: ast.expr | ast.stmt) -> str:
        start, end = self.span(node)
        return self.source[start:end]

    def replaced(self, node: ast.expr | ast.stmt, by: str, told: str) -> Edit:
        start, end = self.span(node)
        return Edit(start=start, end=end, text=by, told=f"line {node.lineno}: {told}")

    def between(self, left: ast.expr, right: ast.expr, by: str, told: str) -> Edit:
        """What stands between two expressions, an operator, is replaced."""
        start, end = self.span(left)[1], self.span(right)[0]
        gap = self.source[start:end]
        closed, opened = gap[: len(gap) - len(gap.lstrip(" )"))], gap[len(gap.rstrip(" (")) :]
        text = f"{closed.rstrip()} {by} {opened.lstrip()}"
        return Edit(start=start, end=end, text=text, told=f"line {left.lineno}: {told}")

    def before(self, statement: ast.stmt, lines: list[str], told: str) -> Edit:
        """New lines before a statement, indented as it is."""
        start = self._starts[statement.lineno - 1]
        indent = " " * statement.col_offset
        text = "".join(f"{indent}{line}\n" for line in lines)
        return Edit(start=start, end=start, text=text, told=f"line {statement.lineno}: {told}")


def _walk(site: Site, *kinds: type[ast.AST]) -> Iterator[ast.AST]:
    for node in ast.walk(site.scope):
        if isinstance(node, kinds):
            yield node


def _off_by_one(site: Site) -> Iterator[Edit]:
    """A bound of a range or slice that is one too high or too low."""
    for node in _walk(site, ast.Call, ast.Slice, ast.Subscript):
        if isinstance(node, ast.Call):
            called = isinstance(node.func, ast.Name) and node.func.id == "range"
            bounds = [*reversed(node.args[:2])] if called else []
        elif isinstance(node, ast.Slice):
            bounds = [bound for bound in (node.upper, node.lower) if bound is not None]
        else:
            assert isinstance(node, ast.Subscript)
            bounds = [node.slice] if isinstance(node.slice, ast.Name | ast.BinOp) else []
        for bound in bounds:
            yield from _shifted(site, bound)


def _shifted(site: Site, bound: ast.expr) -> Iterator[Edit]:
    told = "a bound that is off by one"
    match bound:
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=ast.Constant(value=1)):
            yield site.replaced(bound, site.text(left), told)
        case _:
            for sign in "+-":
                yield site.replaced(bound, f"{site.text(bound)} {sign} 1", told)


def _comparison(site: Site) -> Iterator[Edit]:
    for node in _walk(site, ast.Compare):
        assert isinstance(node, ast.Compare)
        if len(node.ops) == 1:
            for other in _COMPARISONS.get(type(node.ops[0]), ()):
                yield site.between(node.left, node.comparators[0], other, "the wrong comparison")


def _operator(site: Site) -> Iterator[Edit]:
    for node in _walk(site, ast.BinOp, ast.BoolOp, ast.AugAssign):
        told = "the wrong operator"
        if isinstance(node, ast.BinOp):
            for other in _OPERATORS.get(type(node.op), ()):
                yield site.between(node.left, node.right, other, told)
        elif isinstance(node, ast.BoolOp):
            other = "or" if isinstance(node.op, ast.And) else "and"
            yield site.between(node.values[0], node.values[1], other, told)
        elif isinstance(node, ast.AugAssign):
            for other in _OPERATORS.get(type(node.op), ()):
                yield site.between(node.target, node.value, f"{other}=", told)


def _missing_return(site: Site) -> Iterator[Edit]:
    """A function that works something out and keeps it to itself."""
    node = site.node
    if node is None or any(isinstance(one, ast.Return) and one.value for one in ast.walk(node)):
        return
    last = node.body[-1]
    told = "nothing is returned"
    if isinstance(last, ast.Expr) and not isinstance(last.value, ast.Constant):
        yield site.replaced(last, f"return {site.text(last)}", told)
    targets = [one for one in ast.walk(node) if isinstance(one, ast.Assign | ast.AugAssign)]
    for one in reversed(targets):
        target = one.targets[-1] if isinstance(one, ast.Assign) else one.target
        end = site.span(last)[1]
        text = f"\n{' ' * last.col_offset}return {site.text(target)}"
        yield Edit(start=end, end=end, text=text, told=f"line {last.lineno}: {told}")


def _mutable_default(site: Site) -> Iterator[Edit]:
    """A list that all calls share."""
    node = site.node
    for name, default in _defaults(node):
        if node is None or not isinstance(default, ast.List | ast.Dict | ast.Set | ast.Call):
            continue
        start, end = site.span(default)
        first = _first(node)
        body = site.before(
            first, [f"if {name} is None:", f"    {name} = {site.text(default)}"], "made anew"
        )
        between = site.source[end : body.start]
        told = f"line {node.lineno}: a default that all calls share"
        yield Edit(start=start, end=body.start, text=f"None{between}{body.text}", told=told)


def _wrong_default(site: Site) -> Iterator[Edit]:
    for _, default in _defaults(site.node):
        if isinstance(default, ast.Constant):
            for other in _other_constants(default.value, site.expected):
                yield site.replaced(default, other, "the wrong default")


def _wrong_constant(site: Site) -> Iterator[Edit]:
    own = {id(default) for _, default in _defaults(site.node)}
    for node in _walk(site, ast.Constant):
        assert isinstance(node, ast.Constant)
        if id(node) not in own and not isinstance(node.value, str | bytes):
            for other in _other_constants(node.value, site.expected):
                yield site.replaced(node, other, "the wrong constant")


def _other_constants(value: object, expected: tuple[str, ...]) -> list[str]:
    if isinstance(value, bool):
        return [repr(not value)]
    if isinstance(value, int):
        near = [repr(value + 1), repr(value - 1)]
        return [one for one in dict.fromkeys([*near, "0", "1"]) if one != repr(value)]
    return [one for one in expected if one != repr(value)]


def _defaults(node: Function | None) -> list[tuple[str, ast.expr]]:
    if node is None:
        return []
    plain = [*node.args.posonlyargs, *node.args.args]
    with_default = plain[len(plain) - len(node.args.defaults) :]
    found = [(a.arg, d) for a, d in zip(with_default, node.args.defaults, strict=True)]
    keyword = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
    return found + [(a.arg, d) for a, d in keyword if d is not None]


def _first(node: Function) -> ast.stmt:
    """The first statement after the docstring, or the docstring if there is nothing else."""
    return node.body[1] if ast.get_docstring(node) and len(node.body) > 1 else node.body[0]


def _missing_check(site: Site) -> Iterator[Edit]:
    """None, or something empty, is not looked for before it is used."""
    node = site.node
    if node is None or site.failure.kind not in _EMPTY:
        return
    values = [*site.expected, "None", "0", "[]", '""', "{}", "False"]
    for argument in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]:
        if argument.arg not in ("self", "cls"):
            for value in dict.fromkeys(values):
                lines = [f"if not {argument.arg}:", f"    return {value}"]
                yield site.before(_first(node), lines, f"no check for an empty {argument.arg}")


def _misspelt(site: Site) -> Iterator[Edit]:
    """A name that nobody has given, much like one that somebody has."""
    wrong = _NAME.findall(site.failure.message)[-2:]
    for node in _walk(site, ast.Name, ast.Attribute):
        name = node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")
        if name in wrong:
            assert isinstance(node, ast.Name | ast.Attribute)
            yield from _respelt(site, node, name)


def _respelt(site: Site, node: ast.Name | ast.Attribute, name: str) -> Iterator[Edit]:
    told = f"'{name}' is misspelt"
    lead = f"{site.text(node.value)}." if isinstance(node, ast.Attribute) else ""
    known = {*_spelt(site.tree), *site.names} - {name}
    for near in difflib.get_close_matches(name, sorted(known), SIMILAR_MAX, NEAR):
        yield site.replaced(node, f"{lead}{near}", told)
    if not lead and any(
        isinstance(one, ast.Attribute) and one.attr == name for one in ast.walk(site.tree)
    ):
        yield site.replaced(node, f"self.{name}", f"'{name}' is an attribute")


def _spelt(tree: ast.AST) -> Iterator[str]:
    """Every name that the file gives or uses, and those that are always there."""
    yield from dir(builtins)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name


def _missing_import(site: Site) -> Iterator[Edit]:
    """A module that is used and never imported."""
    if site.failure.kind != "NameError":
        return
    body = [one for one in site.tree.body if not _is_docstring(one)]
    if not body:
        return
    for name in _NAME.findall(site.failure.message)[:1]:
        if name in sys.stdlib_module_names:
            yield site.before(body[0], [f"import {name}"], f"'{name}' is not imported")
        for module in ("datetime", "collections", "pathlib", "typing", "functools", "itertools"):
            if hasattr(__import__(module), name):
                line = f"from {module} import {name}"
                yield site.before(body[0], [line], f"'{name}' is not imported")


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _wrong_exception(site: Site) -> Iterator[Edit]:
    """Another exception is raised, or caught, than the test asks for."""
    for node in _walk(site, ast.Raise, ast.ExceptHandler):
        raised = node.exc if isinstance(node, ast.Raise) else getattr(node, "type", None)
        called = raised.func if isinstance(raised, ast.Call) else raised
        if isinstance(called, ast.Name):
            wanted = [*site.expected, site.failure.kind]
            for other in dict.fromkeys(wanted):
                if other != called.id and other.isidentifier() and other[0].isupper():
                    yield site.replaced(called, other, "the wrong exception")


def _inverted(site: Site) -> Iterator[Edit]:
    """A condition that says the opposite."""
    told = "the condition says the opposite"
    for node in _walk(site, ast.If, ast.While, ast.IfExp, ast.UnaryOp):
        if isinstance(node, ast.UnaryOp):
            if isinstance(node.op, ast.Not):
                yield site.replaced(node, site.text(node.operand), told)
        else:
            test: ast.expr = getattr(node, "test")  # noqa: B009 - all three kinds have one
            if not isinstance(test, ast.Compare | ast.UnaryOp):
                yield site.replaced(test, f"not ({site.text(test)})", told)


PATTERNS: dict[str, Callable[[Site], Iterator[Edit]]] = {
    "off-by-one": _off_by_one,
    "comparison": _comparison,
    "operator": _operator,
    "missing-return": _missing_return,
    "mutable-default": _mutable_default,
    "wrong-default": _wrong_default,
    "wrong-constant": _wrong_constant,
    "missing-check": _missing_check,
    "misspelt": _misspelt,
    "missing-import": _missing_import,
    "wrong-exception": _wrong_exception,
    "inverted-condition": _inverted,
}
_VALUE = (
    "missing-return", "mutable-default", "off-by-one", "comparison", "inverted-condition",
    "operator", "wrong-default", "wrong-constant", "wrong-exception", "missing-check",
)  # fmt: skip
_RAISED = (
    "missing-check", "wrong-exception", "off-by-one", "comparison", "inverted-condition",
    "missing-return", "operator", "wrong-default", "wrong-constant", "mutable-default",
)  # fmt: skip
_NAMES = ("missing-import", "misspelt")
ORDER: dict[str, tuple[str, ...]] = {
    "AssertionError": _VALUE,
    "NameError": _NAMES,
    "UnboundLocalError": _NAMES,
    "AttributeError": ("misspelt", *_RAISED),
}
"""What was raised -> the patterns that fit, the likeliest first. Anything else: as for errors."""


def edits(site: Site) -> Iterator[tuple[str, Edit]]:
    """Every proposal for this site, with the pattern's name."""
    for name in ORDER.get(site.failure.kind, _RAISED):
        for edit in PATTERNS[name](site):
            yield name, edit


def applied(source: str, edit: Edit) -> str | None:
    """The file with the edit; None if that is no Python, or changes nothing."""
    text = f"{source[: edit.start]}{edit.text}{source[edit.end :]}"
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        return None
    return text if text != source else None
