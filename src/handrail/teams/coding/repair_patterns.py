"""Repair patterns: what is commonly wrong in a function, and how to put it right.

A pattern is a function from a `RepairSite` (a function of a file, and what failed there) to edits;
an edit replaces a stretch of the file's text, so the rest of the file stays as it was written.
Which patterns are tried, and in which order, depends on what was raised (`PATTERN_ORDER`). A
pattern proposes; the tests decide whether it was right.

To add a pattern: a function here, its name in PATTERNS, and its position in PATTERN_ORDER.
"""

import ast
import builtins
import difflib
import re
import sys
from collections.abc import Callable, Iterator

from handrail.kernel.decision import Value
from handrail.teams.coding.failures import Failure

SIMILARITY_MIN = 0.7
"""How alike two names must be for one to be a misspelling of the other."""
SIMILAR_NAMES_MAX = 3
_QUOTED_NAME = re.compile(r"'([A-Za-z_]\w*)'")
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
_EMPTY_VALUE_ERRORS = (
    "TypeError",
    "ZeroDivisionError",
    "IndexError",
    "KeyError",
    "ValueError",
    "AttributeError",
)


class SourceEdit(Value):
    """Replaces characters `start` to `end` of the file."""

    start: int
    end: int
    text: str
    description: str


FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
_DEFINITION_NODES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class RepairSite:
    """A function under suspicion; the whole file if `node` is None."""

    def __init__(
        self,
        source: str,
        tree: ast.Module,
        node: FunctionNode | None,
        failure: Failure,
        expected: tuple[str, ...] = (),
        names: frozenset[str] = frozenset(),
    ) -> None:
        self.source, self.tree, self.node, self.failure = source, tree, node, failure
        self.expected = expected
        """The values that the failing test expects, as it writes them."""
        self.names = names
        """Names that the project defines."""
        lengths = [len(line) for line in source.splitlines(keepends=True)]
        self._starts = [sum(lengths[:i]) for i in range(len(lengths) + 1)]
        self._lines = source.splitlines(keepends=True)

    @property
    def scope(self) -> ast.AST:
        """The function, or the code of the file outside of any."""
        if self.node is not None:
            return self.node
        outside = [
            statement
            for statement in self.tree.body
            if not isinstance(statement, _DEFINITION_NODES)
        ]
        return ast.Module(body=outside, type_ignores=[])

    def offset(self, line: int, column: int) -> int:
        """Return the offset of a position in the tree, whose columns count bytes."""
        before = self._lines[line - 1].encode()[:column].decode(errors="ignore")
        return self._starts[line - 1] + len(before)

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        end_line, end_column = node.end_lineno, node.end_col_offset
        assert end_line is not None
        assert end_column is not None
        return self.offset(node.lineno, node.col_offset), self.offset(end_line, end_column)

    def source_of(self, node: ast.expr | ast.stmt) -> str:
        start, end = self.span(node)
        return self.source[start:end]

    def replace_node(
        self, node: ast.expr | ast.stmt, replacement: str, description: str
    ) -> SourceEdit:
        start, end = self.span(node)
        return SourceEdit(
            start=start, end=end, text=replacement, description=f"line {node.lineno}: {description}"
        )

    def replace_between(
        self, left: ast.expr, right: ast.expr, replacement: str, description: str
    ) -> SourceEdit:
        """Replace what stands between two expressions: an operator."""
        start, end = self.span(left)[1], self.span(right)[0]
        gap = self.source[start:end]
        closed, opened = gap[: len(gap) - len(gap.lstrip(" )"))], gap[len(gap.rstrip(" (")) :]
        text = f"{closed.rstrip()} {replacement} {opened.lstrip()}"
        return SourceEdit(
            start=start, end=end, text=text, description=f"line {left.lineno}: {description}"
        )

    def insert_before(self, statement: ast.stmt, lines: list[str], description: str) -> SourceEdit:
        """Insert lines before a statement, indented as it is."""
        start = self._starts[statement.lineno - 1]
        indent = " " * statement.col_offset
        text = "".join(f"{indent}{line}\n" for line in lines)
        return SourceEdit(
            start=start, end=start, text=text, description=f"line {statement.lineno}: {description}"
        )


