"""Messages of AutoGen AgentChat, in the form of `model_dump(mode="json")`, become steps."""

from datetime import UTC, datetime
from typing import Any

from tests.replay.reading_traces import read_one

from handrail.replay.traces.model import TraceCall, TraceStep, TraceView

USED = {"prompt_tokens": 40, "completion_tokens": 2}
CODE = "Run this:\n```python\nprint(1)\n```\nand\n```sh\nls\n```"


def message(type_: str, source: str, content: Any, usage: Any = None, **more: Any) -> Any:
    return {
        "id": "0f6c",
        "source": source,
        "models_usage": usage,
        "metadata": {},
        "created_at": "2026-03-01T10:00:00Z",
        "content": content,
        "type": type_,
        **more,
    }


def request(source: str, name: str, call_id: str) -> Any:
    calls = [{"id": call_id, "arguments": '{"q": 1}', "name": name}]
    return message("ToolCallRequestEvent", source, calls, USED)


def execution(source: str, name: str, call_id: str, content: str, is_error: bool = False) -> Any:
    results = [{"content": content, "name": name, "call_id": call_id, "is_error": is_error}]
    return message("ToolCallExecutionEvent", source, results)


def steps(*messages: Any, view: TraceView = "B") -> tuple[TraceStep, ...]:
    return read_one(list(messages), view=view).steps


def test_a_request_for_tools_is_a_step_with_its_thought_and_its_results():
    (step,) = steps(
        message("TextMessage", "user", "Find it."),
        message("ThoughtEvent", "finder", "I search."),
        request("finder", "search", "c1"),
        execution("finder", "search", "c1", "no network", is_error=True),
        message("ToolCallSummaryMessage", "finder", "no network"),
    )
    assert step == TraceStep(
        agent="finder",
        text="I search.",
        calls=(TraceCall(tool="search", arguments='{"q": 1}', result="no network", failed=True),),
        user_text="Find it.",
        tokens=42,
        at=datetime(2026, 3, 1, 10, tzinfo=UTC),
    )


def test_a_thought_before_a_text_is_not_said():
    thought = message("ThoughtEvent", "a", "hm")
    first, second = steps(thought, message("TextMessage", "a", "yes"), request("a", "f", "c"))
    assert (first.text, second.text) == ("yes", "")


def test_a_handoff_by_a_tool_is_part_of_the_step_that_called_it():
    done = steps(
        request("triage", "transfer_to_billing", "c1"),
        execution("triage", "transfer_to_billing", "c1", "Transferred to billing."),
        message(
            "HandoffMessage", "triage", "Transferred to billing.", target="billing", context=[]
        ),
        message("TextMessage", "billing", "Paid.", USED),
    )
    assert [step.agent for step in done] == ["triage", "billing"]


def test_a_handoff_without_a_call_is_a_step():
    handoff = message("HandoffMessage", "triage", "Take it.", target="billing", context=[])
    done = steps(handoff, handoff, message("TextMessage", "billing", "Paid."), handoff)
    assert [step.text for step in done] == ["Take it.", "Take it.", "Paid.", "Take it."]


def test_a_summary_of_another_agents_calls_is_a_step():
    done = steps(request("a", "f", "c"), message("ToolCallSummaryMessage", "b", "all"))
    assert [step.agent for step in done] == ["a", "b"]


def test_events_that_are_no_answers_are_no_steps():
    done = steps(
        message("SelectSpeakerEvent", "manager", ["writer"]),
        message("MemoryQueryEvent", "writer", [{"content": "old", "mime_type": "text/plain"}]),
        message("ModelClientStreamingChunkEvent", "writer", "Ye"),
        message("TextMessage", "writer", "Yes."),
    )
    assert [step.text for step in done] == ["Yes."]


def test_who_was_asked_for_input_is_a_person():
    (_, step) = steps(
        message("TextMessage", "writer", "Good?"),
        message("UserInputRequestedEvent", "boss", "", request_id="r1"),
        message("TextMessage", "boss", "No."),
        message("TextMessage", "writer", "Better?"),
    )
    assert (step.text, step.user_text) == ("Better?", "No.")


def test_generated_code_is_a_call_with_what_its_execution_gave():
    generated = message("CodeGenerationEvent", "coder", CODE, retry_attempt=0, code_blocks=[])
    executed = message(
        "CodeExecutionEvent", "coder", None, retry_attempt=0, result={"exit_code": 1, "output": "x"}
    )
    older = message("CodeExecutionEvent", "coder", None, result="y")
    first, second = steps(generated, executed, generated, older)
    assert first.calls == (
        TraceCall(tool="code", arguments="print(1)\n\nls\n", result="x", failed=True),
    )
    assert (second.calls[0].result, second.calls[0].failed) == ("y", None)


def test_generated_text_without_a_block_is_the_code_itself():
    (step,) = steps(message("CodeGenerationEvent", "coder", "print(1)"))
    assert step.calls[0].arguments == "print(1)"


def test_view_b_takes_an_executors_message_for_the_result_of_the_code_before_it():
    run = [message("TextMessage", "coder", CODE, USED), message("TextMessage", "executor", "1")]
    (step,) = steps(*run)
    assert step.calls == (TraceCall(tool="code", arguments="print(1)\n\nls\n", result="1"),)
    assert [step.agent for step in steps(*run, view="A")] == ["coder", "executor"]


def test_a_message_is_no_executors_where_that_is_not_clear():
    coder = message("TextMessage", "coder", CODE, USED)
    for unclear in (
        [message("TextMessage", "coder", CODE), message("TextMessage", "critic", "Fine.")],
        [coder, message("TextMessage", "critic", "Fine.", USED)],
        [coder, message("TextMessage", "coder", "Fine.")],
        [message("TextMessage", "starter", "go"), message("TextMessage", "coder", "yes", USED)],
    ):
        assert all(not step.calls for step in steps(*unclear))


def test_an_executor_speaks_once_for_one_answer():
    coder = message("TextMessage", "coder", CODE, USED)
    outputs = [message("TextMessage", "executor", text) for text in ("1", "2")]
    assert [step.text for step in steps(coder, *outputs)] == [CODE, "2"]


def test_content_of_every_kind_becomes_text():
    seen = [{"data": "iVBORw0KGgo="}, "A page."]
    first, second, third = steps(
        message("MultiModalMessage", "surfer", seen),
        message("StructuredMessage[Plan]", "planner", {"b": 1, "a": [2]}),
        message("StopMessage", "planner", None),
    )
    assert first.text.startswith("[image ")
    assert first.text.endswith("\nA page.")
    assert (second.text, third.text) == ('{"a":[2],"b":1}', "")


def test_a_dumped_task_result_is_a_run():
    run = {"messages": [message("TextMessage", "writer", "x")], "stop_reason": "done"}
    assert [step.text for step in read_one(run).steps] == ["x"]
