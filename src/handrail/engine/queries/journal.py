"""Reads a run's events from the journal, page by page."""

from handrail.engine.commit.projection import decode_events
from handrail.kernel.run.events import RunEvent
from handrail.store.engine_store import EngineStore, StoreError

PAGE_ENTRIES = 1_000


class EventsGoneError(StoreError):
    """Events are missing: their run was archived meanwhile, or they were removed."""


def read_events(store: EngineStore, run_id: str, seq: int) -> list[RunEvent]:
    """Return the events of a run up to `seq`."""
    events: list[RunEvent] = []
    while len(events) < seq:
        entries = store.read_journal(run_id, len(events), PAGE_ENTRIES)
        if not entries or not all(entry.body for entry in entries):
            hint = "`handrail verify` says why"
            raise EventsGoneError(f"of run '{run_id}' only {len(events)} events are there; {hint}")
        for entry in entries:
            events += decode_events(entry.body)
    return events[:seq]
