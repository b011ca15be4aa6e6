"""Dispatches: agents come for work, keep it alive, and report what came of it.

Rules
1. An agent acts for itself. Whoever signs as somebody else is refused, and that is kept as a note
   of the run; so is a result that is late, doubled or foreign. Neither changes anything.
2. What cannot be read as a result at all is 422, costs nothing, and the dispatch stays open. A
   result that can be read, and says what the agent may not, is the kernel's to judge.
3. What Handrail measured itself, an agent cannot say it did.
"""

from datetime import datetime
from typing import Annotated, Any

from litestar import Request, Response, post
from litestar.openapi.datastructures import ResponseSpec
from msgspec import Meta

from handrail.engine.channel_views import TurnView
from handrail.engine.dispatch import Dispatch, DispatchView
from handrail.engine.engine import Engine
from handrail.engine.refused import Refused
from handrail.engine.returned import NO_USAGE
from handrail.kernel.decision import Value
from handrail.kernel.result import Outcome, Result, Usage
from handrail.kernel.shown import Shown
from handrail.kernel.view import RunSummary
from handrail.server.access import Caller, only_own_agent, same_author
from handrail.server.authors import Signed, check_author, keep
from handrail.server.idempotency import PASSING
from handrail.server.problems import Place, Wrong, documented
from handrail.server.routes.agents import Holding, may_work_as, unregistered
from handrail.server.waits import Waits

Seconds = Annotated[int, Meta(ge=0)] | Annotated[float, Meta(ge=0)]
Fence = Annotated[int, Meta(ge=0, le=2**53 - 1)]
NAMES = ("agent_id", "agent", "author", "by", "actor")
"""Where a body may say which agent it is from."""


class Claim(Signed, kw_only=True):
    """`wait` is how many seconds the answer may take while there is nothing to do. `holding` are
    the ids of the dispatches that the agent knows it has: one whose answer got lost on the way is
    given again."""

    agent_id: str
    wait: Seconds = 0
    holding: Holding | None = None


class Held(Value):
    """Of a dispatch that the agent holds. Its name may be left out; the token has it."""

    fence: Fence
    reason: Annotated[str, Meta(max_length=2_000)] = ""
    """Why it is handed back."""
    usage: Usage = NO_USAGE
    """What the attempt has used all the same."""
    agent_id: str = ""
    agent: str = ""
    author: str = ""
    by: str = ""
    actor: str = ""


class Reported(Result, frozen=True, kw_only=True):
    """A result, with the fence of its dispatch. Without an `outcome`, the last line of `text` says
    what is meant."""

    fence: Fence
    agent_id: str = ""
    agent: str = ""
    author: str = ""
    by: str = ""
    actor: str = ""


class Alive(Shown):
    """`ended`: stop working on it, for this reason."""

    lease_expires_at: datetime | None
    ended: bool
    reason: str


class Accepted(Shown):
    """Not accepted: it could not be used, the attempt is spent, and `reason` goes to the agent with
    its next turn."""

    accepted: bool
    reason: str
    execution: RunSummary


NOTHING_TO_DO = {204: ResponseSpec(data_container=None, description="Nothing to do.")}


@post(
    "/dispatches/claim",
    status_code=200,
    responses={**documented(409), **NOTHING_TO_DO},
    opt={PASSING: True},
)
async def claim(
    request: Request[Any, Any, Any], engine: Engine, caller: Caller, waits: Waits, data: Claim
) -> Response[DispatchView | TurnView]:
    """The next dispatch for a registered agent, or its turn in a channel, never more than its
    capacity; 204 if there is nothing to do. Whoever goes away while it waits is given the same the
    next time."""
    await check_author(engine, caller, data)
    only_own_agent(caller, data.agent_id)
    try:
        if caller.works_as is not None:  # the agent may have registered with another token
            may_work_as(caller, (await engine.agent_view(caller.name)).roles)
        found = await _claimed(request, engine, caller, waits, data)
    except Refused as refused:
        if refused.refusal.code == "unknown_agent":
            raise unregistered(data.agent_id) from refused
        raise
    nothing: Response[Any] = Response(None, status_code=204)
    return Response(found) if found is not None else nothing


