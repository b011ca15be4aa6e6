"""Reads OpenTelemetry spans in OTLP JSON that follow the semantic conventions for generative AI.

A document is one export: `{"resourceSpans": [{"scopeSpans": [{"spans": [...]}]}]}`, in any order,
as the file exporter and the collector write them, one a line. All spans of one trace id are one
run. What a span is, `gen_ai.operation.name` says:

- `chat`, `generate_content`, `text_completion`: a step. Its text and its tool calls are in
  `gen_ai.output.messages`, what a person said in `gen_ai.input.messages`, where content is
  recorded; else the step has no text.
- `execute_tool`: a call, joined with the answer that asked for it by `gen_ai.tool.call.id`, or
  else with the last step that began before the call. Its result is in
  `gen_ai.tool.call.result`, or in the input of the next step.
- `invoke_agent`: names the agent of the spans below it. Without a step below it the model cannot be
  seen, and the span is a step itself.

Where the messages stand, and stood in older versions of the conventions, `otlp_messages.py` says.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from handrail.kernel.decision import Value, prepare_types
from handrail.replay.traces.model import (
    Trace,
    TraceBuilder,
    TraceStep,
    TraceView,
    text_of,
    text_of_parts,
)
from handrail.replay.traces.otlp_messages import (
    DETAILS_EVENT,
    OtlpMessage,
    messages_in,
    messages_of_events,
    text_of_message,
    tool_parts,
)

ANSWER_OPERATIONS = ("chat", "generate_content", "text_completion")
AGENT_DEFAULT = "agent"
TIME_NANOSECONDS_MAX = 253_402_300_799 * 1_000_000_000
"""The end of the year 9999."""
EPOCH = datetime.fromtimestamp(0, UTC)
TOKENS = (
    "gen_ai.usage.input_tokens",
    "gen_ai.usage.output_tokens",
    "gen_ai.usage.prompt_tokens",
    "gen_ai.usage.completion_tokens",
)
"""Today's names and the older ones; a span has the one or the other."""
STATUS_OK = (1, "STATUS_CODE_OK")
STATUS_ERROR = (2, "STATUS_CODE_ERROR")
ANCESTORS_MAX = 100
"""Spans looked at on the way up; a cycle of parents ends there."""


class OtlpAttribute(Value):
    key: str
    value: Any = None


class OtlpStatus(Value):
    code: int | str = 0


class OtlpValues(Value):
    """The content of an `arrayValue` or, as pairs of key and value, of a `kvlistValue`."""

    values: list[Any] = []


class OtlpEvent(Value, rename="camel"):
    name: str = ""
    attributes: list[OtlpAttribute] = []


class OtlpSpan(Value, rename="camel"):
    trace_id: str
    span_id: str
    parent_span_id: str = ""
    start_time_unix_nano: int | str = 0
    end_time_unix_nano: int | str = 0
    attributes: list[OtlpAttribute] = []
    events: list[OtlpEvent] = []
    status: OtlpStatus | None = None


class OtlpScope(Value):
    spans: list[OtlpSpan] = []


class OtlpResource(Value, rename="camel"):
    scope_spans: list[OtlpScope] = []


class OtlpDocument(Value, rename="camel"):
    resource_spans: list[OtlpResource]


prepare_types(OtlpDocument, OtlpValues, list[OtlpAttribute])


