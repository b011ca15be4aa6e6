"""Archive, backup and restore: nothing is lost on the way, and the record stays what it was."""

import asyncio
import gzip
import json
import sqlite3
import zipfile
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path

import psycopg
import pytest
from tests.engine.engines import (
    PATIENCE,
    ROLE,
    manual_engine,
    refusal_code,
    register_worker,
    run_async,
)
from tests.engine.sample_database import SampleDatabase, fill_database

from handrail.engine.audit.doctor import check_database
from handrail.engine.audit.verification import verify
from handrail.engine.maintenance import retention
from handrail.engine.maintenance.archive_file import check_archive
from handrail.kernel.run import commands as c
from handrail.kernel.run.state import Person
from handrail.store.database import BrokenBackupError
from handrail.store.maintenance import MaintenanceStore
from handrail.store.rows import NoteRow, StoreError, iso
from handrail.store.urls import open_maintenance_store
from handrail.testing.clock import NOON, ManualClock
from handrail.testing.postgres import PostgresServer

pytest_plugins = ["tests.fixtures_postgres", "tests.engine.fixtures_sample_database"]

NOW = NOON + timedelta(days=2, seconds=2)
ENDED = ("expired", "ended", "revised", "closed")


def archived(
    store: MaintenanceStore, file: Path, *, now: datetime = NOW, **wanted
) -> retention.ArchiveSummary:
    return retention.archive(store, file, by="ana", now=now, **wanted)


def lines(file: Path) -> list[dict]:
    raw = file.read_bytes()
    text = gzip.decompress(raw) if file.suffix == ".gz" else raw
    return [json.loads(line) for line in text.splitlines()]


def is_well(store: MaintenanceStore) -> bool:
    return verify(store).findings == () and check_database(store, NOW) == []


# Archive


@pytest.mark.parametrize("name", ["old.jsonl", "old.jsonl.gz"])
def test_finished_runs_move_to_a_file_and_the_record_stays_true(
    shared_url: str, clock: ManualClock, tmp_path: Path, name: str
):
    runs = run_async(fill_database(shared_url, clock))
    file = tmp_path / name
    with closing(open_maintenance_store(shared_url)) as store:
        before = verify(store)
        bodies = {run: store.journal.read(runs[run]) for run in ENDED}
        kept = archived(store, file)
        assert kept.runs == len(ENDED)
        after = verify(store, before.head, file)
        assert after.findings == ()
        assert (after.runs, after.archived) == (before.runs - len(ENDED), len(ENDED))
        assert (after.commits, after.entries) == (before.commits + 1, before.entries + 1)
        assert check_database(store, clock.now()) == []
        for run in ENDED:
            assert store.runs.load([runs[run]]) == {}
            assert store.runs.list_transitions(runs[run]) == []
            assert store.approvals.list(execution_id=runs[run]) == []
            assert store.beads.get(f"b-{run}") is None
            assert {one.body for one in store.journal.read(runs[run])} == {""}
        written = lines(file)
        assert written[0] | {"at": ""} == {"type": "archive", "format": 1, "by": "ana", "at": ""}
        assert written[-1] == {"type": "end", "runs": len(ENDED)}
        for run in ENDED:
            events = [one for one in written if one.get("stream") == runs[run]]
            assert [one["body"] for one in events] == [one.body for one in bodies[run]]
        kinds = [one["type"] for one in written]
        assert kinds.count("definition") == 1
        assert kinds.count("approval") == 5
        assert kinds.count("note") == 1
        ((care_entry),) = store.journal.read("care")
        event = json.loads(care_entry.body)[0]
        assert (event["type"], event["by"], event["file"]) == ("archived", "ana", str(file))


