"""The store for maintenance: `verify`, `doctor`, archive, backup and restore.

A maintenance store is separate from the engine's store on the same database, so that engines never
wait for a scan of all data. `open_maintenance_store` in `urls.py` opens one.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Literal

from msgspec.structs import asdict

from handrail.store.beads import FileRow
from handrail.store.budgets import BudgetRow
from handrail.store.columns import Row
from handrail.store.credentials import CredentialRow
from handrail.store.database import MaintenanceDatabase, Transaction
from handrail.store.notifications import AnswerLinkRow, WebhookRow
from handrail.store.record import BEAD_KEPT, BEADS, Change, RecordedTable, record
from handrail.store.rows import (
    NOTES_MAX,
    BeadRow,
    DefinitionRow,
    NoteRow,
    StoreError,
    StreamWrite,
    iso,
    parse_iso,
)
from handrail.store.store import Store
from handrail.store.ticket_memory import MemoryRow

IRREGULARITIES_MAX = 100
"""Rows per irregularity query."""
STALE_AFTER = timedelta(minutes=5)
"""A clock that expired, or an agent that was silent, so long ago is an irregularity."""
STUCK_AFTER = timedelta(minutes=10)
"""So is a message that was sent so long ago."""
PRUNE_QUERIES = (
    *("prune_transitions", "prune_approvals", "prune_notes", "prune_bodies", "prune_uses"),
)


RECORDED_QUERIES: dict[str, tuple[str, type[Row]]] = {
    "credentials": ("recorded_credentials", CredentialRow),
    "workflow_versions": ("recorded_versions", DefinitionRow),
    "budgets": ("recorded_budgets", BudgetRow),
    "beads": ("recorded_beads", BeadRow),
    "bead_files": ("recorded_files", FileRow),
    "webhooks": ("recorded_webhooks", WebhookRow),
    "answer_links": ("recorded_links", AnswerLinkRow),
    "memories": ("recorded_memories", MemoryRow),
}
"""How the rows on record are read, by their keys; notes are read by what they are about."""


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

    def read_recorded(self, table: RecordedTable, after: Sequence[object], limit: int) -> list[Row]:
        """Return a page of the rows of a table, by key."""
        query, row_type = RECORDED_QUERIES[table.name]
        keys = dict(zip(table.key, after, strict=True))
        return [row_type(*row) for row in self.database.fetch_all(query, **keys, limit=limit)]

    def list_kept_notes(self, stream: str) -> list[NoteRow]:
        """Return the notes of a run or a channel, in order."""
        return [NoteRow(*row) for row in self.database.fetch_all("kept_notes", stream=stream)]

    def list_streams_with_notes(self, after: str, limit: int) -> list[str]:
        rows = self.database.fetch_all("streams_with_notes", after=after, limit=limit)
        return [stream for (stream,) in rows]

    def list_wrong_definitions(self) -> list[str]:
        """Return the definitions whose row is not that of their newest version."""
        return [name for (name,) in self.database.fetch_scanning("wrong_definitions")]

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
            bead_ids: set[str] = set()
            for run in in_one_order:
                pruned = transaction.fetch_one("prune_execution", **asdict(run))
                if pruned is None:
                    raise StoreError(
                        f"{self.display_name}: run {run.id} has changed since it was written to "
                        "the archive; archive it again"
                    )
                bead_ids.add(pruned[0])
            for query in PRUNE_QUERIES:
                transaction.execute(query, run_ids=ids)
            deleted = [BeadRow(*row) for row in transaction.fetch_all("prune_beads", run_ids=ids)]
            rows = transaction.fetch_all("beads_left", bead_ids=sorted(bead_ids))
            left = [BeadRow(*row) for row in rows]
            if not transaction.append([journal_write], at):
                raise StoreError(
                    f"{self.display_name}: another process is archiving; try again later"
                )
            record(transaction, at, *_bead_changes(transaction, deleted, left))

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


def _bead_changes(
    transaction: Transaction, deleted: Sequence[BeadRow], left: Sequence[BeadRow]
) -> list[Change]:
    """What to put on record of the beads of archived runs: those on record that are gone, and those
    that stay, because nothing else says any more how they are."""
    names = [BEADS.stream_of(bead) for bead in deleted]
    recorded = {name for (name,) in transaction.fetch_all("pruned_streams", names=names)}
    gone = [bead for bead in deleted if BEADS.stream_of(bead) in recorded]
    return [
        *(Change(table=BEADS, row=row, type="bead_archived", by="", removed=True) for row in gone),
        *(Change(table=BEADS, row=row, type=BEAD_KEPT, by="") for row in left),
    ]
