"""The calls about errors of services and about commit locks."""

import msgspec

from handrail.client.call import Call, json_get, json_send
from handrail.client.endpoint import endpoint
from handrail.engine.pagination import Page
from handrail.engine.queries.locks import LockView
from handrail.engine.services.bugs import BugReportResult, BugView, ErrorReport


class BugCalls:
    @endpoint
    def report_bug(self, report: ErrorReport) -> Call[BugReportResult]:
        """An error of a service: one bead for each signature."""
        return json_send("POST", "/bugs", BugReportResult, msgspec.to_builtins(report))

    @endpoint
    def list_bugs(self, *, limit: int | None = None, cursor: str = "") -> Call[Page[BugView]]:
        """The newest bead first, with counts."""
        return json_get("/bugs", Page[BugView], {"limit": limit, "cursor": cursor})

    @endpoint
    def list_locks(self, *, limit: int | None = None, cursor: str = "") -> Call[Page[LockView]]:
        """Commit locks by repository: holder, queue, fence."""
        return json_get("/locks", Page[LockView], {"limit": limit, "cursor": cursor})
