"""Dispatches: agents claim them, renew their leases, and report results.

Rules
1. An agent acts for itself. A body signed as another agent is refused, and noted in the run; so is
   a result that is late, doubled or foreign. Neither changes anything.
2. A body that cannot be read as a result is 422, costs nothing, and the dispatch stays open. The
   kernel judges a readable result that says what the agent may not.
3. An agent cannot report evidence as measured by Handrail.
"""

from typing import Any

from litestar import Request, Response

from handrail.api.dispatches import (
    ClaimRequest,
    DispatchCalls,
    DispatchLease,
    DispatchReceipt,
    DispatchResult,
    HeldDispatch,
)
from handrail.engine.dispatch.dispatch import Dispatch
from handrail.engine.engine import Engine
from handrail.engine.errors import RefusedError
from handrail.kernel.result import Outcome, Result
from handrail.server.access import (
    Caller,
    check_author,
    check_own_agent,
    check_same_author,
    record_refused_attempt,
)
from handrail.server.binding import serves
from handrail.server.long_polls import LongPolls
from handrail.server.problems import FieldError, HTTPProblemError
from handrail.server.routes.agents import check_roles, unregistered_problem
from handrail.views.channels import TurnView
from handrail.views.dispatches import DispatchView

AUTHOR_FIELDS = ("agent_id", "agent", "author", "by", "actor")
"""Fields in which a body may name its agent."""


@serves(DispatchCalls.claim)
async def claim_dispatch(
    request: Request[Any, Any, Any],
    engine: Engine,
    caller: Caller,
    long_polls: LongPolls,
    data: ClaimRequest,
) -> Response[DispatchView | TurnView]:
    await check_author(engine, caller, data)
    check_own_agent(caller, data.agent_id)
    try:
        if caller.works_as is not None:  # the agent may have registered with another token
            check_roles(caller, (await engine.agents.get(caller.name)).roles)
        claimed = await _claim_next(request, engine, caller, long_polls, data)
    except RefusedError as refused:
        if refused.refusal.code == "unknown_agent":
            raise unregistered_problem(data.agent_id) from refused
        raise
    no_content: Response[Any] = Response(None, status_code=204)
    return Response(claimed) if claimed is not None else no_content


async def _claim_next(
    request: Request[Any, Any, Any],
    engine: Engine,
    caller: Caller,
    long_polls: LongPolls,
    data: ClaimRequest,
) -> DispatchView | TurnView | None:
    seconds = long_polls.allowed_seconds(data.wait)
    if seconds > 0:
        async with long_polls.slot(caller):
            next_work = engine.claims.claim_next(data.agent_id, seconds, data.holding)
            claimed = await long_polls.wait_or_drain(next_work, request)
    else:
        claimed = await engine.claims.claim_next(data.agent_id, 0, data.holding)
    return await engine.dispatches.view(claimed) if isinstance(claimed, Dispatch) else claimed


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
    return DispatchReceipt(
        accepted=True, reason="", execution=await engine.run_queries.summary(run)
    )


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


REQUIRED_FIELDS = {
    Outcome.HANDOFF: ("to", "say which agent of the team has the turn next"),
    Outcome.ASK: ("question", "say what a person should answer"),
    Outcome.TERMINATE: ("remaining", "say what is left to do"),
}
"""The field that an outcome requires; for `terminate`, only if the work is partly done."""


def _check_complete(data: DispatchResult) -> None:
    """Raise 422 if the result lacks the field that its outcome requires."""
    is_complete = data.outcome is Outcome.TERMINATE and data.status != "done_partial"
    requirement = (
        REQUIRED_FIELDS.get(data.outcome) if data.outcome is not None and not is_complete else None
    )
    if requirement is None:
        return
    name, hint = requirement
    if not "".join(getattr(data, name)).strip():
        message = f"a result that says {data.outcome} needs `{name}`"
        field_error = FieldError("missing", name, message, hint)
        raise HTTPProblemError(422, "bad_result", f"{message}; {hint}", errors=(field_error,))
