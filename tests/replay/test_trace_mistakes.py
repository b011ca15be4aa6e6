"""Whatever is wrong in a file of traces is a `TraceFormatError`; nothing else comes out."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.replay import test_trace_autogen as autogen
from tests.replay import test_trace_openai as openai
from tests.replay import test_trace_otlp as otlp
from tests.replay import test_trace_reader as neutral
from tests.replay.reading_traces import lines, read

from handrail.replay.traces.model import TraceFormatError

Path = tuple[str | int, ...]

DOCUMENTS = {
    "neutral": neutral.neutral({"k": "user", "text": "x"}, neutral.SAY, neutral.TOOL, neutral.SURF),
    "openai": [
        {"role": "user", "content": [{"type": "text", "text": "x"}]},
        openai.WEATHER,
        openai.result("call_a", "rain"),
    ],
    "autogen": [
        autogen.message("TextMessage", "user", "x"),
        autogen.request("a", "f", "c"),
        autogen.execution("a", "f", "c", "x"),
        autogen.message("CodeGenerationEvent", "a", autogen.CODE),
        autogen.message("CodeExecutionEvent", "a", None, result={"exit_code": 1, "output": "x"}),
        autogen.message("MultiModalMessage", "a", [{"data": "x"}, "y"]),
    ],
    "otlp": otlp.export(
        otlp.span(1, "invoke_agent", agent__name="x"),
        otlp.span(2, "chat", parent=1, output__messages=[otlp.says("x", otlp.call())]),
        otlp.span(3, "execute_tool", tool__call__id="call_1", tool__call__result={"a": [1]}),
        otlp.span(4, "chat", input__messages=json.dumps([otlp.response("x")])),
    ),
}
WRONG = (
    *(None, True, -1, 1.5, 10**25, "", "x", "9" * 30, "[}", [], [None], {}),
    *({"values": 3}, {"arrayValue": 3}, {"kvlistValue": {"values": [{"key": 3}]}}),
    *({"intValue": "x"}, {"stringValue": {"x": 1}}, {"type": [1]}, "a\0b"),
)


def paths(value: Any, before: Path = ()) -> Iterator[Path]:
    """The way to each value inside of a document."""
    yield before
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from paths(item, (*before, key))


def put(document: Any, path: Path, value: Any) -> Any:
    """The document with another value in one place."""
    if not path:
        return value
    changed = document.copy()
    changed[path[0]] = put(document[path[0]], path[1:], value)
    return changed


@pytest.mark.parametrize("format_", DOCUMENTS)
def test_a_wrong_value_anywhere_is_read_or_refused_with_its_line(format_: Any):
    lines_refused: list[int] = []
    for number, path in enumerate(paths(DOCUMENTS[format_])):
        for value in WRONG[number % 4 :: 4]:  # each in every fourth place: all would take long
            try:
                read(lines(put(DOCUMENTS[format_], path, value)), format_=format_)
            except TraceFormatError as error:
                lines_refused.append(error.line)
    assert set(lines_refused) == {1}
