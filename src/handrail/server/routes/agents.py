"""Agents outside of the server: they register, claim dispatches, and report results.

Rules
1. A token belongs to one agent, and limits its roles; an agent acts for itself only, and never as
   ceo: that is a person. A body signed as another agent is refused, and noted in the run; so is a
   result that is late, doubled or foreign. Neither changes anything.
2. A body that cannot be read as a result is 422, costs nothing, and the dispatch stays open. The
   kernel judges a readable result that says what the agent may not.
3. An agent cannot report evidence as measured by Handrail.
"""

import asyncio
from functools import partial
from typing import Any

from litestar import Response

from handrail.api.agents import (
    AgentCalls,
    AgentHeartbeat,
    AgentPatch,
    ClaimRequest,
    DispatchCalls,
    DispatchLease,
    DispatchReceipt,
    DispatchResult,
    HeartbeatRequest,
    HeldDispatch,
    NewAgent,
)
from handrail.api.shared import PageQuery
from handrail.engine.dispatch.dispatch import Dispatch
from handrail.engine.engine import Engine
from handrail.engine.errors import RefusedError
from handrail.kernel.result import Outcome, Result
from handrail.server.access import (
    Caller,
    HTTPRequest,
    check_own_agent,
    check_same_author,
    record_refused_attempt,
)
from handrail.server.binding import serves
from handrail.server.long_polls import LongPolls
from handrail.server.problems import HTTPProblemError
from handrail.views.agents import AgentView
from handrail.views.channels import TurnView
from handrail.views.dispatches import DispatchView
from handrail.views.view_types import Page

AUTHOR_FIELDS = ("agent_id", "agent", "author", "by", "actor")
"""Fields in which a body about a dispatch may name its agent."""
REQUIRED_FIELDS = {
    Outcome.HANDOFF: {"to": "say which agent of the team has the turn next"},
    Outcome.ASK: {"question": "say what a person should answer"},
    Outcome.TERMINATE: {"remaining": "say what is left to do"},
    Outcome.WAITING: {
        "for": "say what the agent waits for",
        "retry_after": "say after how many seconds the agent wants its next dispatch",
    },
}
"""The fields that an outcome requires; for `terminate`, only if the work is partly done."""


@serves(AgentCalls.register)
async def register_agent(engine: Engine, caller: Caller, key: str, data: NewAgent) -> AgentView:
    check_own_agent(caller, data.id)
    _check_roles(caller, data.roles)
    return await engine.agents.register(data.id, data.roles, data.capacity, key=key)


def _check_roles(caller: Caller, roles: tuple[str, ...]) -> None:
    """Raise 403 if the token does not allow its agent these roles."""
    if "ceo" in roles:
        raise HTTPProblemError(
            403,
            "forbidden_role",
            f"agent '{caller.name}' cannot have the role ceo, which is for people",
            "leave the role out",
        )
    allowed_roles = caller.works_as
    forbidden = [role for role in roles if allowed_roles is not None and role not in allowed_roles]
    if allowed_roles is not None and forbidden:
        raise HTTPProblemError(
            403,
            "forbidden_role",
            f"the token of '{caller.name}' does not allow the roles {', '.join(forbidden)}",
            f"it allows: {', '.join(allowed_roles) or 'nothing'}",
        )


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
async def enable_agent(engine: Engine, agent_id: str, data: AgentPatch) -> AgentView:
    return await engine.agents.enable(agent_id, enabled=data.enabled)


@serves(AgentCalls.remove)
async def remove_agent(engine: Engine, caller: Caller, agent_id: str) -> None:
    check_own_agent(caller, agent_id)
    if caller.role == "agent" and not (await engine.agents.get(agent_id)).enabled:
        raise HTTPProblemError(
            403,
            "agent_disabled",
            f"agent '{agent_id}' is disabled",
            "enable the agent first, or let a ceo remove it",
        )
    await engine.agents.remove(agent_id)


@serves(AgentCalls.heartbeat)
async def heartbeat_agent(
    request: HTTPRequest,
    engine: Engine,
    caller: Caller,
    long_polls: LongPolls,
    agent_id: str,
    data: HeartbeatRequest,
) -> AgentHeartbeat:
    check_own_agent(caller, agent_id)
    if not await engine.agents.heartbeat(agent_id):
        raise _unregistered_problem(agent_id)
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


