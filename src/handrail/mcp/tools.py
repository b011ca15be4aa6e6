"""The tools of an agent: a table of what each takes, what it is for, and what it does.

Rules
1. The credential of the session identifies the caller. No tool takes an agent's name.
2. A tool answers with text of a bounded size, and the same as structured content. An error is text
   alone, with what to do next.
3. Two answers to the same dispatch are the same answer: a model that repeats a call, because it
   got no response, does not report twice.
"""

import hashlib
from collections.abc import Awaitable, Callable
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from handrail.api.agents import AgentCalls, DispatchCalls, DispatchReceipt
from handrail.api.beads import BeadCalls
from handrail.api.channels import ChannelCalls
from handrail.api.operation import Operation
from handrail.client.errors import ClientError
from handrail.mcp import tool_arguments as a
from handrail.mcp import tool_outputs as o
from handrail.mcp.agent_session import AgentSession, ToolCallError, fence_of
from handrail.mcp.rendering import (
    fence_text,
    render_error,
    render_full_dispatch,
    render_messages,
    render_page,
    render_turn,
)
from handrail.views.channels import TurnView

MESSAGES_MAX = 50
NOTHING_TO_DO = "There is nothing to do at the moment. Call `claim` again to wait for more."
CLAIM_NEXT = "Call `claim` for what is next."


class Tool(NamedTuple):
    """`operation` is the call of the API that the tool makes: what it does is said there, and
    `advice` says what only an agent needs to know."""

    title: str
    arguments_type: type[a.ToolArguments]
    output_type: type[o.ToolOutput]
    operation: Operation[..., Any] | None
    advice: str
    function: Callable[[AgentSession, Any], Awaitable[o.ToolOutput]]
    effect: Literal["none", "change", "final"] = "change"
    """What a call does at the server; a `final` one cannot be taken back."""
    is_repeatable: bool = False
    """Whether the same call again changes nothing more."""

    @property
    def description(self) -> str:
        return f"{self.operation.summary}. {self.advice}" if self.operation else self.advice


async def run_tool(
    session: AgentSession, name: str, arguments: dict[str, Any]
) -> o.ToolOutput | str:
    """Run one call of the session's agent; return its output, or what went wrong."""
    tool = TOOLS.get(name)
    if tool is None:
        return f"there is no tool '{name[:100]}'; there are: {', '.join(TOOLS)}"
    parsed = a.read_arguments(tool.arguments_type, arguments)
    if isinstance(parsed, str):
        return parsed
    try:
        with session.track_call():
            output = await tool.function(session, parsed)
    except ClientError as error:
        output = render_error(error)
    except ToolCallError as error:
        output = str(error)
    notices = session.take_notices()
    if isinstance(output, str):
        return "\n\n".join([*notices, output])
    return replace(output, text="\n\n".join([*notices, output.text]))


# Presence and work


async def register(session: AgentSession, arguments: a.RegisterArguments) -> o.RegisterOutput:
    if session.held:
        names = ", ".join(session.held)
        raise ToolCallError(
            f"to register again would lose what you have in hand ({names}); finish it"
        )
    view = await session.client.agents.register(
        session.agent_id, arguments.roles, capacity=arguments.capacity
    )
    session.start_heartbeats()
    channels = await session.join_channels(view)
    channel_note = f" You take turns in: {', '.join(channels)}." if channels else ""
    text = f"You are '{view.id}', and work as: {', '.join(view.roles)}.{channel_note} {CLAIM_NEXT}"
    return o.RegisterOutput(
        text=text, agent_id=view.id, roles=tuple(view.roles), channels=tuple(channels)
    )


async def claim(session: AgentSession, arguments: a.ClaimArguments) -> o.ClaimOutput:
    held_ids = sorted(session.held)
    work = await session.client.dispatches.claim(
        session.agent_id, wait=arguments.wait, holding=held_ids
    )
    if work is None:
        session.start_heartbeats()
        held_note = f" You have in hand: {', '.join(session.held)}." if session.held else ""
        return o.ClaimOutput(text=NOTHING_TO_DO + held_note, kind="nothing")
    session.hold(work)
    if isinstance(work, TurnView):
        return o.ClaimOutput(
            text=render_turn(work), kind="turn", id=work.id, channel=work.channel_id
        )
    text = render_page(render_full_dispatch(work), 1, MORE_CONTEXT)
    return o.ClaimOutput(text=text, kind="dispatch", id=work.id)


MORE_CONTEXT = "read all of them before you begin, with `context` and `page`"


