"""What a store keeps of resolved tickets, and how it is found: the part of `Office` about memory.

A memory belongs to the run that it was learned in, and stands or falls with it. Nobody has to be
told: how it stands is worked out from its run and its bead whenever it is read, so a crash or
another server cannot leave a wrong one standing. When a run is archived, that is written down.

The database finds candidates by words; how alike two tickets are is not its to say.
"""

from collections.abc import Sequence
from typing import Literal, Protocol

from handrail.store.engine_store import Row, StreamWrite

MemoryStanding = Literal["pending", "kept", "reopened", "failed"]
"""Its run goes on; it stands; its ticket was opened again; its run ended badly."""


class MemoryRow(Row):
    """A remembered resolution."""

    id: str
    execution_id: str
    bead_id: str
    title: str
    ticket: str
    words: str
    """What it is found by, with a space between."""
    resolution: str
    remembered_by: str
    created_at: str
    times_used: int = 0
    used_at: str | None = None
    corrected_by: str | None = None
    corrected_at: str | None = None
    standing: str = "pending"


class MemoryChange(Row):
    """What a person does to a memory; without a resolution it is removed."""

    id: str
    expected_resolution: str
    """The resolution that the person saw."""
    resolution: str | None
    by: str
    at: str


class TicketMemoryStore(Protocol):
    def put_memories(self, rows: Sequence[MemoryRow], memories_max: int) -> list[MemoryRow]:
        """One transaction. What is kept of each run: this, or what a person made of it. If there
        are more than `most` then, those that were not used for longest are forgotten."""
        ...

    def search_memories(
        self, words: Sequence[str], bead_id: str, execution_id: str, limit: int
    ) -> list[MemoryRow]:
        """Those that stand and have one of the words, with most of them first, about. What answered
        the bead in another run is left out."""
        ...

    def record_memory_use(self, memory_id: str, bead_id: str, execution_id: str, at: str) -> bool:
        """It answers that run; counted once. False if it did before, or is gone."""
        ...

    def get_memory(self, memory_id: str) -> MemoryRow | None: ...

    def list_memories(
        self, *, text: str | None = None, before: str | None = None, limit: int = 50
    ) -> list[MemoryRow]:
        """By id, the newest first. `text` is in the ticket or the resolution, whatever the case."""
        ...

    def change_memory(self, change: MemoryChange, journal_write: StreamWrite) -> bool:
        """One transaction: it is changed or removed, and the journal says so. False, and nothing
        has happened, if it is not as the person saw it, or the stream went on meanwhile."""
        ...
