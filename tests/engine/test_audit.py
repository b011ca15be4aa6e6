"""Whatever is done to a stored record behind the engine's back, `verify` finds it and names it."""

import sqlite3
from contextlib import closing
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.engine.engines import manual_engine, register_worker, run_async
from tests.engine.sample_database import ROLE, SampleDatabase, fill_database

from handrail.engine.audit.verification import verify
from handrail.store.rows import StoreError, commit_hash, entry_hash
from handrail.store.urls import open_maintenance_store
from handrail.testing.clock import ManualClock
from handrail.views.audit import Verification

pytest_plugins = ["tests.fixtures_postgres", "tests.engine.fixtures_sample_database"]
pytestmark = pytest.mark.requirement("L16")

EXECUTIONS = {
    "id": "'somebody'",
    "bead_id": "'another'",
    "workflow_id": "'another'",
    "workflow_version": "workflow_version + 1",
    "current_node_id": "coalesce(current_node_id, '') || 'x'",
    "status": "CASE status WHEN 'paused' THEN 'running' ELSE 'paused' END",
    "terminal_status": "CASE terminal_status WHEN 'done_partial' THEN NULL ELSE 'done_partial' END",
    "stop_rule": "CASE stop_rule WHEN 'budget' THEN NULL ELSE 'budget' END",
    "seq": "seq + 1",
    "head": "zeroblob(32)",
    "created_at": "'2020-01-01T00:00:00.000000Z'",
    "updated_at": "'2020-01-01T00:00:00.000000Z'",
    "ended_at": "'2020-01-01T00:00:00.000000Z'",
    "state": "CASE state WHEN 'null' THEN '{}' "
    'ELSE replace(state, \'"title":"\', \'"title":"x\') END',
    "state_seq": "state_seq - 1",
}
"""Column -> another value. No event speaks of `priority` and `notes`; `next_due` is told below."""
TRANSITIONS = {
    "execution_id": "'somebody'",
    "seq": "seq + 1",
    "from_node_id": "'x'",
    "to_node_id": "'x'",
    "outcome": "'x'",
    "reason": "'x'",
    "actor": "'x'",
    "timestamp": "'2020-01-01T00:00:00.000000Z'",
}
APPROVALS = {
    "id": "'x'",
    "execution_id": "'somebody'",
    "bead_id": "'x'",
    "node_id": "'x'",
    "type": "'escalation'",
    "status": "CASE status WHEN 'void' THEN 'open' ELSE 'void' END",
    "question": "'x'",
    "digest": "'x'",
    "deadline": "'2020-01-01T00:00:00.000000Z'",
    "created_at": "'2020-01-01T00:00:00.000000Z'",
    "decision": "'reject'",
    "answer": "'x'",
    "answered_by": "'eve'",
    "settled_at": "'2020-01-01T00:00:00.000000Z'",
}
LOCKS = {
    "repository": "'x'",
    "holder_execution_id": "'x'",
    "holder_step": "'x'",
    "fence": "fence + 1",
    "seq": "seq + 1",
    "head": "zeroblob(32)",
    "next_due": "'2020-01-01T00:00:00.000000Z'",
    "updated_at": "'2020-01-01T00:00:00.000000Z'",
    "state": "replace(state, 'shop', 'ship')",
}
RUNS = (
    *("expired", "ended", "revised", "waiting", "closed"),
    *("paused", "claimed", "offered", "holder", "queued"),
)


def verified(sample_database: SampleDatabase, head: str | None = None) -> Verification:
    with closing(sample_database.records()) as store:
        return verify(store, head)


def codes(sample_database: SampleDatabase, *streams: str) -> set[str]:
    """What is found; each of the streams must be named."""
    done = verified(sample_database)
    named = {one.stream for one in done.findings}
    assert set(streams) <= named, done.findings
    for finding in done.findings:
        assert "\n" not in finding.message
    return {one.code for one in done.findings}


def columns(sample_database: SampleDatabase, table: str) -> set[str]:
    return {name for (name,) in sample_database.sql("SELECT name FROM pragma_table_info(?)", table)}


# Untouched


