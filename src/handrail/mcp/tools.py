"""The tools of an agent: a table of what each takes, what it is for, and what it does.

Rules
1. The credential of the session identifies the caller. No tool takes an agent's name.
2. A tool answers with text of a bounded size. An error is text too, with what to do next.
3. Two answers to the same dispatch are the same answer: a model that repeats a call, because it
   got no response, does not report twice.
"""

import hashlib
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import msgspec

from handrail.api.agents import AgentCalls, DispatchCalls, DispatchReceipt
from handrail.api.beads import BeadCalls
from handrail.api.channels import ChannelCalls
from handrail.api.operation import Operation
from handrail.client.errors import ClientError
from handrail.mcp import tool_arguments as a
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


class ToolResult(NamedTuple):
    """The text for the model; `is_error`: the call failed."""

    text: str
    is_error: bool = False


class Tool(NamedTuple):
    """`operation` is the call of the API that the tool makes: what it does is said there, and
    `advice` says what only an agent needs to know."""

    arguments_type: type[a.ToolArguments]
    operation: Operation[..., Any] | None
    advice: str
    function: Callable[[AgentSession, Any], Awaitable[str]]

    @property
    def description(self) -> str:
        return f"{self.operation.summary}. {self.advice}" if self.operation else self.advice


async def run_tool(session: AgentSession, name: str, arguments: dict[str, Any]) -> ToolResult:
    """Run one call of the session's agent."""
    tool = TOOLS.get(name)
    if tool is None:
        return ToolResult(
            f"there is no tool '{name[:100]}'; there are: {', '.join(TOOLS)}", is_error=True
        )
    parsed = a.read_arguments(tool.arguments_type, arguments)
    if isinstance(parsed, str):
        return ToolResult(parsed, is_error=True)
    try:
        with session.track_call():
            text, is_error = await tool.function(session, parsed), False
    except ClientError as error:
        text, is_error = render_error(error), True
    except ToolCallError as error:
        text, is_error = str(error), True
    return ToolResult("\n\n".join([*session.take_notices(), text]), is_error)


# Presence and work


async def register(session: AgentSession, arguments: a.RegisterArguments) -> str:
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
    return f"You are '{view.id}', and work as: {', '.join(view.roles)}.{channel_note} {CLAIM_NEXT}"


async def claim(session: AgentSession, arguments: a.ClaimArguments) -> str:
    held_ids = sorted(session.held)
    work = await session.client.dispatches.claim(
        session.agent_id, wait=arguments.wait, holding=held_ids
    )
    if work is None:
        session.start_heartbeats()
        held_note = f" You have in hand: {', '.join(session.held)}." if session.held else ""
        return NOTHING_TO_DO + held_note
    session.hold(work)
    if isinstance(work, TurnView):
        return render_turn(work)
    return render_page(render_full_dispatch(work), 1, MORE_CONTEXT)


MORE_CONTEXT = "read all of them before you begin, with `context` and `page`"


async def context(session: AgentSession, arguments: a.ContextArguments) -> str:
    dispatch = session.held_dispatch(arguments.dispatch_id)
    return render_page(render_full_dispatch(dispatch), arguments.page, MORE_CONTEXT)


async def read_file(session: AgentSession, arguments: a.ReadFileArguments) -> str:
    bead = session.held_dispatch(arguments.dispatch_id).bead
    info = next((file for file in bead.files if file.name == arguments.name), None)
    if info is None:
        names = ", ".join(file.name for file in bead.files) or "none"
        raise ToolCallError(f"the bead has no file '{arguments.name[:200]}'; there are: {names}")
    content = await session.client.beads.get_file(bead.id, arguments.name)
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return f"'{info.name}' is no text: {info.content_type}, {info.size:,} bytes, {info.sha256}"
    return fence_text(render_page(text, arguments.page, "call `read_file` with another `page`"))


async def progress(session: AgentSession, arguments: a.ProgressArguments) -> str:
    name = session.resolve_dispatch_id(arguments.dispatch_id)
    lease = await session.client.dispatches.heartbeat(name, fence_of(name))
    if lease.ended:
        session.drop(name)
        return f"Stop working on {name}: {lease.reason}. {CLAIM_NEXT}"
    return f"Go on: {name} is yours, and your lease was extended."


# Results


async def answer(session: AgentSession, arguments: a.AnswerArguments) -> str:
    fields: dict[str, Any] = msgspec.to_builtins(arguments)
    name = session.resolve_dispatch_id(fields.pop("dispatch_id", ""))
    return await _report(session, name, {key: value for key, value in fields.items() if value})


