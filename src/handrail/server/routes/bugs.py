"""Errors of services: reports in Handrail's or Sentry's format, and lists with counts."""

from typing import Any

import msgspec
from litestar import get, post

from handrail.engine.engine import Engine
from handrail.kernel.decision import prepare_types
from handrail.kernel.validation_messages import explain_validation_error
from handrail.server.access import Caller
from handrail.server.paging import Cursor, Limit
from handrail.server.problems import HTTPProblemError, problem_responses
from handrail.server.sentry_events import is_sentry_event, report_from_sentry
from handrail.views.bugs import BugReportResult, BugView, ErrorReport
from handrail.views.pages import PAGE_ITEMS_DEFAULT, Page

prepare_types(ErrorReport)


@post("/bugs", responses=problem_responses(), status_code=200)
async def report(engine: Engine, caller: Caller, data: dict[str, Any]) -> BugReportResult:
    """Report an error: `{type, message, traceback, service, method, route, status, …}`, or an event
    as Sentry's clients send it. One bead for each signature; the same again is counted. What the
    caller of the service did wrong (a status below 500) is no bug."""
    try:
        error_report = (
            report_from_sentry(data)
            if is_sentry_event(data)
            else msgspec.convert(data, ErrorReport)
        )
    except msgspec.ValidationError as error:
        reason = explain_validation_error(str(error))
        message = f"the report cannot be used: {reason}; see /api/v1/openapi.json"
        raise HTTPProblemError(422, "bad_body", message) from error
    return await engine.bugs.report(error_report, by=caller.name)


@get("/bugs", responses=problem_responses())
async def bugs(
    engine: Engine, cursor: Cursor = "", limit: Limit = PAGE_ITEMS_DEFAULT
) -> Page[BugView]:
    """Signatures with their newest bead, and how often each was seen."""
    return await engine.bugs.list(cursor=cursor, limit=limit)


HANDLERS = [report, bugs]