def test_an_untouched_record_is_unaltered(sample_database: SampleDatabase):
    done = verified(sample_database)
    assert done.unaltered
    assert done.runs == len(RUNS)
    ((commits,),) = sample_database.sql("SELECT count(*) FROM commits")
    ((entries,),) = sample_database.sql("SELECT count(*) FROM journal")
    assert (done.commits, done.entries) == (commits, entries)
    assert entries > commits, "a commit with several entries"
    ((head,),) = sample_database.sql("SELECT hash FROM commits ORDER BY n DESC LIMIT 1")
    assert done.head == head.hex()


def test_an_untouched_record_on_every_store_is_unaltered(shared_url: str, clock: ManualClock):
    runs = run_async(fill_database(shared_url, clock))
    with closing(open_maintenance_store(shared_url, read_only=True)) as store:
        done = verify(store)
        assert done.findings == ()
        assert done.runs == len(runs)
        assert verify(store, done.head).unaltered
        assert not verify(store, "00" * 32).unaltered


def test_an_empty_database_is_unaltered(tmp_path):
    with closing(open_maintenance_store(f"sqlite:///{tmp_path / 'empty.db'}")) as store:
        assert verify(store) == Verification(
            head="", at="", commits=0, entries=0, runs=0, archived=0
        )
        assert [one.code for one in verify(store, "ab" * 32).findings] == ["head_missing"]


def test_every_head_that_there_ever_was_is_found(sample_database: SampleDatabase):
    for (head,) in sample_database.sql("SELECT hash FROM commits"):
        assert verified(sample_database, head.hex()).unaltered
    assert [one.code for one in verified(sample_database, "ab" * 32).findings] == ["head_missing"]


def test_a_live_database_is_checked_as_of_one_moment(sample_database: SampleDatabase):
    """What an engine writes while it is looked at is not in the way, whatever was read before."""
    clock = ManualClock()
    clock.advance(days=3)

    async def play():
        async with manual_engine(sample_database.url, clock) as engine:
            with closing(sample_database.records()) as store:
                before = verify(store)
                with store.snapshot():
                    first = next(iter(store.journal.iter_commits(0, 1)))
                    coder = await register_worker(engine, ROLE, name="another", capacity=100)
                    while await coder.claim() is not None:
                        pass
                    assert first[0].n == 1
                    last = store.journal.get_last_commit()
                    assert last is not None
                    assert last.hash.hex() == before.head
                after = verify(store)
        assert before.unaltered
        assert after.unaltered
        assert after.commits > before.commits

    run_async(play())


# Events


@pytest.mark.parametrize("name", RUNS)
def test_a_changed_event_is_found(sample_database: SampleDatabase, name: str):
    run = sample_database.runs[name]
    change = 'replace(body, \'"type":"\', \'"type": "\')'
    for (entry,) in sample_database.sql("SELECT id FROM journal WHERE stream = ?", run):
        ((body,),) = sample_database.sql("SELECT body FROM journal WHERE id = ?", entry)
        sample_database.sql(f"UPDATE journal SET body = {change} WHERE id = ?", entry)
        assert codes(sample_database, run) == {"entry_changed"}
        sample_database.sql("UPDATE journal SET body = ? WHERE id = ?", body, entry)
    assert verified(sample_database).unaltered


@pytest.mark.parametrize("name", RUNS)
def test_a_dropped_event_is_found(sample_database: SampleDatabase, name: str):
    run = sample_database.runs[name]
    rows = sample_database.sql("SELECT * FROM journal WHERE stream = ?", run)
    for row in rows:
        sample_database.sql("DELETE FROM journal WHERE id = ?", row[0])
        assert "entry_missing" in codes(sample_database, run)
        sample_database.sql("INSERT INTO journal VALUES (?, ?, ?, ?, ?, ?, ?)", *row)
    assert verified(sample_database).unaltered


def test_two_events_in_another_order_are_found(sample_database: SampleDatabase):
    run = sample_database.runs["revised"]
    sample_database.sql("DROP INDEX journal_stream")
    ids = [one for (one,) in sample_database.sql("SELECT id FROM journal WHERE stream = ?", run)]
    for first, second in pairwise(ids):
        for one, other in ((first, -1), (second, first), (-1, second)):
            sample_database.sql("UPDATE journal SET id = ? WHERE id = ?", other, one)
        sample_database.sql("UPDATE journal SET batch = id WHERE id IN (?, ?)", first, second)
        assert codes(sample_database) & {"entry_order", "entry_missing", "commit_changed"}
        for one, other in ((first, -1), (second, first), (-1, second)):
            sample_database.sql("UPDATE journal SET id = ? WHERE id = ?", other, one)