def test_what_ended_later_stays(sample_database: SampleDatabase, tmp_path: Path):
    with closing(sample_database.records(read_only=False)) as store:
        assert archived(store, tmp_path / "a", before=NOON + timedelta(days=1)).runs == 0
        assert not (tmp_path / "a").exists()
        assert archived(store, tmp_path / "b", before=NOON + timedelta(days=2)).runs == 0
        assert archived(store, tmp_path / "c", runs=[sample_database.runs["closed"]]).runs == 1
        assert archived(store, tmp_path / "d").runs == len(ENDED) - 1
        assert archived(store, tmp_path / "e").runs == 0
        done = verify(store)
        assert (done.findings, done.archived) == ((), len(ENDED))
        assert [run.id for run in check_archive(tmp_path / "c")] == [sample_database.runs["closed"]]


def test_engines_go_on_while_runs_are_archived(sample_database: SampleDatabase, tmp_path: Path):
    clock = ManualClock(NOW)

    async def play():
        async with manual_engine(sample_database.url, clock) as engine:
            coder = await register_worker(engine, ROLE, name="another")
            first = await engine.claims.claim(coder.name, wait=PATIENCE)
            with closing(sample_database.records(read_only=False)) as store:
                archived(store, tmp_path / "a")
            assert first is not None
            await coder.report(first)
            assert (
                await refusal_code(engine.run(sample_database.runs["ended"]).state())
                == "unknown_run"
            )
            closing_it = c.Close(by=Person(name="ana"), reason="late")
            late = engine.runs.command(sample_database.runs["ended"], closing_it)
            assert await refusal_code(late) == "unknown_run"

    run_async(play())
    with closing(sample_database.records()) as store:
        assert verify(store).findings == ()


def test_a_run_that_goes_on_or_is_unknown_is_not_archived(
    sample_database: SampleDatabase, tmp_path: Path
):
    with closing(sample_database.records(read_only=False)) as store:
        for run, why in (
            (sample_database.runs["waiting"], "is waiting; archive"),
            ("x", "no run x"),
        ):
            with pytest.raises(StoreError, match=why):
                archived(store, tmp_path / "a", runs=[run])
        assert list(tmp_path.glob(".*")) == []
        assert not (tmp_path / "a").exists()
        assert is_well(store)


def test_a_run_that_was_tampered_with_is_not_archived(
    sample_database: SampleDatabase, tmp_path: Path
):
    sample_database.sql(
        "UPDATE workflow_transitions SET actor = 'eve' WHERE execution_id = ?",
        sample_database.runs["ended"],
    )
    with closing(sample_database.records(read_only=False)) as store:
        with pytest.raises(StoreError, match="does not pass its check"):
            archived(store, tmp_path / "a")
        assert verify(store).archived == 0
        assert not (tmp_path / "a").exists()


