"""What the tools take: a struct each, from which its schema is made and every call is checked.

What a model sends is hostile until it has passed here: nothing is unknown, nothing is without a
bound.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from handrail.kernel.decision import Value
from handrail.kernel.misfit import in_words
from handrail.kernel.result import Evidence, Usage

ARGUMENTS_BYTES_MAX = 1024 * 1024
"""Of one call, as JSON."""
WAIT_SECONDS_MAX = 50.0
"""Less than the minute after which many MCP clients give a call up."""
NAME_MAX, LINE_MAX, TEXT_MAX = 200, 2_000, 400_000
LIST_MAX = 100

Name = Annotated[str, Meta(max_length=NAME_MAX)]
Line = Annotated[str, Meta(max_length=LINE_MAX)]
Long = Annotated[str, Meta(max_length=TEXT_MAX)]
Wait = Annotated[float, Meta(ge=0, le=WAIT_SECONDS_MAX)]
DispatchId = Annotated[
    str,
    Meta(max_length=NAME_MAX, description="Left out: the only dispatch that you have in hand."),
]
Channel = Annotated[
    str, Meta(max_length=NAME_MAX, description="Left out: the only one in which you have the turn.")
]
Page = Annotated[int, Meta(ge=1, le=10_000)]
Outcome = Literal["success", "failure", "continue", "handoff", "terminate", "ask"]


class Asked(Value, forbid_unknown_fields=True):
    """The arguments of one call."""


class Register(Asked):
    roles: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=NAME_MAX)], ...],
        Meta(min_length=1, max_length=LIST_MAX, description="What you work as."),
    ]
    capacity: Annotated[int, Meta(ge=1, le=10, description="Dispatches at once.")] = 1


class Claim(Asked):
    wait: Annotated[Wait, Meta(description="Seconds to wait while there is nothing to do.")] = 20


class Context(Asked):
    dispatch_id: DispatchId = ""
    page: Page = 1


class ReadFile(Asked):
    name: Annotated[str, Meta(min_length=1, max_length=1_000)]
    dispatch_id: DispatchId = ""
    page: Page = 1


class Progress(Asked):
    dispatch_id: DispatchId = ""


class Answer(Asked):
    """Which outcomes you may give, and to whom you may hand off, stands in the dispatch."""

    outcome: Outcome
    text: Annotated[Long, Meta(description="What you did, found or say, in full.")] = ""
    reason: Annotated[Line, Meta(description="Why: of a handoff, an end, a failure.")] = ""
    to: Annotated[Name, Meta(description="handoff: the agent that has the turn next.")] = ""
    task: Annotated[Name, Meta(description="handoff: one of its tasks.")] = ""
    status: Annotated[
        Literal["done_success", "done_partial"], Meta(description="terminate: how it ends.")
    ] = "done_success"
    remaining: Annotated[
        tuple[Line, ...], Meta(max_length=LIST_MAX, description="done_partial: what is left to do.")
    ] = ()
    question: Annotated[Long, Meta(description="ask: what a person should answer.")] = ""
    options: Annotated[tuple[Line, ...], Meta(max_length=LIST_MAX)] = ()
    data: Annotated[
        dict[str, Any], Meta(description="Facts that are merged into the bead's context.")
    ] = {}
    evidence: Evidence = Evidence()
    usage: Usage = Usage()
    dispatch_id: DispatchId = ""


class AskPerson(Asked):
    question: Annotated[str, Meta(min_length=1, max_length=TEXT_MAX)]
    options: Annotated[tuple[Line, ...], Meta(max_length=LIST_MAX)] = ()
    dispatch_id: DispatchId = ""


class GiveBack(Asked):
    reason: Annotated[str, Meta(min_length=1, max_length=LINE_MAX)]
    dispatch_id: DispatchId = ""


class Say(Asked):
    text: Annotated[str, Meta(min_length=1, max_length=100_000)]
    to: Annotated[Name, Meta(description="Whom it is for; left out, everybody.")] = ""
    end_turn: Annotated[bool, Meta(description="Pass the turn on after it.")] = True
    channel: Channel = ""


class Hear(Asked):
    wait: Annotated[Wait, Meta(description="Seconds to wait for the first message.")] = 0
    after: Annotated[
        int | None, Meta(description="The number of a message: what came after that one.")
    ] = None
    channel: Channel = ""


class Turn(Asked):
    action: Annotated[
        Literal["complete", "wait", "resume"],
        Meta(description="Pass the turn on; pause it while you wait for something; go on."),
    ]
    seconds: Annotated[float, Meta(gt=0, le=86_400)] | None = None
    reason: Line = ""
    channel: Channel = ""


def schema(asked: type[Asked]) -> dict[str, Any]:
    """The JSON Schema of a tool's arguments, with an object at its root."""
    (_,), parts = msgspec.json.schema_components((asked,), ref_template="#/$defs/{name}")
    root = parts.pop(asked.__name__)
    root.pop("title", None)
    return {**root, "$defs": parts} if parts else root


def read(asked: type[Asked], arguments: dict[str, Any]) -> Asked | str:
    """The arguments, or what is wrong with them in words."""
    try:
        size = len(msgspec.json.encode(arguments))
    except (TypeError, ValueError, RecursionError) as error:
        return f"the arguments cannot be read as JSON ({type(error).__name__}); send plain values"
    if size > ARGUMENTS_BYTES_MAX:
        told = f"the arguments have {size:,} bytes, and may have {ARGUMENTS_BYTES_MAX:,}"
        return f"{told}; say it shorter, and leave long output where it is"
    try:
        return msgspec.convert(arguments, asked)
    except msgspec.ValidationError as error:
        told, _, place = str(error).partition(" - at `$")
        where = place.rstrip("`").lstrip(".") or "the arguments"
        return f"{where}: {in_words(told)}; look at the tool's schema and call it again"