async def ask_person(session: AgentSession, arguments: a.AskPersonArguments) -> str:
    name = session.resolve_dispatch_id(arguments.dispatch_id)
    question = {"outcome": "ask", "question": arguments.question, "options": arguments.options}
    reply = await _report(session, name, question)
    return f"{reply} When a person has answered, you are given the turn again, with the answer."


async def _report(session: AgentSession, dispatch_id: str, result: dict[str, Any]) -> str:
    digest = hashlib.sha256(msgspec.json.encode([dispatch_id, result], order="sorted")).hexdigest()[
        :40
    ]
    fence = fence_of(dispatch_id)
    with session.finishing(dispatch_id):
        receipt = await session.client.dispatches.report(
            dispatch_id, fence, result, key=f"mcp-{digest}"
        )
    return _describe_receipt(receipt)


def _describe_receipt(receipt: DispatchReceipt) -> str:
    run = receipt.execution
    if not receipt.accepted:
        message = f"It was not accepted, and cost an attempt: {receipt.reason}"
        return f"{message}. You may be given the turn again; then do it otherwise. {CLAIM_NEXT}"
    end = f" The run has ended: {run.terminal_status}." if run.terminal_status else ""
    return f"It was accepted.{end} {CLAIM_NEXT}"


async def give_back(session: AgentSession, arguments: a.GiveBackArguments) -> str:
    name = session.resolve_dispatch_id(arguments.dispatch_id)
    with session.finishing(name):
        await session.client.dispatches.release(name, fence_of(name), arguments.reason)
    return f"You have given it back; it cost an attempt. {CLAIM_NEXT}"


# Turns in channels


async def say(session: AgentSession, arguments: a.SayArguments) -> str:
    view = session.held_turn(arguments.channel)
    await session.client.channels.post(
        view.channel_id, arguments.text, to=arguments.to or None, turn=view.turn
    )
    if not arguments.end_turn:
        return "It was said, and the turn is still yours."
    with session.finishing(view.id):
        await session.client.channels.control_turn(view.channel_id, "complete", turn=view.turn)
    return f"It was said, and the turn has gone on. {CLAIM_NEXT}"


async def hear(session: AgentSession, arguments: a.HearArguments) -> str:
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
    return render_messages(incoming)


async def turn(session: AgentSession, arguments: a.TurnArguments) -> str:
    view = session.held_turn(arguments.channel)
    channel, number = view.channel_id, view.turn
    if arguments.action == "complete":
        with session.finishing(view.id):
            await session.client.channels.control_turn(channel, "complete", turn=number)
        return f"The turn has gone on. {CLAIM_NEXT}"
    wait, why = arguments.seconds, arguments.reason
    await session.client.channels.control_turn(
        channel, arguments.action, turn=number, seconds=wait, reason=why
    )
    return "The turn is paused; go on with `resume`." if arguments.action == "wait" else "Go on."


TOOLS: dict[str, Tool] = {
    "register": Tool(
        a.RegisterArguments, AgentCalls.register, "Once, before your first `claim`.", register
    ),
    "claim": Tool(
        a.ClaimArguments,
        DispatchCalls.claim,
        "A dispatch is one step of a run, to be answered with `answer`; in a turn you speak with"
        " `say`. What is yours and got lost is given again.",
        claim,
    ),
    "context": Tool(
        a.ContextArguments,
        None,
        "A dispatch in your hands once more: who you are, the work, the past.",
        context,
    ),
    "read_file": Tool(
        a.ReadFileArguments, BeadCalls.get_file, "It belongs to the bead of a dispatch.", read_file
    ),
    "progress": Tool(
        a.ProgressArguments,
        DispatchCalls.heartbeat,
        "Your lease is kept up without it; call it before and during steps of many minutes.",
        progress,
    ),
    "answer": Tool(
        a.AnswerArguments,
        DispatchCalls.report,
        "Exactly one for each; it ends your work on the dispatch.",
        answer,
    ),
    "ask_person": Tool(
        a.AskPersonArguments,
        None,
        "Ask a person what only a person can say. Ends your work on the dispatch; it comes back to"
        " you with the answer.",
        ask_person,
    ),
    "give_back": Tool(
        a.GiveBackArguments, DispatchCalls.release, "Do so when you cannot do it.", give_back
    ),
    "say": Tool(
        a.SayArguments,
        ChannelCalls.post,
        "You speak in a channel in which you have the turn.",
        say,
    ),
    "hear": Tool(
        a.HearArguments,
        ChannelCalls.list_messages,
        "Of a channel in which you have the turn.",
        hear,
    ),
    "turn": Tool(
        a.TurnArguments,
        ChannelCalls.control_turn,
        "You pass your turn on without a word, pause it, or go on.",
        turn,
    ),
}