def _walk(site: RepairSite, *kinds: type[ast.AST]) -> Iterator[ast.AST]:
    for node in ast.walk(site.scope):
        if isinstance(node, kinds):
            yield node


def _off_by_one(site: RepairSite) -> Iterator[SourceEdit]:
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
            yield from _shift_bound(site, bound)


def _shift_bound(site: RepairSite, bound: ast.expr) -> Iterator[SourceEdit]:
    description = "a bound that is off by one"
    match bound:
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=ast.Constant(value=1)):
            yield site.replace_node(bound, site.source_of(left), description)
        case _:
            for sign in "+-":
                yield site.replace_node(bound, f"{site.source_of(bound)} {sign} 1", description)


def _wrong_comparison(site: RepairSite) -> Iterator[SourceEdit]:
    for node in _walk(site, ast.Compare):
        assert isinstance(node, ast.Compare)
        if len(node.ops) == 1:
            for other in _COMPARISONS.get(type(node.ops[0]), ()):
                yield site.replace_between(
                    node.left, node.comparators[0], other, "the wrong comparison"
                )


def _wrong_operator(site: RepairSite) -> Iterator[SourceEdit]:
    for node in _walk(site, ast.BinOp, ast.BoolOp, ast.AugAssign):
        description = "the wrong operator"
        if isinstance(node, ast.BinOp):
            for other in _OPERATORS.get(type(node.op), ()):
                yield site.replace_between(node.left, node.right, other, description)
        elif isinstance(node, ast.BoolOp):
            other = "or" if isinstance(node.op, ast.And) else "and"
            yield site.replace_between(node.values[0], node.values[1], other, description)
        elif isinstance(node, ast.AugAssign):
            for other in _OPERATORS.get(type(node.op), ()):
                yield site.replace_between(node.target, node.value, f"{other}=", description)


def _missing_return(site: RepairSite) -> Iterator[SourceEdit]:
    """A function that computes a value and does not return it."""
    node = site.node
    if node is None or any(
        isinstance(statement, ast.Return) and statement.value for statement in ast.walk(node)
    ):
        return
    last = node.body[-1]
    description = "nothing is returned"
    if isinstance(last, ast.Expr) and not isinstance(last.value, ast.Constant):
        yield site.replace_node(last, f"return {site.source_of(last)}", description)
    targets = [
        statement
        for statement in ast.walk(node)
        if isinstance(statement, ast.Assign | ast.AugAssign)
    ]
    for statement in reversed(targets):
        target = statement.targets[-1] if isinstance(statement, ast.Assign) else statement.target
        end = site.span(last)[1]
        text = f"\n{' ' * last.col_offset}return {site.source_of(target)}"
        yield SourceEdit(
            start=end, end=end, text=text, description=f"line {last.lineno}: {description}"
        )


def _mutable_default(site: RepairSite) -> Iterator[SourceEdit]:
    """A list that all calls share."""
    node = site.node
    for name, default in _defaults(node):
        if node is None or not isinstance(default, ast.List | ast.Dict | ast.Set | ast.Call):
            continue
        start, end = site.span(default)
        first = _first_statement(node)
        body = site.insert_before(
            first, [f"if {name} is None:", f"    {name} = {site.source_of(default)}"], "made anew"
        )
        between = site.source[end : body.start]
        description = f"line {node.lineno}: a default that all calls share"
        yield SourceEdit(
            start=start, end=body.start, text=f"None{between}{body.text}", description=description
        )


