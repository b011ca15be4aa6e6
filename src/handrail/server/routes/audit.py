"""The audit record: its events, and its verification."""

from typing import Annotated, Any

from litestar import Request, get
from litestar.params import Parameter
from msgspec.structs import asdict

from handrail.api.audit import AuditVerification
from handrail.engine.engine import Engine
from handrail.server.access import Caller
from handrail.server.audit_verifier import AuditVerifier
from handrail.server.long_polls import LongPolls
from handrail.server.paging import Cursor, Limit
from handrail.server.problems import RETRY_SECONDS, HTTPProblemError, problem_responses
from handrail.views.event_view import EventView
from handrail.views.pages import PAGE_ITEMS_DEFAULT, Page

RunIdQuery = Annotated[str | None, Parameter(max_length=200, description="Of this run.")]
ActorQuery = Annotated[
    str | None, Parameter(max_length=200, description="By this person or agent, or `engine`.")
]
PeopleOnlyQuery = Annotated[
    bool, Parameter(description="Only what people did, and how runs ended.")
]
HeadQuery = Annotated[
    str | None,
    Parameter(
        pattern=r"^[0-9a-f]{64}$",
        description="A head that was kept elsewhere: it must be among those the record had.",
    ),
]


@get("/audit", responses=problem_responses(404))
async def audit(
    engine: Engine,
    execution_id: RunIdQuery = None,
    actor: ActorQuery = None,
    people: PeopleOnlyQuery = False,
    cursor: Cursor = "",
    limit: Limit = PAGE_ITEMS_DEFAULT,
) -> Page[EventView]:
    """Everything that is on record, the last first: each event with who did it, and the number of
    the `commit` it came with. A page may be short, or empty, and not be the last."""
    return await engine.audit.trail(
        cursor, limit, execution_id=execution_id, actor=actor, people=people
    )


@get("/audit/verify", responses=problem_responses(409))
async def verify(
    request: Request[Any, Any, Any],
    caller: Caller,
    audit_verifier: AuditVerifier,
    long_polls: LongPolls,
    head: HeadQuery = None,
) -> AuditVerification:
    """Every hash again, and every row against the events: it reads the whole record, and takes its
    time. `ok` says that nothing was altered, else `findings` says what. Whoever asks while a check
    is under way hears its result."""
    async with long_polls.slot(caller):
        verified = await long_polls.wait_or_drain(audit_verifier.check(head), request)
    if verified is None:
        retry_headers = {"Retry-After": str(RETRY_SECONDS)}
        raise HTTPProblemError(
            503, "draining", "this server ends; ask another one", headers=retry_headers
        )
    return AuditVerification(ok=verified.unaltered, **asdict(verified))


HANDLERS = [audit, verify]
