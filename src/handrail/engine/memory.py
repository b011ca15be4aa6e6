"""Memory: what resolved tickets taught, found again when a ticket like them comes.

Rules
1. A resolution belongs to the run that it was found in, one of each. It answers others only once
   that run has ended well, and no longer when its ticket is opened again.
2. What answered a ticket from memory is not offered to the same ticket in another run.
3. Agents of this process remember and recall; people look, correct and remove, and the record says
   who did. No other agent gets at it.
4. Texts are bounded, and so is their number: beyond `memory_max` those that were not used for
   longest are forgotten.
"""

from datetime import datetime
from functools import cached_property
from typing import NoReturn

from uuid_utils import uuid7

from handrail.engine.core import ANYTHING, Core
from handrail.engine.keeper import LOSSES_MAX, Busy
from handrail.engine.learning import Learning
from handrail.engine.likeness import TEXT_CHARS, TITLE_CHARS, score, searched, signature
from handrail.engine.pages import LIMIT, Page, checked_cursor, checked_limit, refuse
from handrail.engine.project import encode
from handrail.kernel.decision import Value
from handrail.kernel.shown import Shown
from handrail.store.chain import START, entry_hash
from handrail.store.memory import MemoryChange, MemoryRow, Standing
from handrail.store.port import Entry, Stream, Write, iso, moment

ALIKE = 0.65
"""From this score on the resolution of one ticket answers the other; measured on labelled pairs
(`tests/engine/test_memory.py`)."""
CANDIDATES = 50
"""So many are weighed; the database puts those with most words in common first."""
FOUND_MAX = 5
RESOLUTION_CHARS = 10_000
QUERY_CHARS = 200
STREAM = "memory:resolutions"
STANDINGS: tuple[Standing, ...] = ("pending", "kept", "reopened", "failed")


class Memory(Shown):
    """A remembered resolution. It is offered to other tickets while its status is "kept"; it is
    "pending" while its run goes on, "failed" if that ended badly, and "reopened" if its ticket was
    opened again."""

    id: str
    title: str
    ticket: str
    resolution: str
    status: Standing
    bead_id: str
    execution_id: str
    remembered_by: str
    created_at: datetime
    times_used: int
    used_at: datetime | None
    corrected_by: str | None
    corrected_at: datetime | None


class Recalled(Value):
    """A memory, and how alike its ticket is: from ALIKE to 1."""

    memory: Memory
    score: float


class MemoryCorrected(Value, tag="memory_corrected", tag_field="type"):
    """A person wrote another resolution."""

    memory_id: str
    was: str
    resolution: str
    by: str
    at: str


class MemoryRemoved(Value, tag="memory_removed", tag_field="type"):
    """A person removed it; what it said is not repeated."""

    memory_id: str
    execution_id: str
    by: str
    at: str


