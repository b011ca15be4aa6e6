"""Each invariant, broken by hand, is found; a database that an engine made breaks none."""

import re
from contextlib import closing
from datetime import timedelta

import pytest
from tests.engine.engines import manual_engine, run_async
from tests.engine.sample_database import SampleDatabase, fill_database

from handrail.engine.audit.doctor import INVARIANTS, check_database
from handrail.store.rows import iso
from handrail.store.sqlite.connection import QUERIES
from handrail.store.urls import open_maintenance_store
from handrail.testing.clock import NOON, ManualClock

pytest_plugins = ["tests.fixtures_postgres", "tests.engine.fixtures_sample_database"]

NOW = NOON + timedelta(days=2, seconds=1)
"""When the last engine stopped."""


def found(sample_database: SampleDatabase, now=NOW) -> dict[str, set[str]]:
    """Code -> subjects."""
    codes: dict[str, set[str]] = {}
    with closing(sample_database.records()) as store:
        for one in check_database(store, now):
            assert re.fullmatch(r"[^\n]+: [^\n]+ \([^\n]*\); [^\n]+", one.message)
            assert one.stream in one.message
            codes.setdefault(one.code, set()).add(one.stream)
    return codes


def test_every_query_has_its_meaning():
    queries = {
        name.removeprefix("doctor_") for name in QUERIES.sources if name.startswith("doctor_")
    }
    assert queries | {"dispatch_differs", "unreadable", "chain"} == set(INVARIANTS)


def test_a_database_that_engines_made_is_healthy(sample_database: SampleDatabase):
    assert found(sample_database) == {}


def test_a_database_on_every_store_is_healthy(shared_url: str, clock: ManualClock):
    run_async(fill_database(shared_url, clock))
    with closing(open_maintenance_store(shared_url, read_only=True)) as store:
        assert check_database(store, clock.now()) == []


def test_a_live_database_is_examined_without_being_in_the_way(sample_database: SampleDatabase):
    clock = ManualClock()
    clock.advance(days=3)

    async def play():
        async with manual_engine(sample_database.url, clock) as engine:
            assert found(sample_database, clock.now()) == {}
            await engine.tick()
            assert found(sample_database, clock.now()) == {}

    run_async(play())


def test_where_no_engine_is_alive_nothing_is_late(sample_database: SampleDatabase):
    assert found(sample_database, NOON + timedelta(days=365)) == {}


BROKEN = {
    "version": "UPDATE workflow_executions SET seq = seq + 1 WHERE id = :waiting",
    "lock_version": "UPDATE commit_locks SET seq = seq + 1",
    "stream_version": "INSERT INTO streams VALUES ('x', 1, x'00')",
    "dispatch_differs": "DELETE FROM dispatches WHERE execution_id = :offered",
    "dispatch_of_finished": "UPDATE dispatches SET execution_id = :ended "
    "WHERE execution_id = :offered",
    "lost_session": "UPDATE dispatches SET session = 'x', claimed_at = '2026-01-03T11:54:00Z'"
    " WHERE execution_id = :claimed",
    "holder_finished": "UPDATE commit_locks SET holder_execution_id = :ended",
    "half_ended": "UPDATE workflow_executions SET terminal_status = NULL WHERE id = :ended",
    "no_clock": "UPDATE workflow_executions SET next_due = NULL WHERE id = :waiting",
    "overdue": "UPDATE workflow_executions SET next_due = '2026-01-03T11:54:59.000000Z' "
    "WHERE id = :waiting",
    "lock_overdue": "UPDATE commit_locks SET next_due = '2026-01-03T11:54:59.000000Z'",
    "question_of_finished": "UPDATE approvals SET status = 'open' WHERE execution_id = :ended",
    "waits_for_nobody": "UPDATE approvals SET status = 'void' WHERE execution_id = :waiting",
    "stuck_message": "INSERT INTO messages VALUES (1, 'm', :waiting, '{}', '2026-01-03T11:49:59Z')",
    "bead": "UPDATE beads SET status = 'closed' WHERE id = 'b-waiting'",
    "notes": "DELETE FROM notes",
    "unreadable": "UPDATE workflow_executions SET state = '{}' WHERE id = :waiting",
}
"""One statement that breaks each, and which run it is about."""