def test_entries_of_one_commit_in_another_order_are_found(sample_database: SampleDatabase):
    ((first, last),) = sample_database.sql(
        "SELECT first_id, last_id FROM commits WHERE entries = 2"
    )
    for one, other in ((first, -1), (last, first), (-1, last)):
        sample_database.sql("UPDATE journal SET id = ? WHERE id = ?", other, one)
    assert codes(sample_database) == {"commit_changed"}


@pytest.mark.parametrize("batch", ["(SELECT max(n) FROM commits)", "1", "999"])
def test_an_inserted_event_is_found(sample_database: SampleDatabase, batch: str):
    run = sample_database.runs["waiting"]
    head, seq = sample_database.sql("SELECT head, seq FROM workflow_executions WHERE id = ?", run)[
        0
    ]
    body = '[{"type":"warned","at":"2026-01-03T12:00:00Z","code":"x","message":"y"}]'
    new = entry_hash(head, run, seq + 1, body)
    sample_database.sql(
        "INSERT INTO journal (batch, stream, seq, count, body, hash) "
        f"VALUES ({batch}, ?, ?, 1, ?, ?)",
        *(run, seq + 1, body, new),
    )
    assert "entry_extra" in codes(sample_database, run)


def test_an_event_that_was_inserted_with_its_commit_is_found_by_the_row(
    sample_database: SampleDatabase,
):
    """Somebody who can hash can add to the end, but then the row has to follow, too."""
    run = sample_database.runs["waiting"]
    head, seq = sample_database.sql("SELECT head, seq FROM workflow_executions WHERE id = ?", run)[
        0
    ]
    body = '[{"type":"warned","at":"2026-01-03T12:00:00Z","code":"x","message":"y"}]'
    append(sample_database, run, seq + 1, body, head)
    assert codes(sample_database, run) == {"row_changed"}


def append(sample_database: SampleDatabase, stream: str, seq: int, body: str, head: bytes) -> bytes:
    """As an engine would, but only to the journal."""
    new = entry_hash(head, stream, seq, body)
    n, last = sample_database.sql("SELECT n, hash FROM commits ORDER BY n DESC LIMIT 1")[0]
    ((entry,),) = sample_database.sql("SELECT max(id) + 1 FROM journal")
    values = (entry, n + 1, stream, seq, 1, body, new)
    sample_database.sql("INSERT INTO journal VALUES (?, ?, ?, ?, ?, ?, ?)", *values)
    commit = (
        n + 1,
        n + 1,
        entry,
        entry,
        1,
        "2026-01-03T12:00:01.000000Z",
        commit_hash(last, [new]),
    )
    sample_database.sql("INSERT INTO commits VALUES (?, ?, ?, ?, ?, ?, ?)", *commit)
    return new


@pytest.mark.parametrize(
    "body",
    [
        "nothing",
        "[]",
        '[{"type":"unheard","at":"2026-01-03T12:00:00Z"}]',
        '[{"type":"claimed","at":"2026-01-03T12:00:00Z","place":"no","fence":9,"agent":"eve"}]',
    ],
)
def test_an_event_that_cannot_be_replayed_is_a_finding(sample_database: SampleDatabase, body: str):
    for name in ("waiting", "ended"):
        run = sample_database.runs[name]
        head, seq = sample_database.sql(
            "SELECT head, seq FROM workflow_executions WHERE id = ?", run
        )[0]
        append(sample_database, run, seq + 1, body, head)
        assert "unreadable" in codes(sample_database, run)


def test_the_bodies_of_two_runs_changed_with_each_other_are_found(sample_database: SampleDatabase):
    one, other = sample_database.runs["waiting"], sample_database.runs["paused"]
    rows = [
        sample_database.sql("SELECT id, body FROM journal WHERE stream = ?", run)
        for run in (one, other)
    ]
    for (first, body), (second, another) in zip(*rows, strict=False):
        sample_database.sql("UPDATE journal SET body = ? WHERE id = ?", another, first)
        sample_database.sql("UPDATE journal SET body = ? WHERE id = ?", body, second)
    assert "entry_changed" in codes(sample_database, one, other)


