"""Reads a run's events from the journal, page by page."""

from handrail.engine.commit.projection import decode_events
from handrail.engine.errors import EventsGoneError
from handrail.kernel.run.events import RunEvent
from handrail.store.store import Store

PAGE_ENTRIES = 1_000


def read_events(store: Store, run_id: str, seq: int) -> list[RunEvent]:
    """Return the events of a run up to `seq`."""
    events: list[RunEvent] = []
    while len(events) < seq:
        entries = store.journal.read(run_id, len(events), PAGE_ENTRIES)
        if not entries or not all(entry.body for entry in entries):
            hint = "`handrail verify` says why"
            raise EventsGoneError(f"of run '{run_id}' only {len(events)} events are there; {hint}")
        for entry in entries:
            events += decode_events(entry.body)
    return events[:seq]
