"""Messages of a model as spans carry them: in attributes, or in the span events that came before.

Since version 1.37 of the semantic conventions `gen_ai.input.messages` and `gen_ai.output.messages`
hold all messages, as attributes of the span or of its event
`gen_ai.client.inference.operation.details`. Before that each message was an event of its own:
`gen_ai.user.message`, `gen_ai.assistant.message`, `gen_ai.tool.message`, and `gen_ai.choice` for
what the model answered; and before that `gen_ai.content.prompt` and `gen_ai.content.completion`
held all of them as text. All become the messages of today, so one reader reads them.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from handrail.kernel.decision import Value, prepare_types
from handrail.replay.traces.model import text_of_part

DETAILS_EVENT = "gen_ai.client.inference.operation.details"
INPUT_ROLES = {
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
}
"""The events of one message each that a model was given."""
OUTPUT_EVENTS = ("gen_ai.choice", "gen_ai.content.completion")


class OtlpMessage(Value):
    role: str = ""
    parts: list[Any] = []


class OtlpToolPart(Value):
    """A tool call or the response to one, with the fields of both; a server's own tool, too."""

    id: str | None = None
    name: str = ""
    arguments: Any = None
    server_tool_call: Any = None
    response: Any = None
    result: Any = None
    server_tool_call_response: Any = None


class OldFunction(Value):
    name: str = ""
    arguments: Any = None


class OldToolCall(Value):
    id: str | None = None
    function: OldFunction = OldFunction()


class OldMessage(Value):
    """A message as events had it; a choice has it in `message`, as a value or as JSON."""

    role: str = ""
    content: Any = None
    id: str | None = None
    tool_calls: list[OldToolCall] = []


prepare_types(list[OtlpMessage], OtlpToolPart, OldMessage, list[OldMessage])


def messages_in(value: object) -> list[OtlpMessage]:
    """The messages of an attribute, recorded as a value or as JSON in a text."""
    decoded = msgspec.json.decode(value) if isinstance(value, str) else value
    return msgspec.convert(decoded or (), list[OtlpMessage])


def messages_of_events(
    events: Iterable[tuple[str, dict[str, object]]],
) -> tuple[list[OtlpMessage], list[OtlpMessage]]:
    """What the model was given and what it answered, of older conventions."""
    given_messages: list[OtlpMessage] = []
    answers: list[OtlpMessage] = []
    for name, attributes in events:
        if name in INPUT_ROLES:
            given_messages.append(_message_of(attributes, INPUT_ROLES[name]))
        elif name == "gen_ai.content.prompt":
            given_messages += _messages_of_text(attributes.get("gen_ai.prompt"), "user")
        elif name == "gen_ai.choice":
            message = _decoded(attributes.get("message", attributes.get("content")))
            fields = message if isinstance(message, dict) else {"content": message}  # pyright: ignore[reportUnknownVariableType] - any JSON
            answers.append(_message_of({"tool_calls": attributes.get("tool_calls"), **fields}))
        elif name == "gen_ai.content.completion":
            answers += _messages_of_text(attributes.get("gen_ai.completion"), "assistant")
    return given_messages, answers


def text_of_message(message: OtlpMessage) -> str:
    parts = (part for part in message.parts if not _is_hidden(part))
    return "\n".join(text_of_part(part) for part in parts)


def tool_parts(message: OtlpMessage, kind: str) -> list[OtlpToolPart]:
    """The parts of a message that are tool calls, or the responses to them."""
    kinds = (kind, f"server_{kind}")
    parts = (part for part in message.parts if _kind_of(part) in kinds)
    return [msgspec.convert(part, OtlpToolPart) for part in parts]


def _is_hidden(part: object) -> bool:
    """Whether a part is no text for people: reasoning, a tool call, the response to one."""
    kind = _kind_of(part)
    is_tool_part = kind.removesuffix("_response").removeprefix("server_") == "tool_call"
    return is_tool_part or kind == "reasoning"


def _kind_of(part: object) -> str:
    return str(part.get("type", "")) if isinstance(part, dict) else ""  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType] - any JSON


def _decoded(value: object) -> object:
    """The JSON value in a text, or the text."""
    if not isinstance(value, str) or value[:1] not in ("{", "["):
        return value
    try:
        return msgspec.json.decode(value)
    except msgspec.DecodeError:
        return value


def _messages_of_text(value: object, role: str) -> list[OtlpMessage]:
    """All messages of a prompt or a completion: a list of them, or a text that is one."""
    decoded = _decoded(value)
    if isinstance(decoded, list):
        messages = msgspec.convert(decoded, list[dict[str, Any]])
        return [_message_of(message, str(message.get("role", role))) for message in messages]
    return [OtlpMessage(role=role, parts=[decoded])] if decoded else []


def _message_of(fields: dict[str, Any], role: str = "assistant") -> OtlpMessage:
    """An older message in today's form."""
    named = {key: _decoded(fields[key]) for key in OldMessage.__struct_fields__ if fields.get(key)}
    message = msgspec.convert(named, OldMessage)
    if role == "tool":
        response = {"type": "tool_call_response", "id": message.id, "response": message.content}
        return OtlpMessage(role=role, parts=[response])
    parts: list[Any] = [message.content]
    if isinstance(message.content, list):
        parts = msgspec.convert(message.content, list[Any])  # pyright: ignore[reportUnknownMemberType] - any JSON
    calls = [
        {
            "type": "tool_call",
            "id": call.id,
            "name": call.function.name,
            "arguments": call.function.arguments,
        }
        for call in message.tool_calls
    ]
    return OtlpMessage(role=role, parts=[*filter(None, parts), *calls])
