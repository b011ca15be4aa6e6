"""The neutral value of a recorded run, and the builder that every reader fills.

A step is one answer of a model. The tool calls that the answer made belong to it, with what came
back: `None` where nobody recorded it, which is not the same as an empty result. What a person said
belongs to the step that follows.

A trace is read in one of two views. View A is what an adapter knows that sees messages only: no
tool says whether it failed, and an agent that is really a tool looks like any other agent. View B
is what the host itself knows.
"""

from datetime import datetime
from hashlib import blake2b
from typing import Literal

import msgspec

from handrail.kernel.decision import Value

TraceView = Literal["A", "B"]
STEPS_MAX = 100_000
"""Steps of one trace."""
CALLS_MAX = 100_000
"""Tool calls of one trace."""
DIGEST_BYTES = 8


class TraceCall(Value):
    """One tool call. All but the tool are `None` where they are unknown."""

    tool: str
    arguments: str | None = None
    result: str | None = None
    failed: bool | None = None


class TraceStep(Value):
    """One answer of a model. `asker` asked this agent, where an agent serves as a tool;
    `user_text` is what people said since the step before; `at` is when the answer was complete."""

    agent: str
    text: str = ""
    calls: tuple[TraceCall, ...] = ()
    user_text: str = ""
    asker: str = ""
    tokens: int | None = None
    at: datetime | None = None


class Trace(Value):
    """One recorded run. `success` is `None` where nobody judged it."""

    dataset: str
    id: str
    success: bool | None
    steps: tuple[TraceStep, ...]


class TraceFormatError(ValueError):
    """A file of recorded runs cannot be read. Names the file, the line and the problem."""

    def __init__(self, file: str, line: int, problem: str) -> None:
        super().__init__(f"{file}, line {line}: {problem}")
        self.file = file
        self.line = line
        self.problem = problem


class TraceLimitError(ValueError):
    """A trace has more steps or calls than a reader takes; the reader adds file and line."""


class _OpenCall:
    """A call whose result may still come."""

    def __init__(self, tool: str, arguments: str | None) -> None:
        self.tool = tool
        self.arguments = arguments
        self.result: str | None = None
        self.failed: bool | None = None


class TraceBuilder:
    """Collects the steps of one trace, in order. Results find their call by its id."""

    def __init__(self, view: TraceView) -> None:
        self.view: TraceView = view
        self._answers: list[tuple[TraceStep, list[_OpenCall]]] = []
        self._calls_by_id: dict[str, _OpenCall] = {}
        self._calls_count = 0
        self._user_texts: list[str] = []

    @property
    def last_answer(self) -> TraceStep | None:
        """The latest answer, still without its calls."""
        return self._answers[-1][0] if self._answers else None

    @property
    def last_answer_has_calls(self) -> bool:
        return bool(self._answers and self._answers[-1][1])

    def has_call(self, call_id: str) -> bool:
        return call_id in self._calls_by_id

    def add_user_text(self, text: str) -> None:
        """Record what a person said; the next answer carries it."""
        if text:
            self._user_texts.append(text)

    def add_answer(
        self,
        agent: str,
        text: str = "",
        *,
        asker: str = "",
        tokens: int | None = None,
        at: datetime | None = None,
    ) -> None:
        """Begin a step."""
        if len(self._answers) >= STEPS_MAX:
            raise TraceLimitError(f"a trace has more than {STEPS_MAX:,} steps; split it")
        step = TraceStep(
            agent=agent,
            text=text,
            user_text="\n".join(self._user_texts),
            asker=asker,
            tokens=tokens,
            at=at,
        )
        self._user_texts.clear()
        self._answers.append((step, []))

    def add_call(
        self,
        agent: str,
        tool: str,
        arguments: object,
        *,
        call_id: str = "",
        result: object = None,
        failed: bool | None = None,
    ) -> None:
        """Add a call to the latest answer; a call before any answer makes one of its agent."""
        if not self._answers:
            self.add_answer(agent)
        if self._calls_count >= CALLS_MAX:
            raise TraceLimitError(f"a trace has more than {CALLS_MAX:,} tool calls; split it")
        self._calls_count += 1
        call = _OpenCall(tool, None if arguments is None else text_of(arguments))
        self._set_result(call, result, failed)
        self._answers[-1][1].append(call)
        if call_id:
            self._calls_by_id[call_id] = call

    def add_result(self, call_id: str, result: object, failed: bool | None = None) -> None:
        """Set what came back from the call of this id or, without an id, from the oldest call of
        the latest answer that still waits. What is known of a call stays. A result of no known
        call is dropped: nobody can tell what was asked."""
        call = self._calls_by_id.get(call_id) if call_id else self._waiting_call()
        if call:
            self._set_result(call, result, failed)

    def build(self) -> tuple[TraceStep, ...]:
        return tuple(
            msgspec.structs.replace(step, calls=tuple(_close(call) for call in calls))
            for step, calls in self._answers
        )

    def _set_result(self, call: _OpenCall, result: object, failed: bool | None) -> None:
        if call.result is None and result is not None:
            call.result = text_of(result)
        if call.failed is None and self.view == "B":
            call.failed = failed

    def _waiting_call(self) -> _OpenCall | None:
        calls = self._answers[-1][1] if self._answers else []
        return next((call for call in calls if call.result is None), None)


def text_of(value: object) -> str:
    """A text as it is; any other JSON value as compact JSON with sorted keys, so that two equal
    values are equal texts."""
    return value if isinstance(value, str) else msgspec.json.encode(value, order="sorted").decode()


def text_of_parts(content: object) -> str:
    """The text of a message's content: a text, nothing, or a list of parts. An image, or any other
    part without text, stands as its kind and a digest: different images stay different."""
    if content is None:
        return ""
    if isinstance(content, list):
        return "\n".join(text_of_part(part) for part in msgspec.convert(content, list[object]))
    return text_of(content)


def text_of_part(part: object) -> str:
    if isinstance(part, str):
        return part
    fields: dict[str, object] = msgspec.convert(part, dict[str, object]) if part else {}
    for name in ("text", "content", "refusal"):
        if isinstance(text := fields.get(name), str) and fields.get("type") != "blob":
            return text
    digest = blake2b(text_of(part).encode(), digest_size=DIGEST_BYTES).hexdigest()
    return f"[{fields.get('type', 'image')} {digest}]"


def _close(call: _OpenCall) -> TraceCall:
    return TraceCall(
        tool=call.tool, arguments=call.arguments, result=call.result, failed=call.failed
    )
