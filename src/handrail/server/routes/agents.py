"""Agents outside of the server: registration, heartbeats, and lists.

A token belongs to one agent, and limits its roles; an agent cannot register for another agent, nor
as ceo: that is a person.
"""

import asyncio
from functools import partial
from typing import Annotated, Any

from litestar import Request, delete, get, patch, post
from msgspec import Meta

from handrail.api.agents import AgentHeartbeat, AgentPatch, HeartbeatRequest, NewAgent
from handrail.engine.engine import Engine
from handrail.server.access import Caller, check_own_agent
from handrail.server.author_check import check_author
from handrail.server.idempotency import MEMORY_ONLY, read_key
from handrail.server.long_polls import LongPolls
from handrail.server.paging import Cursor, Limit
from handrail.server.problems import HTTPProblemError, problem_responses
from handrail.views.agents import AgentView
from handrail.views.pages import PAGE_ITEMS_DEFAULT, Page

CAPACITY_MAX = 10_000
AGENT_ROLES_MAX = 100
HELD_DISPATCHES_MAX = CAPACITY_MAX
AgentRole = Annotated[str, Meta(min_length=1, max_length=200)]
HeldDispatchIds = Annotated[
    tuple[Annotated[str, Meta(max_length=200)], ...], Meta(max_length=HELD_DISPATCHES_MAX)
]
Seconds = Annotated[int, Meta(ge=0)] | Annotated[float, Meta(ge=0)]


@post("/agents", responses=problem_responses(409))
async def register(
    request: Request[Any, Any, Any], engine: Engine, caller: Caller, data: NewAgent
) -> AgentView:
    """An agent is there, as these roles. What it had claimed in an earlier stay is lost."""
    await check_author(engine, caller, data)
    check_own_agent(caller, data.id)
    check_roles(caller, data.roles)
    return await engine.agents.register(data.id, data.roles, data.capacity, key=read_key(request))


def check_roles(caller: Caller, roles: tuple[str, ...]) -> None:
    """Raise 403 if the token does not allow its agent these roles."""
    if "ceo" in roles:
        message = f"no agent works as ceo, and '{caller.name}' is one: that is a person"
        raise HTTPProblemError(403, "forbidden_role", f"{message}; leave the role out")
    allowed_roles = caller.works_as
    forbidden = [role for role in roles if allowed_roles is not None and role not in allowed_roles]
    if allowed_roles is not None and forbidden:
        message = f"the token of '{caller.name}' does not let it work as {', '.join(forbidden)}"
        allowed = ", ".join(allowed_roles) or "nothing"
        raise HTTPProblemError(403, "forbidden_role", f"{message}; it may as: {allowed}")


@get("/agents", responses=problem_responses())
async def agents(
    engine: Engine, cursor: Cursor = "", limit: Limit = PAGE_ITEMS_DEFAULT
) -> Page[AgentView]:
    """Everybody who has registered, and the functions of servers, by id."""
    views = [view for view in await engine.agents.list() if view.id > cursor]
    has_more = len(views) > limit
    return Page(items=tuple(views[:limit]), next_cursor=views[limit - 1].id if has_more else None)


@get("/agents/{agent_id:str}", responses=problem_responses(404))
async def agent(engine: Engine, caller: Caller, agent_id: str) -> AgentView:
    """One agent: whether it is there, and what it works on. An agent asks about itself."""
    check_own_agent(caller, agent_id)
    return await engine.agents.get(agent_id)


@patch("/agents/{agent_id:str}", responses=problem_responses(404))
async def enable(engine: Engine, caller: Caller, agent_id: str, data: AgentPatch) -> AgentView:
    """Let an agent work, or not: one that is disabled loses what it has claimed, and is given
    nothing."""
    await check_author(engine, caller, data)
    return await engine.agents.enable(agent_id, enabled=data.enabled)


@delete("/agents/{agent_id:str}", responses=problem_responses(404, 409))
async def remove(engine: Engine, caller: Caller, agent_id: str) -> None:
    """The agent is gone; what it had claimed is offered again. One that is disabled cannot take
    itself away: it would come back as a new one."""
    check_own_agent(caller, agent_id)
    if caller.role == "agent" and not (await engine.agents.get(agent_id)).enabled:
        message = f"agent '{agent_id}' is disabled, and stays so until somebody enables it"
        raise HTTPProblemError(403, "agent_disabled", f"{message}; a ceo can remove it")
    await engine.agents.remove(agent_id)


@post(
    "/agents/{agent_id:str}/heartbeat",
    status_code=200,
    responses=problem_responses(404, 409),
    opt={MEMORY_ONLY: True},
)
async def heartbeat(
    request: Request[Any, Any, Any],
    engine: Engine,
    caller: Caller,
    long_polls: LongPolls,
    agent_id: str,
    data: HeartbeatRequest = HeartbeatRequest(),  # noqa: B008 - frozen
) -> AgentHeartbeat:
    """The agent is alive, and with it everything that it has claimed. Says which of what it works
    on is over, so one call is enough for all of it."""
    await check_author(engine, caller, data)
    check_own_agent(caller, agent_id)
    if not await engine.agents.heartbeat(agent_id):
        raise unregistered_problem(agent_id)
    if (seconds := long_polls.allowed_seconds(data.wait)) > 0:
        async with long_polls.slot(caller):
            on_disconnect = partial(engine.agents.disconnected, agent_id)
            await long_polls.wait_or_drain(asyncio.sleep(seconds), request, on_disconnect)
    view = await engine.agents.get(agent_id)
    held_ids = set(view.current_work)
    ended = tuple(dispatch_id for dispatch_id in data.holding if dispatch_id not in held_ids)
    return AgentHeartbeat(
        state=view.state, ended=ended, held=view.current_work, channels=view.channels
    )


def unregistered_problem(agent_id: str) -> HTTPProblemError:
    message = f"agent '{agent_id[:200]}' is not registered, or was removed"
    return HTTPProblemError(409, "no_session", f"{message}; register it with POST /api/v1/agents")


HANDLERS = [register, agents, agent, enable, remove, heartbeat]
