"""For whoever oversees an engine: who did what, and what is open now."""

from collections.abc import Callable
from typing import Any

import msgspec

from handrail.engine.feed import WithFeed
from handrail.engine.pages import LIMIT, LIMIT_MAX, Page, bad_cursor, checked_cursor, checked_limit
from handrail.kernel.event_shown import ShownEvent, is_act_or_end, shown_event
from handrail.store.office import Office, Standing

PAGES_MAX = 20
"""Pages of LIMIT_MAX events that are looked through for one page of the trail."""
COUNTED_MAX = 100_000
"""Of each kind of what is open so many are counted."""
DIGITS_MAX = 15

Wanted = Callable[[ShownEvent], bool]


class WithOversight(WithFeed):
    """An engine that can be overseen."""

    async def trail(
        self,
        cursor: str = "",
        limit: int = LIMIT,
        *,
        execution_id: str | None = None,
        actor: str | None = None,
        people: bool = False,
    ) -> Page[ShownEvent]:
        """Who did what: events in the order of commits, the last first, each with the number of its
        `commit`. Of one run, by one person or agent; with `people` only what people did, and how
        runs ended. A page may be short, or empty, and not be the last: go on with its cursor.
        Refused: bad_cursor, unknown_run."""
        checked_cursor(cursor)
        checked_limit(limit)

        def wanted(event: ShownEvent) -> bool:
            is_by = actor is None or event["actor"] == actor
            return is_by and (not people or is_act_or_end(event))

        if execution_id is not None:
            run = await self.state(execution_id)
            first = min(_number(cursor), run.seq + 1) if cursor else run.seq + 1
            return await self._slowly(lambda store: _of_run(store, run.id, first, limit, wanted))
        return await self._of_all(cursor, limit, wanted, people=people)

    async def _of_all(
        self, cursor: str, limit: int, wanted: Wanted, *, people: bool
    ) -> Page[ShownEvent]:
        items: list[ShownEvent] = []
        for _ in range(PAGES_MAX):
            page = await self.audit(cursor, LIMIT_MAX, people=people)
            for position, event in page.items:
                if len(items) == limit:
                    return Page(items=tuple(items), next_cursor=cursor)
                cursor = position
                if wanted(event):
                    items.append({"commit": int(position.partition("-")[0]), **event})
            if page.next_cursor is None:
                return Page(items=tuple(items))
            cursor = page.next_cursor
        return Page(items=tuple(items), next_cursor=cursor)

    async def standing(self) -> list[Standing]:
        """What is open now: counted, each kind up to COUNTED_MAX."""
        return await self._slowly(lambda store: store.standing(COUNTED_MAX))


def _of_run(
    store: Office, run_id: str, before: int, limit: int, wanted: Wanted
) -> Page[ShownEvent]:
    """The events of a run before that one, the last first."""
    items: list[ShownEvent] = []
    for _ in range(PAGES_MAX):
        after = max(0, before - 1 - LIMIT_MAX)
        for event in _window(store, run_id, after, before):
            if len(items) == limit:
                return Page(items=tuple(items), next_cursor=str(before))
            before = event["seq"]
            if wanted(event):
                items.append(event)
        before = after + 1
        if after == 0:
            return Page(items=tuple(items))
    return Page(items=tuple(items), next_cursor=str(before))


def _window(store: Office, run_id: str, after: int, before: int) -> list[ShownEvent]:
    """The events between the two, the last first."""
    found: list[ShownEvent] = []
    for entry in store.journal(run_id, after, before - after):
        events: list[dict[str, Any]] = msgspec.json.decode(entry.body) if entry.body else []
        for seq, event in enumerate(events, entry.seq - entry.count + 1):
            if after < seq < before:
                found.append({"commit": entry.n, **shown_event(run_id, seq, event)})
    return found[::-1]


def _number(cursor: str) -> int:
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) <= DIGITS_MAX):
        bad_cursor(cursor)
    return int(cursor)
