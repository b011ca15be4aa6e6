"""OTLP JSON with spans of the GenAI semantic conventions becomes runs."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.replay.reading_traces import FILE, lines, read

from handrail.replay.traces.model import TraceCall, TraceFormatError, TraceStep, TraceView

TRACE = "5B8EFFF798038103D269B633813FC60C"
SECOND = 1_000_000_000
START = 1_772_359_200 * SECOND


def any_value(value: Any) -> dict[str, Any]:
    """The form of a value in OTLP."""
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case list():
            return {"arrayValue": {"values": [any_value(item) for item in value]}}
        case dict():
            pairs = [{"key": key, "value": any_value(item)} for key, item in value.items()]
            return {"kvlistValue": {"values": pairs}}
        case None:
            return {}
        case _:
            return {"stringValue": value}


def attributes(values: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": any_value(value)} for key, value in values.items()]


def span(number: int, operation: str, parent: int = 0, code: Any = 0, **values: Any) -> Any:
    """A span that begins and ends at the second of its number; `__` stands for a dot."""
    named = {f"gen_ai.{key.replace('__', '.')}": value for key, value in values.items()}
    operations = {"gen_ai.operation.name": operation} if operation else {}
    return {
        "traceId": TRACE,
        "spanId": f"EEE19B7EC3C1B1{number:02X}",
        "parentSpanId": f"eee19b7ec3c1b1{parent:02x}" if parent else "",
        "name": operation,
        "kind": 3,
        "startTimeUnixNano": str(START + number * SECOND),
        "endTimeUnixNano": str(START + number * SECOND),
        "attributes": attributes({**operations, **named}),
        "status": {"code": code},
    }


def export(*spans: Any) -> dict[str, Any]:
    scope = {"scope": {"name": "my.library"}, "spans": list(spans)}
    resource = {"attributes": attributes({"service.name": "my.service"})}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [scope]}]}


def steps(*spans: Any, view: TraceView = "B") -> tuple[TraceStep, ...]:
    (trace,) = read(lines(export(*spans)), view=view)
    assert (trace.dataset, trace.id, trace.success) == (FILE, TRACE.lower(), None)
    return trace.steps


def says(text: str, *parts: Any, role: str = "assistant") -> dict[str, Any]:
    texts = [{"type": "text", "content": text}] if text else []
    return {"role": role, "parts": [*texts, *parts], "finish_reason": "stop"}


def call(call_id: str | None = "call_1", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_call", "id": call_id, "name": "get_weather", "arguments": arguments}


def response(text: Any, call_id: str | None = "call_1", key: str = "response") -> dict[str, Any]:
    return says("", {"type": "tool_call_response", "id": call_id, key: text}, role="tool")


def test_a_chat_a_tool_and_a_chat_are_two_steps_with_a_call():
    asked = says("Weather in Paris?", role="user")
    wants = says("", {"type": "reasoning", "content": "hm"}, call(location="Paris"))
    first, second = steps(
        span(3, "chat", output__messages=json.dumps([says("Rainy.")]), usage__output_tokens=7),
        span(2, "execute_tool", tool__call__id="call_1", tool__name="get_weather", code=1),
        span(
            1,
            "chat",
            input__messages=json.dumps([says("Help.", role="system"), asked]),
            output__messages=json.dumps([wants]),
            usage__input_tokens=40,
            usage__output_tokens=2,
        ),
    )
    assert first == TraceStep(
        agent="agent",
        calls=(TraceCall(tool="get_weather", arguments='{"location":"Paris"}', failed=False),),
        user_text="Weather in Paris?",
        tokens=42,
        at=datetime(2026, 3, 1, 10, 0, 1, tzinfo=UTC),
    )
    assert (second.text, second.user_text, second.tokens) == ("Rainy.", "", 7)


@pytest.mark.parametrize("key", ["response", "result"])
def test_a_result_may_stand_in_the_input_of_the_next_chat(key: str):
    wants = says("", call("call_1"))
    history = [says("Go.", role="user"), wants, response("rainy", key=key)]
    first, second = steps(
        span(1, "chat", output__messages=[wants]),
        span(2, "execute_tool", tool__call__id="call_1", code=2),
        span(3, "chat", input__messages=history, output__messages=[says("ok")]),
    )
    assert (first.calls[0].result, first.calls[0].failed) == ("rainy", True)
    assert second.user_text == ""


def test_a_tool_span_that_no_answer_asked_for_belongs_to_the_step_before_it():
    first, second = steps(
        span(1, "chat"),
        span(2, "execute_tool", tool__name="f", tool__call__arguments={"a": 1, "b": [True, None]}),
        span(3, "execute_tool", tool__name="g", tool__call__result="[1]", code="STATUS_CODE_ERROR"),
        span(4, "generate_content"),
    )
    assert first.calls == (
        TraceCall(tool="f", arguments='{"a":1,"b":[true,null]}'),
        TraceCall(tool="g", result="[1]", failed=True),
    )
    assert second.calls == ()


def test_view_a_knows_no_failures():
    tool = span(2, "execute_tool", error__type="timeout", code=2)
    assert steps(span(1, "chat"), tool)[0].calls[0].failed is True
    assert steps(span(1, "chat"), tool, view="A")[0].calls[0].failed is None


def test_an_error_type_is_a_failure():
    tool = span(2, "execute_tool", tool__name="f")
    tool["attributes"] += attributes({"error.type": "timeout"})
    del tool["status"]
    assert steps(span(1, "chat"), tool)[0].calls[0].failed is True


def test_an_agent_is_named_by_the_span_or_the_nearest_above_it():
    done = steps(
        span(1, "invoke_agent", agent__name="lead"),
        span(2, "chat", parent=1),
        span(3, "execute_tool", parent=1, tool__name="ask"),
        span(4, "invoke_agent", parent=3, agent__name="helper"),
        span(5, "", parent=4),
        span(6, "chat", parent=5),
        span(7, "chat", parent=5, agent__name="other"),
    )
    assert [step.agent for step in done] == ["lead", "helper", "other"]


def test_an_agent_whose_model_cannot_be_seen_is_a_step():
    done = steps(
        span(1, "invoke_agent", agent__name="lead", output__messages=[says("done")]),
        span(2, "create_agent", agent__name="none"),
    )
    assert [(step.agent, step.text) for step in done] == [("lead", "done")]


def test_a_cycle_of_parents_is_left():
    assert steps(span(1, "chat", parent=2), span(2, "", parent=1))[0].agent == "agent"


def test_a_tool_of_the_models_server_is_a_call_with_its_response():
    parts = [
        {"type": "server_tool_call", "id": "s", "name": "run", "server_tool_call": {"code": "1"}},
        {"type": "server_tool_call_response", "id": "s", "server_tool_call_response": {"logs": 1}},
    ]
    (step,) = steps(span(1, "chat", output__messages=[says("It is 1.", *parts)]))
    assert step.text == "It is 1."
    assert step.calls == (TraceCall(tool="run", arguments='{"code":"1"}', result='{"logs":1}'),)


def test_a_call_without_an_id_takes_the_next_response():
    wants = says("", call(None))
    (step, _) = steps(
        span(1, "chat", output__messages=[wants]),
        span(2, "chat", input__messages=[wants, response("rain", None)]),
    )
    assert step.calls[0].result == "rain"


def test_messages_may_stand_in_an_event_of_the_span():
    chat = span(1, "chat")
    details = attributes({"gen_ai.output.messages": [says("from the event")]})
    chat["events"] = [
        {"name": "gen_ai.client.inference.operation.details", "attributes": details},
        {"name": "other", "attributes": attributes({"gen_ai.agent.name": "x"})},
    ]
    (step,) = steps(chat)
    assert (step.agent, step.text) == ("agent", "from the event")


def test_an_image_stays_in_the_text_as_its_digest():
    blob = {"type": "blob", "modality": "image", "content": "aGVsbG8="}
    (step,) = steps(span(1, "chat", output__messages=[says("see", blob, "plain")]))
    assert step.text.startswith("see\n[blob ")
    assert step.text.endswith("]\nplain")


def test_one_trace_may_be_scattered_over_exports_and_a_file_may_have_several():
    other = {**span(1, "chat"), "traceId": "aa"}
    silent = {**span(1, ""), "traceId": "bb"}
    first, second = read(lines(export(span(2, "chat"), other), export(span(1, "chat"), silent)))
    assert (len(first.steps), second.id) == (2, "aa")


def test_a_list_of_resources_is_an_export_and_a_span_may_have_no_times():
    bare = {"traceId": "aa", "spanId": "bb", "attributes": span(1, "chat")["attributes"]}
    (trace,) = read(lines(export(bare)["resourceSpans"]))
    assert trace.steps == (TraceStep(agent="agent"),)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({"traceId": "aa"}, "missing required field `spanId`"),
        ({**span(1, "chat"), "startTimeUnixNano": "soon"}, "Expected `int`, got `str`"),
        ({**span(1, "chat"), "endTimeUnixNano": "9" * 25}, "9{25} is no time"),
        (span(1, "chat", output__messages="[}"), "not valid JSON"),
        (span(1, "chat", output__messages="3"), "Expected `array`, got `int`"),
    ],
)
def test_a_broken_span_is_named_by_its_line(broken: Any, message: str):
    with pytest.raises(TraceFormatError, match=f"line 2: .*{message}"):
        read(lines(export(), export(broken)))


def event(name: str, **values: Any) -> dict[str, Any]:
    return {
        "name": name,
        "timeUnixNano": "1",
        "attributes": attributes({key.replace("__", "."): value for key, value in values.items()}),
    }


def with_events(made_span: dict[str, Any], *events: Any) -> dict[str, Any]:
    return {**made_span, "events": list(events)}


WANTS_WEATHER = [
    {
        "id": "call_1",
        "type": "function",
        "function": {"name": "get_weather", "arguments": '{"a":1}'},
    }
]


@pytest.mark.parametrize("as_text", [False, True])
def test_messages_may_be_events_as_in_older_conventions(as_text: bool):
    message: Any = {"role": "assistant", "content": "I look.", "tool_calls": WANTS_WEATHER}
    first, second = steps(
        with_events(
            span(1, "chat", usage__prompt_tokens=40, usage__completion_tokens=2),
            event("gen_ai.system.message", content="Help."),
            event("gen_ai.user.message", content="Weather?"),
            event("gen_ai.choice", index=0, message=json.dumps(message) if as_text else message),
        ),
        with_events(
            span(2, "chat"),
            event("gen_ai.user.message", content="Weather?"),
            event("gen_ai.assistant.message", tool_calls=WANTS_WEATHER),
            event("gen_ai.tool.message", id="call_1", content="rainy"),
            event("gen_ai.choice", message=json.dumps("It rains {today")),
        ),
    )
    assert (first.text, first.user_text, first.tokens) == ("I look.", "Weather?", 42)
    assert first.calls == (TraceCall(tool="get_weather", arguments='{"a":1}', result="rainy"),)
    assert (second.text, second.user_text) == ('"It rains {today"', "")


def test_a_choice_may_have_its_fields_beside_it():
    (step,) = steps(
        with_events(
            span(1, "chat"),
            event("gen_ai.choice", content="{no json", tool_calls=WANTS_WEATHER),
        )
    )
    assert step.text == "{no json"
    assert step.calls[0].tool == "get_weather"


def test_content_may_be_a_list_of_parts_in_an_event():
    (step,) = steps(
        with_events(
            span(1, "chat"),
            event("gen_ai.user.message", content=json.dumps([{"text": "Go on."}])),
            event("gen_ai.choice", message=json.dumps([{"text": "Yes."}])),
        )
    )
    assert (step.text, step.user_text) == ("Yes.", "Go on.")


def test_prompt_and_completion_may_be_texts_of_the_oldest_events():
    prompt = [{"role": "system", "content": "Help."}, {"role": "user", "content": "Go."}]
    first, second = steps(
        with_events(
            span(1, "chat"),
            event("gen_ai.content.prompt", gen_ai__prompt=json.dumps(prompt)),
            event("gen_ai.content.completion", gen_ai__completion='[{"content": "Gone."}]'),
        ),
        with_events(
            span(2, "text_completion"),
            event("gen_ai.content.prompt", gen_ai__prompt="And now?"),
            event("gen_ai.content.completion", gen_ai__completion=""),
        ),
    )
    assert (first.text, first.user_text) == ("Gone.", "Go.")
    assert (second.text, second.user_text) == ("", "And now?")


def test_a_tool_span_may_have_its_arguments_and_its_result_in_events():
    (step,) = steps(
        span(1, "chat"),
        with_events(
            span(2, "execute_tool", tool__name="get_weather", tool__call__id="call_1"),
            event("gen_ai.tool.message", id="call_1", content='{"city": "Paris"}'),
            event("gen_ai.choice", id="call_1", message=json.dumps([{"text": "rainy"}])),
        ),
    )
    assert step.calls == (
        TraceCall(tool="get_weather", arguments='{"city":"Paris"}', result="rainy"),
    )
