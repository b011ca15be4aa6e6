"""The event feed: all recorded events in the order of commits, for streams and the audit trail.

A *position* is "N-I": the I-th event of commit N, counted from 1. After "N-0" comes the first event
of commit N, so the end of the database is the beginning of the commit that comes next. Numbers of
commits have no gaps and are given in the order in which commits become visible, on every engine of
a database: a reader that goes on from a position misses nothing and sees nothing twice.

The audit trail is the feed backwards: who did what, and what is open now.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from handrail.engine.environment import StoreAccess
from handrail.engine.maintenance.archive_file import RETENTION_STREAM
from handrail.engine.notifier import ANY_STREAM, ChangeNotifier
from handrail.engine.pagination import check_cursor, check_limit, refuse_cursor
from handrail.engine.queries.runs import RunReader, entry_events
from handrail.store.maintenance import MaintenanceStore
from handrail.store.record import is_record_stream
from handrail.store.rows import StoredEntry
from handrail.store.stats import OpenWorkCount
from handrail.store.store import Store
from handrail.views.event_view import ENGINE_ACTOR, EventView, is_human_act_or_end
from handrail.views.view_types import PAGE_ITEMS_DEFAULT, PAGE_ITEMS_MAX, Page

FeedEvent = tuple[str, EventView]
"""A position, and the event there. A run's has `execution_id`, any other's `stream`."""
FeedPosition = tuple[int, int]
FEED_START: FeedPosition = (0, 0)

SCANNED_ENTRIES_MAX = 2_000
"""Entries that are scanned for one page of people's acts."""
POSITION_DIGITS_MAX = 15

SCANNED_PAGES_MAX = 20
"""Pages of PAGE_ITEMS_MAX events that are scanned for one page of the trail."""
COUNTED_MAX = 100_000
"""Open items that are counted, of each kind."""
SEQ_DIGITS_MAX = 15

EventFilter = Callable[[EventView], bool]


class EventFeed:
    """Reads the events of the whole database, and waits for more. Followers hear what happens; only
    the audit trail also shows what was put on record of rows."""

    def __init__(self, access: StoreAccess, notifier: ChangeNotifier) -> None:
        self._access, self._notifier = access, notifier

    async def read(self, after: str = "", limit: int = PAGE_ITEMS_DEFAULT) -> list[FeedEvent]:
        """Return the next events after a position, of the whole database; "" is before the first.
        Refused: bad_cursor."""
        position, limit = _parse_position(after), check_limit(limit)
        return await self._access.query(lambda store: _read_events(store, position, limit))

    async def wait(self, timeout: float, after: str = "") -> bool:
        """Wait until something may have been committed, here or elsewhere, at most `timeout`
        seconds; False on timeout. `after` is the last position that the caller has seen: if there
        is more already, return at once."""
        self._access.check_open()
        with self._notifier.changes.subscribe(ANY_STREAM) as changed:
            if after and await self._has_more(_parse_position(after)):
                return True
            await asyncio.wait((changed,), timeout=timeout)
            if changed.done():
                changed.result()  # raises if the engine has failed
            return changed.done()

    async def _has_more(self, position: FeedPosition) -> bool:
        n, i = position
        return await self.last_commit() >= max(1, n + 1 if i else n)

    async def last_commit(self) -> int:
        """The number of the last commit; 0 before the first."""
        head = await self._access.call(self._access.store.journal.get_last_commit)
        return head.n if head is not None else 0

    async def position(self) -> str:
        """The end of the feed: later events have not happened yet."""
        return f"{await self.last_commit() + 1}-0"

    async def page(
        self,
        cursor: str = "",
        limit: int = PAGE_ITEMS_DEFAULT,
        *,
        newest_first: bool = True,
        people: bool = False,
    ) -> Page[FeedEvent]:
        """Return a page of the record; with `people` only what people did, and how runs ended. Such
        a page may be short, or empty, and not be the last: go on with its cursor."""
        position, limit = _parse_position(check_cursor(cursor)), check_limit(limit)
        n, i = position
        entries_max = SCANNED_ENTRIES_MAX if people else limit + i
        if newest_first:
            before = (n + 1 if i else n) or None
            entries = await self._access.query(
                lambda store: store.journal.read_feed_backwards(before, entries_max)
            )
            events, offset = _events_before(entries, position), 0
        else:
            entries = await self._access.query(
                lambda store: store.journal.read_feed(max(0, n - 1), entries_max)
            )
            events, offset = _events_after(entries, position), 1
        next_cursor = f"{entries[-1].n + offset}-0" if len(entries) >= entries_max else None
        return _build_page(events, limit, next_cursor, people=people)


def _build_page(
    events: Iterator[FeedEvent], limit: int, after: str | None, *, people: bool
) -> Page[FeedEvent]:
    """Build a page up to the limit; if all events were scanned, the next page begins at `after`."""
    items: list[FeedEvent] = []
    last_position = ""
    for feed_event in events:
        if len(items) == limit:
            return Page(items=tuple(items), next_cursor=last_position)
        last_position = feed_event[0]
        if not people or is_human_act_or_end(feed_event[1]):
            items.append(feed_event)
    return Page(items=tuple(items), next_cursor=after)


def _read_events(store: Store, position: FeedPosition, limit: int) -> list[FeedEvent]:
    events: list[FeedEvent] = []
    while len(events) < limit:  # archived entries have no events, and are skipped
        n, i = position
        entries = store.journal.read_feed(max(0, n - 1), limit + i)
        shown = [entry if is_public(entry) else replace(entry, body="") for entry in entries]
        events += _events_after(shown, position)
        if len(entries) < limit + i:
            break
        position = entries[-1].n + 1, 0
    return events[:limit]


