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
from typing import Annotated, Any, Literal

import msgspec
from litestar import Request, delete, get, post, put
from litestar.params import Parameter
from msgspec import Meta

from handrail.api.channels import (
    ChannelUpdate,
    NewChannel,
    NewMember,
    NewMessage,
    TurnControl,
)
from handrail.engine.engine import Engine
from handrail.engine.errors import RefusedError
from handrail.kernel.agent_lifecycle import AgentState
from handrail.kernel.channel import events as ev
from handrail.kernel.channel.state import TURN_SECONDS_MAX
from handrail.server.access import Caller, check_own_agent, check_same_author
from handrail.server.author_check import check_author
from handrail.server.idempotency import read_key
from handrail.server.long_polls import LongPolls
from handrail.server.paging import Cursor, Limit
from handrail.server.problems import (
    FieldError,
    HTTPProblemError,
    problem_responses,
    refusal_at_field,
)
from handrail.views.channels import ChannelView, MessageView, PostedMessage
from handrail.views.pages import PAGE_ITEMS_DEFAULT, Page

Seconds = Annotated[float, Meta(gt=0, le=TURN_SECONDS_MAX)]
WaitQuery = Annotated[float, Parameter(ge=0, description="Seconds to wait for the first one.")]
AfterQuery = Annotated[
    int, Parameter(ge=0, le=2**53 - 1, description="The `id` of the last one seen.")
]
TurnActionName = Literal["complete", "wait", "resume", "override", "grant", "pause", "unpause"]
AGENT_ACTIONS: frozenset[TurnActionName] = frozenset({"complete", "wait", "resume"})
"""What an agent may do with its turn."""
PERSON_ACTIONS: frozenset[TurnActionName] = frozenset(
    {"resume", "override", "grant", "pause", "unpause"}
)


@get("/channels", responses=problem_responses())
async def channels(
    engine: Engine, cursor: Cursor = "", limit: Limit = PAGE_ITEMS_DEFAULT
) -> Page[ChannelView]:
    """All channels, by id."""
    return await engine.channels.list(cursor, limit)


@post("/channels", responses=problem_responses(409))
async def create(engine: Engine, caller: Caller, data: NewChannel) -> ChannelView:
    """A new channel, without members."""
    await check_author(engine, caller, data)
    config = engine.channels.turn_config(msgspec.to_builtins(data.turn_config))
    return await engine.channels.open(data.id, config, by=caller.name)


@get("/channels/{channel_id:str}", responses=problem_responses(404))
async def channel(engine: Engine, caller: Caller, channel_id: str) -> ChannelView:
    """Who is in it, who has the turn, and who is next. An agent asks about its own channels."""
    view = await engine.channels.get(channel_id)
    _check_member(caller, view)
    return view


@put("/channels/{channel_id:str}", responses=problem_responses(404))
async def change(
    engine: Engine, caller: Caller, channel_id: str, data: ChannelUpdate
) -> ChannelView:
    """Other settings, from now on; what is left out goes back to its default."""
    await check_author(engine, caller, data)
    config = engine.channels.turn_config(msgspec.to_builtins(data.turn_config))
    return await engine.channels.configure(channel_id, config, by=caller.name)


@delete("/channels/{channel_id:str}", responses=problem_responses(404))
async def remove(engine: Engine, caller: Caller, channel_id: str) -> None:
    """Everybody leaves, and it is listed no more. What was said stays on record."""
    await engine.channels.close(channel_id, by=caller.name)


@post("/channels/{channel_id:str}/members", responses=problem_responses(404, 409))
async def join(engine: Engine, caller: Caller, channel_id: str, data: NewMember) -> ChannelView:
    """Assign an agent that is online, at the end of the queue; of one that is assigned already,
    change the settings. An agent assigns itself only where it is a member."""
    await check_author(engine, caller, data)
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


@delete("/channels/{channel_id:str}/members/{agent_id:str}", responses=problem_responses(404))
async def leave(engine: Engine, caller: Caller, channel_id: str, agent_id: str) -> None:
    """The agent is a member no more; a turn that it has ends. An agent removes itself."""
    check_own_agent(caller, agent_id)
    await engine.channels.leave(channel_id, agent_id, by=caller.name)


