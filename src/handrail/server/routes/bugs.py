"""Errors of services: reported in our shape or in Sentry's, looked at with their counts."""

from typing import Any

import msgspec
from litestar import get, post

from handrail.engine.bugs import Bug, BugFiled, ErrorReport
from handrail.engine.engine import Engine
from handrail.engine.pages import LIMIT, Page
from handrail.kernel.decision import learn
from handrail.kernel.misfit import in_words
from handrail.server.access import Caller
from handrail.server.paging import Cursor, Limit
from handrail.server.problems import Wrong, documented
from handrail.server.sentry import is_event, report_of

learn(ErrorReport)


@post("/bugs", responses=documented(), status_code=200)
async def report(engine: Engine, caller: Caller, data: dict[str, Any]) -> BugFiled:
    """Report an error: `{type, message, traceback, service, method, route, status, …}`, or an event
    as Sentry's clients send it. One bead for each signature; the same again is counted. What the
    caller of the service did wrong (a status below 500) is no bug."""
    try:
        found = report_of(data) if is_event(data) else msgspec.convert(data, ErrorReport)
    except msgspec.ValidationError as error:
        told = f"the report cannot be used: {in_words(str(error))}; see /api/v1/openapi.json"
        raise Wrong(422, "bad_body", told) from error
    return await engine.report_bug(found, by=caller.name)


@get("/bugs", responses=documented())
async def bugs(engine: Engine, cursor: Cursor = "", limit: Limit = LIMIT) -> Page[Bug]:
    """Signatures with their newest bead, and how often each was seen."""
    return await engine.bugs(cursor=cursor, limit=limit)


HANDLERS = [report, bugs]
