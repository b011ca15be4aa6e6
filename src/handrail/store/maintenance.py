"""The store for maintenance: `verify`, `doctor`, archive, backup and restore.

A maintenance store is separate from the engine's store on the same database, so that engines never
wait for a scan of all data. `open_maintenance_store` in `urls.py` opens one.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Literal

from msgspec.structs import asdict

from handrail.store.columns import Row
from handrail.store.database import MaintenanceDatabase
from handrail.store.rows import NOTES_MAX, StoreError, StreamWrite, iso, parse_iso
from handrail.store.store import Store

IRREGULARITIES_MAX = 100
"""Rows per irregularity query."""
STALE_AFTER = timedelta(minutes=5)
"""A clock that expired, or an agent that was silent, so long ago is an irregularity."""
STUCK_AFTER = timedelta(minutes=10)
"""So is a message that was sent so long ago."""
PRUNE_QUERIES = (
    *("prune_transitions", "prune_approvals", "prune_notes", "prune_bodies", "prune_beads"),
    "prune_uses",
)


class Irregularity(Row):
    """An inconsistency in the data. `code` is the name of the query that found it."""

    code: str
    subject: str
    detail: str


class PrunedRun(Row):
    """A finished run at the time of archiving."""

    id: str
    head: bytes
    notes: int


class MaintenanceStore(Store):
    def __init__(self, database: MaintenanceDatabase) -> None:
        super().__init__(database)
        self.display_name = database.display_name
        self.snapshot = database.snapshot
        self.measure_sizes = database.measure_sizes
        self.backup = database.backup
        self._restore = database.restore

    def find_irregularities(
        self, kind: Literal["doctor", "stray"], now: str = ""
    ) -> list[Irregularity]:
        """Run the queries named `doctor_…` or `stray_…`; each returns at most IRREGULARITIES_MAX
        rows. Queries about time need `now`."""
        values: dict[str, object] = {"notes_max": NOTES_MAX}
        if now:
            values["stale_before"] = iso(parse_iso(now) - STALE_AFTER)
            values["stuck_before"] = iso(parse_iso(now) - STUCK_AFTER)
        queries = self.database.queries
        irregularities: list[Irregularity] = []
        for name in queries.sources:
            if name.startswith(f"{kind}_"):
                filters = {used: values.get(used) for used in queries[name].parameters}
                rows = self.database.fetch_scanning(name, **filters)
                irregularities += [
                    Irregularity(name.removeprefix(f"{kind}_"), str(subject), str(detail))
                    for subject, detail in rows[:IRREGULARITIES_MAX]
                ]
        return irregularities

    def list_finished_runs(self, before: str, after: str, limit: int) -> list[str]:
        """List ids of runs that ended before that moment, by id; a page after `after`."""
        return [
            run_id
            for (run_id,) in self.database.fetch_all(
                "finished_runs", before=before, after=after, limit=limit
            )
        ]

    def prune_runs(self, journal_write: StreamWrite, runs: Sequence[PrunedRun], at: str) -> None:
        """Delete the rows and the entry bodies of finished runs, and write this to the journal's
        stream `care`, in one transaction. If a run has changed, raise and change nothing."""
        in_one_order = sorted(runs, key=lambda run: run.id)
        ids = [run.id for run in in_one_order]
        with self.database.transaction() as transaction:
            transaction.execute("settle_memories", run_ids=ids)
            for run in in_one_order:
                if not transaction.execute("prune_execution", **asdict(run)):
                    raise StoreError(
                        f"{self.display_name}: run {run.id} has changed since it was written to "
                        "the archive; archive it again"
                    )
            for query in PRUNE_QUERIES:
                transaction.execute(query, run_ids=ids)
            if not transaction.append(journal_write, at):
                raise StoreError(
                    f"{self.display_name}: another process is archiving; try again later"
                )

    def is_empty(self) -> bool:
        """Return whether nothing was ever stored here."""
        row = self.database.fetch_one("has_data")
        return row is None or not row[0]

    def restore(self, file: Path, now: str, check: Callable[["MaintenanceStore"], None]) -> None:
        """Replace all data by the file's, or change nothing. `check` examines the data before it
        is committed, and raises to refuse it. Live agents and engines stay, and the time since the
        backup counts as an outage."""

        def prepare(database: MaintenanceDatabase, last_alive: str | None) -> None:
            restored = MaintenanceStore(database)
            check(restored)
            if last_alive is not None and last_alive < now:
                restored.engines.add_outage(last_alive, now)

        self._restore(file, prepare)