@post("/channels/{channel_id:str}/messages", responses=problem_responses(404, 409))
async def say(
    request: Request[Any, Any, Any],
    engine: Engine,
    caller: Caller,
    channel_id: str,
    data: NewMessage,
) -> PostedMessage:
    """A person speaks at any time; `disposition` says whether it has reached an agent. An agent
    speaks while it has the turn."""
    await check_author(engine, caller, data)
    check_same_author(caller, data.author, data.agent_id)
    key = read_key(request)
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


@get("/channels/{channel_id:str}/messages", responses=problem_responses(404))
async def messages(
    request: Request[Any, Any, Any],
    engine: Engine,
    caller: Caller,
    long_polls: LongPolls,
    channel_id: str,
    after: AfterQuery = 0,
    wait: WaitQuery = 0,
    limit: Limit = PAGE_ITEMS_DEFAULT,
) -> Page[MessageView]:
    """What was said, and what the channel was told, in order. `next_cursor` is for `after`."""
    reader = caller.name if caller.role == "agent" else None
    seconds = long_polls.allowed_seconds(wait)
    if seconds > 0:
        async with long_polls.slot(caller):
            log_query = engine.channels.log(channel_id, after, limit, wait=seconds, reader=reader)
            entries = await long_polls.wait_or_drain(log_query, request)
    else:
        entries = await engine.channels.log(channel_id, after, limit, reader=reader)
    items = tuple(entries or ())
    return Page(items=items, next_cursor=str(items[-1].id) if len(items) == limit else None)


@post("/channels/{channel_id:str}/turn", status_code=200, responses=problem_responses(404, 409))
async def turn(engine: Engine, caller: Caller, channel_id: str, data: TurnControl) -> ChannelView:
    """An agent is done, waits, or goes on; a person lets it go on, takes it out of its wait
    (`override`, `to` ACTIVE or QUEUED), grants the turn, or pauses the channel."""
    await check_author(engine, caller, data)
    is_agent = caller.role == "agent"
    check_own_agent(caller, data.agent_id or caller.name)
    if data.action not in (AGENT_ACTIONS if is_agent else PERSON_ACTIONS):
        allowed = "a person" if is_agent else "the agent itself"
        message = f"'{data.action}' is for {allowed}, and '{caller.name}' is not"
        raise HTTPProblemError(403, "not_allowed", f"{message}; see docs/channels.md")
    agent_id = caller.name if is_agent else data.agent_id
    if not agent_id and data.action not in ("pause", "unpause"):
        raise _missing_field("agent_id", "say which agent is meant")
    if data.action == "override" and data.to is None:
        raise _missing_field("to", "say ACTIVE or QUEUED")
    command = COMMAND_BY_ACTION[data.action](agent_id, data, not is_agent)
    try:
        return await engine.channels.command(channel_id, command, by=caller.name)
    except RefusedError as refused:
        raise _membership_problem(caller, channel_id, refused, "agent_id") from refused


COMMAND_BY_ACTION: dict[TurnActionName, Callable[[str, TurnControl, bool], ev.ChannelCommand]] = {
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
    message = f"agent '{caller.name}' is no member of channel '{channel_id}'"
    return HTTPProblemError(403, "not_a_member", f"{message}; an operator can add it")


def _membership_problem(
    caller: Caller, channel_id: str, refused: RefusedError, field: str
) -> Exception:
    """Return the problem of a non-member: the calling agent, or the agent that a person named."""
    if caller.role == "agent" and refused.refusal.code == "unknown_agent":
        return _not_a_member_problem(caller, channel_id)
    return refusal_at_field(refused, unknown_agent=field)


def _missing_field(name: str, hint: str) -> HTTPProblemError:
    message = f"the action needs `{name}`"
    field_error = FieldError("missing", name, message, hint)
    return HTTPProblemError(422, "bad_body", f"{message}; {hint}", errors=(field_error,))


HANDLERS = [channels, create, channel, change, remove, join, leave, say, messages, turn]
