"""Remembered resolutions as they are shown."""

from datetime import datetime
from typing import Literal

from handrail.views.view_types import View

MemoryStanding = Literal["pending", "kept", "reopened", "failed"]
"""The run goes on; the memory is valid; its ticket was reopened; its run ended badly."""
RESOLUTION_CHARS_MAX = 10_000
QUERY_CHARS_MAX = 200


class MemoryView(View):
    """A remembered resolution. It is offered to other tickets while its status is "kept"; it is
    "pending" while its run goes on, "failed" if that ended badly, and "reopened" if its ticket was
    opened again."""

    id: str
    title: str
    ticket: str
    resolution: str
    status: MemoryStanding
    bead_id: str
    execution_id: str
    remembered_by: str
    created_at: datetime
    times_used: int
    used_at: datetime | None
    corrected_by: str | None
    corrected_at: datetime | None
    score: float | None = None
    """Where an agent searched: how similar the tickets are, up to 1."""
