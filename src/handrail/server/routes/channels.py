"""Channels: people and agents speak in them, and pass the turn.

Rules
1. The token determines the speaker: a person speaks as that person, an agent in its own turn. No
   caller speaks as another.
2. An agent completes, pauses and resumes its own turn. Only people may override or grant a turn,
   resume the turn of an agent, and pause or unpause the channel.
3. An agent cannot make itself a member of a channel. A member may assign itself again, after it was
   lost, and leave.
4. An agent sees only the messages that have reached it.
"""

from collections.abc import Callable

import msgspec

from handrail.api.channels import (
    ChannelCalls,
    ChannelUpdate,
    MessageQuery,
    NewChannel,
    NewMember,
    NewMessage,
    TurnAction,
    TurnControl,
)
from handrail.engine.engine import Engine
from handrail.engine.errors import RefusedError
from handrail.kernel.agent_lifecycle import AgentState
from handrail.kernel.channel import events as ev
from handrail.server.access import Caller, HTTPRequest, check_own_agent, check_same_author
from handrail.server.binding import serves
from handrail.server.long_polls import LongPolls
from handrail.server.problems import HTTPProblemError, missing_field, refusal_at_field
from handrail.views.channels import ChannelView, MessageView, PostedMessage
from handrail.views.view_types import Page

AGENT_ACTIONS: frozenset[TurnAction] = frozenset({"complete", "wait", "resume"})
"""What an agent may do with its turn."""
PERSON_ACTIONS: frozenset[TurnAction] = frozenset(
    {"resume", "override", "grant", "pause", "unpause"}
)


@serves(ChannelCalls.create)
async def create_channel(engine: Engine, caller: Caller, data: NewChannel) -> ChannelView:
    config = engine.channels.turn_config(msgspec.to_builtins(data.turn_config))
    return await engine.channels.open(data.id, config, by=caller.name)


@serves(ChannelCalls.get)
async def get_channel(engine: Engine, caller: Caller, channel_id: str) -> ChannelView:
    view = await engine.channels.get(channel_id)
    _check_member(caller, view)
    return view


@serves(ChannelCalls.configure)
async def configure_channel(
    engine: Engine, caller: Caller, channel_id: str, data: ChannelUpdate
) -> ChannelView:
    config = engine.channels.turn_config(msgspec.to_builtins(data.turn_config))
    return await engine.channels.configure(channel_id, config, by=caller.name)


@serves(ChannelCalls.remove)
async def remove_channel(engine: Engine, caller: Caller, channel_id: str) -> None:
    await engine.channels.close(channel_id, by=caller.name)


@serves(ChannelCalls.join)
async def join_channel(
    engine: Engine, caller: Caller, channel_id: str, data: NewMember
) -> ChannelView:
    check_own_agent(caller, data.agent_id)
    _check_member(caller, await engine.channels.get(channel_id))
    try:
        return await engine.channels.join(
            channel_id,
            data.agent_id,
            by=caller.name,
            timeout_seconds=data.timeout_seconds,
            priority=data.priority,
        )
    except RefusedError as refused:
        raise refusal_at_field(refused, unknown_agent="agent_id") from refused


@serves(ChannelCalls.leave)
async def leave_channel(engine: Engine, caller: Caller, channel_id: str, agent_id: str) -> None:
    check_own_agent(caller, agent_id)
    await engine.channels.leave(channel_id, agent_id, by=caller.name)


@serves(ChannelCalls.post)
async def post_message(
    engine: Engine, caller: Caller, key: str, channel_id: str, data: NewMessage
) -> PostedMessage:
    check_same_author(caller, data.author, data.agent_id)
    try:
        if caller.role == "agent":
            return await engine.channels.say(
                channel_id, caller.name, data.text, turn=data.turn, to=data.to, key=key
            )
        return await engine.channels.post(
            channel_id, data.text, by=caller.name, to=data.to, key=key
        )
    except RefusedError as refused:
        raise _membership_problem(caller, channel_id, refused, "to") from refused


@serves(ChannelCalls.list_messages)
async def list_messages(
    request: HTTPRequest,
    engine: Engine,
    caller: Caller,
    long_polls: LongPolls,
    channel_id: str,
    query: MessageQuery,
) -> Page[MessageView]:
    reader = caller.name if caller.role == "agent" else None

    async def read_log(seconds: float) -> tuple[MessageView, ...]:
        return await engine.channels.log(
            channel_id, query.after, query.limit, wait=seconds, reader=reader
        )

    items = await long_polls.hold(request, query.wait, read_log)
    if items is None:
        return Page(items=())
    has_more = len(items) == query.limit
    return Page(items=items, next_cursor=str(items[-1].id) if has_more else None)


@serves(ChannelCalls.control_turn)
async def control_turn(
    engine: Engine, caller: Caller, channel_id: str, data: TurnControl
) -> ChannelView:
    is_agent = caller.role == "agent"
    check_own_agent(caller, data.agent_id or caller.name)
    if data.action not in (AGENT_ACTIONS if is_agent else PERSON_ACTIONS):
        allowed = "a person" if is_agent else "the agent itself"
        raise HTTPProblemError(
            403,
            "not_allowed",
            f"'{data.action}' is for {allowed}, and '{caller.name}' is not",
            "see docs/channels.md",
        )
    agent_id = caller.name if is_agent else data.agent_id
    if not agent_id and data.action not in ("pause", "unpause"):
        raise missing_field("agent_id", "say which agent is meant")
    if data.action == "override" and data.to is None:
        raise missing_field("to", "say ACTIVE or QUEUED")
    command = COMMAND_BY_ACTION[data.action](agent_id, data, not is_agent)
    try:
        return await engine.channels.command(channel_id, command, by=caller.name)
    except RefusedError as refused:
        raise _membership_problem(caller, channel_id, refused, "agent_id") from refused


COMMAND_BY_ACTION: dict[TurnAction, Callable[[str, TurnControl, bool], ev.ChannelCommand]] = {
    "complete": lambda agent, data, _: ev.CompleteTurn(agent_id=agent, turn=data.turn),
    "wait": lambda agent, data, _: ev.RequestWait(
        agent_id=agent, turn=data.turn, seconds=data.seconds, reason=data.reason
    ),
    "resume": lambda agent, data, human: ev.ResumeTurn(agent_id=agent, turn=data.turn, human=human),
    "override": lambda agent, data, _: ev.OverrideWait(
        agent_id=agent, to=AgentState(data.to or AgentState.ACTIVE)
    ),
    "grant": lambda agent, _, __: ev.GrantTurn(agent_id=agent),
    "pause": lambda _, __, ___: ev.PauseChannel(),
    "unpause": lambda _, __, ___: ev.UnpauseChannel(),
}


def _check_member(caller: Caller, view: ChannelView) -> None:
    if caller.role == "agent" and caller.name not in view.states:
        raise _not_a_member_problem(caller, view.id)


def _not_a_member_problem(caller: Caller, channel_id: str) -> HTTPProblemError:
    return HTTPProblemError(
        403,
        "not_a_member",
        f"agent '{caller.name}' is not a member of channel '{channel_id}'",
        "an operator can add it",
    )


def _membership_problem(
    caller: Caller, channel_id: str, refused: RefusedError, field: str
) -> Exception:
    """Return the problem of a non-member: the calling agent, or the agent that a person named."""
    if caller.role == "agent" and refused.refusal.code == "unknown_agent":
        return _not_a_member_problem(caller, channel_id)
    return refusal_at_field(refused, unknown_agent=field)