def _unregistered_problem(agent_id: str) -> HTTPProblemError:
    return HTTPProblemError(
        409,
        "no_session",
        f"agent '{agent_id[:200]}' is not registered, or was removed",
        "register it with POST /api/v1/agents",
    )


@serves(DispatchCalls.claim)
async def claim_dispatch(
    request: HTTPRequest, engine: Engine, caller: Caller, long_polls: LongPolls, data: ClaimRequest
) -> Response[DispatchView | TurnView]:
    check_own_agent(caller, data.agent_id)
    claim = partial(engine.claims.claim_next, data.agent_id, holding=data.holding)
    try:
        if caller.works_as is not None:  # the agent may have registered with another token
            _check_roles(caller, (await engine.agents.get(caller.name)).roles)
        claimed = await long_polls.hold(request, data.wait, claim)
    except RefusedError as refused:
        if refused.refusal.code == "unknown_agent":
            raise _unregistered_problem(data.agent_id) from refused
        raise
    if isinstance(claimed, Dispatch):
        return Response(await engine.dispatches.view(claimed))
    no_content: Response[Any] = Response(None, status_code=204)
    return Response(claimed) if claimed is not None else no_content


@serves(DispatchCalls.heartbeat)
async def heartbeat_dispatch(
    engine: Engine, caller: Caller, dispatch_id: str, data: HeldDispatch
) -> DispatchLease:
    await _check_dispatch_author(engine, caller, dispatch_id, data)
    lease = await engine.dispatches.heartbeat(dispatch_id, caller.name, data.fence)
    if lease.code == "foreign":
        raise HTTPProblemError(409, lease.code, lease.message)
    return DispatchLease(
        lease_expires_at=lease.lease_expires_at, ended=not lease.may_continue, reason=lease.message
    )


@serves(DispatchCalls.release)
async def release_dispatch(
    engine: Engine, caller: Caller, dispatch_id: str, data: HeldDispatch
) -> DispatchReceipt:
    await _check_dispatch_author(engine, caller, dispatch_id, data)
    run = await engine.dispatches.hand_back(
        dispatch_id, caller.name, data.fence, data.reason, data.usage
    )
    execution = await engine.run_queries.summary(run)
    return DispatchReceipt(accepted=True, reason="", execution=execution)


@serves(DispatchCalls.report)
async def report_result(
    engine: Engine, caller: Caller, dispatch_id: str, data: DispatchResult
) -> DispatchReceipt:
    await _check_dispatch_author(engine, caller, dispatch_id, data)
    _check_complete(data)
    agent_result = Result(**{name: getattr(data, name) for name in Result.__struct_fields__})
    report = await engine.dispatches.report_result(
        dispatch_id, caller.name, data.fence, agent_result
    )
    execution = await engine.run_queries.summary(report.run)
    return DispatchReceipt(accepted=report.accepted, reason=report.reason, execution=execution)


async def _check_dispatch_author(
    engine: Engine, caller: Caller, dispatch_id: str, data: HeldDispatch | DispatchResult
) -> None:
    """Raise 403 if the body is signed as another agent."""
    authors = {name: getattr(data, name) for name in AUTHOR_FIELDS}
    try:
        check_same_author(caller, *authors.values())
    except HTTPProblemError as problem:
        run_id = dispatch_id.rpartition(".d")[0]
        evidence = {"dispatch_id": dispatch_id, **authors}
        await record_refused_attempt(
            engine, caller, "forged_author", problem.detail, run_id, evidence
        )
        raise


def _check_complete(data: DispatchResult) -> None:
    """Raise 422 if the result lacks the field that its outcome requires."""
    if data.outcome is None or (
        data.outcome is Outcome.TERMINATE and data.status != "done_partial"
    ):
        return
    for name, hint in REQUIRED_FIELDS.get(data.outcome, {}).items():
        value = data.waits_for if name == "for" else getattr(data, name)
        is_missing = not value if name == "retry_after" else not "".join(value).strip()
        if is_missing:
            raise HTTPProblemError(
                422,
                "bad_result",
                f"a result with the outcome {data.outcome} needs `{name}`",
                hint,
                field=name,
                field_code="missing",
            )
