"""Agents outside of the server: registration, heartbeats, and lists.

A token belongs to one agent, and limits its roles; an agent cannot register for another agent, nor
as ceo: that is a person.
"""

import asyncio
from functools import partial
from typing import Any

from litestar import Request

from handrail.api.agents import AgentCalls, AgentHeartbeat, AgentPatch, HeartbeatRequest, NewAgent
from handrail.api.shared import PageQuery
from handrail.engine.engine import Engine
from handrail.server.access import Caller, check_author, check_own_agent
from handrail.server.binding import serves
from handrail.server.idempotency import read_key
from handrail.server.long_polls import LongPolls
from handrail.server.problems import HTTPProblemError
from handrail.views.agents import AgentView
from handrail.views.pages import Page


@serves(AgentCalls.register)
async def register_agent(
    request: Request[Any, Any, Any], engine: Engine, caller: Caller, data: NewAgent
) -> AgentView:
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


@serves(AgentCalls.list)
async def list_agents(engine: Engine, query: PageQuery) -> Page[AgentView]:
    views = [view for view in await engine.agents.list() if view.id > query.cursor]
    limit = query.limit
    has_more = len(views) > limit
    return Page(items=tuple(views[:limit]), next_cursor=views[limit - 1].id if has_more else None)


@serves(AgentCalls.get)
async def get_agent(engine: Engine, caller: Caller, agent_id: str) -> AgentView:
    check_own_agent(caller, agent_id)
    return await engine.agents.get(agent_id)


@serves(AgentCalls.enable)
async def enable_agent(
    engine: Engine, caller: Caller, agent_id: str, data: AgentPatch
) -> AgentView:
    await check_author(engine, caller, data)
    return await engine.agents.enable(agent_id, enabled=data.enabled)


@serves(AgentCalls.remove)
async def remove_agent(engine: Engine, caller: Caller, agent_id: str) -> None:
    check_own_agent(caller, agent_id)
    if caller.role == "agent" and not (await engine.agents.get(agent_id)).enabled:
        message = f"agent '{agent_id}' is disabled, and stays so until somebody enables it"
        raise HTTPProblemError(403, "agent_disabled", f"{message}; a ceo can remove it")
    await engine.agents.remove(agent_id)


@serves(AgentCalls.heartbeat)
async def heartbeat_agent(
    request: Request[Any, Any, Any],
    engine: Engine,
    caller: Caller,
    long_polls: LongPolls,
    agent_id: str,
    data: HeartbeatRequest,
) -> AgentHeartbeat:
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
