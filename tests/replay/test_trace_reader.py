"""Files of recorded runs: their documents, their format, their bounds; and the neutral format."""

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from tests.replay.reading_traces import FILE, lines, read, read_one

from handrail.replay.traces import model, reader
from handrail.replay.traces.model import TraceCall, TraceFormatError, TraceStep, TraceView

SAY = {"k": "say", "agent": "coder", "text": "I look."}
TOOL = {"k": "tool", "agent": "coder", "tool": "bash", "args": "ls", "result": "a.py", "rc": 0}
SURF = {
    "k": "say",
    "agent": "surfer",
    "text": "I opened the page.",
    "asker": "lead",
    "as_tool": ["visit", {"url": "example.org"}, "404", 1],
}
CHAT = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
AUTOGEN = [{"type": "TextMessage", "source": "writer", "content": "done"}]
SPANS = {"resourceSpans": []}


def neutral(*events: Any, **fields: Any) -> dict[str, Any]:
    return {"dataset": "d", "id": "1", "success": True, "events": list(events), **fields}


def problem(content: bytes, **options: Any) -> TraceFormatError:
    with pytest.raises(TraceFormatError) as raised:
        read(content, **options)
    return raised.value


def test_a_neutral_run_is_read_with_its_calls_and_what_a_person_said():
    trace = read_one(neutral({"k": "user", "text": "Fix it."}, SAY, TOOL, SAY))
    assert (trace.dataset, trace.id, trace.success) == ("d", "1", True)
    assert trace.steps == (
        TraceStep(
            agent="coder",
            text="I look.",
            calls=(TraceCall(tool="bash", arguments="ls", result="a.py", failed=None),),
            user_text="Fix it.",
        ),
        TraceStep(agent="coder", text="I look."),
    )


def test_several_texts_of_people_belong_to_the_step_after_them():
    events = [{"k": "user", "text": text} for text in ("one", "", "two")]
    (step,) = read_one(neutral(*events, SAY, {"k": "user", "text": "too late"})).steps
    assert step.user_text == "one\ntwo"


def test_view_b_takes_a_message_that_is_really_a_tools_for_a_call():
    (step,) = read_one(neutral(SURF)).steps
    assert (step.agent, step.text, step.asker) == ("surfer", "", "lead")
    assert step.calls == (
        TraceCall(tool="visit", arguments='{"url":"example.org"}', result="404", failed=True),
    )


def test_view_a_sees_messages_only_and_no_failures():
    (surf, step) = read_one(neutral(SURF, SAY, TOOL), view="A").steps
    assert (surf.text, surf.calls) == ("I opened the page.", ())
    assert step.calls[0].failed is None


def test_an_unknown_result_is_not_an_empty_one():
    unknown = {"k": "tool", "tool": "bash"}
    empty = {**TOOL, "result": ""}
    (step,) = read_one(neutral(SAY, unknown, empty)).steps
    assert [call.result for call in step.calls] == [None, ""]
    assert step.calls[0] == TraceCall(tool="bash")


def test_a_call_before_any_answer_makes_a_step_of_its_agent():
    (step,) = read_one(neutral(TOOL)).steps
    assert (step.agent, step.text, len(step.calls)) == ("coder", "", 1)


def test_equal_arguments_are_equal_texts_whatever_the_order_of_their_keys():
    calls = [{**TOOL, "args": args} for args in ({"a": 1, "b": 2}, {"b": 2, "a": 1})]
    first, second = read_one(neutral(SAY, *calls)).steps[0].calls
    assert first.arguments == second.arguments == '{"a":1,"b":2}'


def test_a_run_without_a_name_is_named_by_file_and_line():
    (_, second) = read(lines(neutral(), {"events": []}))
    assert (second.dataset, second.id, second.success) == (FILE, "2", None)


