"""Errors of services: reports in Handrail's or Sentry's format, and lists with counts.

Remembered resolutions: people list, correct and remove them.

Commit locks: holders and queues.
"""

from typing import Annotated

from msgspec import Meta

from handrail.api.operation import OPERATOR, VIEWER, Access, C_co, CallGroup, operation
from handrail.api.shared import AuthoredBody, Document, NulFreeText, PageQuery
from handrail.views.bugs import BugReportResult, BugView, ErrorReport
from handrail.views.locks import LockView
from handrail.views.memories import QUERY_CHARS_MAX, RESOLUTION_CHARS_MAX, MemoryView
from handrail.views.view_types import Page

# pyright: reportReturnType=false
# A declaration has no body.


class BugCalls(CallGroup[C_co], subject="bugs"):
    """Errors of services, which become beads."""

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


# pyright: reportReturnType=false
# A declaration has no body.


class MemoryQuery(PageQuery):
    q: (
        Annotated[
            str,
            Meta(
                max_length=QUERY_CHARS_MAX,
                description="A part of the ticket or of the resolution.",
            ),
        ]
        | None
    ) = None


class MemoryPatch(AuthoredBody, kw_only=True):
    """The new resolution, for similar tickets from now on."""

    resolution: Annotated[NulFreeText, Meta(min_length=1, max_length=RESOLUTION_CHARS_MAX)]


Tag = Annotated[NulFreeText, Meta(min_length=1, max_length=50)]


class NewMemory(AuthoredBody, kw_only=True):
    """What resolved the bead; the bead's own title and description say what it is about, and `tags`
    add words to find it by."""

    bead_id: NulFreeText
    text: Annotated[NulFreeText, Meta(min_length=1, max_length=RESOLUTION_CHARS_MAX)]
    tags: Annotated[tuple[Tag, ...], Meta(max_length=20)] = ()


class MemoryCalls(CallGroup[C_co], subject="memories"):
    """What was learned from resolved tickets."""

    @operation(
        "POST",
        "/memory",
        body=NewMemory,
        access=Access(
            people="operator",
            agents=True,
            restriction="an agent stores for beads it has a dispatch of",
        ),
        status=201,
        problems=(404, 409),
    )
    def add(self, bead_id: str, text: str, tags: tuple[str, ...] = ()) -> MemoryView:
        """Store what resolved a bead, one memory a run: a second one replaces it. Others find it
        once that run has ended as done_success."""

    @operation(
        "GET",
        "/memory",
        query=MemoryQuery,
        access=Access(people="viewer", agents=True),
    )
    def list(
        self, *, q: str | None = None, limit: int | None = None, cursor: str = ""
    ) -> Page[MemoryView]:
        """List memories, the newest first; also those that are not offered any more. `q` matches
        part of the ticket or the resolution. An agent sends its ticket as `q`, and gets what
        resolved tickets like it, the most similar first, with their `score`."""

    @operation("GET", "/memory/{memory_id}", access=VIEWER, problems=(404,))
    def get(self, memory_id: str) -> MemoryView:
        """Return one memory."""

    @operation(
        "PATCH", "/memory/{memory_id}", body=MemoryPatch, access=OPERATOR, problems=(404, 409)
    )
    def correct(self, memory_id: str, resolution: str) -> MemoryView:
        """Replace the resolution: similar tickets get it from now on, and the record says who wrote
        it. One that is not offered any more is 409."""

    @operation("DELETE", "/memory/{memory_id}", access=OPERATOR, problems=(404,))
    def remove(self, memory_id: str) -> None:
        """Remove a memory: it answers no further tickets; the record says who removed it."""


# pyright: reportReturnType=false
# A declaration has no body.


class LockCalls(CallGroup[C_co], subject="locks"):
    """Locks that agents hold."""

    @operation("GET", "/locks", query=PageQuery, access=VIEWER)
    def list(self, *, limit: int | None = None, cursor: str = "") -> Page[LockView]:
        """List commit locks by repository, with holder, queue and fence."""
