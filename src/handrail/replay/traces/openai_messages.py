"""Reads chat messages as the OpenAI API takes and gives them.

A document is a list of messages, or an object with such a list in `messages` (the lines of a
fine-tuning file). An `assistant` message is a step; its `tool_calls` find their results in the
`tool` messages by id. The older `function_call` with its `function` message is read, too. `system`
and `developer` messages are instructions and no part of the run. An object may say more: `id`,
`dataset`, and `success`, by which a person's own runs can be judged.
"""

from typing import Any, Literal, assert_never

import msgspec

from handrail.kernel.decision import Value, prepare_types
from handrail.replay.traces.model import Trace, TraceBuilder, TraceView, text_of_parts

AGENT_DEFAULT = "assistant"


class OpenAIFunction(Value):
    name: str
    arguments: Any = None


class OpenAICustomTool(Value):
    name: str
    input: Any = None


class OpenAIToolCall(Value):
    id: str = ""
    function: OpenAIFunction | None = None
    custom: OpenAICustomTool | None = None


class OpenAIMessage(Value):
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: Any = None
    refusal: str | None = None
    name: str | None = None
    tool_calls: list[OpenAIToolCall] | None = None
    function_call: OpenAIFunction | None = None
    tool_call_id: str = ""


class OpenAIDocument(Value):
    messages: list[OpenAIMessage]
    dataset: str = ""
    id: str = ""
    success: bool | None = None


prepare_types(OpenAIDocument)


def read_openai(document: object, dataset: str, trace_id: str, view: TraceView) -> Trace:
    """The trace of one list of messages."""
    if isinstance(document, list):
        document = {"messages": document}  # pyright: ignore[reportUnknownVariableType] - any JSON
    recorded = msgspec.convert(document, OpenAIDocument)
    builder = TraceBuilder(view)
    for message in recorded.messages:
        _add_message(builder, message)
    return Trace(
        dataset=recorded.dataset or dataset,
        id=recorded.id or trace_id,
        success=recorded.success,
        steps=builder.build(),
    )


def _add_message(builder: TraceBuilder, message: OpenAIMessage) -> None:
    text = text_of_parts(message.content)
    match message.role:
        case "user":
            builder.add_user_text(text)
        case "assistant":
            _add_assistant(builder, message, text or message.refusal or "")
        case "tool" | "function":
            builder.add_result(message.tool_call_id, text)
        case "system" | "developer":
            pass
        case _:
            assert_never(message.role)


def _add_assistant(builder: TraceBuilder, message: OpenAIMessage, text: str) -> None:
    agent = message.name or AGENT_DEFAULT
    builder.add_answer(agent, text)
    for call in message.tool_calls or ():
        if call.function:
            builder.add_call(agent, call.function.name, call.function.arguments, call_id=call.id)
        elif call.custom:
            builder.add_call(agent, call.custom.name, call.custom.input, call_id=call.id)
        else:
            raise msgspec.ValidationError("a tool call has neither `function` nor `custom`")
    if message.function_call:
        builder.add_call(agent, message.function_call.name, message.function_call.arguments)
