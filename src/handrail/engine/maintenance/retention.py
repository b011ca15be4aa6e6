"""Retention of a database: its size, finished runs moved to a file, backup and restore.

An archived run leaves its hashes behind, so that the chain can still be checked, and an event in
the stream "care" with the run's id, its last hash, the file, and who archived it.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

from handrail.engine.audit.row_checks import Findings, RunReplay, read_entries
from handrail.engine.audit.verification import verify
from handrail.engine.commit.run_change import decode_events
from handrail.engine.maintenance.archive_file import (
    RETENTION_STREAM,
    ArchivedRun,
    ArchiveWriter,
    RunArchived,
    row_fields,
)
from handrail.kernel.decision import Value
from handrail.kernel.run.events import Migrated, RunEvent, Started
from handrail.store.atomic_files import write_new_file
from handrail.store.database import BrokenBackupError
from handrail.store.maintenance import MaintenanceStore, PrunedRun
from handrail.store.rows import (
    EMPTY_HEAD,
    CommitRow,
    RunRow,
    StoreError,
    StreamRow,
    StreamWrite,
    entry_hash,
    iso,
    journal_entry,
)

PRUNE_BATCH_RUNS = 200
"""Runs that one transaction prunes: engines wait for it."""
PAGE_RUNS = 500
PAGE_TRANSITIONS = 1_000
APPROVALS_MAX = 10_000_000


class ArchiveSummary(Value):
    """What an archive contains."""

    file: str
    runs: int
    entries: int


def archive(
    store: MaintenanceStore,
    file: Path,
    *,
    by: str,
    now: datetime,
    before: datetime | None = None,
    runs: Sequence[str] | None = None,
) -> ArchiveSummary:
    """Move finished runs to a new file: those named, or all that ended before `before`. The file is
    complete and on disk before anything is removed. Without any run there is no file."""
    run_ids = iter(runs) if runs is not None else _finished_runs(store, before or now)
    first = next(run_ids, None)
    if first is None:
        return ArchiveSummary(file=str(file), runs=0, entries=0)
    archived: list[tuple[ArchivedRun, PrunedRun]] = []
    entry_count = 0
    with write_new_file(file) as part_file:
        writer = ArchiveWriter(part_file, by=by, at=iso(now), compressed=file.name.endswith(".gz"))
        try:
            for run_id in (first, *run_ids):
                run, pruned, run_entries = _write_run(store, writer, run_id)
                archived.append((run, pruned))
                entry_count += run_entries
        finally:
            writer.close()
    for start in range(0, len(archived), PRUNE_BATCH_RUNS):
        batch = archived[start : start + PRUNE_BATCH_RUNS]
        write = _retention_write(store, [run for run, _ in batch], file, by, iso(now))
        store.prune_runs(write, [pruned for _, pruned in batch], iso(now))
    return ArchiveSummary(file=str(file), runs=len(archived), entries=entry_count)


def _finished_runs(store: MaintenanceStore, before: datetime) -> Iterator[str]:
    after = ""
    while page := store.list_finished_runs(iso(before), after, PAGE_RUNS):
        yield from page
        after = page[-1]


def _write_run(
    store: MaintenanceStore, writer: ArchiveWriter, run_id: str
) -> tuple[ArchivedRun, PrunedRun, int]:
    """Write the run with all that belongs to it, after a check against its hashes."""
    stored = store.runs.load([run_id]).get(run_id)
    if stored is None:
        raise StoreError(
            f"{store.display_name}: there is no run {run_id}; `handrail runs` lists them"
        )
    row = stored.row
    if row.status != "ended":
        raise StoreError(
            f"{store.display_name}: run {run_id} is {row.status}; archive it when it has ended"
        )
    _check_unaltered(store, row)
    notes, note_count = store.runs.list_notes(run_id)
    bead = store.beads.get(row.bead_id)
    writer.write_line(
        "run",
        execution=row_fields(row),
        bead=row_fields(bead) if bead is not None else None,
        notes=note_count,
    )
    head, entry_count = EMPTY_HEAD, 0
    for entry in read_entries(store, run_id):
        head = entry_hash(head, run_id, entry.seq, entry.body)
        if head != entry.hash:
            raise _altered_error(
                store, run_id, f"event {entry.seq} is not the one that was written"
            )
        writer.write_line("entry", entry)
        entry_count += 1
        if entry_count == 1 or '"migrated"' in entry.body:
            _write_definitions(store, writer, decode_events(entry.body))
    after = -(2**62)
    while page := store.runs.list_transitions(run_id, after, PAGE_TRANSITIONS):
        writer.write_rows("transition", [transition for _, transition in page])
        after = page[-1][0]
    writer.write_rows("approval", store.approvals.list(execution_id=run_id, limit=APPROVALS_MAX))
    writer.write_rows("note", notes)
    writer.runs += 1
    return (
        ArchivedRun(id=run_id, seq=row.seq, head=row.head),
        PrunedRun(id=run_id, head=row.head, notes=note_count),
        entry_count,
    )


def _write_definitions(
    store: MaintenanceStore, writer: ArchiveWriter, events: Sequence[RunEvent]
) -> None:
    """Write the versions that the run was on, from these events on."""
    for event in events:
        if isinstance(event, Started | Migrated):
            name, version = event.definition_id, event.version
            row = (
                store.definitions.get(name, version) if writer.add_version(name, version) else None
            )
            if row is not None:
                writer.write_line("definition", row)


def _check_unaltered(store: MaintenanceStore, row: RunRow) -> None:
    findings = Findings()
    RunReplay(store, findings, row).check()
    if findings.items:
        raise _altered_error(store, row.id, findings.items[0].message)


def _altered_error(store: MaintenanceStore, run_id: str, reason: str) -> StoreError:
    return StoreError(
        f"{store.display_name}: run {run_id} does not pass its check ({reason}); "
        "nothing was archived; see `handrail verify`"
    )


def _retention_write(
    store: MaintenanceStore, runs: Sequence[ArchivedRun], file: Path, by: str, at: str
) -> StreamWrite:
    """The write that records the archiving."""
    before = store.journal.load_stream(RETENTION_STREAM)
    seq = (before.seq if before is not None else 0) + len(runs)
    head = before.head if before is not None else EMPTY_HEAD
    events = [
        RunArchived(
            execution_id=run.id,
            seq=run.seq,
            head=run.head.hex(),
            file=str(file.absolute()),
            by=by,
            at=at,
        )
        for run in runs
    ]
    entry = journal_entry(RETENTION_STREAM, seq, head, events)
    return StreamWrite(
        expected_head=head,
        entry=entry,
        row=StreamRow(name=RETENTION_STREAM, seq=seq, head=entry.hash),
    )


def backup(store: MaintenanceStore, file: Path) -> CommitRow | None:
    """Copy everything to a new file while engines go on; return the head that the copy ends
    with."""
    with store.snapshot():
        head = store.journal.get_last_commit()
        store.backup(file)
    return head


def restore(store: MaintenanceStore, file: Path, now: datetime) -> None:
    """Restore everything as of the backup. The file is checked first, and nothing is changed if it
    is not fit."""

    def check(records: MaintenanceStore) -> None:
        verification = verify(records)
        if not verification.unaltered:
            raise BrokenBackupError(
                f"{file} does not pass its check ({verification.findings[0].message}); "
                "nothing was restored; name another backup"
            )

    store.restore(file, iso(now), check)
