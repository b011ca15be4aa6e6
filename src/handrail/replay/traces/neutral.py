"""Reads the neutral format: one JSON object a line, with the events of one run.

    {"dataset", "id", "success", "events": [
        {"k": "user", "text"},
        {"k": "say", "agent", "text", "asker"?, "as_tool"?: [tool, arguments, result, rc]},
        {"k": "tool", "agent", "tool", "args", "result", "rc"}]}

`as_tool` says that a message is really the answer of a tool (a web surfer, a terminal): view A
ignores it, view B takes it instead of the text. `rc` other than 0 is a failure; view A ignores it.
Fields that are not named here are ignored.
"""

from typing import Any, assert_never

import msgspec

from handrail.kernel.decision import Value, prepare_types
from handrail.replay.traces.model import Trace, TraceBuilder, TraceView


class NeutralUser(Value, tag_field="k", tag="user"):
    text: str


class NeutralSay(Value, tag_field="k", tag="say"):
    agent: str
    text: str = ""
    asker: str = ""
    as_tool: tuple[str, Any, Any, int | None] | None = None


class NeutralTool(Value, tag_field="k", tag="tool"):
    tool: str
    agent: str = "agent"
    args: Any = None
    result: Any = None
    rc: int | None = None


class NeutralDocument(Value):
    events: list[NeutralUser | NeutralSay | NeutralTool]
    dataset: str = ""
    id: str = ""
    success: bool | None = None


prepare_types(NeutralDocument)


def read_neutral(document: object, dataset: str, trace_id: str, view: TraceView) -> Trace:
    """The trace of one document; `dataset` and `trace_id` stand in where the document has none."""
    recorded = msgspec.convert(document, NeutralDocument)
    builder = TraceBuilder(view)
    for event in recorded.events:
        match event:
            case NeutralUser():
                builder.add_user_text(event.text)
            case NeutralSay():
                _add_say(builder, event)
            case NeutralTool():
                failed = _failed(event.rc)
                builder.add_call(
                    event.agent, event.tool, event.args, result=event.result, failed=failed
                )
            case _:
                assert_never(event)
    return Trace(
        dataset=recorded.dataset or dataset,
        id=recorded.id or trace_id,
        success=recorded.success,
        steps=builder.build(),
    )


def _add_say(builder: TraceBuilder, event: NeutralSay) -> None:
    if event.as_tool is None or builder.view == "A":
        builder.add_answer(event.agent, event.text, asker=event.asker)
        return
    tool, arguments, result, rc = event.as_tool
    builder.add_answer(event.agent, asker=event.asker)
    builder.add_call(event.agent, tool, arguments, result=result, failed=_failed(rc))


def _failed(rc: int | None) -> bool | None:
    """Whether the host knows that a call failed; 0 says nothing about what the answer reports."""
    return True if rc else None