async def context(session: AgentSession, arguments: a.ContextArguments) -> o.ToolOutput:
    dispatch = session.held_dispatch(arguments.dispatch_id)
    text = render_page(render_full_dispatch(dispatch), arguments.page, MORE_CONTEXT)
    return o.ToolOutput(text=text)


async def read_file(session: AgentSession, arguments: a.ReadFileArguments) -> o.ToolOutput:
    bead = session.held_dispatch(arguments.dispatch_id).bead
    info = next((file for file in bead.files if file.name == arguments.name), None)
    if info is None:
        names = ", ".join(file.name for file in bead.files) or "none"
        raise ToolCallError(f"the bead has no file '{arguments.name[:200]}'; there are: {names}")
    content = await session.client.beads.get_file(bead.id, arguments.name)
    try:
        text = content.decode()
    except UnicodeDecodeError:
        size = f"{info.size:,} bytes"
        return o.ToolOutput(
            text=f"'{info.name}' is no text: {info.content_type}, {size}, {info.sha256}"
        )
    page = render_page(text, arguments.page, "call `read_file` with another `page`")
    return o.ToolOutput(text=fence_text(page))


async def progress(session: AgentSession, arguments: a.ProgressArguments) -> o.LeaseOutput:
    name = session.resolve_dispatch_id(arguments.dispatch_id)
    lease = await session.client.dispatches.heartbeat(name, fence_of(name))
    if lease.ended:
        session.drop(name)
        text = f"Stop working on {name}: {lease.reason}. {CLAIM_NEXT}"
    else:
        text = f"Go on: {name} is yours, and your lease was extended."
    return o.LeaseOutput(text=text, dispatch_id=name, ended=lease.ended)


# Results


async def answer(session: AgentSession, arguments: a.AnswerArguments) -> o.ReceiptOutput:
    fields: dict[str, Any] = msgspec.to_builtins(arguments)
    name = session.resolve_dispatch_id(fields.pop("dispatch_id", ""))
    return await _report(session, name, {key: value for key, value in fields.items() if value})


async def ask_person(session: AgentSession, arguments: a.AskPersonArguments) -> o.ReceiptOutput:
    name = session.resolve_dispatch_id(arguments.dispatch_id)
    question = {"outcome": "ask", "question": arguments.question, "options": arguments.options}
    receipt = await _report(session, name, question)
    then = "When a person has answered, you are given the turn again, with the answer."
    return replace(receipt, text=f"{receipt.text} {then}")


async def _report(
    session: AgentSession, dispatch_id: str, result: dict[str, Any]
) -> o.ReceiptOutput:
    digest = hashlib.sha256(msgspec.json.encode([dispatch_id, result], order="sorted")).hexdigest()[
        :40
    ]
    fence = fence_of(dispatch_id)
    with session.finishing(dispatch_id):
        receipt = await session.client.dispatches.report(
            dispatch_id, fence, result, key=f"mcp-{digest}"
        )
    return o.ReceiptOutput(
        text=_describe_receipt(receipt),
        dispatch_id=dispatch_id,
        accepted=receipt.accepted,
        terminal_status=receipt.execution.terminal_status,
    )


def _describe_receipt(receipt: DispatchReceipt) -> str:
    run = receipt.execution
    if not receipt.accepted:
        message = f"It was not accepted, and cost an attempt: {receipt.reason}"
        return f"{message}. You may be given the turn again; then do it otherwise. {CLAIM_NEXT}"
    end = f" The run has ended: {run.terminal_status}." if run.terminal_status else ""
    return f"It was accepted.{end} {CLAIM_NEXT}"


async def give_back(session: AgentSession, arguments: a.GiveBackArguments) -> o.ReleaseOutput:
    name = session.resolve_dispatch_id(arguments.dispatch_id)
    with session.finishing(name):
        await session.client.dispatches.release(name, fence_of(name), arguments.reason)
    return o.ReleaseOutput(
        text=f"You have given it back; it cost an attempt. {CLAIM_NEXT}", dispatch_id=name
    )


# Turns in channels


async def say(session: AgentSession, arguments: a.SayArguments) -> o.SpeechOutput:
    view = session.held_turn(arguments.channel)
    await session.client.channels.post(
        view.channel_id, arguments.text, to=arguments.to or None, turn=view.turn
    )
    if not arguments.end_turn:
        text = "It was said, and the turn is still yours."
        return o.SpeechOutput(text=text, channel=view.channel_id, turn_over=False)
    with session.finishing(view.id):
        await session.client.channels.control_turn(view.channel_id, "complete", turn=view.turn)
    text = f"It was said, and the turn has gone on. {CLAIM_NEXT}"
    return o.SpeechOutput(text=text, channel=view.channel_id, turn_over=True)


