"""Beads and their files as they are shown."""

from datetime import datetime
from typing import Any, Literal

from handrail.views.view_types import View

FILE_BYTES_MAX = 10_000_000
PRIORITY_MAX = 1_000_000_000


class BeadView(View):
    """A bead: work, or an approval of work, which is its parent."""

    id: str
    type: Literal["work", "approval"]
    parent_id: str | None
    title: str
    description: str
    status: str
    priority: int
    filed_by: str
    context: dict[str, Any]
    error: dict[str, Any] | None
    """{rule, reason, pattern, execution_id} of the aborted run."""
    workflow_id: str | None
    execution_id: str | None
    """Of the last run."""
    created_at: datetime
    updated_at: datetime
    due_at: datetime | None


class FileInfo(View):
    """A file of a bead, without its content."""

    name: str
    size: int
    sha256: str
    content_type: str
    uploaded_by: str
    created_at: datetime
