"""Reads messages of AutoGen AgentChat, as `model_dump` writes them.

A document is a list of messages, or a dumped `TaskResult` with such a list in `messages`.

- A `TextMessage`, or any other message for agents, is a step. So are a `ToolCallRequestEvent` and a
  `CodeGenerationEvent`: each is one answer of a model.
- A `ToolCallExecutionEvent` brings results by the id of the call, a `CodeExecutionEvent` that of
  the code generated before it.
- A `HandoffMessage` and a `ToolCallSummaryMessage` after tool calls of the same agent repeat what
  these calls gave, and are no steps. Other events (chunks, thoughts, memory, who speaks next) are
  no steps either; the thought before a request for tools is the text of that step.
- What comes from `user`, or from an agent that asked for a person's input, a person said.
- An executor of code without a model answers with a plain message. View B takes it for the result
  of the code in the answer before it: the message says nothing of a model's use, although others
  do, and follows an answer of another agent that has code in it.
"""

import re
from datetime import datetime
from typing import Any

import msgspec

from handrail.kernel.decision import Value, prepare_types
from handrail.replay.traces.model import Trace, TraceBuilder, TraceView, text_of_parts

PERSON = "user"
CODE_TOOL = "code"
CODE_BLOCK = re.compile(r"```[^\n`]*\n(.*?)```", re.DOTALL)
PARTS_OF_A_STEP = ("HandoffMessage", "ToolCallSummaryMessage")
"""Messages that follow from tool calls and not from another answer of a model."""


class AutoGenUsage(Value):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class AutoGenCodeResult(Value):
    exit_code: int
    output: str


class AutoGenMessage(Value):
    type: str
    source: str
    content: Any = None
    models_usage: AutoGenUsage | None = None
    created_at: datetime | None = None
    result: AutoGenCodeResult | str | None = None


class AutoGenFunctionCall(Value):
    name: str
    arguments: Any = None
    id: str = ""


class AutoGenFunctionResult(Value):
    content: Any
    call_id: str = ""
    is_error: bool | None = None


class AutoGenDocument(Value):
    messages: list[AutoGenMessage]
    dataset: str = ""
    id: str = ""
    success: bool | None = None


prepare_types(AutoGenDocument, list[AutoGenFunctionCall], list[AutoGenFunctionResult])


def read_autogen(document: object, dataset: str, trace_id: str, view: TraceView) -> Trace:
    """The trace of one list of messages."""
    if isinstance(document, list):
        document = {"messages": document}  # pyright: ignore[reportUnknownVariableType] - any JSON
    recorded = msgspec.convert(document, AutoGenDocument)
    reader = _AutoGenReader(recorded.messages, view)
    for message in recorded.messages:
        reader.add(message)
    return Trace(
        dataset=recorded.dataset or dataset,
        id=recorded.id or trace_id,
        success=recorded.success,
        steps=reader.builder.build(),
    )


class _AutoGenReader:
    """Goes through the messages of one run."""

    def __init__(self, messages: list[AutoGenMessage], view: TraceView) -> None:
        self.builder = TraceBuilder(view)
        self._people = {PERSON} | {
            message.source for message in messages if message.type == "UserInputRequestedEvent"
        }
        self._is_usage_known = any(message.models_usage for message in messages)
        self._thought = ""

    def add(self, message: AutoGenMessage) -> None:
        match message.type:
            case "ToolCallRequestEvent":
                self._add_tool_calls(message)
            case "ToolCallExecutionEvent":
                self._add_tool_results(message)
            case "CodeGenerationEvent":
                text = text_of_parts(message.content)
                self._add_answer(message, text)
                self.builder.add_call(message.source, CODE_TOOL, _code_in(text) or text)
            case "CodeExecutionEvent":
                self._add_code_result(message.result)
            case "ThoughtEvent":
                self._thought = text_of_parts(message.content)
                return
            case _:
                self._add_message(message)
        self._thought = ""

    def _add_answer(self, message: AutoGenMessage, text: str) -> None:
        usage = message.models_usage
        self.builder.add_answer(
            message.source,
            text,
            tokens=usage.prompt_tokens + usage.completion_tokens if usage else None,
            at=message.created_at,
        )

    def _add_tool_calls(self, message: AutoGenMessage) -> None:
        self._add_answer(message, self._thought)
        for call in msgspec.convert(message.content, list[AutoGenFunctionCall]):
            self.builder.add_call(message.source, call.name, call.arguments, call_id=call.id)

    def _add_tool_results(self, message: AutoGenMessage) -> None:
        for result in msgspec.convert(message.content, list[AutoGenFunctionResult]):
            self.builder.add_result(result.call_id, result.content, result.is_error)

    def _add_code_result(self, result: AutoGenCodeResult | str | None) -> None:
        if isinstance(result, AutoGenCodeResult):
            self.builder.add_result("", result.output, result.exit_code != 0)
        else:
            self.builder.add_result("", result)

    def _add_message(self, message: AutoGenMessage) -> None:
        text = text_of_parts(message.content)
        if message.type.endswith("Event") or self._is_part_of_last_step(message):
            return
        if message.source in self._people:
            self.builder.add_user_text(text)
        elif code := self._executed_code(message):
            self.builder.add_call(message.source, CODE_TOOL, code, result=text)
        else:
            self._add_answer(message, text)

    def _is_part_of_last_step(self, message: AutoGenMessage) -> bool:
        last = self.builder.last_answer
        return (
            message.type in PARTS_OF_A_STEP
            and last is not None
            and last.agent == message.source
            and self.builder.last_answer_has_calls
        )

    def _executed_code(self, message: AutoGenMessage) -> str:
        """The code whose result this message seems to be; "" in view A."""
        last = self.builder.last_answer
        if self.builder.view == "A" or not self._is_usage_known or message.models_usage:
            return ""
        if last is None or last.agent == message.source or self.builder.last_answer_has_calls:
            return ""
        return _code_in(last.text)


def _code_in(text: str) -> str:
    return "\n".join(CODE_BLOCK.findall(text))
