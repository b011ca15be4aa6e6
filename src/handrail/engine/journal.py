"""A run's events, read back from the journal page by page."""

from handrail.engine.project import decode_events
from handrail.kernel.run.events import RunEvent
from handrail.store.port import Store, StoreError

PAGE = 1_000
"""Entries."""


class EventsGone(StoreError):  # noqa: N818 - where they are is on record
    """Events that are there no more: their run was archived meanwhile, or somebody took them."""


def read_events(store: Store, run_id: str, seq: int) -> list[RunEvent]:
    """The events of a run up to that one."""
    found: list[RunEvent] = []
    while len(found) < seq:
        entries = store.journal(run_id, len(found), PAGE)
        if not entries or not all(entry.body for entry in entries):
            hint = "`handrail verify` says why"
            raise EventsGone(f"of run '{run_id}' only {len(found)} events are there; {hint}")
        for entry in entries:
            found += decode_events(entry.body)
    return found[:seq]