def broken(sample_database: SampleDatabase, statement: str) -> str:
    """Does it; the run that is named in it."""
    names = re.findall(r":(\w+)\b", re.sub(r"'[^']*'", "", statement))
    for name in names:
        statement = statement.replace(f":{name}", f"'{sample_database.runs[name]}'")
    sample_database.sql(statement)
    return sample_database.runs[names[0]] if names else ""


@pytest.mark.parametrize("code", BROKEN)
def test_what_is_broken_is_found(sample_database: SampleDatabase, code: str):
    run = broken(sample_database, BROKEN[code])
    codes = found(sample_database)
    assert code in codes
    assert not run or run in codes[code] | {"" if code != "holder_finished" else run}


def test_no_clock_is_late_before_its_time(sample_database: SampleDatabase):
    for code in ("overdue", "lock_overdue", "stuck_message", "lost_session"):
        just = re.sub(r"11:\d\d:\d\d", "11:56:00", BROKEN[code])
        broken(sample_database, just)
    assert found(sample_database) == {}


def test_a_gap_in_a_stream_is_found(sample_database: SampleDatabase):
    run = sample_database.runs["revised"]
    for (entry,) in sample_database.sql(
        "SELECT id FROM journal WHERE stream = ? ORDER BY seq", run
    )[1:-1]:
        row = sample_database.sql("SELECT * FROM journal WHERE id = ?", entry)[0]
        sample_database.sql("DELETE FROM journal WHERE id = ?", entry)
        assert found(sample_database) == {"gap": {run}}
        sample_database.sql("INSERT INTO journal VALUES (?, ?, ?, ?, ?, ?, ?)", *row)


def test_two_open_dispatches_of_a_step_are_found(sample_database: SampleDatabase):
    sample_database.without_constraints("dispatches")
    sample_database.sql("INSERT INTO dispatches SELECT * FROM dispatches")
    codes = found(sample_database)
    assert sample_database.runs["claimed"] in codes["dispatch_twice"]


def test_two_members_that_have_the_turn_are_found(sample_database: SampleDatabase):
    sample_database.sql("DROP INDEX one_active_per_channel")
    sample_database.sql("INSERT INTO channels VALUES ('c', 0, x'', NULL, '', '', NULL, '{}', '')")
    for agent in ("a", "b"):
        sample_database.sql("INSERT INTO channel_members VALUES ('c', ?, 'ACTIVE', 0, 0, 1)", agent)
    assert found(sample_database) == {"two_active": {"c"}, "channel_version": {"c"}}


def test_two_locks_of_a_repository_are_found(sample_database: SampleDatabase):
    sample_database.without_constraints("commit_locks")
    sample_database.sql("INSERT INTO commit_locks SELECT * FROM commit_locks")
    assert found(sample_database) == {"two_holders": {"shop"}}


def test_two_active_runs_of_a_bead_are_found(sample_database: SampleDatabase):
    sample_database.sql("DROP INDEX one_active_run_per_bead")
    one, other = sample_database.runs["waiting"], sample_database.runs["paused"]
    sample_database.sql(
        "UPDATE workflow_executions SET bead_id = 'b-waiting' WHERE id IN (?, ?)", one, other
    )
    assert found(sample_database)["two_runs"] == {"b-waiting"}


def test_a_lock_that_is_just_being_told_is_no_finding(sample_database: SampleDatabase):
    sample_database.sql(
        "UPDATE commit_locks SET holder_execution_id = ?", sample_database.runs["ended"]
    )
    values = ("m", "lock:shop", "{}", iso(NOW))
    sample_database.sql("INSERT INTO messages VALUES (1, ?, ?, ?, ?)", *values)
    assert found(sample_database) == {}


def test_however_much_is_wrong_the_list_ends(sample_database: SampleDatabase):
    sample_database.sql(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500) "
        "INSERT INTO messages SELECT NULL, 'm' || i, 'x' || i, '{}', '2020-01-01' FROM n"
    )
    assert len(found(sample_database)["stuck_message"]) == 100
