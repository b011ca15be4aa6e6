"""Errors of services: reports in Handrail's or Sentry's format, and lists with counts."""

from typing import Any

import msgspec

from handrail.api.bugs import BugCalls
from handrail.api.shared import PageQuery
from handrail.engine.engine import Engine
from handrail.kernel.decision import prepare_types
from handrail.kernel.validation_messages import explain_validation_error
from handrail.server.access import Caller
from handrail.server.binding import serves
from handrail.server.problems import HTTPProblemError
from handrail.server.sentry_events import is_sentry_event, report_from_sentry
from handrail.views.bugs import BugReportResult, BugView, ErrorReport
from handrail.views.pages import Page

prepare_types(ErrorReport)


@serves(BugCalls.report)
async def report_bug(engine: Engine, caller: Caller, data: dict[str, Any]) -> BugReportResult:
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


@serves(BugCalls.list)
async def list_bugs(engine: Engine, query: PageQuery) -> Page[BugView]:
    return await engine.bugs.list(cursor=query.cursor, limit=query.limit)
