"""Remembered resolutions: people list, correct and remove them."""

# pyright: reportReturnType=false
# A declaration has no body.

from typing import Annotated

from msgspec import Meta

from handrail.api.access import OPERATOR, VIEWER
from handrail.api.operation import C_co, CallGroup, operation
from handrail.api.shared import AuthoredBody, NulFreeText, PageQuery
from handrail.views.memories import QUERY_CHARS_MAX, RESOLUTION_CHARS_MAX, MemoryView
from handrail.views.pages import Page


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


class MemoryCalls(CallGroup[C_co]):
    subject = "memories"

    @operation("GET", "/memory", query=MemoryQuery, access=VIEWER)
    def list(
        self, *, q: str | None = None, limit: int | None = None, cursor: str = ""
    ) -> Page[MemoryView]:
        """List memories, the newest first; also those that are not offered any more. `q` matches
        part of the ticket or the resolution."""

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
