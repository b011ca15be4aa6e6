"""Chat messages in the form of the OpenAI API become steps with their calls."""

from typing import Any

import pytest
from tests.replay.reading_traces import lines, read, read_one

from handrail.replay.traces.model import TraceCall, TraceFormatError

WEATHER = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {
            "id": "call_a",
            "type": "function",
            "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'},
        },
        {
            "id": "call_b",
            "type": "function",
            "function": {"name": "get_weather", "arguments": '{"city": "Rome"}'},
        },
    ],
}


def result(call_id: str, content: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def test_results_find_their_calls_by_id():
    messages = [
        {"role": "system", "content": "You help."},
        {"role": "user", "content": "Weather?"},
        WEATHER,
        result("call_b", "sun"),
        result("call_a", [{"type": "text", "text": "rain"}]),
        result("call_z", "of nobody"),
        {"role": "assistant", "content": "Rain in Oslo, sun in Rome."},
    ]
    first, last = read_one(messages).steps
    assert (first.agent, first.text, first.user_text) == ("assistant", "", "Weather?")
    assert first.calls == (
        TraceCall(tool="get_weather", arguments='{"city": "Oslo"}', result="rain"),
        TraceCall(tool="get_weather", arguments='{"city": "Rome"}', result="sun"),
    )
    assert (last.text, last.calls) == ("Rain in Oslo, sun in Rome.", ())


def test_a_result_that_was_not_recorded_is_unknown():
    assert [call.result for call in read_one([WEATHER]).steps[0].calls] == [None, None]


def test_the_older_function_call_is_joined_with_the_function_message_after_it():
    messages = [
        {"role": "assistant", "content": "", "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "1"},
        {"role": "function", "name": "f", "content": "of nobody"},
    ]
    assert read_one(messages).steps[0].calls == (TraceCall(tool="f", arguments="{}", result="1"),)


def test_a_result_before_any_answer_is_dropped():
    messages = [{"role": "function", "content": "1"}, {"role": "assistant", "content": "a"}]
    assert read_one(messages).steps[0].calls == ()


def test_a_custom_tool_is_called_with_its_input():
    call = {"id": "c", "type": "custom", "custom": {"name": "sql", "input": "select 1"}}
    (step,) = read_one([{"role": "assistant", "tool_calls": [call]}]).steps
    assert step.calls == (TraceCall(tool="sql", arguments="select 1"),)


def test_a_call_of_nothing_is_refused():
    with pytest.raises(TraceFormatError, match="line 1: a tool call has neither"):
        read_one([{"role": "assistant", "tool_calls": [{"id": "c", "type": "web"}]}])


def test_an_unknown_role_is_refused_with_its_place():
    with pytest.raises(TraceFormatError, match=r"Invalid enum value 'robot' - at `\$.messages"):
        read_one([{"role": "user", "content": "x"}, {"role": "robot"}])


def test_a_refusal_is_what_the_model_answered():
    assert read_one([{"role": "assistant", "refusal": "No."}]).steps[0].text == "No."


def test_different_images_stay_different_and_equal_ones_equal():
    def shown(url: str) -> str:
        image = {"type": "image_url", "image_url": {"url": url}}
        text = {"type": "text", "text": "see"}
        answer = {"role": "assistant", "content": "ok", "name": "eye"}
        return (
            read_one([{"role": "user", "content": [text, image, None]}, answer]).steps[0].user_text
        )

    assert shown("a") == shown("a") != shown("b")
    assert shown("a").startswith("see\n[image_url ")


def test_each_line_of_a_file_is_a_run_and_may_be_judged():
    chat = [{"role": "assistant", "content": "x"}]
    first, second = read(lines({"messages": chat}, {"messages": chat, "id": "r", "success": False}))
    assert (first.id, first.success) == ("1", None)
    assert (second.id, second.success) == ("r", False)
