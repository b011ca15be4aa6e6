"""The feed: everything that is recorded, in the order of commits, for streams and for the audit.

A *position* is "N-I": the I-th event of commit N, counted from 1. After "N-0" comes the first event
of commit N, so the end of the database is the beginning of the commit that comes next. Numbers of
commits have no gaps and are given in the order in which commits become visible, on every engine of
a database: whoever goes on from a position misses nothing and sees nothing twice.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from handrail.engine.audit import CARE
from handrail.engine.core import ANYTHING, Core
from handrail.engine.pages import LIMIT, Page, bad_cursor, checked_cursor, checked_limit
from handrail.kernel.event_shown import ENGINE, ShownEvent, is_act_or_end, shown_event
from handrail.store.office import Office
from handrail.store.port import Commit, Recorded

Told = tuple[str, ShownEvent]
"""A position, and the event there. A run's has `execution_id`, any other's `stream`."""
Place = tuple[int, int]
START: Place = (0, 0)

SCANNED_MAX = 2_000
"""Entries that are looked through for one page of what people did."""
DIGITS_MAX = 15


class WithFeed(Core):
    """An engine whose record can be followed."""

    async def feed(self, after: str = "", limit: int = LIMIT) -> list[Told]:
        """The next events after that position, of the whole database; "" is before the first.
        Refused: bad_cursor."""
        place, limit = _place(after), checked_limit(limit)
        return await self._slowly(lambda store: _read(store, place, limit))

    async def feed_changed(self, timeout: float, after: str = "") -> bool:
        """Waits until something may have been committed, here or elsewhere, at most so many
        seconds; False if it waited in vain. `after` is the position up to which everything was
        seen: if there is more already, it does not wait."""
        self._check()
        changed = self._changes.listen(ANYTHING)
        try:
            if after and await self._is_behind(_place(after)):
                return True
            await asyncio.wait((changed,), timeout=timeout)
            if changed.done():
                changed.result()  # raises if the engine has failed
            return changed.done()
        finally:
            self._changes.forget(ANYTHING, changed)

    async def _is_behind(self, place: Place) -> bool:
        head: Commit | None = await self._io(self.store.head)
        n, i = place
        return head is not None and head.n >= (n + 1 if i else n)

    async def position(self) -> str:
        """The end: what comes after it has not happened yet."""
        head: Commit | None = await self._io(self.store.head)
        return f"{head.n + 1 if head is not None else 1}-0"

    async def audit(
        self,
        cursor: str = "",
        limit: int = LIMIT,
        *,
        newest_first: bool = True,
        people: bool = False,
    ) -> Page[Told]:
        """The record in pages; with `people` only what people did, and how runs ended. Such a page
        may be short, or empty, and not be the last: go on with its cursor."""
        place, limit = _place(checked_cursor(cursor)), checked_limit(limit)
        n, i = place
        most = SCANNED_MAX if people else limit + i
        if newest_first:
            before = (n + 1 if i else n) or None
            entries = await self._slowly(lambda store: store.back(before, most))
            told, rest = _told_back(entries, place), 0
        else:
            entries = await self._slowly(lambda store: store.feed(max(0, n - 1), most))
            told, rest = _told(entries, place), 1
        after = f"{entries[-1].n + rest}-0" if len(entries) >= most else None
        return _page(told, limit, after, people=people)


def _page(told: Iterator[Told], limit: int, after: str | None, *, people: bool) -> Page[Told]:
    """Up to the limit; if all of it was looked through, the next page begins at `after`."""
    items: list[Told] = []
    seen = ""
    for one in told:
        if len(items) == limit:
            return Page(items=tuple(items), next_cursor=seen)
        seen = one[0]
        if not people or is_act_or_end(one[1]):
            items.append(one)
    return Page(items=tuple(items), next_cursor=after)


def _read(store: Office, place: Place, limit: int) -> list[Told]:
    found: list[Told] = []
    while len(found) < limit:  # what was archived says nothing, and is passed over
        n, i = place
        entries = store.feed(max(0, n - 1), limit + i)
        found += _told(entries, place)
        if len(entries) < limit + i:
            break
        place = entries[-1].n + 1, 0
    return found[:limit]


def _place(position: str) -> Place:
    if not position:
        return START
    n, _, i = position.partition("-")
    if not all(one.isascii() and one.isdigit() and len(one) <= DIGITS_MAX for one in (n, i)):
        bad_cursor(position)
    return int(n), int(i)


def _told(entries: Sequence[Recorded], after: Place) -> Iterator[Told]:
    """The events behind that place. What was archived is gone, but keeps its place."""
    n = i = 0
    for entry in entries:
        n, i = (n, i) if entry.n == n else (entry.n, 0)
        for number, event in enumerate(_events(entry), i + 1):
            if (n, number) > after:
                yield f"{n}-{number}", event
        i += entry.count


def _told_back(entries: Sequence[Recorded], before: Place) -> Iterator[Told]:
    """The same, the last first."""
    counts: dict[int, int] = {}
    for entry in entries:
        counts[entry.n] = counts.get(entry.n, 0) + entry.count
    for entry in entries:
        counts[entry.n] -= entry.count
        events = _events(entry)
        for number in range(counts[entry.n] + len(events), counts[entry.n], -1):
            if before == START or (entry.n, number) < before:
                yield f"{entry.n}-{number}", events[number - counts[entry.n] - 1]


def _events(entry: Recorded) -> list[ShownEvent]:
    events: list[dict[str, Any]] = msgspec.json.decode(entry.body) if entry.body else []
    first = entry.seq - entry.count + 1
    if _is_run(entry.stream):
        return [shown_event(entry.stream, seq, event) for seq, event in enumerate(events, first)]
    return [
        {"actor": event.get("by") or ENGINE, **event, "stream": entry.stream, "seq": seq}
        for seq, event in enumerate(events, first)
    ]


def _is_run(stream: str) -> bool:
    """Any other stream has a kind before its name, or is the care of the database."""
    return ":" not in stream and stream != CARE
