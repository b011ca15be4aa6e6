"""Approvals: the inbox, and the answers of people.

The kernel decides who may answer, and what an answer means. This module takes the author from the
token, and stores a replayed answer, to an approval that is settled or has changed, as evidence.
"""

from typing import Any

from litestar import Request

from handrail.api.approvals import AnsweredApproval, ApprovalAnswer, ApprovalCalls, ApprovalQuery
from handrail.engine.engine import Engine
from handrail.engine.errors import RefusedError
from handrail.server.access import Caller, check_author, record_refused_attempt
from handrail.server.binding import serves
from handrail.server.idempotency import read_key
from handrail.server.problems import FieldError, HTTPProblemError
from handrail.views.approvals import Approval
from handrail.views.pages import Page

DECISION_EFFECTS = {
    "approve": "it goes on",
    "revise": "it goes back, with your text",
    "reject": "it ends here, or takes the way that is there for failure",
}
REPLAYED_ANSWER_CODES = ("not_open", "changed", "ended", "answered_before")
"""Refusals of an answer to an approval that is not open, or has changed."""


@serves(ApprovalCalls.list)
async def list_approvals(
    engine: Engine,
    query: ApprovalQuery,
) -> Page[Approval]:
    return await engine.approvals.list(status=query.status, cursor=query.cursor, limit=query.limit)


@serves(ApprovalCalls.get)
async def get_approval(engine: Engine, approval_id: str) -> Approval:
    return await engine.approvals.get(approval_id)


@serves(ApprovalCalls.answer)
async def answer_approval(
    request: Request[Any, Any, Any],
    engine: Engine,
    caller: Caller,
    approval_id: str,
    data: ApprovalAnswer,
) -> AnsweredApproval:
    approval = await engine.approvals.get(approval_id)
    await check_author(engine, caller, data, approval.execution_id)
    try:
        await engine.approvals.answer(
            approval_id,
            data.text,
            by=caller.person,
            decision=data.decision,
            digest=data.digest,
            key=read_key(request),
        )
    except RefusedError as refused:
        if refused.refusal.code == "ambiguous_answer":
            raise ambiguous_problem(refused) from refused
        if refused.refusal.code in REPLAYED_ANSWER_CODES:
            fields = {"approval_id": approval.id, "text": data.text, "digest": data.digest}
            fields |= {"decision": data.decision or "", "refused": refused.refusal.code}
            run_id, reason = approval.execution_id, refused.refusal.message
            await record_refused_attempt(engine, caller, "replayed_answer", reason, run_id, fields)
        raise
    return AnsweredApproval(
        approval=await engine.approvals.get(approval_id),
        execution=await engine.run_queries.view(approval.execution_id),
    )


def ambiguous_problem(refused: RefusedError) -> HTTPProblemError:
    choices = tuple(
        FieldError("choice", "decision", name, effect) for name, effect in DECISION_EFFECTS.items()
    )
    return HTTPProblemError(422, refused.refusal.code, str(refused), errors=choices)
