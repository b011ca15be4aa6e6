"""Agents outside of the server: they register, say that they are alive, and are looked at.

A token says which agent it is of, and as what it may work; nobody registers for somebody else, and
nobody registers as ceo: that is a person.
"""

import asyncio
from functools import partial
from typing import Annotated, Any

from litestar import Request, delete, get, patch, post
from msgspec import Meta

from handrail.engine.attendance import AgentView
from handrail.engine.engine import Engine
from handrail.engine.pages import LIMIT, Page
from handrail.kernel.lifecycle import AgentState
from handrail.kernel.shown import Shown
from handrail.server.access import Caller, only_own_agent
from handrail.server.authors import Signed, check_author
from handrail.server.idempotency import PASSING, key_of
from handrail.server.paging import Cursor, Limit
from handrail.server.problems import Wrong, documented
from handrail.server.waits import Waits

CAPACITY_MAX = 10_000
ROLES_MAX = 100
HOLDING_MAX = CAPACITY_MAX
Role = Annotated[str, Meta(min_length=1, max_length=200)]
Holding = Annotated[tuple[Annotated[str, Meta(max_length=200)], ...], Meta(max_length=HOLDING_MAX)]
Seconds = Annotated[int, Meta(ge=0)] | Annotated[float, Meta(ge=0)]


class NewAgent(Signed, kw_only=True):
    """`capacity` is how many dispatches it works on at once."""

    id: Annotated[str, Meta(min_length=1, max_length=200)]
    roles: Annotated[tuple[Role, ...], Meta(min_length=1, max_length=ROLES_MAX)]
    capacity: Annotated[int, Meta(ge=1, le=CAPACITY_MAX)] = 1


class AgentPatch(Signed, kw_only=True):
    enabled: bool


class SignOfLife(Signed):
    """`holding` are the ids of the dispatches that it is working on. With `wait` the answer is kept
    back so many seconds: a line that tells the server when the agent is cut off."""

    holding: Holding = ()
    wait: Seconds = 0


class Attendance(Shown):
    """`ended` are those of `holding` that are over: stop working on them. `held` is all that the
    agent has claimed, `channels` its state in each that it is a member of."""

    state: AgentState
    ended: tuple[str, ...]
    held: tuple[str, ...]
    channels: dict[str, AgentState]


@post("/agents", responses=documented(409))
async def register(
    request: Request[Any, Any, Any], engine: Engine, caller: Caller, data: NewAgent
) -> AgentView:
    """An agent is there, as these roles. What it had claimed in an earlier stay is lost."""
    await check_author(engine, caller, data)
    only_own_agent(caller, data.id)
    may_work_as(caller, data.roles)
    return await engine.register(data.id, data.roles, data.capacity, key=key_of(request))


def may_work_as(caller: Caller, roles: tuple[str, ...]) -> None:
    """403 if the token does not let its agent have these roles."""
    if "ceo" in roles:
        told = f"no agent works as ceo, and '{caller.name}' is one: that is a person"
        raise Wrong(403, "forbidden_role", f"{told}; leave the role out")
    limits = caller.works_as
    wrong = [role for role in roles if limits is not None and role not in limits]
    if limits is not None and wrong:
        told = f"the token of '{caller.name}' does not let it work as {', '.join(wrong)}"
        allowed = ", ".join(limits) or "nothing"
        raise Wrong(403, "forbidden_role", f"{told}; it may as: {allowed}")


@get("/agents", responses=documented())
async def agents(engine: Engine, cursor: Cursor = "", limit: Limit = LIMIT) -> Page[AgentView]:
    """Everybody who has registered, and the functions of servers, by id."""
    found = [one for one in await engine.agents() if one.id > cursor]
    more = len(found) > limit
    return Page(items=tuple(found[:limit]), next_cursor=found[limit - 1].id if more else None)


@get("/agents/{agent_id:str}", responses=documented(404))
async def agent(engine: Engine, caller: Caller, agent_id: str) -> AgentView:
    """One agent: whether it is there, and what it works on. An agent asks about itself."""
    only_own_agent(caller, agent_id)
    return await engine.agent_view(agent_id)


@patch("/agents/{agent_id:str}", responses=documented(404))
async def enable(engine: Engine, caller: Caller, agent_id: str, data: AgentPatch) -> AgentView:
    """Let an agent work, or not: one that is disabled loses what it has claimed, and is given
    nothing."""
    await check_author(engine, caller, data)
    return await engine.enable(agent_id, enabled=data.enabled)


@delete("/agents/{agent_id:str}", responses=documented(404, 409))
async def remove(engine: Engine, caller: Caller, agent_id: str) -> None:
    """The agent is gone; what it had claimed is offered again. One that is disabled cannot take
    itself away: it would come back as a new one."""
    only_own_agent(caller, agent_id)
    if caller.role == "agent" and not (await engine.agent_view(agent_id)).enabled:
        told = f"agent '{agent_id}' is disabled, and stays so until somebody enables it"
        raise Wrong(403, "agent_disabled", f"{told}; a ceo can remove it")
    await engine.remove(agent_id)


@post(
    "/agents/{agent_id:str}/heartbeat",
    status_code=200,
    responses=documented(404, 409),
    opt={PASSING: True},
)
async def heartbeat(
    request: Request[Any, Any, Any],
    engine: Engine,
    caller: Caller,
    waits: Waits,
    agent_id: str,
    data: SignOfLife = SignOfLife(),  # noqa: B008 - frozen
) -> Attendance:
    """The agent is alive, and with it everything that it has claimed. Says which of what it works
    on is over, so one call is enough for all of it."""
    await check_author(engine, caller, data)
    only_own_agent(caller, agent_id)
    if not await engine.heartbeat_agent(agent_id):
        raise unregistered(agent_id)
    if (seconds := waits.seconds(data.wait)) > 0:
        async with waits.place(caller):
            cut = partial(engine.line_lost, agent_id)
            await waits.or_drain(asyncio.sleep(seconds), request, cut)
    view = await engine.agent_view(agent_id)
    held = set(view.current_work)
    ended = tuple(one for one in data.holding if one not in held)
    return Attendance(state=view.state, ended=ended, held=view.current_work, channels=view.channels)


def unregistered(agent_id: str) -> Wrong:
    told = f"agent '{agent_id[:200]}' is not registered, or was removed"
    return Wrong(409, "no_session", f"{told}; register it with POST /api/v1/agents")


HANDLERS = [register, agents, agent, enable, remove, heartbeat]
