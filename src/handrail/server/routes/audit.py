"""Who did what, and whether the record of it is unaltered."""

from typing import Annotated, Any

from litestar import Request, get
from litestar.params import Parameter
from msgspec.structs import asdict

from handrail.engine.audit import Verified
from handrail.engine.engine import Engine
from handrail.engine.pages import LIMIT, Page
from handrail.kernel.event_shown import ShownEvent
from handrail.server.access import Caller
from handrail.server.paging import Cursor, Limit
from handrail.server.problems import RETRY_SECONDS, Wrong, documented
from handrail.server.verifying import Verifying
from handrail.server.waits import Waits

OfRun = Annotated[str | None, Parameter(max_length=200, description="Of this run.")]
By = Annotated[
    str | None, Parameter(max_length=200, description="By this person or agent, or `engine`.")
]
People = Annotated[bool, Parameter(description="Only what people did, and how runs ended.")]
Head = Annotated[
    str | None,
    Parameter(
        pattern=r"^[0-9a-f]{64}$",
        description="A head that was kept elsewhere: it must be among those the record had.",
    ),
]


class Checked(Verified, frozen=True, kw_only=True, omit_defaults=False):
    """What was looked at, and what is wrong with it. Keep the `head` elsewhere."""

    ok: bool


@get("/audit", responses=documented(404))
async def audit(
    engine: Engine,
    execution_id: OfRun = None,
    actor: By = None,
    people: People = False,
    cursor: Cursor = "",
    limit: Limit = LIMIT,
) -> Page[ShownEvent]:
    """Everything that is on record, the last first: each event with who did it, and the number of
    the `commit` it came with. A page may be short, or empty, and not be the last."""
    return await engine.trail(cursor, limit, execution_id=execution_id, actor=actor, people=people)


@get("/audit/verify", responses=documented(409))
async def verify(
    request: Request[Any, Any, Any],
    caller: Caller,
    verifying: Verifying,
    waits: Waits,
    head: Head = None,
) -> Checked:
    """Every hash again, and every row against the events: it reads the whole record, and takes its
    time. `ok` says that nothing was altered, else `findings` says what. Whoever asks while a check
    is under way hears its result."""
    async with waits.place(caller):
        found = await waits.or_drain(verifying.check(head), request)
    if found is None:
        again = {"Retry-After": str(RETRY_SECONDS)}
        raise Wrong(503, "draining", "this server ends; ask another one", headers=again)
    return Checked(ok=found.unaltered, **asdict(found))


HANDLERS = [audit, verify]
