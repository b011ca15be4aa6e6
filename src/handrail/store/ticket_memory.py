"""Memory of resolved tickets in the store, and its search. A part of the `Store`.

A memory belongs to the run that it was learned in, and is valid only with that run. Its standing
is computed from its run and its bead at every read, so a crash or another server cannot leave a
wrong memory valid. When a run is archived, the standing is written down.

The database finds candidates by words; it does not judge how similar two tickets are.
"""

from collections.abc import Sequence
from typing import Protocol

from handrail.store.engine_store import Row, StreamWrite


class MemoryRow(Row):
    """A remembered resolution."""

    id: str
    execution_id: str
    bead_id: str
    title: str
    ticket: str
    words: str
    """The words for the search, separated by spaces."""
    resolution: str
    remembered_by: str
    created_at: str
    times_used: int = 0
    used_at: str | None = None
    corrected_by: str | None = None
    corrected_at: str | None = None
    standing: str = "pending"


class MemoryChange(Row):
    """A person's change to a memory; without a resolution, its removal."""

    id: str
    expected_resolution: str
    """The resolution that the person saw."""
    resolution: str | None
    by: str
    at: str


class TicketMemoryStore(Protocol):
    def put_memories(self, rows: Sequence[MemoryRow], memories_max: int) -> list[MemoryRow]:
        """Insert memories in one transaction. Return each run's memory: this one, or a person's
        version of it. Beyond `memories_max`, the least recently used are deleted."""
        ...

    def search_memories(
        self, words: Sequence[str], bead_id: str, execution_id: str, limit: int
    ) -> list[MemoryRow]:
        """Search valid memories with any of the words; roughly, most matching words first.
        Memories that answered the bead in another run are left out."""
        ...

    def record_memory_use(self, memory_id: str, bead_id: str, execution_id: str, at: str) -> bool:
        """Record that the memory answers that run, once. Return False if it did before, or is
        gone."""
        ...

    def get_memory(self, memory_id: str) -> MemoryRow | None: ...

    def list_memories(
        self, *, text: str | None = None, before: str | None = None, limit: int = 50
    ) -> list[MemoryRow]:
        """List memories by id, the newest first. `text` is in the ticket or the resolution, in any
        case."""
        ...

    def change_memory(self, change: MemoryChange, journal_write: StreamWrite) -> bool:
        """Change or remove a memory, and write this to the journal, in one transaction. Return
        False, and change nothing, if the memory or the stream has changed meanwhile."""
        ...