def _wrong_default(site: RepairSite) -> Iterator[SourceEdit]:
    for _, default in _defaults(site.node):
        if isinstance(default, ast.Constant):
            for other in _other_constants(default.value, site.expected):
                yield site.replace_node(default, other, "the wrong default")


def _wrong_constant(site: RepairSite) -> Iterator[SourceEdit]:
    default_ids = {id(default) for _, default in _defaults(site.node)}
    for node in _walk(site, ast.Constant):
        assert isinstance(node, ast.Constant)
        if id(node) not in default_ids and not isinstance(node.value, str | bytes):
            for other in _other_constants(node.value, site.expected):
                yield site.replace_node(node, other, "the wrong constant")


def _other_constants(value: object, expected: tuple[str, ...]) -> list[str]:
    if isinstance(value, bool):
        return [repr(not value)]
    if isinstance(value, int):
        near = [repr(value + 1), repr(value - 1)]
        return [
            candidate for candidate in dict.fromkeys([*near, "0", "1"]) if candidate != repr(value)
        ]
    return [candidate for candidate in expected if candidate != repr(value)]


def _defaults(node: FunctionNode | None) -> list[tuple[str, ast.expr]]:
    if node is None:
        return []
    plain = [*node.args.posonlyargs, *node.args.args]
    with_default = plain[len(plain) - len(node.args.defaults) :]
    defaults = [(a.arg, d) for a, d in zip(with_default, node.args.defaults, strict=True)]
    keyword = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
    return defaults + [(a.arg, d) for a, d in keyword if d is not None]


def _first_statement(node: FunctionNode) -> ast.stmt:
    """The first statement after the docstring, or the docstring if there is nothing else."""
    return node.body[1] if ast.get_docstring(node) and len(node.body) > 1 else node.body[0]


def _missing_check(site: RepairSite) -> Iterator[SourceEdit]:
    """None, or an empty value, is not checked for before use."""
    node = site.node
    if node is None or site.failure.exception not in _EMPTY_VALUE_ERRORS:
        return
    values = [*site.expected, "None", "0", "[]", '""', "{}", "False"]
    for argument in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]:
        if argument.arg not in ("self", "cls"):
            for value in dict.fromkeys(values):
                lines = [f"if not {argument.arg}:", f"    return {value}"]
                yield site.insert_before(
                    _first_statement(node), lines, f"no check for an empty {argument.arg}"
                )


def _misspelt_name(site: RepairSite) -> Iterator[SourceEdit]:
    """An undefined name that is much like a defined one."""
    wrong = _QUOTED_NAME.findall(site.failure.message)[-2:]
    for node in _walk(site, ast.Name, ast.Attribute):
        name = node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")
        if name in wrong:
            assert isinstance(node, ast.Name | ast.Attribute)
            yield from _respell(site, node, name)


def _respell(site: RepairSite, node: ast.Name | ast.Attribute, name: str) -> Iterator[SourceEdit]:
    description = f"'{name}' is misspelt"
    lead = f"{site.source_of(node.value)}." if isinstance(node, ast.Attribute) else ""
    known_names = {*_names_in(site.tree), *site.names} - {name}
    for similar_name in difflib.get_close_matches(
        name, sorted(known_names), SIMILAR_NAMES_MAX, SIMILARITY_MIN
    ):
        yield site.replace_node(node, f"{lead}{similar_name}", description)
    if not lead and any(
        isinstance(attribute, ast.Attribute) and attribute.attr == name
        for attribute in ast.walk(site.tree)
    ):
        yield site.replace_node(node, f"self.{name}", f"'{name}' is an attribute")


def _names_in(tree: ast.AST) -> Iterator[str]:
    """Yield every name that the file defines or uses, and the builtins."""
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


