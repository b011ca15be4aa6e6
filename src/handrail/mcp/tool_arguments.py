"""The arguments of the tools: a struct each, which gives the schema and checks every call.

What a tool passes on to a call of the API has the type that the API declares. A model's input is
hostile until it has passed here: nothing is unknown, nothing is without a bound.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from handrail.api.agents import AgentRoles, ReleaseText
from handrail.api.channels import MessageText, TurnReason, TurnSeconds
from handrail.api.shared import NAME_CHARS_MAX
from handrail.kernel.decision import Value
from handrail.kernel.result import RETRY_SECONDS_MAX, WAITS_FOR_CHARS_MAX, Evidence, Usage
from handrail.kernel.validation_messages import explain_validation_error

ARGUMENTS_BYTES_MAX = 1024 * 1024
"""Of one call, as JSON."""
WAIT_SECONDS_MAX = 50.0
"""Less than the minute after which many MCP clients give a call up."""
LINE_CHARS_MAX, TEXT_CHARS_MAX = 2_000, 400_000
LIST_ITEMS_MAX = 100

Name = Annotated[str, Meta(max_length=NAME_CHARS_MAX)]
ShortText = Annotated[str, Meta(max_length=LINE_CHARS_MAX)]
LongText = Annotated[str, Meta(max_length=TEXT_CHARS_MAX)]
WaitSeconds = Annotated[float, Meta(ge=0, le=WAIT_SECONDS_MAX)]
DispatchId = Annotated[
    str,
    Meta(
        max_length=NAME_CHARS_MAX, description="Left out: the only dispatch that you have in hand."
    ),
]
ChannelId = Annotated[
    str,
    Meta(
        max_length=NAME_CHARS_MAX, description="Left out: the only one in which you have the turn."
    ),
]
PageNumber = Annotated[int, Meta(ge=1, le=10_000)]
Outcome = Literal["success", "failure", "continue", "handoff", "terminate", "ask"]


class ToolArguments(Value, forbid_unknown_fields=True):
    """The arguments of one call."""


class RegisterArguments(ToolArguments):
    roles: Annotated[AgentRoles, Meta(description="What you work as.")]
    capacity: Annotated[int, Meta(ge=1, le=10, description="Dispatches at once.")] = 1


class ClaimArguments(ToolArguments):
    wait: Annotated[
        WaitSeconds, Meta(description="Seconds to wait while there is nothing to do.")
    ] = 20


class ContextArguments(ToolArguments):
    dispatch_id: DispatchId = ""
    page: PageNumber = 1


class ReadFileArguments(ToolArguments):
    name: Annotated[str, Meta(min_length=1, max_length=1_000)]
    dispatch_id: DispatchId = ""
    page: PageNumber = 1


class ProgressArguments(ToolArguments):
    dispatch_id: DispatchId = ""


class AnswerArguments(ToolArguments, rename={"waits_for": "for"}):
    """Which outcomes you may give, and to whom you may hand off, stands in the dispatch."""

    outcome: Outcome
    text: Annotated[LongText, Meta(description="What you did, found or say, in full.")] = ""
    reason: Annotated[ShortText, Meta(description="Why: of a handoff, an end, a failure.")] = ""
    to: Annotated[Name, Meta(description="handoff: the agent that has the turn next.")] = ""
    task: Annotated[Name, Meta(description="handoff: one of its tasks.")] = ""
    status: Annotated[
        Literal["done_success", "done_partial"], Meta(description="terminate: how it ends.")
    ] = "done_success"
    remaining: Annotated[
        tuple[ShortText, ...],
        Meta(max_length=LIST_ITEMS_MAX, description="done_partial: what is left to do."),
    ] = ()
    question: Annotated[LongText, Meta(description="ask: what a person should answer.")] = ""
    options: Annotated[tuple[ShortText, ...], Meta(max_length=LIST_ITEMS_MAX)] = ()
    waits_for: Annotated[
        str, Meta(max_length=WAITS_FOR_CHARS_MAX, description="waiting: what you wait for.")
    ] = ""
    retry_after: Annotated[
        float,
        Meta(
            ge=0,
            le=RETRY_SECONDS_MAX,
            description="waiting: after how many seconds you want the turn again.",
        ),
    ] = 0
    data: Annotated[
        dict[str, Any], Meta(description="Facts that are merged into the bead's context.")
    ] = {}
    evidence: Evidence = Evidence()
    usage: Usage = Usage()
    dispatch_id: DispatchId = ""


class AskPersonArguments(ToolArguments):
    question: Annotated[str, Meta(min_length=1, max_length=TEXT_CHARS_MAX)]
    options: Annotated[tuple[ShortText, ...], Meta(max_length=LIST_ITEMS_MAX)] = ()
    dispatch_id: DispatchId = ""


class GiveBackArguments(ToolArguments):
    reason: Annotated[ReleaseText, Meta(min_length=1)]
    dispatch_id: DispatchId = ""


class SayArguments(ToolArguments):
    text: MessageText
    to: Annotated[Name, Meta(description="Whom it is for; left out, everybody.")] = ""
    end_turn: Annotated[bool, Meta(description="Pass the turn on after it.")] = True
    channel: ChannelId = ""


class HearArguments(ToolArguments):
    wait: Annotated[WaitSeconds, Meta(description="Seconds to wait for the first message.")] = 0
    after: Annotated[
        int | None, Meta(description="The number of a message: what came after that one.")
    ] = None
    channel: ChannelId = ""


class TurnArguments(ToolArguments):
    action: Annotated[
        Literal["complete", "wait", "resume"],
        Meta(description="Pass the turn on; pause it while you wait for something; go on."),
    ]
    seconds: TurnSeconds | None = None
    reason: TurnReason = ""
    channel: ChannelId = ""


def object_schema(type_: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the JSON Schema of a tool's arguments or output, with an object at its root."""
    (_,), definitions = msgspec.json.schema_components((type_,), ref_template="#/$defs/{name}")
    root = definitions.pop(type_.__name__)
    root.pop("title", None)
    return {**root, "$defs": definitions} if definitions else root


def read_arguments(
    arguments_type: type[ToolArguments], arguments: dict[str, Any]
) -> ToolArguments | str:
    """Return the arguments, or what is wrong with them in words."""
    try:
        size = len(msgspec.json.encode(arguments))
    except (TypeError, ValueError, RecursionError) as error:
        return f"the arguments cannot be read as JSON ({type(error).__name__}); send plain values"
    if size > ARGUMENTS_BYTES_MAX:
        message = f"the arguments have {size:,} bytes, and may have {ARGUMENTS_BYTES_MAX:,}"
        return f"{message}; say it shorter, and leave long output where it is"
    try:
        return msgspec.convert(arguments, arguments_type)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `$")
        field = path.rstrip("`").lstrip(".") or "the arguments"
        return (
            f"{field}: {explain_validation_error(message)}; look at the tool's schema and call "
            "it again"
        )