def test_two_runs_that_exchanged_their_names_are_found(sample_database: SampleDatabase):
    one, other = sample_database.runs["waiting"], sample_database.runs["paused"]
    for run, name in ((one, "x"), (other, one), ("x", other)):
        sample_database.sql("UPDATE journal SET stream = ? WHERE stream = ?", name, run)
    assert "entry_changed" in codes(sample_database, one, other)


@pytest.mark.parametrize("column", ["batch", "stream", "seq", "count", "body", "hash"])
def test_any_change_of_a_column_of_the_journal_is_found(
    sample_database: SampleDatabase, column: str
):
    value = {"stream": "'x'", "body": "NULL", "hash": "zeroblob(32)"}.get(column, f"{column} + 1")
    for (entry,) in sample_database.sql("SELECT id FROM journal"):
        ((old,),) = sample_database.sql(f"SELECT {column} FROM journal WHERE id = ?", entry)
        sample_database.sql(f"UPDATE OR IGNORE journal SET {column} = {value} WHERE id = ?", entry)
        if sample_database.sql(f"SELECT {column} FROM journal WHERE id = ?", entry) != [(old,)]:
            assert codes(sample_database)
        sample_database.sql(f"UPDATE journal SET {column} = ? WHERE id = ?", old, entry)


def test_bytes_that_are_no_text_are_found(sample_database: SampleDatabase):
    run = sample_database.runs["ended"]
    sample_database.sql(
        "UPDATE journal SET body = CAST(x'5bff5d' AS TEXT) WHERE stream = ? AND seq = 10", run
    )
    assert "entry_changed" in codes(sample_database, run)


# The chain of commits


@pytest.mark.parametrize("column", ["n", "batch", "first_id", "last_id", "entries", "hash"])
def test_a_changed_commit_is_found(sample_database: SampleDatabase, column: str):
    value = {"hash": "zeroblob(32)", "n": "n + 1000", "last_id": "last_id - 1"}
    for (n,) in sample_database.sql("SELECT n FROM commits"):
        ((old,),) = sample_database.sql(f"SELECT {column} FROM commits WHERE n = ?", n)
        new = value.get(column, f"{column} + 1")
        sample_database.sql(f"UPDATE commits SET {column} = {new} WHERE n = ?", n)
        assert codes(sample_database)
        where = n + 1000 if column == "n" else n
        sample_database.sql(f"UPDATE commits SET {column} = ? WHERE n = ?", old, where)
    assert verified(sample_database).unaltered


def test_a_dropped_commit_is_found(sample_database: SampleDatabase):
    for row in sample_database.sql("SELECT * FROM commits"):
        sample_database.sql("DELETE FROM commits WHERE n = ?", row[0])
        assert codes(sample_database) & {"commit_missing", "entry_extra"}
        sample_database.sql("INSERT INTO commits VALUES (?, ?, ?, ?, ?, ?, ?)", *row)


def test_a_commit_that_is_dropped_with_its_entries_is_found(sample_database: SampleDatabase):
    for n, first, last in sample_database.sql(
        "SELECT n, first_id, last_id FROM commits ORDER BY n"
    ):
        sample_database.sql("DELETE FROM commits WHERE n = ?", n)
        sample_database.sql("DELETE FROM journal WHERE id BETWEEN ? AND ?", first, last)
        assert codes(sample_database)


def test_a_commit_before_the_first_is_found(sample_database: SampleDatabase):
    sample_database.sql("INSERT INTO commits VALUES (-5, -5, 0, 0, 0, '', x'00')")
    assert "commit_extra" in codes(sample_database)


def test_a_tail_that_was_cut_off_in_order_is_found_by_a_head_that_was_kept(
    sample_database: SampleDatabase,
):
    """The last commit, its entry, and its run as it was before: nobody can see it from inside."""
    ((kept,),) = sample_database.sql("SELECT hash FROM commits ORDER BY n DESC LIMIT 1")
    ((n, entry),) = sample_database.sql("SELECT n, last_id FROM commits ORDER BY n DESC LIMIT 1")
    run, seq = sample_database.sql("SELECT stream, seq FROM journal WHERE id = ?", entry)[0]
    assert run == sample_database.runs["holder"]
    sample_database.sql("DELETE FROM commits WHERE n = ?", n)
    sample_database.sql("DELETE FROM journal WHERE id = ?", entry)
    sample_database.sql(
        "UPDATE workflow_executions SET seq = j.seq, head = j.hash, current_node_id = 'c' "
        "FROM (SELECT seq, hash FROM journal WHERE stream = ?1 ORDER BY seq DESC LIMIT 1) j "
        "WHERE id = ?1",
        run,
    )
    assert seq == 4
    assert verified(sample_database).unaltered
    (finding,) = verified(sample_database, kept.hex()).findings
    assert finding.code == "head_missing"
    assert kept.hex() in finding.message
    assert "cut or replaced after that head was kept" in finding.message


