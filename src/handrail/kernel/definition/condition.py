"""Conditions: expressions in CEL over a bead's context, compiled once, never `eval`.

A condition that cannot be evaluated (a key is missing, a type does not fit) is false, and says why.
An expression gets only the keys that it names: the interpreter copies its input, and a context may
be large. Length and nesting are bounded here. A comprehension visits every item, nesting
multiplies, and `map` copies its collected items at every item; so the input of comprehensions is
bounded by its estimated cost, and an evaluation is always short.
"""

import functools
import importlib.machinery
import importlib.util
import re
from collections.abc import Callable, Mapping
from typing import Any

from handrail.kernel.decision import Value

EXPRESSION_CHARS_MAX = 1_000
COMPREHENSIONS_MAX = 2
DEPTH_MAX = 50
WORK_STEPS_MAX = 10_000_000
"""Estimated interpreter steps that comprehensions may take: about half a second."""
COUNTED_ITEMS_MAX = 10_000
_COMPREHENSION = re.compile(r"\.\s*(map|filter|all|exists|exists_one)\s*\(")
_WORD = re.compile(r"\w+")
_MACRO_NAME = re.compile(r"\.\s*(?:map|filter|all|exists|exists_one)\s*\(\s*([A-Za-z_]\w*)\s*,")


FUNCTIONS = frozenset(
    """
    all bool bytes contains double duration endsWith exists exists_one filter getDate getDayOfMonth
    getDayOfWeek getDayOfYear getFullYear getHours getMilliseconds getMinutes getMonth getSeconds
    has int map matches max min size startsWith string timestamp type uint
    """.split()  # noqa: SIM905 - a list of words
)


@functools.cache
def _load_compiler() -> Callable[[str], Any]:
    """Load the compiler of the package `cel` without the command line that its __init__ imports.

    That import costs 0.6 s; a guard without conditions does not need it, and `handrail check`
    should answer at once.
    """
    package = importlib.util.find_spec("cel")
    assert package is not None, "common-expression-language is installed"
    spec = importlib.machinery.PathFinder().find_spec(
        "cel.cel", list(package.submodule_search_locations or ())
    )
    assert spec is not None, "common-expression-language has a module cel.cel"
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.compile


class ConditionResult(Value):
    """The value of a condition; `error` says why it could not be evaluated."""

    holds: bool
    error: str = ""


class Condition:
    """A compiled expression and the keys it reads."""

    __slots__ = ("_loop_weight", "_program", "names", "source")

    def __init__(self, source: str) -> None:
        """Compile the source; raise ValueError with the column if it is not an expression."""
        problem = _complexity_problem(source)
        if problem:
            raise ValueError(problem)
        try:
            self._program = _load_compiler()(source)
        except ValueError as error:
            raise ValueError(_shorten_error(str(error))) from None
        calls = [name for name in self._program.functions() if name.isidentifier()]
        unknown = sorted(n for n in calls if n not in FUNCTIONS and not n.startswith("_"))
        if unknown:
            raise ValueError(f"calls '{unknown[0]}', which is no function")
        macro_variables = set(_MACRO_NAME.findall(source))
        self.names = frozenset(self._program.variables()) - macro_variables
        self.source = source
        gathering = ("map", "filter")
        comprehensions: list[str] = _COMPREHENSION.findall(source)
        self._loop_weight = sum(2 if name in gathering else 1 for name in comprehensions)

    def evaluate(self, context: Mapping[str, Any]) -> ConditionResult:
        variables = {name: context[name] for name in self.names if name in context}
        if self._loop_weight and self._estimate_work(variables) > WORK_STEPS_MAX:
            return ConditionResult(
                holds=False, error="goes over too many items; name a smaller list"
            )
        try:
            value: object = self._program.execute(variables)
        except Exception as error:  # the interpreter may raise anything; all of it means "false"
            return ConditionResult(
                holds=False, error=_shorten_error(str(error)) or type(error).__name__
            )
        if isinstance(value, bool):
            return ConditionResult(holds=value)
        return ConditionResult(
            holds=False, error=f"gives a {type(value).__name__}, not true or false"
        )

    def _estimate_work(self, variables: Mapping[str, Any]) -> int:
        """Words times items to the power of the nested loops, as each step may copy all items."""
        items = self.source.count(",") + _count_items(variables)
        return len(_WORD.findall(self.source)) * items ** (self._loop_weight + 1)


def _count_items(value: object) -> int:
    """Count nested values, a long text as several; stop at COUNTED_ITEMS_MAX, too many anyway."""
    count, stack = 0, [value]
    while stack and count < COUNTED_ITEMS_MAX:
        item = stack.pop()
        count += 1
        if isinstance(item, str):
            count += len(item) // 100
        elif isinstance(item, Mapping):
            stack.extend(item.values())  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType] - any JSON
        elif isinstance(item, list):
            stack.extend(item)  # pyright: ignore[reportUnknownArgumentType] - any JSON
    return count


def _complexity_problem(source: str) -> str:
    if len(source) > EXPRESSION_CHARS_MAX:
        return f"is {len(source)} characters long; at most {EXPRESSION_CHARS_MAX}"
    if len(_COMPREHENSION.findall(source)) > COMPREHENSIONS_MAX:
        return f"has more than {COMPREHENSIONS_MAX} comprehensions (map, filter, all, exists)"
    depth = deepest = 0
    for char in source:
        depth += (char in "([{") - (char in ")]}")
        deepest = max(deepest, depth)
    if deepest > DEPTH_MAX or re.search(r"[!\-]{50}", source):
        return f"is nested more than {DEPTH_MAX} deep"
    return ""


def _shorten_error(message: str) -> str:
    """Return the interpreter's first line without its echo of the whole expression."""
    match = re.search(r"<input>:(\d+):(\d+): (.*)", message)
    if match:
        detail = match[3].split(" expecting ")[0].removeprefix("Syntax error: ")
        return f"column {match[2]}: {detail}"
    return message.splitlines()[0][:200] if message else ""
