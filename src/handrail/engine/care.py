"""Care of a database: what it holds, finished runs moved to a file, copies, and their way back.

An archived run leaves its hashes behind, so that the chain can still be checked, and an event in
the stream "care" that says which run it was, with its last hash, where it went, and by whom.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

from handrail.engine.archive import ArchivedRun, Writer, plain
from handrail.engine.audit import CARE, Archived, verify
from handrail.engine.audit_rows import check_run, entries
from handrail.engine.findings import Findings
from handrail.engine.project import decode_events, encode
from handrail.kernel.decision import Value
from handrail.kernel.run.events import Migrated, RunEvent, Started
from handrail.store.chain import START, entry_hash
from handrail.store.files import new_file
from handrail.store.port import Commit, Entry, Execution, StoreError, Stream, Write, iso
from handrail.store.records import BrokenBackup, Pruned, Records

PRUNED_AT_ONCE = 200
"""Runs that one transaction prunes: engines wait for it."""
RUNS_A_PAGE = 500
TRANSITIONS_A_PAGE = 1_000
APPROVALS_MAX = 10_000_000


class Kept(Value):
    """What an archive has taken in."""

    file: str
    runs: int
    entries: int


def archive(
    store: Records,
    file: Path,
    *,
    by: str,
    now: datetime,
    before: datetime | None = None,
    runs: Sequence[str] | None = None,
) -> Kept:
    """Moves finished runs to a new file: those named, or all that ended before that moment. The
    file is complete and on disk before anything is removed. Without any run there is no file."""
    wanted = iter(runs) if runs is not None else _finished(store, before or now)
    first = next(wanted, None)
    if first is None:
        return Kept(file=str(file), runs=0, entries=0)
    done: list[tuple[ArchivedRun, Pruned]] = []
    counted = 0
    with new_file(file) as part:
        writer = Writer(part, by=by, at=iso(now), compressed=file.name.endswith(".gz"))
        try:
            for run_id in (first, *wanted):
                run, pruned, entries_of = _write(store, writer, run_id)
                done.append((run, pruned))
                counted += entries_of
        finally:
            writer.close()
    for start in range(0, len(done), PRUNED_AT_ONCE):
        part_of = done[start : start + PRUNED_AT_ONCE]
        care = _care(store, [run for run, _ in part_of], file, by, iso(now))
        store.prune(care, [pruned for _, pruned in part_of], iso(now))
    return Kept(file=str(file), runs=len(done), entries=counted)


def _finished(store: Records, before: datetime) -> Iterator[str]:
    after = ""
    while page := store.finished(iso(before), after, RUNS_A_PAGE):
        yield from page
        after = page[-1]


def _write(store: Records, writer: Writer, run_id: str) -> tuple[ArchivedRun, Pruned, int]:
    """The run with all that belongs to it, after a look whether it is what was written."""
    found = store.load([run_id]).get(run_id)
    if found is None:
        raise StoreError(f"{store.where}: there is no run {run_id}; `handrail runs` lists them")
    row = found.subject
    if row.status != "ended":
        raise StoreError(
            f"{store.where}: run {run_id} is {row.status}; archive it when it has ended"
        )
    _check(store, row)
    notes, noted = store.notes(run_id)
    bead = store.bead(row.bead_id)
    shown = plain(bead) if bead is not None else None
    writer.line("run", execution=plain(row), bead=shown, notes=noted)
    head, counted = START, 0
    for entry in entries(store, run_id):
        head = entry_hash(head, run_id, entry.seq, entry.body)
        if head != entry.hash:
            raise _altered(store, run_id, f"event {entry.seq} is not the one that was written")
        writer.line("entry", entry)
        counted += 1
        if counted == 1 or '"migrated"' in entry.body:
            _definitions(store, writer, decode_events(entry.body))
    after = -(2**62)
    while page := store.transition_rows(run_id, after, TRANSITIONS_A_PAGE):
        writer.lines("transition", [one for _, one in page])
        after = page[-1][0]
    writer.lines("approval", store.approvals(execution_id=run_id, limit=APPROVALS_MAX))
    writer.lines("note", notes)
    writer.runs += 1
    run = ArchivedRun(id=run_id, seq=row.seq, head=row.head)
    return run, Pruned(id=run_id, head=row.head, notes=noted), counted


def _definitions(store: Records, writer: Writer, events: Sequence[RunEvent]) -> None:
    """The versions that the run was on from here."""
    for event in events:
        if isinstance(event, Started | Migrated):
            name, version = event.definition_id, event.version
            row = store.definition(name, version) if writer.wants(name, version) else None
            if row is not None:
                writer.line("definition", row)


def _check(store: Records, row: Execution) -> None:
    found = Findings()
    check_run(store, found, row)
    if found.kept:
        raise _altered(store, row.id, found.kept[0].message)


def _altered(store: Records, run_id: str, why: str) -> StoreError:
    told = f"run {run_id} does not pass its check ({why})"
    return StoreError(f"{store.where}: {told}; nothing was archived; see `handrail verify`")


def _care(store: Records, runs: Sequence[ArchivedRun], file: Path, by: str, at: str) -> Write:
    """The write that tells it."""
    before = store.load_stream(CARE)
    seq = (before.seq if before is not None else 0) + len(runs)
    head = before.head if before is not None else START
    events = [
        Archived(
            execution_id=run.id,
            seq=run.seq,
            head=run.head.hex(),
            file=str(file.absolute()),
            by=by,
            at=at,
        )
        for run in runs
    ]
    body = encode(events).decode()
    new = entry_hash(head, CARE, seq, body)
    entry = Entry(stream=CARE, seq=seq, count=len(runs), body=body, hash=new)
    return Write(expected=head, entry=entry, subject=Stream(name=CARE, seq=seq, head=new))


def backup(store: Records, file: Path) -> Commit | None:
    """Everything in a new file, while engines go on; the head that it ends with."""
    with store.reading():
        head = store.head()
        store.backup(file)
    return head


def restore(store: Records, file: Path, now: datetime) -> None:
    """Everything becomes as it was when the file was written. The file is checked first, and
    nothing is changed if it is not fit."""

    def check(records: Records) -> None:
        checked = verify(records)
        if not checked.unaltered:
            told = f"{file} does not pass its check ({checked.findings[0].message})"
            raise BrokenBackup(f"{told}; nothing was restored; name another backup")

    store.restore(file, iso(now), check)