def test_a_tail_that_was_cut_off_without_its_rows_is_found(sample_database: SampleDatabase):
    ((n, entry),) = sample_database.sql("SELECT n, last_id FROM commits ORDER BY n DESC LIMIT 1")
    sample_database.sql("DELETE FROM commits WHERE n = ?", n)
    sample_database.sql("DELETE FROM journal WHERE id = ?", entry)
    assert codes(sample_database, sample_database.runs["holder"]) == {"row_changed"}


# Rows


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("column", EXECUTIONS)
def test_a_changed_row_of_a_run_is_found(sample_database: SampleDatabase, name: str, column: str):
    run = sample_database.runs[name]
    change(sample_database, "workflow_executions", column, EXECUTIONS[column], "id", run)
    found = codes(sample_database, run)
    assert found & ({"row_missing"} if column == "id" else {"row_changed"}), found


@pytest.mark.parametrize("name", ["expired", "ended", "revised", "waiting", "closed", "paused"])
def test_a_run_that_has_rested_must_have_a_state(sample_database: SampleDatabase, name: str):
    run = sample_database.runs[name]
    sample_database.sql(
        "UPDATE workflow_executions SET state = 'null', state_seq = 0 WHERE id = ?", run
    )
    assert codes(sample_database, run) == {"row_changed"}


def change(
    sample_database: SampleDatabase, table: str, column: str, value: str, key: str, wanted: object
) -> None:
    before = sample_database.sql(f"SELECT {column} FROM {table} WHERE {key} = ?", wanted)
    sample_database.sql("DROP INDEX IF EXISTS one_active_run_per_bead")
    sample_database.sql(f"UPDATE {table} SET {column} = {value} WHERE {key} = ?", wanted)
    assert sample_database.sql(f"SELECT {column} FROM {table} WHERE {key} = ?", wanted) != before


def test_a_clock_that_was_put_off_is_found(sample_database: SampleDatabase):
    for name in ("waiting", "paused"):
        later = "'2030-01-01T00:00:00.000000Z'"
        change(
            sample_database,
            "workflow_executions",
            "next_due",
            later,
            "id",
            sample_database.runs[name],
        )
        assert codes(sample_database, sample_database.runs[name]) == {"row_changed"}


def test_a_run_that_lost_its_clock_is_found(sample_database: SampleDatabase):
    for name in RUNS:
        value = "CASE WHEN next_due IS NULL THEN updated_at ELSE NULL END"
        change(
            sample_database,
            "workflow_executions",
            "next_due",
            value,
            "id",
            sample_database.runs[name],
        )
        assert "row_changed" in codes(sample_database, sample_database.runs[name])


def test_all_columns_of_the_checked_tables_are_meant():
    """A new column is compared, or stands here with the reason why not."""
    free = {
        "workflow_executions": {"priority", "notes", "next_due"},
        "workflow_transitions": {"id"},  # a number that says nothing but the order
        "approvals": set(),
        "commit_locks": set(),
    }
    with closing(open_maintenance_store("sqlite://")) as store:
        db: sqlite3.Connection = store.database._db  # type: ignore[attr-defined]
        for table, covered in (
            ("workflow_executions", EXECUTIONS),
            ("workflow_transitions", TRANSITIONS),
            ("approvals", APPROVALS),
            ("commit_locks", LOCKS),
        ):
            every = {row[1] for row in db.execute(f"PRAGMA table_info({table})")}
            assert every == set(covered) | free[table]


