"""The calls about errors of services and about commit locks."""

import msgspec

from handrail.client.call import Call, json_get, json_send
from handrail.client.endpoint import endpoint
from handrail.views.bugs import BugReportResult, BugView, ErrorReport
from handrail.views.locks import LockView
from handrail.views.pages import Page


class BugCalls:
    @endpoint
    def report_bug(self, report: ErrorReport) -> Call[BugReportResult]:
        """Report an error of a service; each signature has one bead."""
        return json_send("POST", "/bugs", BugReportResult, msgspec.to_builtins(report))

    @endpoint
    def list_bugs(self, *, limit: int | None = None, cursor: str = "") -> Call[Page[BugView]]:
        """List bugs with their counts, the newest bead first."""
        return json_get("/bugs", Page[BugView], {"limit": limit, "cursor": cursor})

    @endpoint
    def list_locks(self, *, limit: int | None = None, cursor: str = "") -> Call[Page[LockView]]:
        """List commit locks by repository, with holder, queue and fence."""
        return json_get("/locks", Page[LockView], {"limit": limit, "cursor": cursor})
