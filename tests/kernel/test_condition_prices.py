"""What conditions cost at most: the dearest input that the price lets through is quick enough."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.kernel.driven_run import DrivenRun, edge, node, workflow

from handrail.kernel.definition.condition import (
    DECISION_MICROSECONDS_MAX,
    Condition,
    ConditionBudget,
)
from handrail.kernel.run.events import Warned

SECONDS_MAX = 2 * DECISION_MICROSECONDS_MAX / 1_000_000
"""Of CPU; twice the price, since machines differ."""
SIZE_MAX = 4_000_000

MakeContext = Callable[[int], dict[str, Any]]


def texts(size: int) -> dict[str, Any]:
    return {"t": "ab" * (size // 2), "xs": ["ab" * 50] * (size // 100), "y": 1}


def numbers(size: int) -> dict[str, Any]:
    return {"xs": list(range(size)), "ys": [0.5] * size, "y": -1}


def records(size: int) -> dict[str, Any]:
    return {"xs": [{"a": i, "b": {"c": [i]}} for i in range(size // 4)], "y": "q"}


def tables(size: int) -> dict[str, Any]:
    side = int(size**0.5)
    return {"xs": [list(range(side))] * side, "y": -1}


def characters(size: int) -> dict[str, Any]:
    return {"t": "é😀" * (size // 2), "xs": ["é"] * size, "y": "z"}


DEAREST: list[tuple[str, MakeContext]] = [
    ("xs.exists(x, x == y)", numbers),
    ("xs.exists(x, x == y)", tables),
    ("xs.exists(x, x.a == y)", records),
    ("xs.exists_one(x, has(x.b) && x.b.c.size() == 2)", records),
    ("xs.all(x, x in xs)", numbers),
    ("xs.all(x, ys.size() > x && xs.size() > x && ys.size() >= 0)", numbers),
    ("xs.filter(x, x > y).size() < 0", numbers),
    ("xs.map(x, x).size() < 0", numbers),
    ("xs.map(x, xs).size() < 0", numbers),
    ("xs.map(x, xs.map(y, x + y)).size() < 0", numbers),
    ("xs.map(x, x + x).size() < 0", texts),
    ("xs.map(x, x.map(y, y)).size() < 0", tables),
    ("xs.filter(x, xs.filter(y, x == y).size() > 3).size() > 0", numbers),
    ("xs.exists(x, xs.exists(y, x + y == -1))", numbers),
    ("xs.exists(x, x.contains('zz'))", texts),
    ("xs.exists(x, t.contains(x + 'q'))", texts),
    ("xs.exists(x, t.contains(x + 'q'))", characters),
    ("t + t + t + t + t + t + t + t == ''", texts),
    ("size(t + t) + size(t + t) + size(t + t) == y", texts),
    ("[t, t, t, t, t, t, t, t, t, t].size() == y", texts),
    ("xs == xs && xs + xs == xs + xs", tables),
    ("string(xs) == 'a'", numbers),
    ("bytes(t) == b'a' || bytes(t) == bytes(t)", characters),
    ("xs.exists(x, x.matches('(a|b){400}c'))", texts),
    ("xs.exists(x, x.matches('[a-z]+$'))", characters),
    ("xs.exists(x, x.matches(x + '|[ab]*a[ab]{60}c'))", texts),
    ("t.matches('[ab]*a[ab]{60}c')", texts),
    ("t.matches('(.|a){300}c')", texts),
    ("t.matches('(.|é){300}c')", characters),
    (r"t.matches('\\pL*[é]\\pL')", characters),
    ("t.matches(t)", texts),
    ("timestamp(t) == timestamp(t) || duration(t) == duration(t) || double(t) == 1.0", texts),
]


@pytest.mark.alone
@pytest.mark.parametrize(("source", "make_context"), DEAREST)
def test_no_input_that_the_price_allows_takes_long(source: str, make_context: MakeContext):
    condition, size = Condition(source), 10
    while size < SIZE_MAX and not evaluate_in_time(condition, make_context(size)):
        size = size * 3 // 2
    assert size > 10, "an ordinary input is affordable"
    evaluate_in_time(condition, make_context(SIZE_MAX))


def evaluate_in_time(condition: Condition, context: dict[str, Any]) -> bool:
    """Return whether the condition was too expensive."""
    start = time.process_time()
    result = condition.evaluate(context, ConditionBudget())
    seconds = time.process_time() - start
    assert seconds < SECONDS_MAX, result
    return "costs more" in result.error


@pytest.mark.alone
def test_a_decision_over_many_dear_edges_is_short():
    patterns = [f"s.matches('\\\\w{{{1000 - n}}}')" for n in range(38)]
    edges = [edge("a", "b", "||".join(patterns).replace("1000", str(1000 - n))) for n in range(50)]
    run = DrivenRun(
        workflow(
            node("s", "start"),
            node("a"),
            node("b"),
            node("end", "end"),
            edges=[edge("s", "a"), *edges, edge("a", "end"), edge("b", "end")],
            metadata={"context": ["s"]},
        ),
        context={"s": "x!" * 500},
    )
    run.claim()
    start = time.process_time()
    run.succeed()
    assert time.process_time() - start < SECONDS_MAX
    assert any("costs more" in warning.message for warning in run.of(Warned))