def _missing_import(site: RepairSite) -> Iterator[SourceEdit]:
    """A module that is used and never imported."""
    if site.failure.exception != "NameError":
        return
    body = [statement for statement in site.tree.body if not _is_docstring(statement)]
    if not body:
        return
    for name in _QUOTED_NAME.findall(site.failure.message)[:1]:
        if name in sys.stdlib_module_names:
            yield site.insert_before(body[0], [f"import {name}"], f"'{name}' is not imported")
        for module in ("datetime", "collections", "pathlib", "typing", "functools", "itertools"):
            if hasattr(__import__(module), name):
                line = f"from {module} import {name}"
                yield site.insert_before(body[0], [line], f"'{name}' is not imported")


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _wrong_exception(site: RepairSite) -> Iterator[SourceEdit]:
    """Another exception is raised, or caught, than the test expects."""
    for node in _walk(site, ast.Raise, ast.ExceptHandler):
        raised = node.exc if isinstance(node, ast.Raise) else getattr(node, "type", None)
        called = raised.func if isinstance(raised, ast.Call) else raised
        if isinstance(called, ast.Name):
            candidates = [*site.expected, site.failure.exception]
            for other in dict.fromkeys(candidates):
                if other != called.id and other.isidentifier() and other[0].isupper():
                    yield site.replace_node(called, other, "the wrong exception")


def _inverted_condition(site: RepairSite) -> Iterator[SourceEdit]:
    """A condition that is the opposite of the right one."""
    description = "the condition says the opposite"
    for node in _walk(site, ast.If, ast.While, ast.IfExp, ast.UnaryOp):
        if isinstance(node, ast.UnaryOp):
            if isinstance(node.op, ast.Not):
                yield site.replace_node(node, site.source_of(node.operand), description)
        else:
            test: ast.expr = getattr(node, "test")  # noqa: B009 - all three kinds have one
            if not isinstance(test, ast.Compare | ast.UnaryOp):
                yield site.replace_node(test, f"not ({site.source_of(test)})", description)


PATTERNS: dict[str, Callable[[RepairSite], Iterator[SourceEdit]]] = {
    "off-by-one": _off_by_one,
    "comparison": _wrong_comparison,
    "operator": _wrong_operator,
    "missing-return": _missing_return,
    "mutable-default": _mutable_default,
    "wrong-default": _wrong_default,
    "wrong-constant": _wrong_constant,
    "missing-check": _missing_check,
    "misspelt": _misspelt_name,
    "missing-import": _missing_import,
    "wrong-exception": _wrong_exception,
    "inverted-condition": _inverted_condition,
}
_WRONG_VALUE_ORDER = (
    "missing-return", "mutable-default", "off-by-one", "comparison", "inverted-condition",
    "operator", "wrong-default", "wrong-constant", "wrong-exception", "missing-check",
)  # fmt: skip
_EXCEPTION_ORDER = (
    "missing-check", "wrong-exception", "off-by-one", "comparison", "inverted-condition",
    "missing-return", "operator", "wrong-default", "wrong-constant", "mutable-default",
)  # fmt: skip
_NAME_ERROR_ORDER = ("missing-import", "misspelt")
PATTERN_ORDER: dict[str, tuple[str, ...]] = {
    "AssertionError": _WRONG_VALUE_ORDER,
    "NameError": _NAME_ERROR_ORDER,
    "UnboundLocalError": _NAME_ERROR_ORDER,
    "AttributeError": ("misspelt", *_EXCEPTION_ORDER),
}
"""What was raised -> the patterns that fit, the likeliest first. Anything else: as for errors."""


def generate_edits(site: RepairSite) -> Iterator[tuple[str, SourceEdit]]:
    """Yield every proposal for this site, with the pattern's name."""
    for name in PATTERN_ORDER.get(site.failure.exception, _EXCEPTION_ORDER):
        for edit in PATTERNS[name](site):
            yield name, edit


def apply_edit(source: str, edit: SourceEdit) -> str | None:
    """Return the file with the edit; None if that is no Python, or changes nothing."""
    text = f"{source[: edit.start]}{edit.text}{source[edit.end :]}"
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        return None
    return text if text != source else None