@pytest.mark.parametrize("column", TRANSITIONS)
def test_a_changed_transition_is_found(sample_database: SampleDatabase, column: str):
    for row, run in sample_database.sql("SELECT id, execution_id FROM workflow_transitions"):
        ((old,),) = sample_database.sql(
            f"SELECT {column} FROM workflow_transitions WHERE id = ?", row
        )
        change(sample_database, "workflow_transitions", column, TRANSITIONS[column], "id", row)
        assert codes(sample_database, run) & {"row_changed", "row_missing", "row_extra"}
        sample_database.sql(f"UPDATE workflow_transitions SET {column} = ? WHERE id = ?", old, row)
    assert verified(sample_database).unaltered


def test_a_dropped_transition_is_found(sample_database: SampleDatabase):
    for row in sample_database.sql("SELECT * FROM workflow_transitions"):
        sample_database.sql("DELETE FROM workflow_transitions WHERE id = ?", row[0])
        assert codes(sample_database, row[1]) == {"row_missing"}
        sample_database.sql(
            "INSERT INTO workflow_transitions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", *row
        )


def test_an_inserted_transition_is_found(sample_database: SampleDatabase):
    columns = ", ".join(TRANSITIONS)
    for row, run in sample_database.sql("SELECT id, execution_id FROM workflow_transitions"):
        copy = f"SELECT {columns} FROM workflow_transitions WHERE id = ?"
        sample_database.sql(f"INSERT INTO workflow_transitions ({columns}) {copy}", row)
        assert codes(sample_database, run) == {"row_extra"}
        sample_database.sql(
            "DELETE FROM workflow_transitions WHERE id = (SELECT max(id) FROM workflow_transitions)"
        )


def test_transitions_in_another_order_are_found(sample_database: SampleDatabase):
    run = sample_database.runs["ended"]
    sample_database.sql(
        "UPDATE workflow_transitions SET id = id + 1000 WHERE id = "
        "(SELECT min(id) FROM workflow_transitions WHERE execution_id = ?)",
        run,
    )
    assert codes(sample_database, run) == {"row_missing"}


@pytest.mark.parametrize("column", APPROVALS)
def test_a_changed_approval_is_found(sample_database: SampleDatabase, column: str):
    for name, run in sample_database.sql("SELECT id, execution_id FROM approvals"):
        ((old,),) = sample_database.sql(f"SELECT {column} FROM approvals WHERE id = ?", name)
        change(sample_database, "approvals", column, APPROVALS[column], "id", name)
        assert codes(sample_database, run) & {"row_changed", "row_missing"}
        now = "x" if column == "id" else name
        sample_database.sql(f"UPDATE approvals SET {column} = ? WHERE id = ?", old, now)
    assert verified(sample_database).unaltered


def test_a_dropped_and_an_inserted_approval_are_found(sample_database: SampleDatabase):
    run = sample_database.runs["waiting"]
    sample_database.sql(
        "UPDATE approvals SET id = 'x', execution_id = ? WHERE execution_id = ?", run, run
    )
    assert codes(sample_database, run) == {"row_missing", "row_extra"}
    sample_database.sql("DELETE FROM approvals WHERE execution_id = ?", run)
    assert codes(sample_database, run) == {"row_missing"}


@pytest.mark.parametrize("column", LOCKS)
def test_a_changed_lock_is_found(sample_database: SampleDatabase, column: str):
    change(sample_database, "commit_locks", column, LOCKS[column], "repository", "shop")
    assert codes(sample_database, "lock:shop") & {"row_changed", "row_missing"}


def test_a_deleted_lock_is_found(sample_database: SampleDatabase):
    sample_database.sql("DELETE FROM commit_locks")
    assert codes(sample_database, "lock:shop") == {"row_missing"}


def test_events_of_a_lock_that_cannot_be_replayed_are_a_finding(sample_database: SampleDatabase):
    head, seq = sample_database.sql("SELECT head, seq FROM commit_locks")[0]
    append(sample_database, "lock:shop", seq + 1, '[{"type":"LockGranted"}]', head)
    assert codes(sample_database, "lock:shop") == {"unreadable"}


# Runs


@pytest.mark.parametrize("name", RUNS)
def test_a_run_whose_row_was_deleted_is_found_and_named(sample_database: SampleDatabase, name: str):
    run = sample_database.runs[name]
    sample_database.sql("DELETE FROM workflow_executions WHERE id = ?", run)
    assert "row_missing" in codes(sample_database, run)