class GenAISpan:
    """One span with what is read of it."""

    def __init__(self, span: OtlpSpan) -> None:
        self.id = span.span_id.lower()
        self.trace_id = span.trace_id.lower()
        self.parent_id = span.parent_span_id.lower()
        self.start = _time(span.start_time_unix_nano)
        self.end = _time(span.end_time_unix_nano) or self.start
        events = [(event.name, _named(event.attributes)) for event in span.events]
        details = [attributes for name, attributes in events if name == DETAILS_EVENT]
        self.attributes: dict[str, object] = {}
        for attributes in (*details, _named(span.attributes)):
            self.attributes |= attributes
        self.operation = self._text("gen_ai.operation.name")
        old_input, old_output = messages_of_events(events)
        self.input = messages_in(self.attributes.get("gen_ai.input.messages")) or old_input
        self.output = messages_in(self.attributes.get("gen_ai.output.messages")) or old_output
        self.failed = _failed(span.status, "error.type" in self.attributes)

    @property
    def is_answer(self) -> bool:
        return self.operation in ANSWER_OPERATIONS

    @property
    def agent(self) -> str:
        return self._text("gen_ai.agent.name")

    @property
    def call_id(self) -> str:
        return self._text("gen_ai.tool.call.id")

    @property
    def tool(self) -> str:
        return self._text("gen_ai.tool.name")

    @property
    def at(self) -> datetime | None:
        return EPOCH + timedelta(microseconds=self.end // 1000) if self.end else None

    @property
    def tokens(self) -> int | None:
        counts = [_number(self.attributes[name]) for name in TOKENS if name in self.attributes]
        return sum(counts) if counts else None

    def tool_text(self, messages: list[OtlpMessage]) -> str | None:
        """What a tool was given or answered, where older events say it; None where none does."""
        texts = [text_of_message(message) for message in messages]
        for message in messages:
            texts += [text_of(part.response) for part in tool_parts(message, "tool_call_response")]
        return "\n".join(filter(None, texts)) or None

    def _text(self, name: str) -> str:
        return text_of_parts(self.attributes.get(name))


def spans_of(document: object) -> list[GenAISpan]:
    """The spans of one export."""
    if isinstance(document, list):
        document = {"resourceSpans": document}  # pyright: ignore[reportUnknownVariableType] - any JSON
    recorded = msgspec.convert(document, OtlpDocument)
    return [
        GenAISpan(span)
        for resource in recorded.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def read_otlp(spans: Iterable[GenAISpan], dataset: str, view: TraceView) -> Iterator[Trace]:
    """The traces of all spans, in the order in which their first spans stand; a trace without any
    step is left out."""
    spans_by_trace: dict[str, list[GenAISpan]] = defaultdict(list)
    for span in spans:
        spans_by_trace[span.trace_id].append(span)
    for trace_id, of_trace in spans_by_trace.items():
        if steps := _OtlpReader(of_trace, view).read():
            yield Trace(dataset=dataset, id=trace_id, success=None, steps=steps)


class _OtlpReader:
    """Goes through the spans of one trace, in the order in which they began."""

    def __init__(self, spans: list[GenAISpan], view: TraceView) -> None:
        self._spans = sorted(spans, key=lambda span: span.start)
        self._span_by_id = {span.id: span for span in spans}
        self._builder = TraceBuilder(view)
        self._with_steps_below = {
            ancestor.id for span in spans if span.is_answer for ancestor in self._way_up(span)
        }

    def read(self) -> tuple[TraceStep, ...]:
        for span in self._spans:
            is_hidden_model = span.operation == "invoke_agent" and (
                span.id not in self._with_steps_below
            )
            if span.is_answer or is_hidden_model:
                self._add_answer(span)
            elif span.operation == "execute_tool":
                self._add_call(span)
        return self._builder.build()

    def _add_answer(self, span: GenAISpan) -> None:
        for message in _after_last_answer(span.input):
            if message.role == "user":
                self._builder.add_user_text(text_of_message(message))
            self._add_responses(message)
        agent = self._agent_of(span)
        text = "".join(text_of_message(message) for message in span.output[:1])
        self._builder.add_answer(agent, text, tokens=span.tokens, at=span.at)
        for message in span.output[:1]:
            for part in tool_parts(message, "tool_call"):
                arguments = part.server_tool_call if part.arguments is None else part.arguments
                self._builder.add_call(agent, part.name, arguments, call_id=part.id or "")
            self._add_responses(message)

    def _add_responses(self, message: OtlpMessage) -> None:
        for part in tool_parts(message, "tool_call_response"):
            values = (part.response, part.result, part.server_tool_call_response)
            result = next((value for value in values if value is not None), None)
            self._builder.add_result(part.id or "", result)

    def _add_call(self, span: GenAISpan) -> None:
        result = span.attributes.get("gen_ai.tool.call.result", span.tool_text(span.output))
        if self._builder.has_call(span.call_id):
            self._builder.add_result(span.call_id, result, span.failed)
            return
        self._builder.add_call(
            self._agent_of(span),
            span.tool,
            span.attributes.get("gen_ai.tool.call.arguments", span.tool_text(span.input)),
            call_id=span.call_id,
            result=result,
            failed=span.failed,
        )

    def _agent_of(self, span: GenAISpan) -> str:
        """The agent that the span or the nearest span above it names."""
        names = (ancestor.agent for ancestor in (span, *self._way_up(span)))
        return next((name for name in names if name), AGENT_DEFAULT)

    def _way_up(self, span: GenAISpan) -> list[GenAISpan]:
        ancestors: list[GenAISpan] = []
        for _ in range(ANCESTORS_MAX):
            parent = self._span_by_id.get(span.parent_id)
            if parent is None:
                break
            ancestors.append(parent)
            span = parent
        return ancestors


def _after_last_answer(messages: list[OtlpMessage]) -> list[OtlpMessage]:
    """What is new in the input of a model: the rest was in the input of the step before."""
    for index in range(len(messages) - 1, -1, -1):
        if messages[index].role == "assistant":
            return messages[index + 1 :]
    return messages


def _failed(status: OtlpStatus | None, has_error: bool) -> bool | None:
    """Whether the operation failed; `None` for a status that was never set."""
    code = status.code if status else 0
    if code in STATUS_ERROR or has_error:
        return True
    return False if code in STATUS_OK else None


def _named(attributes: list[OtlpAttribute]) -> dict[str, object]:
    return {attribute.key: _plain(attribute.value) for attribute in attributes}


def _plain(value: object) -> object:
    """The JSON value of an OTLP `AnyValue`, an object with one field that names the type."""
    fields = msgspec.convert(value, dict[str, Any]) if value else {}
    for kind, content in fields.items():
        match kind:
            case "arrayValue":
                return [_plain(item) for item in msgspec.convert(content, OtlpValues).values]
            case "kvlistValue":
                values = msgspec.convert(content, OtlpValues).values
                pairs = msgspec.convert(values, list[OtlpAttribute])
                return {pair.key: _plain(pair.value) for pair in pairs}
            case "intValue":
                return _number(content)
            case _:
                return content
    return None


def _time(value: object) -> int:
    """Nanoseconds since 1970; 0 where the time is unknown."""
    nanoseconds = _number(value)
    if not 0 <= nanoseconds <= TIME_NANOSECONDS_MAX:
        raise msgspec.ValidationError(f"{nanoseconds} is no time in nanoseconds since 1970")
    return nanoseconds


def _number(value: object) -> int:
    """A 64-bit number, which JSON carries as a decimal text."""
    return msgspec.convert(value, int, strict=False)