def test_a_run_that_got_a_note_meanwhile_is_not_removed(
    sample_database: SampleDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The file lacks the note; the run stays, and with it all others of that transaction."""
    run = sample_database.runs["ended"]
    with closing(sample_database.records(read_only=False)) as store:
        prune = store.prune_runs

        def late(*values):
            store.runs.add_note(
                NoteRow(execution_id=run, at=iso(NOW), actor="x", code="late", body="{}")
            )
            prune(*values)

        monkeypatch.setattr(store, "prune_runs", late)
        with pytest.raises(StoreError, match=f"{run} has changed since"):
            archived(store, tmp_path / "a")
        monkeypatch.undo()
        assert is_well(store)
        assert verify(store).archived == 0
        assert archived(store, tmp_path / "b").runs == len(ENDED)
        assert is_well(store)


def test_nothing_is_removed_before_the_file_is_there(
    sample_database: SampleDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    file = tmp_path / "a"
    with closing(sample_database.records(read_only=False)) as store:
        prune = store.prune_runs

        def look(*values):
            assert len(list(check_archive(file))) == len(ENDED)
            prune(*values)

        monkeypatch.setattr(store, "prune_runs", look)
        monkeypatch.setattr("handrail.engine.maintenance.retention.PRUNE_BATCH_RUNS", 3)
        assert archived(store, file).runs == len(ENDED)
        assert is_well(store)
        assert len(store.journal.read("care")) == 2


def test_an_archive_cannot_replace_a_file(sample_database: SampleDatabase, tmp_path: Path):
    (tmp_path / "a").write_text("mine")
    with closing(sample_database.records(read_only=False)) as store:
        for file in ("a", "no/b"):
            with pytest.raises(StoreError, match="name a"):
                archived(store, tmp_path / file)
        assert verify(store).archived == 0
    assert (tmp_path / "a").read_text() == "mine"


@pytest.mark.requirement("L16")
def test_an_archive_that_was_changed_is_found(sample_database: SampleDatabase, tmp_path: Path):
    file = tmp_path / "a.jsonl"
    with closing(sample_database.records(read_only=False)) as store:
        archived(store, file)
        whole = file.read_bytes()
        rows = whole.splitlines(keepends=True)
        without = [b"".join(rows[:n] + rows[n + 1 :]) for n in range(len(rows))]
        entries = [n for n, row in enumerate(rows) if b'"type":"entry"' in row]
        wrong = [without[n] for n in (0, len(rows) - 1, *entries)]
        wrong += [
            whole.replace(b"not needed", b"not wanted"),
            whole[:-200],
            b"",
            b"{",
            b"\x1f\x8bx",
        ]
        for text in wrong:
            file.write_bytes(text)
            assert [one.code for one in verify(store, archive=file).findings] == ["archive_changed"]
        file.unlink()
        assert [one.code for one in verify(store, archive=file).findings] == ["archive_changed"]


@pytest.mark.requirement("L16")
def test_what_was_archived_cannot_be_forged(sample_database: SampleDatabase, tmp_path: Path):
    with closing(sample_database.records(read_only=False)) as store:
        archived(store, tmp_path / "a", runs=[sample_database.runs["closed"]])
        (entry,) = store.journal.read("care")
        forged = entry.body.replace(sample_database.runs["closed"], sample_database.runs["ended"])
        sample_database.sql("UPDATE journal SET body = ? WHERE stream = 'care'", forged)
        codes = {(one.code, one.stream) for one in verify(store).findings}
        assert ("entry_changed", "care") in codes
        assert ("body_missing", sample_database.runs["closed"]) in codes
        sample_database.sql("UPDATE journal SET body = '[{}]' WHERE stream = 'care'")
        assert "unreadable" in {one.code for one in verify(store).findings}
        sample_database.sql("UPDATE journal SET body = ? WHERE stream = 'care'", entry.body)
        assert verify(store).unaltered
        sample_database.sql(
            "UPDATE journal SET body = '[]' WHERE stream = ? AND seq = 8",
            sample_database.runs["closed"],
        )
        assert "entry_changed" in {one.code for one in verify(store).findings}


def test_a_bead_with_another_run_keeps_its_row(sample_database: SampleDatabase, tmp_path: Path):
    clock = ManualClock(NOW)

    async def again() -> str:
        async with manual_engine(sample_database.url, clock) as engine:
            return (await engine.start("asks", bead_id="b-closed")).id

    second = run_async(again())
    with closing(sample_database.records(read_only=False)) as store:
        archived(store, tmp_path / "a")
        bead = store.beads.get("b-closed")
        assert bead is not None
        assert bead.execution_id == second
        assert is_well(store)


# Backup and restore


def test_a_backup_has_everything_and_can_be_restored(
    shared_url: str, clock: ManualClock, tmp_path: Path
):
    runs = run_async(fill_database(shared_url, clock))
    file = tmp_path / "backup"
    with closing(open_maintenance_store(shared_url)) as store:
        before = verify(store)
        head = retention.backup(store, file)
        assert head is not None
        assert head.hash.hex() == before.head
        archived(store, tmp_path / "gone", now=clock.now())
        assert verify(store).archived == len(ENDED)
        clock.advance(60)
        retention.restore(store, file, clock.now())
        assert verify(store) == before
        assert check_database(store, clock.now()) == []
        assert set(runs.values()) == {row.id for row in store.runs.list_by_id()}
        assert store.engines.list_outages("2000-01-01T00:00:00.000000Z")[-1][1] == iso(clock.now())
        assert len(store.definitions.list("", 100)) == 3
        assert store.runs.list_notes(runs["revised"])[1] == 1
        bead = store.beads.get("b-ended")
        assert bead is not None
    assert list(tmp_path.glob(".*")) == []

    async def go_on():
        async with manual_engine(shared_url, clock) as engine:
            coder = await register_worker(engine, ROLE, name="another")
            dispatch = await engine.claims.claim(coder.name, wait=PATIENCE)
            assert dispatch is not None
            await coder.report(dispatch)

    run_async(go_on())
    with closing(open_maintenance_store(shared_url)) as store:
        assert verify(store).findings == ()
        assert verify(store).commits > before.commits


def test_a_backup_of_a_live_database_is_of_one_moment(
    sample_database: SampleDatabase, tmp_path: Path
):
    clock = ManualClock(NOW)

    async def play():
        async with manual_engine(sample_database.url, clock) as engine:
            handles = [engine.start("works", title=str(n)) for n in range(20)]
            starting = asyncio.gather(*handles)
            for n in range(5):
                with closing(sample_database.records()) as store:
                    head = retention.backup(store, tmp_path / f"b{n}")
                    assert head is not None
                with closing(
                    open_maintenance_store(f"sqlite:///{tmp_path / f'b{n}'}", read_only=True)
                ) as copy:
                    done = verify(copy, head.hash.hex())
                    assert done.unaltered
                    assert done.head == head.hash.hex()
                await asyncio.sleep(0)
            await starting

    run_async(play())


def test_a_running_engine_goes_on_from_what_was_restored(
    shared_url: str, clock: ManualClock, tmp_path: Path
):
    """What it had in memory of a run that went on since loses; it loads, and decides anew."""
    run_async(fill_database(shared_url, clock))

    async def play():
        async with manual_engine(shared_url, clock) as engine:
            engine.add_agent(lambda d: "never asked", "nobody", name="function")
            with closing(open_maintenance_store(shared_url)) as store:
                retention.backup(store, tmp_path / "b")
                coder = await register_worker(engine, ROLE, name="another")
                dispatch = await engine.claims.claim(coder.name, wait=PATIENCE)
                new = await engine.start("works", title="after the backup")
                assert dispatch is not None
                retention.restore(store, tmp_path / "b", clock.now())
                there = {one.id.partition("@")[0] for one in store.agents.list()}
                assert there >= {"function", "another"}
                assert engine.id in store.engines.list()
            assert await refusal_code(coder.report(dispatch)) == "not_claimed"
            assert await refusal_code(engine.run(new.id).state()) == "unknown_run"
            again = await engine.claims.claim(coder.name, wait=PATIENCE)
            assert again is not None
            assert again.run.id == dispatch.run.id
            await coder.report(again)
            await engine.tick()

    run_async(play())
    with closing(open_maintenance_store(shared_url)) as store:
        assert verify(store).findings == ()


def test_a_restore_makes_a_new_database(sample_database: SampleDatabase, tmp_path: Path):
    with closing(sample_database.records()) as store:
        retention.backup(store, tmp_path / "b")
    with closing(open_maintenance_store(f"sqlite:///{tmp_path / 'new.db'}")) as store:
        assert store.is_empty()
        retention.restore(store, tmp_path / "b", NOW)
        assert not store.is_empty()
        assert is_well(store)


def broken_backups(file: Path, sample_database: SampleDatabase) -> dict[str, str]:
    """What is wrong with it -> what is said."""
    with closing(sample_database.records()) as store:
        retention.backup(store, file)
    whole = file.read_bytes()

    def changed(name: str, *statements: str) -> str:
        path = file.with_name(name)
        path.write_bytes(whole)
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            for statement in statements:
                db.execute(statement)
        return name

    cut, text = file.with_name("cut"), file.with_name("text")
    cut.write_bytes(whole[: len(whole) // 2])
    text.write_text("no database " * 100)
    return {
        "missing": "there is no such file",
        changed("theirs", "PRAGMA application_id = 7"): "not a backup of a Handrail database",
        changed("newer", "PRAGMA user_version = 99"): "written by a newer Handrail",
        changed("forged", "UPDATE journal SET body = '[]' WHERE id = 3"): "not pass its check",
        changed("half", "DELETE FROM workflow_executions"): "does not pass its check",
        "cut": "damaged|malformed|not a backup",
        "text": "not a backup of a Handrail database",
        ".": "there is no such file",
    }


def test_a_backup_that_is_not_fit_changes_nothing(sample_database: SampleDatabase, tmp_path: Path):
    files = broken_backups(tmp_path / "good", sample_database)
    with closing(sample_database.records(read_only=False)) as store:
        before = verify(store)
        for name, why in files.items():
            with pytest.raises(BrokenBackupError, match=why):
                retention.restore(store, tmp_path / name, NOW)
            assert verify(store) == before
    assert not [path for path in tmp_path.glob(".*") if "restore" in path.name]


def test_a_database_in_use_is_no_backup(sample_database: SampleDatabase, tmp_path: Path):
    with closing(open_maintenance_store(f"sqlite:///{tmp_path / 'other.db'}")) as other:
        other.engines.heartbeat("e", iso(NOW))
        with (
            closing(sample_database.records(read_only=False)) as store,
            pytest.raises(BrokenBackupError, match="a database in use; copy it with"),
        ):
            retention.restore(store, tmp_path / "other.db", NOW)


def test_a_backup_is_never_written_over(sample_database: SampleDatabase, tmp_path: Path):
    (tmp_path / "b").write_text("mine")
    with (
        closing(sample_database.records()) as store,
        pytest.raises(StoreError, match="exists already"),
    ):
        retention.backup(store, tmp_path / "b")
    assert (tmp_path / "b").read_text() == "mine"


def test_sizes_count_every_table(shared_url: str, clock: ManualClock):
    runs = run_async(fill_database(shared_url, clock))
    with closing(open_maintenance_store(shared_url, read_only=True)) as store:
        sizes = store.measure_sizes()
        rows = {one.name: one.rows for one in sizes.tables}
        assert rows["workflow_executions"] == len(runs)
        assert rows["approvals"] == 7
        assert sizes.bytes > 100_000
        assert all(one.bytes for one in sizes.tables)


# PostgreSQL


def pack(file: Path, whole: Path, **changed: bytes | None) -> Path:
    """The backup with other members."""
    with zipfile.ZipFile(whole) as old, zipfile.ZipFile(file, "w") as new:
        for name in old.namelist():
            stem = name.partition(".")[0]
            data = changed[stem] if stem in changed else old.read(name)
            if data is not None:
                new.writestr(name, data)
    return file


def test_a_dump_that_is_not_fit_changes_nothing(
    postgres_url: str, clock: ManualClock, tmp_path: Path
):
    run_async(fill_database(postgres_url, clock))
    whole = tmp_path / "good"
    with closing(open_maintenance_store(postgres_url)) as store:
        before = verify(store)
        retention.backup(store, whole)
        with zipfile.ZipFile(whole) as packed:
            journal, manifest = packed.read("journal"), json.loads(packed.read("manifest.json"))
        (tmp_path / "cut").write_bytes(whole.read_bytes()[:-3000])
        (tmp_path / "text").write_text("no zip")
        newer = json.dumps(manifest | {"schema": 99}).encode()
        older = json.dumps(manifest | {"schema": 0}).encode()
        pack(tmp_path / "newer", whole, manifest=newer)
        pack(tmp_path / "older", whole, manifest=older)
        pack(tmp_path / "theirs", whole, manifest=b"{}")
        pack(tmp_path / "forged", whole, journal=journal.replace(b"lunch", b"brunch"))
        pack(tmp_path / "half", whole, journal=journal[: len(journal) // 2])
        pack(tmp_path / "without", whole, approvals=b"")
        pack(tmp_path / "lacking", whole, approvals=None)
        for name, why in {
            "cut": "not a backup of Handrail on PostgreSQL",
            "text": "not a backup of Handrail on PostgreSQL",
            "theirs": "not a backup of Handrail on PostgreSQL",
            "missing": "there is no such file",
            "newer": "upgrade Handrail",
            "older": "older Handrail",
            "forged": "does not pass its check",
            "half": "is damaged|does not pass its check",
            "without": "does not pass its check",
            "lacking": "is damaged",
        }.items():
            with pytest.raises(BrokenBackupError, match=why):
                retention.restore(store, tmp_path / name, clock.now())
            assert verify(store) == before
        retention.restore(store, whole, clock.now())
        assert verify(store) == before


def test_a_dump_makes_another_database(
    postgres_server: PostgresServer, postgres_url: str, clock: ManualClock, tmp_path: Path
):
    """Also its numbers go on from where they were."""
    run_async(fill_database(postgres_url, clock))
    with closing(open_maintenance_store(postgres_url, read_only=True)) as store:
        before = verify(store)
        retention.backup(store, tmp_path / "b")
    other = postgres_server.create_database()
    try:
        with closing(open_maintenance_store(other)) as store:
            assert store.is_empty()
            retention.restore(store, tmp_path / "b", clock.now())
            assert verify(store) == before

        async def go_on():
            async with manual_engine(other, clock) as engine:
                await engine.start("works")

        run_async(go_on())
        with closing(open_maintenance_store(other)) as store:
            assert verify(store, before.head).findings == ()
            assert check_database(store, clock.now()) == []
    finally:
        postgres_server.drop_database(other)


@pytest.mark.requirement("L16")
def test_what_is_done_to_the_tables_of_postgres_is_found(
    postgres_url: str, clock: ManualClock, tmp_path: Path
):
    runs = run_async(fill_database(postgres_url, clock))
    waiting, ended = runs["waiting"], runs["ended"]
    last = "(SELECT max(n) FROM commits)"
    done = {
        f"UPDATE journal SET body = body || ' ' WHERE stream = '{ended}'": ended,
        f"UPDATE journal SET body = NULL WHERE stream = '{ended}'": ended,
        f"DELETE FROM journal WHERE stream = '{ended}' AND seq > 5": ended,
        f"INSERT INTO journal (batch, stream, seq, count, body, hash) "
        f"VALUES (-1, '{waiting}', 99, 1, '[]', '')": waiting,
        f"UPDATE workflow_transitions SET actor = 'eve' WHERE execution_id = '{ended}'": ended,
        f"UPDATE approvals SET answered_by = 'eve' WHERE execution_id = '{ended}'": ended,
        f"UPDATE workflow_executions SET current_node_id = 'a' WHERE id = '{waiting}'": waiting,
        f"UPDATE workflow_executions SET state = '{{}}' WHERE id = '{waiting}'": waiting,
        f"DELETE FROM workflow_executions WHERE id = '{ended}'": ended,
        "UPDATE commit_locks SET fence = 9": "lock:shop",
        f"DELETE FROM journal WHERE batch = (SELECT batch FROM commits WHERE n = {last}); "
        f"DELETE FROM commits WHERE n = {last}": "",
    }
    with closing(open_maintenance_store(postgres_url)) as store:
        before = verify(store)
        retention.backup(store, tmp_path / "b")
        for statement, stream in done.items():
            with psycopg.connect(postgres_url) as db:
                db.execute(statement.encode())
            assert stream in {one.stream for one in verify(store).findings}, statement
            retention.restore(store, tmp_path / "b", clock.now())
            assert verify(store, before.head).unaltered
