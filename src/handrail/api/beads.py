"""Beads: people file them, look them up, change them, and attach files to them."""

# pyright: reportReturnType=false
# A declaration has no body.

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta

from handrail.api.operation import (
    ANY_MEDIA_TYPE,
    OPERATOR,
    VIEWER,
    Access,
    C_co,
    CallGroup,
    operation,
)
from handrail.api.shared import AuthoredBody, DefinitionId, Document, NulFreeText, PageQuery, Review
from handrail.kernel.decision import Value
from handrail.views.beads import FILE_BYTES_MAX, PRIORITY_MAX, BeadView, FileInfo
from handrail.views.event_view import EventView
from handrail.views.run_view import RunItem
from handrail.views.view_types import Page

TITLE_CHARS_MAX = 1_000
FORM_BYTES_MAX = 64 * 1024
"""Of an upload's form, in addition to the file."""
BeadStatus = Literal["open", "in_progress", "waiting", "closed", "error"]
BeadType = Literal["work", "approval"]
BeadSort = Literal["created_at", "due_at", "priority"]


class NewBead(AuthoredBody, kw_only=True):
    """Work to do; with `workflow_id`, the id or name of a definition, a run begins at once."""

    title: Annotated[str, Meta(min_length=1, max_length=TITLE_CHARS_MAX, pattern=r"\S")]
    description: NulFreeText = ""
    workflow_id: NulFreeText | None = None
    context: dict[str, Any] = {}
    review: Review | None = None
    """Default: as the definition says."""
    priority: Annotated[int, Meta(ge=-PRIORITY_MAX, le=PRIORITY_MAX)] = 0
    """Higher is sooner."""
    due_at: Annotated[datetime, Meta(tz=True)] | None = None
    """When the work should be done; it is shown and sorted by, and decides nothing."""


class BeadPatch(AuthoredBody, kw_only=True):
    context: dict[str, Any]
    """Merged into the bead's context (RFC 7396): a null removes a key."""


class BeadQuery(PageQuery):
    status: Annotated[BeadStatus | None, Meta(description="Beads with this status.")] = None
    type: Annotated[BeadType | None, Meta(description="Work, or questions to people.")] = None
    workflow_id: DefinitionId | None = None
    due_before: (
        Annotated[datetime, Meta(tz=True, description="Work that is due before this time.")] | None
    ) = None
    sort: Annotated[
        BeadSort,
        Meta(
            description="The newest first; or work, the soonest due or the highest priority first."
        ),
    ] = "created_at"


class FileQuery(Value):
    name: Annotated[
        str, Meta(max_length=1_000, description="The file's name; a form's file has its own.")
    ] = ""


class BeadCalls(CallGroup[C_co], subject="beads"):
    """Pieces of work and their files."""

    @operation("POST", "/beads", body=NewBead, access=OPERATOR, status=201, problems=(409,))
    def create(
        self,
        title: str,
        *,
        description: str = "",
        workflow_id: str | None = None,
        context: Document | None = None,
        review: Review | None = None,
        priority: int | None = None,
        due_at: datetime | str | None = None,
        key: str = "",
    ) -> BeadView:
        """File a bead. With a definition (id or name), a run begins at once: `execution_id`. The
        same `key` again means the same bead."""

    @operation("GET", "/beads", query=BeadQuery, access=VIEWER)
    def list(
        self,
        *,
        status: BeadStatus | None = None,
        type: BeadType | None = None,  # noqa: A002 - as the API has it
        workflow_id: str | None = None,
        due_before: datetime | str | None = None,
        sort: BeadSort | None = None,
        limit: int | None = None,
        cursor: str = "",
    ) -> Page[BeadView]:
        """List beads, the newest first: work, and questions to people."""

    @operation("GET", "/beads/{bead_id}", access=VIEWER, problems=(404,))
    def get(self, bead_id: str) -> BeadView:
        """Return a bead as it stands; an approval's id works too."""

    @operation("PATCH", "/beads/{bead_id}", body=BeadPatch, access=OPERATOR, problems=(404, 409))
    def patch(self, bead_id: str, context: Document) -> BeadView:
        """Merge `context` into the bead's context (RFC 7396). An open approval that had shown what
        changed is void, and asked anew."""

    @operation(
        "GET", "/beads/{bead_id}/executions", query=PageQuery, access=VIEWER, problems=(404,)
    )
    def list_runs(
        self, bead_id: str, *, limit: int | None = None, cursor: str = ""
    ) -> Page[RunItem]:
        """List the bead's runs, the newest first."""

    @operation("GET", "/beads/{bead_id}/history", query=PageQuery, access=VIEWER, problems=(404,))
    def list_history(
        self, bead_id: str, *, limit: int | None = None, cursor: str = ""
    ) -> Page[EventView]:
        """List all events of the bead, in order, over all its runs."""

    @operation(
        "POST",
        "/beads/{bead_id}/files",
        body=bytes,
        whole="content",
        query=FileQuery,
        access=OPERATOR,
        status=201,
        problems=(404, 409),
        body_bytes_max=FILE_BYTES_MAX + FORM_BYTES_MAX,
    )
    def add_file(
        self, bead_id: str, name: str, content: bytes, *, content_type: str = ANY_MEDIA_TYPE
    ) -> FileInfo:
        """Add a file for the bead's agents: the body itself with `name`, or the one file of a form.
        The same file again changes nothing; another one of that name is 409."""

    @operation("GET", "/beads/{bead_id}/files", access=VIEWER, problems=(404,))
    def list_files(self, bead_id: str) -> Page[FileInfo]:
        """List the bead's files by name, without their contents."""

    @operation(
        "GET",
        "/beads/{bead_id}/files/{name}",
        access=Access(
            people="viewer",
            agents=True,
            restriction="an agent reads files of beads it has a dispatch of",
        ),
        media_types=("*/*",),
        problems=(404,),
    )
    def get_file(self, bead_id: str, name: str) -> bytes:
        """Return the content of one file."""
