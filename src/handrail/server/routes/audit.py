"""The audit record: its events, and its verification."""

from typing import Any

from litestar import Request
from msgspec.structs import asdict

from handrail.api.audit import AuditCalls, AuditQuery, AuditVerification, HeadQuery
from handrail.engine.engine import Engine
from handrail.server.access import Caller
from handrail.server.audit_verifier import AuditVerifier
from handrail.server.binding import serves
from handrail.server.long_polls import LongPolls
from handrail.server.problems import RETRY_SECONDS, HTTPProblemError
from handrail.views.event_view import EventView
from handrail.views.pages import Page


@serves(AuditCalls.list)
async def list_audit_events(
    engine: Engine,
    query: AuditQuery,
) -> Page[EventView]:
    return await engine.audit.trail(
        query.cursor,
        query.limit,
        execution_id=query.execution_id,
        actor=query.actor,
        people=query.people,
    )


@serves(AuditCalls.verify)
async def verify_audit(
    request: Request[Any, Any, Any],
    caller: Caller,
    audit_verifier: AuditVerifier,
    long_polls: LongPolls,
    query: HeadQuery,
) -> AuditVerification:
    async with long_polls.slot(caller):
        verified = await long_polls.wait_or_drain(audit_verifier.check(query.head), request)
    if verified is None:
        retry_headers = {"Retry-After": str(RETRY_SECONDS)}
        raise HTTPProblemError(
            503, "draining", "this server ends; ask another one", headers=retry_headers
        )
    return AuditVerification(ok=verified.unaltered, **asdict(verified))
