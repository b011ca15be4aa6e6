"""The audit trail: who did what, and what is open now."""

from collections.abc import Callable
from typing import Any

import msgspec

from handrail.engine.environment import StoreAccess
from handrail.engine.pagination import check_cursor, check_limit, refuse_cursor
from handrail.engine.queries.event_feed import EventFeed
from handrail.engine.queries.runs import RunReader
from handrail.store.maintenance import MaintenanceStore
from handrail.store.stats import OpenWorkCount
from handrail.store.store import Store
from handrail.views.event_view import EventView, event_view, is_human_act_or_end
from handrail.views.view_types import PAGE_ITEMS_DEFAULT, PAGE_ITEMS_MAX, Page

SCANNED_PAGES_MAX = 20
"""Pages of PAGE_ITEMS_MAX events that are scanned for one page of the trail."""
COUNTED_MAX = 100_000
"""Open items that are counted, of each kind."""
SEQ_DIGITS_MAX = 15

EventFilter = Callable[[EventView], bool]


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
    events_shown: list[EventView] = []
    for entry in store.journal.read(run_id, after, before - after):
        events: list[dict[str, Any]] = msgspec.json.decode(entry.body) if entry.body else []
        for seq, event in enumerate(events, entry.seq - entry.count + 1):
            if after < seq < before:
                events_shown.append({"commit": entry.n, **event_view(run_id, seq, event)})
    return events_shown[::-1]


def _parse_cursor(cursor: str) -> int:
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) <= SEQ_DIGITS_MAX):
        refuse_cursor(cursor)
    return int(cursor)
