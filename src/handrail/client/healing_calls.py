"""The calls about errors of services and about commit locks."""

import msgspec

from handrail.client.call import Call, get, send
from handrail.client.endpoint import endpoint
from handrail.engine.bugs import Bug, BugFiled, ErrorReport
from handrail.engine.lock_views import LockView
from handrail.engine.pages import Page


class HealingCalls:
    @endpoint
    def report_bug(self, report: ErrorReport) -> Call[BugFiled]:
        """An error of a service: one bead for each signature."""
        return send("POST", "/bugs", BugFiled, msgspec.to_builtins(report))

    @endpoint
    def bugs(self, *, limit: int | None = None, cursor: str = "") -> Call[Page[Bug]]:
        """The newest bead first, with counts."""
        return get("/bugs", Page[Bug], {"limit": limit, "cursor": cursor})

    @endpoint
    def locks(self, *, limit: int | None = None, cursor: str = "") -> Call[Page[LockView]]:
        """Commit locks by repository: holder, queue, fence."""
        return get("/locks", Page[LockView], {"limit": limit, "cursor": cursor})
