"""Conditions: expressions in CEL over a bead's context, compiled once, never `eval`.

A condition that cannot be evaluated (a key is missing, a type does not fit) is false, and says why.
An expression gets only the keys that it names: the interpreter copies its input, and a context may
be large. Length and nesting are bounded here.

Every evaluation has a price, about its microseconds: what is copied, what comprehensions visit
(nesting multiplies, and `map` copies its collected items at every item), and what `matches`
compiles and searches. What one decision may spend on all of its conditions is bounded, so that
nobody waits long for any definition or context. Prices are estimates from above, measured by
tests/kernel/test_condition_prices.py. They depend on the input alone, never on a clock, so the same
decision is made on every machine.
"""

import functools
import importlib.machinery
import importlib.util
import re
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from handrail.kernel.decision import Value
from handrail.kernel.definition.pattern_search import (
    SEARCH_FUNCTION,
    PatternSearch,
    replace_matches,
)

EXPRESSION_CHARS_MAX = 1_000
COMPREHENSIONS_MAX = 2
DEPTH_MAX = 50
DECISION_MICROSECONDS_MAX = 50_000
"""What the conditions of one decision may cost together."""
ENTRY_WEIGHT = 10
"""What the key of a mapping weighs; a plain value weighs 1, 100 characters of a text as much."""
COPY_MICROSECONDS, WEIGH_MICROSECONDS = 0.25, 0.2
"""To hand a value over, and to weigh it, by its weight."""
VISIT_MICROSECONDS, SCAN_MICROSECONDS = 0.3, 0.006
"""Of a word of the expression at an item of a comprehension, and, as that may look at everything
once more, at each pair of them."""
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
def _load_interpreter() -> ModuleType:
    """Load the interpreter of the package `cel` without the command line that its __init__ imports.

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
    return module


class ConditionResult(Value):
    """The value of a condition; `error` says why it could not be evaluated."""

    holds: bool
    error: str = ""


TOO_EXPENSIVE = ConditionResult(
    holds=False,
    error="costs more time than is left for this decision's conditions; name smaller values, "
    "or use simpler patterns",
)


class ConditionBudget:
    """What is left for the conditions of one decision, and what the values named so far weigh."""

    def __init__(self, microseconds: float = DECISION_MICROSECONDS_MAX) -> None:
        self.left = microseconds
        self._weights: dict[int, tuple[object, int]] = {}

    def pay(self, microseconds: float) -> bool:
        """Take the price from what is left; False, and nothing is left, if that is too little."""
        self.left -= microseconds
        if self.left >= 0:
            return True
        self.left = 0
        return False

    def weigh(self, value: object) -> int:
        """Return the value's weight, counted and paid once in a decision."""
        if id(value) not in self._weights:
            weight = _weigh(value, int(self.left / WEIGH_MICROSECONDS))
            self.pay(weight * WEIGH_MICROSECONDS)
            self._weights[id(value)] = value, weight  # kept alive, so that its id stays its own
        return self._weights[id(value)][1]


class Condition:
    """A compiled expression and the keys it reads."""

    __slots__ = ("_loops", "_program", "_scans", "_searches", "_sums", "_words", "names", "source")

    def __init__(self, source: str) -> None:
        """Compile the source; raise ValueError with the column if it is not an expression."""
        problem = _complexity_problem(source)
        if problem:
            raise ValueError(problem)
        try:
            self._program = _load_interpreter().compile(source)
        except ValueError as error:
            raise ValueError(_shorten_error(str(error))) from None
        calls = [name for name in self._program.functions() if name.isidentifier()]
        unknown = sorted(n for n in calls if n not in FUNCTIONS and not n.startswith("_"))
        if unknown:
            raise ValueError(f"calls '{unknown[0]}', which is no function")
        self._searches = "matches" in calls
        if self._searches:
            self._program = _load_interpreter().compile(replace_matches(source))
            if "matches" in self._program.functions():
                raise ValueError("matches needs its '(' right behind it, as in id.matches('^a')")
        macro_variables = set(_MACRO_NAME.findall(source))
        self.names = frozenset(self._program.variables()) - macro_variables
        self.source = source
        comprehensions: list[str] = _COMPREHENSION.findall(source)
        gathers = any(name in ("map", "filter") for name in comprehensions)
        self._loops, self._scans = len(comprehensions), len(comprehensions) + 1 + gathers
        self._words, self._sums = len(_WORD.findall(source)), source.count("+")

    def evaluate(
        self, context: Mapping[str, Any], budget: ConditionBudget | None = None
    ) -> ConditionResult:
        """Evaluate on the budget of a decision; what it cannot pay for is false."""
        budget = budget or ConditionBudget()
        variables = {name: context[name] for name in self.names if name in context}
        if not budget.pay(self._price(variables, budget)):
            return TOO_EXPENSIVE
        search = PatternSearch(budget.pay)
        try:
            value: object = self._execute(variables, search)
        except Exception as error:  # the interpreter may raise anything; all of it means "false"
            return ConditionResult(
                holds=False, error=_shorten_error(str(error)) or type(error).__name__
            )
        if not budget.left:
            return TOO_EXPENSIVE
        if search.problem:
            return ConditionResult(holds=False, error=search.problem)
        if isinstance(value, bool):
            return ConditionResult(holds=value)
        return ConditionResult(
            holds=False, error=f"gives a {type(value).__name__}, not true or false"
        )

    def _execute(self, variables: Mapping[str, Any], search: PatternSearch) -> object:
        if not self._searches:
            return self._program.execute(variables)
        functions = {SEARCH_FUNCTION: search}
        return self._program.execute(_load_interpreter().Context(variables, functions))

    def _price(self, variables: Mapping[str, Any], budget: ConditionBudget) -> float:
        """Return about the microseconds of an evaluation, patterns aside."""
        weight = sum(budget.weigh(value) for value in variables.values())
        copies = COPY_MICROSECONDS + 0.12 * self._words
        price = 5 + weight * copies * (1 + self._sums**2 // 4)
        if self._loops:
            items = weight + self.source.count(",")
            price += VISIT_MICROSECONDS * self._words * items**self._loops
            price += SCAN_MICROSECONDS * self._words * items**self._scans
        return price


def _weigh(value: object, weight_max: int) -> int:
    """Return what it costs to copy the value; the count ends where it is too expensive anyway."""
    weight, stack = 0, [value]
    while stack and weight < weight_max:
        item = stack.pop()
        weight += 1
        if isinstance(item, str):
            weight += len(item) // 100
        elif isinstance(item, Mapping):
            weight += ENTRY_WEIGHT * len(item)  # pyright: ignore[reportUnknownArgumentType] - any JSON
            if weight < weight_max:
                stack.extend(item.values())  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType] - any JSON
        elif isinstance(item, list):
            if len(item) >= weight_max:  # pyright: ignore[reportUnknownArgumentType] - any JSON
                return weight_max
            stack.extend(item)  # pyright: ignore[reportUnknownArgumentType] - any JSON
    return weight


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