@pytest.mark.parametrize(
    ("document", "format_"),
    [
        (neutral(), "neutral"),
        (CHAT, "openai"),
        ({"messages": CHAT}, "openai"),
        (AUTOGEN, "autogen"),
        ({"messages": AUTOGEN, "stop_reason": None}, "autogen"),
        (SPANS, "otlp"),
        ([SPANS], "otlp"),
        ([{"scopeSpans": []}], "otlp"),
    ],
)
def test_a_format_is_recognised_by_its_first_document(document: Any, format_: str):
    assert reader.recognise_format(document) == format_


@pytest.mark.parametrize("document", [3, [], {}, {"messages": []}, ["text"], [{"type": "x"}]])
def test_what_has_no_known_format_is_refused_with_the_formats(document: Any):
    error = problem(lines(document))
    assert str(error) == (
        f"{FILE}, line 1: the format is none of neutral, openai, autogen, otlp; "
        "name it if it is one of them"
    )


def test_a_named_format_is_not_guessed():
    assert read(lines({"messages": []}), format_="openai")[0].steps == ()
    assert "missing required field `events`" in problem(lines(CHAT[0]), format_="neutral").problem


def test_a_file_of_one_document_may_be_written_over_many_lines():
    assert len(read(json.dumps(neutral(SAY), indent=1).encode())) == 1
    assert len(read(b"\n\n" + lines(neutral(SAY)) + b"\n" + lines(neutral(SAY)))) == 2


@pytest.mark.parametrize("content", [b"", b" \n\n"])
def test_an_empty_file_has_no_runs(content: bytes):
    assert read(content) == []


def test_an_error_names_file_line_and_place():
    content = lines(neutral(SAY), neutral(SAY, {"k": "say"}))
    error = problem(content)
    assert (error.file, error.line) == (FILE, 2)
    assert str(error) == (
        f"{FILE}, line 2: Object missing required field `agent` - at `$.events[1]`"
    )


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (lines(neutral()) + b'{"events": [}\n', 2),
        (lines(neutral()) + b'{"events": [\n', 2),
        (b'{"events":\n [}\n', 2),
        (b'{"events":\n [\n', 3),
        (b'{"events": "\xff"}', 1),
    ],
)
def test_what_is_no_json_is_named_by_its_line(content: bytes, line: int):
    error = problem(content)
    assert error.line == line
    assert error.problem.startswith("not valid JSON: ")


@pytest.mark.parametrize("depth", [70, 100_000])
@pytest.mark.parametrize("before", [b"", b"\n[]"])
def test_a_document_that_is_nested_too_deep_is_refused(depth: int, before: bytes):
    content = b"[" * depth + b"]" * depth + before
    assert problem(content).problem == "the document is nested more than 64 deep"


def test_sizes_are_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(model, "STEPS_MAX", 2)
    monkeypatch.setattr(model, "CALLS_MAX", 2)
    assert len(read_one(neutral(SAY, SAY, TOOL, TOOL)).steps) == 2
    content = lines(neutral(), neutral(SAY, SAY, SAY))
    assert str(problem(content)) == f"{FILE}, line 2: a trace has more than 2 steps; split it"
    assert "more than 2 tool calls" in problem(lines(neutral(TOOL, TOOL, TOOL))).problem
    monkeypatch.setattr(reader, "DOCUMENT_BYTES_MAX", 10)
    assert "more than 10 bytes" in problem(lines(neutral())).problem
    assert "more than 10 bytes" in problem(b'{"events":\n [],\n "id": "1"}\n').problem


def test_a_file_of_many_runs_is_read_line_by_line():
    taken: list[bytes] = []

    def file_lines() -> Iterator[bytes]:
        for line in [lines(neutral(SAY))] * 1_000:
            taken.append(line)
            yield line

    traces = reader.read_traces(file_lines(), FILE)
    next(traces)
    assert len(taken) == 1


@pytest.mark.parametrize("view", ["A", "B"])
def test_a_trace_is_a_value_that_can_be_written_and_read_back(view: TraceView):
    trace = read_one(neutral({"k": "user", "text": "x"}, SAY, TOOL, SURF), view=view)
    assert msgspec.json.decode(msgspec.json.encode(trace), type=model.Trace) == trace