@pytest.mark.parametrize("name", RUNS)
def test_a_run_that_was_deleted_with_everything_is_found_and_named(
    sample_database: SampleDatabase, name: str
):
    run = sample_database.runs[name]
    for table, key in (
        ("workflow_executions", "id"),
        ("workflow_transitions", "execution_id"),
        ("approvals", "execution_id"),
        ("dispatches", "execution_id"),
        ("notes", "execution_id"),
        ("journal", "stream"),
    ):
        sample_database.sql(f"DELETE FROM {table} WHERE {key} = ?", run)
    its_notes = {"row_changed"} if name == "revised" else set[str]()
    assert codes(sample_database, run) == {
        "entry_missing",
        "row_missing",
        *its_notes,
    }  # its bead knows the name
    sample_database.sql("DELETE FROM beads WHERE execution_id = ?", run)
    assert codes(sample_database) == {
        "entry_missing",
        *its_notes,
    }  # then nothing does; the commits know that it was


def test_a_run_that_nobody_began_is_found(sample_database: SampleDatabase):
    names = ", ".join(sorted(columns(sample_database, "workflow_executions") - {"id", "bead_id"}))
    sample_database.sql(
        f"INSERT INTO workflow_executions (id, bead_id, {names}) "
        f"SELECT 'forged', 'b', {names} FROM workflow_executions WHERE id = ?",
        sample_database.runs["ended"],
    )
    assert codes(sample_database, "forged") == {"row_extra"}


def test_bodies_that_nobody_archived_are_found(sample_database: SampleDatabase):
    run = sample_database.runs["ended"]
    sample_database.sql("UPDATE journal SET body = NULL WHERE stream = ?", run)
    assert "body_missing" in codes(sample_database, run)


def test_findings_do_not_fill_the_memory(
    sample_database: SampleDatabase, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("handrail.engine.audit.row_checks.FINDINGS_MAX", 3)
    sample_database.sql("UPDATE workflow_transitions SET actor = 'x'")
    done = verified(sample_database)
    assert len(done.findings) == 3
    assert done.more == len(RUNS) - 3


def test_a_database_that_cannot_be_read_is_told_in_one_line(sample_database: SampleDatabase):
    sample_database.path.write_bytes(sample_database.path.read_bytes()[:20_000])
    with pytest.raises(StoreError, match=r"malformed|disk image"):
        verified(sample_database)


# Anything


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_any_byte_of_any_body_and_any_row_counts(
    sample_database: SampleDatabase, data: st.DataObject
):
    """One byte of one body is another, or one row of a checked table is gone."""
    tables = ["journal", "commits", "workflow_executions", "workflow_transitions", "approvals"]
    table = data.draw(st.sampled_from(["journal", *tables]))
    ((rows,),) = sample_database.sql(f"SELECT count(*) FROM {table}")
    nth = data.draw(st.integers(0, rows - 1))
    ((rowid,),) = sample_database.sql(
        f"SELECT rowid FROM {table} ORDER BY rowid LIMIT 1 OFFSET ?", nth
    )
    row = sample_database.sql(f"SELECT * FROM {table} WHERE rowid = ?", rowid)[0]
    if table == "journal" and data.draw(st.booleans()):
        body = bytearray(row[5].encode())
        place = data.draw(st.integers(0, len(body) - 1))
        body[place] ^= data.draw(st.integers(1, 255))
        sample_database.sql(
            "UPDATE journal SET body = CAST(? AS TEXT) WHERE id = ?", bytes(body), row[0]
        )
        found = codes(sample_database, row[2])
        sample_database.sql("UPDATE journal SET body = ? WHERE id = ?", row[5], row[0])
        assert "entry_changed" in found
    else:
        names = ", ".join(columns(sample_database, table))
        key = {"journal": "id", "commits": "n", "workflow_transitions": "id"}.get(table)
        sample_database.sql(
            f"CREATE TABLE kept AS SELECT {key or 'rowid'} AS the_key, * FROM {table}"
        )
        sample_database.sql(f"DELETE FROM {table} WHERE rowid = ?", rowid)
        found = codes(sample_database)
        put, get = (names, names) if key else (f"rowid, {names}", f"the_key, {names}")
        back = f"SELECT {get} FROM kept WHERE the_key = ?"
        sample_database.sql(f"INSERT INTO {table} ({put}) {back}", rowid)
        sample_database.sql("DROP TABLE kept")
        assert found
    assert verified(sample_database).unaltered
