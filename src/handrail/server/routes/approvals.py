"""Questions to people: the inbox, and their answers.

Who may answer what, and what an answer means, is the kernel's to say. Here an answer gets its
author, from the token, and a replayed one, to a question that is settled or shows something else by
now, is kept as evidence.
"""

from typing import Annotated, Any, Literal

from litestar import Request, get, post
from litestar.params import Parameter

from handrail.engine.engine import Engine
from handrail.engine.pages import LIMIT, Page
from handrail.engine.refused import Refused
from handrail.kernel.approval import Approval, Status
from handrail.kernel.shown import Shown
from handrail.kernel.view import RunView
from handrail.server.access import Caller
from handrail.server.authors import Signed, check_author, keep
from handrail.server.bodies import Text
from handrail.server.idempotency import key_of
from handrail.server.paging import Cursor, Limit
from handrail.server.problems import Place, Wrong, documented

Stands = Annotated[Status | None, Parameter(description="Questions that stand so; left out, all.")]
CHOICES = {
    "approve": "it goes on",
    "revise": "it goes back, with your text",
    "reject": "it ends here, or takes the way that is there for failure",
}
REPLAYED = ("not_open", "changed", "ended", "answered_before")
"""Refusals of an answer to what is not, or no longer, asked like that."""


class Reply(Signed, kw_only=True):
    """A text, or an explicit decision with or without one. `digest` is that of what was shown."""

    text: Text = ""
    decision: Literal["approve", "reject", "revise"] | None = None
    digest: Text = ""


class Answered(Shown):
    """The approval and the run as they stand after the answer."""

    approval: Approval
    execution: RunView


@get("/approvals", responses=documented())
async def approvals(
    engine: Engine, status: Stands = None, cursor: Cursor = "", limit: Limit = LIMIT
) -> Page[Approval]:
    """Questions to people, those asked last first."""
    return await engine.approvals(status=status, cursor=cursor, limit=limit)


@get("/approvals/{approval_id:str}", responses=documented(404))
async def approval(engine: Engine, approval_id: str) -> Approval:
    """One question with all that belongs to it."""
    return await engine.approval(approval_id)


@post("/approvals/{approval_id:str}/answer", status_code=200, responses=documented(404, 409))
async def answer(
    request: Request[Any, Any, Any],
    engine: Engine,
    caller: Caller,
    approval_id: str,
    data: Reply,
) -> Answered:
    """Answer a question. What could mean either is 422 `ambiguous_answer`, and it stays open; one
    that was answered before, is void or has expired is 409."""
    asked = await engine.approval(approval_id)
    await check_author(engine, caller, data, asked.execution_id)
    try:
        await engine.answer(
            approval_id,
            data.text,
            by=caller.person,
            decision=data.decision,
            digest=data.digest,
            key=key_of(request),
        )
    except Refused as refused:
        if refused.refusal.code == "ambiguous_answer":
            raise ambiguous(refused) from refused
        if refused.refusal.code in REPLAYED:
            said = {"approval_id": asked.id, "text": data.text, "digest": data.digest}
            said |= {"decision": data.decision or "", "refused": refused.refusal.code}
            run_id, told = asked.execution_id, refused.refusal.message
            await keep(engine, caller, "replayed_answer", told, run_id, said)
        raise
    return Answered(
        approval=await engine.approval(approval_id),
        execution=await engine.view(asked.execution_id),
    )


def ambiguous(refused: Refused) -> Wrong:
    choices = tuple(Place("choice", "decision", name, told) for name, told in CHOICES.items())
    return Wrong(422, refused.refusal.code, str(refused), errors=choices)


HANDLERS = [approvals, approval, answer]