async def _claimed(
    request: Request[Any, Any, Any], engine: Engine, caller: Caller, waits: Waits, data: Claim
) -> DispatchView | TurnView | None:
    seconds = waits.seconds(data.wait)
    if seconds > 0:
        async with waits.place(caller):
            asked = engine.next_work(data.agent_id, seconds, data.holding)
            found = await waits.or_drain(asked, request)
    else:
        found = await engine.next_work(data.agent_id, 0, data.holding)
    return await engine.shown(found) if isinstance(found, Dispatch) else found


@post(
    "/dispatches/{dispatch_id:str}/heartbeat",
    status_code=200,
    responses=documented(404, 409),
    opt={PASSING: True},
)
async def heartbeat(engine: Engine, caller: Caller, dispatch_id: str, data: Held) -> Alive:
    """The agent still works on it. Says if that is in vain: the run has ended, or the dispatch is
    over for another reason."""
    await _own(engine, caller, dispatch_id, data)
    beat = await engine.beat_dispatch(dispatch_id, caller.name, data.fence)
    if beat.code == "foreign":
        raise Wrong(409, beat.code, beat.message)
    return Alive(lease_expires_at=beat.lease_expires_at, ended=not beat.go_on, reason=beat.message)


@post("/dispatches/{dispatch_id:str}/release", status_code=200, responses=documented(404, 409))
async def release(engine: Engine, caller: Caller, dispatch_id: str, data: Held) -> Accepted:
    """The agent will not finish it: the attempt is lost, and offered again while there are some
    left."""
    await _own(engine, caller, dispatch_id, data)
    run = await engine.hand_back(dispatch_id, caller.name, data.fence, data.reason, data.usage)
    return Accepted(accepted=True, reason="", execution=await engine.summary(run))


@post("/dispatches/{dispatch_id:str}/result", status_code=200, responses=documented(404, 409))
async def result(engine: Engine, caller: Caller, dispatch_id: str, data: Reported) -> Accepted:
    """What came of a dispatch. What a team's agent may not do (end the run without authority, hand
    to a stranger, say neither) is `accepted: false`; what is late, doubled or foreign is 409 and
    changes nothing."""
    await _own(engine, caller, dispatch_id, data)
    _complete(data)
    given = Result(**{name: getattr(data, name) for name in Result.__struct_fields__})
    taken = await engine.report_dispatch(dispatch_id, caller.name, data.fence, given)
    execution = await engine.summary(taken.run)
    return Accepted(accepted=taken.accepted, reason=taken.reason, execution=execution)


async def _own(engine: Engine, caller: Caller, dispatch_id: str, data: Held | Reported) -> None:
    """403 if it is signed as somebody else."""
    said = {name: getattr(data, name) for name in NAMES}
    try:
        same_author(caller, *said.values())
    except Wrong as wrong:
        run_id = dispatch_id.rpartition(".d")[0]
        kept = {"dispatch_id": dispatch_id, **said}
        await keep(engine, caller, "forged_author", wrong.detail, run_id, kept)
        raise


NEEDED = {
    Outcome.HANDOFF: ("to", "say which agent of the team has the turn next"),
    Outcome.ASK: ("question", "say what a person should answer"),
    Outcome.TERMINATE: ("remaining", "say what is left to do"),
}
"""What an outcome cannot do without; to end a run, only if a part is left."""


def _complete(data: Reported) -> None:
    """422 if it lacks what its outcome cannot do without."""
    whole = data.outcome is Outcome.TERMINATE and data.status != "done_partial"
    needed = NEEDED.get(data.outcome) if data.outcome is not None and not whole else None
    if needed is None:
        return
    name, hint = needed
    if not "".join(getattr(data, name)).strip():
        told = f"a result that says {data.outcome} needs `{name}`"
        place = Place("missing", name, told, hint)
        raise Wrong(422, "bad_result", f"{told}; {hint}", errors=(place,))


HANDLERS = [claim, heartbeat, release, result]
