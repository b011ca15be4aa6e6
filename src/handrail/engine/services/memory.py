"""Memory: resolutions of earlier tickets, recalled for similar tickets.

Rules
1. A resolution belongs to the run that found it, one of each. It answers others only once that run
   has ended well, and no longer when its ticket is opened again.
2. A resolution that answered a ticket is not offered to the same ticket in another run.
3. Agents remember what resolved the bead that they work on, and recall what resolved others; people
   look, correct and remove, and the record says who did.
4. Texts are bounded, and so is their number: beyond `memory_max` the least recently used are
   forgotten.
5. Resolutions that arrive during one transaction make the next: a hundred tickets that end together
   pay for a few commits, not for a hundred.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NoReturn

from msgspec import structs

from handrail.engine.commit.committer import WRITE_CONFLICTS_MAX
from handrail.engine.commit.gateway import CommandGateway
from handrail.engine.environment import Clock, StoreAccess
from handrail.engine.errors import EngineBusyError, refuse, require_known
from handrail.engine.ids import uuid7
from handrail.engine.notifier import ANY_STREAM, ChangeNotifier
from handrail.engine.pagination import check_cursor, check_limit, to_page
from handrail.engine.services.similarity import (
    TEXT_CHARS_MAX,
    TITLE_CHARS_MAX,
    score,
    search_words,
    signature,
)
from handrail.engine.settings import EngineSettings
from handrail.kernel.decision import Value
from handrail.store.rows import EMPTY_HEAD, StreamRow, StreamWrite, iso, journal_entry, parse_iso
from handrail.store.ticket_memory import MemoryChange, MemoryRow
from handrail.views.beads import BeadView
from handrail.views.memories import (
    QUERY_CHARS_MAX,
    RESOLUTION_CHARS_MAX,
    MemoryStanding,
    MemoryView,
)
from handrail.views.view_types import PAGE_ITEMS_DEFAULT, Page

WRITE_BATCH_ROWS = 200
WriteRows = Callable[[list[MemoryRow]], Awaitable[list[MemoryRow]]]


class MemoryWriter:
    def __init__(self, write_rows: WriteRows) -> None:
        self._write_rows = write_rows
        self._waiting: list[tuple[MemoryRow, asyncio.Future[MemoryRow]]] = []
        self._task: asyncio.Task[None] | None = None

    async def write(self, row: MemoryRow) -> MemoryRow:
        """Store a row and return it as stored, on disk. It is stored even if the caller goes
        away."""
        loop = asyncio.get_running_loop()
        written: asyncio.Future[MemoryRow] = loop.create_future()
        self._waiting.append((row, written))
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._write_waiting())
        return await written

    async def wait_idle(self) -> None:
        """Wait until nothing is left to store."""
        if self._task is not None:
            await self._task

    async def _write_waiting(self) -> None:
        await asyncio.sleep(0)  # callers that are about to arrive do
        while self._waiting:
            batch, self._waiting = (
                self._waiting[:WRITE_BATCH_ROWS],
                self._waiting[WRITE_BATCH_ROWS:],
            )
            try:
                stored_rows = await self._write_rows([row for row, _ in batch])
            except Exception as error:  # every caller concerned gets it
                for _, written in batch:
                    if not written.done():
                        written.set_exception(error)
            else:
                for (_, written), row in zip(batch, stored_rows, strict=True):
                    if not written.done():
                        written.set_result(row)


SIMILARITY_MIN = 0.65
"""From this score on the resolution of one ticket answers the other; measured on labelled pairs
(`tests/engine/test_memory.py`)."""
CANDIDATES_MAX = 50
"""Candidates that are scored; the database puts those with most words in common first."""
RECALLED_MAX = 5
MEMORY_STREAM = "memory:resolutions"
MEMORY_STATUSES: tuple[MemoryStanding, ...] = ("pending", "kept", "reopened", "failed")


class RecalledMemory(Value):
    """A memory, and the similarity of its ticket: from SIMILARITY_MIN to 1."""

    memory: MemoryView
    score: float


class MemoryCorrected(Value, tag="memory_corrected", tag_field="type"):
    """A person corrected the resolution."""

    memory_id: str
    was: str
    resolution: str
    by: str
    at: str


class MemoryRemoved(Value, tag="memory_removed", tag_field="type"):
    """A person removed the memory; its text is not repeated."""

    memory_id: str
    execution_id: str
    by: str
    at: str


class MemoryService:
    """Remembers resolutions, and recalls them."""

    def __init__(
        self,
        access: StoreAccess,
        gateway: CommandGateway,
        notifier: ChangeNotifier,
        clock: Clock,
        settings: EngineSettings,
    ) -> None:
        self._access, self._store, self._gateway = access, access.store, gateway
        self._notifier, self._clock = notifier, clock
        self._writer = MemoryWriter(
            lambda rows: access.call(access.store.ticket_memory.put, rows, settings.memory_max)
        )

    async def remember(
        self,
        *,
        execution_id: str,
        bead_id: str,
        title: str,
        text: str = "",
        resolution: str,
        by: str,
    ) -> MemoryView | None:
        """Store the resolution of a run; a second one of the same run replaces it, unless a person
        corrected the first. None if the ticket has no word to find it by."""
        self._access.check_open()
        title, text = _truncate(title, TITLE_CHARS_MAX), _truncate(text, TEXT_CHARS_MAX)
        words = signature(title, text)
        resolution_text = _truncate(resolution.strip(), RESOLUTION_CHARS_MAX)
        if not words or not resolution_text:
            return None
        row = MemoryRow(
            id=uuid7().hex,
            execution_id=execution_id,
            bead_id=bead_id,
            title=title,
            ticket=text,
            words=words,
            resolution=resolution_text,
            remembered_by=by,
            created_at=iso(self._clock()),
        )
        return _to_view(await self._writer.write(row))

    async def add(
        self, bead: BeadView, text: str, tags: Sequence[str] = (), *, by: str
    ) -> MemoryView:
        """Store what resolved the bead in its last run; the tags are words to find it by. Refused:
        no_run, no_words."""
        if bead.execution_id is None:
            refuse("no_run", f"bead '{bead.id}' has had no run", "start one first")
        memory = await self.remember(
            execution_id=bead.execution_id,
            bead_id=bead.id,
            title=bead.title,
            text="\n".join(filter(None, (bead.description, ", ".join(tags)))),
            resolution=text,
            by=by,
        )
        if memory is None:
            refuse(
                "no_words",
                "the bead and the tags have no word to find the memory by, or the text is empty",
                "add a tag that says what it is about",
            )
        return memory

    async def wait_written(self) -> None:
        """Wait until all that was remembered is stored."""
        await self._writer.wait_idle()

    async def recall(
        self,
        title: str,
        text: str = "",
        *,
        bead_id: str = "",
        execution_id: str = "",
        limit: int = RECALLED_MAX,
    ) -> tuple[RecalledMemory, ...]:
        """Return resolutions of similar tickets, the most similar first. `bead_id` and
        `execution_id` name the caller: what answered that bead in another run is left out."""
        self._access.check_open()
        return await self._find_similar(
            signature(title, text), SIMILARITY_MIN, bead_id, execution_id, limit
        )

    async def _find_similar(
        self, ticket: str, score_min: float, bead_id: str, execution_id: str, limit: int
    ) -> tuple[RecalledMemory, ...]:
        if not ticket:
            return ()
        rows = await self._access.call(
            self._store.ticket_memory.search,
            search_words(ticket),
            bead_id,
            execution_id,
            CANDIDATES_MAX,
        )
        scored = [(score(ticket, row.words), row) for row in rows]
        best = sorted(
            (pair for pair in scored if pair[0] >= score_min),
            key=lambda pair: (pair[0], pair[1].id),  # of two equally similar ones the newer
            reverse=True,
        )[:limit]
        return tuple(
            RecalledMemory(memory=_to_view(row), score=similarity) for similarity, row in best
        )

    async def search(self, ticket: str, *, limit: int) -> tuple[MemoryView, ...]:
        """Return the resolutions of tickets that share words with this one, the most similar first,
        each with its score: whoever asks judges whether it fits."""
        _check_query(ticket)
        similar = await self._find_similar(signature(ticket, ""), 0.0, "", "", limit)
        return tuple(structs.replace(match.memory, score=match.score) for match in similar)

    async def use(self, memory_id: str, *, bead_id: str, execution_id: str) -> None:
        """Record that the memory answers the run: counted once, however often the run asks."""
        self._access.check_open()
        await self._access.call(
            self._store.ticket_memory.record_use,
            memory_id,
            bead_id,
            execution_id,
            iso(self._clock()),
        )

    async def list(
        self, *, q: str | None = None, cursor: str = "", limit: int = PAGE_ITEMS_DEFAULT
    ) -> Page[MemoryView]:
        """List all memories, the newest first. `q` is in the ticket or the resolution."""
        before, limit = check_cursor(cursor) or None, check_limit(limit)
        _check_query(q or "")
        rows = await self._access.query(
            lambda store: store.ticket_memory.list(text=q or None, before=before, limit=limit + 1)
        )
        return to_page(rows, limit, _to_view)

    async def get(self, memory_id: str) -> MemoryView:
        """Return one memory. Refused: unknown_memory."""
        return _to_view(await self._load(memory_id))

    async def correct(self, memory_id: str, resolution: str, *, by: str) -> MemoryView:
        """Replace the resolution by a person's, from now on. Refused: unknown_memory, no_text, and
        memory_withdrawn for one that is no longer offered."""
        resolution_text = _truncate(resolution.strip(), RESOLUTION_CHARS_MAX)
        if not resolution_text:
            refuse("no_text", "the resolution is empty", "send a text, or remove the memory")
        return _to_view(await self._change(memory_id, resolution_text, by))

    async def forget(self, memory_id: str, *, by: str) -> None:
        """Remove a memory, by a person. Refused: unknown_memory."""
        await self._change(memory_id, None, by)

    async def _load(self, memory_id: str) -> MemoryRow:
        return require_known(
            await self._access.call(self._store.ticket_memory.get, memory_id),
            "unknown_memory",
            memory_id,
            "look at the list of memories",
        )

    async def _change(self, memory_id: str, resolution: str | None, by: str) -> MemoryRow:
        await self._gateway.prepare()
        for _ in range(WRITE_CONFLICTS_MAX):
            row = await self._load(memory_id)
            if resolution is not None and row.standing in ("reopened", "failed"):
                _refuse_withdrawn(row)
            if resolution == row.resolution:
                return row
            change = MemoryChange(
                id=row.id,
                expected_resolution=row.resolution,
                resolution=resolution,
                by=by,
                at=iso(self._clock()),
            )
            write = _change_write(
                await self._access.call(self._store.journal.load_stream, MEMORY_STREAM), row, change
            )
            if await self._access.call(self._store.ticket_memory.change, change, write):
                self._notifier.changes.notify(ANY_STREAM, None)
                return row if resolution is None else await self._load(memory_id)
        raise EngineBusyError(f"memory '{memory_id}': {WRITE_CONFLICTS_MAX} write conflicts; retry")


def _change_write(before: StreamRow | None, row: MemoryRow, change: MemoryChange) -> StreamWrite:
    """The write that records the change."""
    event: MemoryCorrected | MemoryRemoved = MemoryRemoved(
        memory_id=row.id, execution_id=row.execution_id, by=change.by, at=change.at
    )
    if change.resolution is not None:
        event = MemoryCorrected(
            memory_id=row.id,
            was=change.expected_resolution,
            resolution=change.resolution,
            by=change.by,
            at=change.at,
        )
    seq, head = (before.seq + 1, before.head) if before is not None else (1, EMPTY_HEAD)
    entry = journal_entry(MEMORY_STREAM, seq, head, [event])
    return StreamWrite(
        expected_head=head, entry=entry, row=StreamRow(name=MEMORY_STREAM, seq=seq, head=entry.hash)
    )


def _check_query(text: str) -> None:
    if len(text) > QUERY_CHARS_MAX or not text.isprintable():
        refuse(
            "bad_query",
            f"the search text has more than {QUERY_CHARS_MAX} characters, or unprintable ones",
            "look for a part of a ticket or a resolution",
        )


def _truncate(text: str, chars_max: int) -> str:
    """Cut the text to what the column holds."""
    text = text.replace("\x00", "")
    return text if len(text) <= chars_max else f"{text[: chars_max - 1]}…"


def _to_view(row: MemoryRow) -> MemoryView:
    return MemoryView(
        id=row.id,
        title=row.title,
        ticket=row.ticket,
        resolution=row.resolution,
        status=MEMORY_STATUSES[MEMORY_STATUSES.index(row.standing)],  # pyright: ignore[reportArgumentType] - it is one
        bead_id=row.bead_id,
        execution_id=row.execution_id,
        remembered_by=row.remembered_by,
        created_at=parse_iso(row.created_at),
        times_used=row.times_used,
        used_at=parse_iso(row.used_at) if row.used_at is not None else None,
        corrected_by=row.corrected_by,
        corrected_at=parse_iso(row.corrected_at) if row.corrected_at is not None else None,
    )


def _refuse_withdrawn(row: MemoryRow) -> NoReturn:
    reasons = {"reopened": "its ticket was opened again", "failed": "its run did not end well"}
    refuse(
        "memory_withdrawn",
        f"memory '{row.id}' is no longer recalled: {reasons[row.standing]}",
        "remove the memory, or resolve the ticket again",
    )