class WithMemory(Core):
    """An engine that remembers."""

    async def remember(
        self,
        *,
        execution_id: str,
        bead_id: str,
        title: str,
        text: str = "",
        resolution: str,
        by: str,
    ) -> Memory | None:
        """Keeps the resolution of a run; a second one of the same run takes its place, unless a
        person corrected the first. None if the ticket has no word to find it by."""
        self._check()
        title, text = _cut(title, TITLE_CHARS), _cut(text, TEXT_CHARS)
        words, kept = signature(title, text), _cut(resolution.strip(), RESOLUTION_CHARS)
        if not words or not kept:
            return None
        row = MemoryRow(
            id=uuid7().hex,
            execution_id=execution_id,
            bead_id=bead_id,
            title=title,
            ticket=text,
            words=words,
            resolution=kept,
            remembered_by=by,
            created_at=iso(self.clock()),
        )
        return _shown(await self._learning.learn(row))

    @cached_property
    def _learning(self) -> Learning:
        return Learning(self._keep)

    async def _keep(self, rows: list[MemoryRow]) -> list[MemoryRow]:
        return await self._io(self.store.remember, rows, self.settings.memory_max)

    async def close(self) -> None:
        await super().close()
        await self._learning.settled()

    async def recall(
        self,
        title: str,
        text: str = "",
        *,
        bead_id: str = "",
        execution_id: str = "",
        limit: int = FOUND_MAX,
    ) -> tuple[Recalled, ...]:
        """Resolutions of tickets like this one, the most alike first. `bead_id` and `execution_id`
        say for whom: what answered that bead in another run is left out."""
        self._check()
        wanted = signature(title, text)
        asked = searched(wanted), bead_id, execution_id, CANDIDATES
        rows: list[MemoryRow] = await self._io(self.store.recall, *asked) if wanted else []
        found = [(score(wanted, row.words), row) for row in rows]
        alike = sorted(
            (one for one in found if one[0] >= ALIKE), key=lambda one: one[1].id, reverse=True
        )  # of two that are equally alike the newer one
        best = sorted(alike, key=lambda one: one[0], reverse=True)[:limit]
        return tuple(Recalled(memory=_shown(row), score=weight) for weight, row in best)

    async def use_memory(self, memory_id: str, *, bead_id: str, execution_id: str) -> None:
        """It answers that run: counted once, however often the run asks."""
        self._check()
        at = iso(self.clock())
        await self._io(self.store.use_memory, memory_id, bead_id, execution_id, at)

    async def memories(
        self, *, q: str | None = None, cursor: str = "", limit: int = LIMIT
    ) -> Page[Memory]:
        """All of them, the newest first. `q` is in the ticket or the resolution."""
        before, limit = checked_cursor(cursor) or None, checked_limit(limit)
        if q is not None and (len(q) > QUERY_CHARS or not q.isprintable()):
            told = f"what is looked for is longer than {QUERY_CHARS} characters, or no plain text"
            refuse("bad_query", told, "look for a part of a ticket or a resolution")
        rows = await self._slowly(
            lambda store: store.memories(text=q or None, before=before, limit=limit + 1)
        )
        items = tuple(map(_shown, rows[:limit]))
        return Page(items=items, next_cursor=items[-1].id if len(rows) > limit else None)

    async def memory(self, memory_id: str) -> Memory:
        """One. Refused: unknown_memory."""
        return _shown(await self._memory(memory_id))

    async def correct_memory(self, memory_id: str, resolution: str, *, by: str) -> Memory:
        """Another resolution, by a person, from now on. Refused: unknown_memory, no_text, and
        memory_withdrawn for one that is not offered to anybody any more."""
        kept = _cut(resolution.strip(), RESOLUTION_CHARS)
        if not kept:
            refuse("no_text", "a resolution says something", "write one, or remove the memory")
        return _shown(await self._change(memory_id, kept, by))

    async def forget(self, memory_id: str, *, by: str) -> None:
        """It is removed, by a person. Refused: unknown_memory."""
        await self._change(memory_id, None, by)

    async def _memory(self, memory_id: str) -> MemoryRow:
        row: MemoryRow | None = await self._io(self.store.memory, memory_id)
        if row is None:
            _unknown(memory_id)
        return row

    async def _change(self, memory_id: str, resolution: str | None, by: str) -> MemoryRow:
        self._check()
        if self.visiting:  # a commit is a sign of life: what was no life must be known before it
            await self.pulse.after_outage(alone=False)
        for _ in range(LOSSES_MAX):
            row = await self._memory(memory_id)
            if resolution is not None and row.standing in ("reopened", "failed"):
                _withdrawn(row)
            if resolution == row.resolution:
                return row
            change = MemoryChange(
                id=row.id, was=row.resolution, resolution=resolution, by=by, at=iso(self.clock())
            )
            told = _told(await self._io(self.store.load_stream, STREAM), row, change)
            if await self._io(self.store.change_memory, change, told):
                self._changes.ring(ANYTHING, None)
                return row if resolution is None else await self._memory(memory_id)
        raise Busy(f"memory '{memory_id}' is being changed by others; try again")


def _told(before: Stream | None, row: MemoryRow, change: MemoryChange) -> Write:
    """What the record says about it."""
    event: MemoryCorrected | MemoryRemoved = MemoryRemoved(
        memory_id=row.id, execution_id=row.execution_id, by=change.by, at=change.at
    )
    if change.resolution is not None:
        event = MemoryCorrected(
            memory_id=row.id,
            was=change.was,
            resolution=change.resolution,
            by=change.by,
            at=change.at,
        )
    seq, head = (before.seq + 1, before.head) if before is not None else (1, START)
    body = encode([event]).decode()
    new = entry_hash(head, STREAM, seq, body)
    entry = Entry(stream=STREAM, seq=seq, count=1, body=body, hash=new)
    return Write(expected=head, entry=entry, subject=Stream(name=STREAM, seq=seq, head=new))


def _cut(text: str, most: int) -> str:
    """What a column can hold, and no more than that."""
    text = text.replace("\x00", "")
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _shown(row: MemoryRow) -> Memory:
    return Memory(
        id=row.id,
        title=row.title,
        ticket=row.ticket,
        resolution=row.resolution,
        status=STANDINGS[STANDINGS.index(row.standing)],  # pyright: ignore[reportArgumentType] - it is one
        bead_id=row.bead_id,
        execution_id=row.execution_id,
        remembered_by=row.remembered_by,
        created_at=moment(row.created_at),
        times_used=row.times_used,
        used_at=moment(row.used_at) if row.used_at is not None else None,
        corrected_by=row.corrected_by,
        corrected_at=moment(row.corrected_at) if row.corrected_at is not None else None,
    )


def _unknown(memory_id: str) -> NoReturn:
    told = f"there is no memory '{memory_id[:200]}'"
    refuse("unknown_memory", told, "look at the list of memories")


def _withdrawn(row: MemoryRow) -> NoReturn:
    why = {"reopened": "its ticket was opened again", "failed": "its run did not end well"}
    told = f"memory '{row.id}' is not used any more: {why[row.standing]}"
    refuse("memory_withdrawn", told, "remove it, or let the ticket be resolved again")