async def hear(session: AgentSession, arguments: a.HearArguments) -> o.MessagesOutput:
    view = session.held_turn(arguments.channel)
    channel, until = view.channel_id, session.last_read_message.get(view.channel_id, 0)
    after = until if arguments.after is None else max(0, arguments.after)
    messages = await session.client.channels.list_messages(
        channel, after=after, wait=arguments.wait, limit=MESSAGES_MAX
    )
    session.last_read_message[channel] = max((until, *(message.id for message in messages.items)))
    incoming = [
        message for message in messages.items if message.human or message.author != session.agent_id
    ]
    last = session.last_read_message[channel]
    return o.MessagesOutput(text=render_messages(incoming), channel=channel, last=last)


async def turn(session: AgentSession, arguments: a.TurnArguments) -> o.SpeechOutput:
    view = session.held_turn(arguments.channel)
    channel, number = view.channel_id, view.turn
    if arguments.action == "complete":
        with session.finishing(view.id):
            await session.client.channels.control_turn(channel, "complete", turn=number)
        text = f"The turn has gone on. {CLAIM_NEXT}"
        return o.SpeechOutput(text=text, channel=channel, turn_over=True)
    wait, why = arguments.seconds, arguments.reason
    await session.client.channels.control_turn(
        channel, arguments.action, turn=number, seconds=wait, reason=why
    )
    is_pause = arguments.action == "wait"
    text = "The turn is paused; go on with `resume`." if is_pause else "Go on."
    return o.SpeechOutput(text=text, channel=channel, turn_over=False)


TOOLS: dict[str, Tool] = {
    "register": Tool(
        "Register as an agent",
        a.RegisterArguments,
        o.RegisterOutput,
        AgentCalls.register,
        "Once, before your first `claim`.",
        register,
    ),
    "claim": Tool(
        "Claim work",
        a.ClaimArguments,
        o.ClaimOutput,
        DispatchCalls.claim,
        "A dispatch is one step of a run, to be answered with `answer`; in a turn you speak with"
        " `say`. What is yours and got lost is given again.",
        claim,
    ),
    "context": Tool(
        "Read a dispatch again",
        a.ContextArguments,
        o.ToolOutput,
        None,
        "A dispatch in your hands once more: who you are, the work, the past.",
        context,
        effect="none",
        is_repeatable=True,
    ),
    "read_file": Tool(
        "Read a file",
        a.ReadFileArguments,
        o.ToolOutput,
        BeadCalls.get_file,
        "It belongs to the bead of a dispatch.",
        read_file,
        effect="none",
        is_repeatable=True,
    ),
    "progress": Tool(
        "Extend the lease",
        a.ProgressArguments,
        o.LeaseOutput,
        DispatchCalls.heartbeat,
        "Your lease is kept up without it; call it before and during steps of many minutes.",
        progress,
        is_repeatable=True,
    ),
    "answer": Tool(
        "Report a result",
        a.AnswerArguments,
        o.ReceiptOutput,
        DispatchCalls.report,
        "Exactly one for each; it ends your work on the dispatch.",
        answer,
        is_repeatable=True,
    ),
    "ask_person": Tool(
        "Ask a person",
        a.AskPersonArguments,
        o.ReceiptOutput,
        None,
        "Ask a person what only a person can say. Ends your work on the dispatch; it comes back to"
        " you with the answer.",
        ask_person,
    ),
    "give_back": Tool(
        "Give a dispatch back",
        a.GiveBackArguments,
        o.ReleaseOutput,
        DispatchCalls.release,
        "Do so when you cannot do it.",
        give_back,
        effect="final",
    ),
    "say": Tool(
        "Say something",
        a.SayArguments,
        o.SpeechOutput,
        ChannelCalls.post,
        "You speak in a channel in which you have the turn.",
        say,
    ),
    "hear": Tool(
        "Read messages",
        a.HearArguments,
        o.MessagesOutput,
        ChannelCalls.list_messages,
        "Of a channel in which you have the turn.",
        hear,
        effect="none",
    ),
    "turn": Tool(
        "Pass or pause the turn",
        a.TurnArguments,
        o.SpeechOutput,
        ChannelCalls.control_turn,
        "You pass your turn on without a word, pause it, or go on.",
        turn,
    ),
}