def is_public(entry: StoredEntry) -> bool:
    """Whether followers hear of it: what rows are on record is for the audit trail."""
    return not is_record_stream(entry.stream)


def _parse_position(position: str) -> FeedPosition:
    if not position:
        return FEED_START
    n, _, i = position.partition("-")
    if not all(
        part.isascii() and part.isdigit() and len(part) <= POSITION_DIGITS_MAX for part in (n, i)
    ):
        refuse_cursor(position)
    return int(n), int(i)


def _events_after(entries: Sequence[StoredEntry], after: FeedPosition) -> Iterator[FeedEvent]:
    """The events after a position. Archived events are gone, but keep their numbers."""
    n = i = 0
    for entry in entries:
        n, i = (n, i) if entry.n == n else (entry.n, 0)
        for number, event in enumerate(_decode_entry(entry), i + 1):
            if (n, number) > after:
                yield f"{n}-{number}", event
        i += entry.count


def _events_before(entries: Sequence[StoredEntry], before: FeedPosition) -> Iterator[FeedEvent]:
    """The events before a position, the last first."""
    counts: dict[int, int] = {}
    for entry in entries:
        counts[entry.n] = counts.get(entry.n, 0) + entry.count
    for entry in entries:
        counts[entry.n] -= entry.count
        events = _decode_entry(entry)
        for number in range(counts[entry.n] + len(events), counts[entry.n], -1):
            if before == FEED_START or (entry.n, number) < before:
                yield f"{entry.n}-{number}", events[number - counts[entry.n] - 1]


def _decode_entry(entry: StoredEntry) -> list[EventView]:
    if ":" not in entry.stream and entry.stream != RETENTION_STREAM:  # any other stream has a kind
        return entry_events(entry)
    events: list[dict[str, Any]] = msgspec.json.decode(entry.body) if entry.body else []
    return [
        {"actor": event.get("by") or ENGINE_ACTOR, **event, "stream": entry.stream, "seq": seq}
        for seq, event in enumerate(events, entry.seq - entry.count + 1)
    ]


class AuditTrail:
    """Lists what was recorded, and counts what is open."""

    def __init__(self, access: StoreAccess, feed: EventFeed, reader: RunReader) -> None:
        self._access, self._feed, self._reader = access, feed, reader

    async def trail(
        self,
        cursor: str = "",
        limit: int = PAGE_ITEMS_DEFAULT,
        *,
        execution_id: str | None = None,
        actor: str | None = None,
        people: bool = False,
    ) -> Page[EventView]:
        """List who did what: events in the order of commits, the last first, each with the number
        of its `commit`. Of one run, by one person or agent; with `people` only what people did, and
        how runs ended. A page may be short, or empty, and not be the last: go on with its cursor.
        Refused: bad_cursor, unknown_run."""
        check_cursor(cursor)
        check_limit(limit)

        def matches(event: EventView) -> bool:
            is_by = actor is None or event["actor"] == actor
            return is_by and (not people or is_human_act_or_end(event))

        if execution_id is not None:
            run = await self._reader.state(execution_id)
            before = min(_parse_cursor(cursor), run.seq + 1) if cursor else run.seq + 1
            return await self._access.query(
                lambda store: _trail_of_run(store, run.id, before, limit, matches)
            )
        return await self._trail_of_all(cursor, limit, matches, people=people)

    async def _trail_of_all(
        self, cursor: str, limit: int, matches: EventFilter, *, people: bool
    ) -> Page[EventView]:
        items: list[EventView] = []
        for _ in range(SCANNED_PAGES_MAX):
            page = await self._feed.page(cursor, PAGE_ITEMS_MAX, people=people)
            for position, event in page.items:
                if len(items) == limit:
                    return Page(items=tuple(items), next_cursor=cursor)
                cursor = position
                if matches(event):
                    items.append({"commit": int(position.partition("-")[0]), **event})
            if page.next_cursor is None:
                return Page(items=tuple(items))
            cursor = page.next_cursor
        return Page(items=tuple(items), next_cursor=cursor)

    async def open_counts(self) -> list[OpenWorkCount]:
        """Count what is open now, each kind up to COUNTED_MAX."""
        return await self._access.query(lambda store: store.stats.count_open_work(COUNTED_MAX))

    def open_maintenance(self) -> MaintenanceStore | None:
        """Open the record for a check, read-only; call it on a thread, and close the result. None
        if the database is in memory, where no other connection can read it."""
        return self._access.store.open_maintenance()


def _trail_of_run(
    store: Store, run_id: str, before: int, limit: int, matches: EventFilter
) -> Page[EventView]:
    """The events of a run before `before`, the last first."""
    items: list[EventView] = []
    for _ in range(SCANNED_PAGES_MAX):
        after = max(0, before - 1 - PAGE_ITEMS_MAX)
        for event in _read_window(store, run_id, after, before):
            if len(items) == limit:
                return Page(items=tuple(items), next_cursor=str(before))
            before = event["seq"]
            if matches(event):
                items.append(event)
        before = after + 1
        if after == 0:
            return Page(items=tuple(items))
    return Page(items=tuple(items), next_cursor=str(before))


def _read_window(store: Store, run_id: str, after: int, before: int) -> list[EventView]:
    """The events between `after` and `before`, the last first."""
    return [
        {"commit": entry.n, **event}
        for entry in store.journal.read(run_id, after, before - after)
        for event in entry_events(entry)
        if after < event["seq"] < before
    ][::-1]


def _parse_cursor(cursor: str) -> int:
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) <= SEQ_DIGITS_MAX):
        refuse_cursor(cursor)
    return int(cursor)
