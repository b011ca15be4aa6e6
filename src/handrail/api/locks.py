"""Commit locks: holders and queues."""

# pyright: reportReturnType=false
# A declaration has no body.

from handrail.api.access import VIEWER
from handrail.api.operation import C_co, CallGroup, operation
from handrail.api.shared import PageQuery
from handrail.views.locks import LockView
from handrail.views.pages import Page


class LockCalls(CallGroup[C_co]):
    subject = "locks"

    @operation("GET", "/locks", query=PageQuery, access=VIEWER)
    def list(self, *, limit: int | None = None, cursor: str = "") -> Page[LockView]:
        """List commit locks by repository, with holder, queue and fence."""
