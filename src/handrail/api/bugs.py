"""Errors of services: reports in Handrail's or Sentry's format, and lists with counts."""

# pyright: reportReturnType=false
# A declaration has no body.

from handrail.api.access import VIEWER, Access
from handrail.api.operation import C_co, CallGroup, operation
from handrail.api.shared import Document, PageQuery
from handrail.views.bugs import BugReportResult, BugView, ErrorReport
from handrail.views.pages import Page


class BugCalls(CallGroup[C_co]):
    subject = "bugs"

    @operation(
        "POST",
        "/bugs",
        body=Document,
        whole="report",
        access=Access(people="operator", reporters=True),
    )
    def report(self, report: ErrorReport) -> BugReportResult:
        """Report an error of a service: `{type, message, traceback, service, method, route, status,
        …}`, or an event as Sentry's clients send it. Each signature has one bead; the same again is
        counted. A mistake of the service's caller (a status below 500) is no bug."""

    @operation("GET", "/bugs", query=PageQuery, access=VIEWER)
    def list(self, *, limit: int | None = None, cursor: str = "") -> Page[BugView]:
        """List bugs with their counts, the newest bead first."""
