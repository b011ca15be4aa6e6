"""What is special about PostgreSQL: a connection that breaks, engines that share the database, and
what is said when it cannot be used. What every store must do is in
`handrail.testing.conformance_commits`.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from tests.store.databases import postgres_database

from handrail.store.postgres import commit as writing
from handrail.store.postgres import database
from handrail.store.postgres.pipeline import PipelineStep
from handrail.store.postgres.store import PostgresStore
from handrail.store.rows import CommitOutcomeUnknownError, StoreError, StreamWrite
from handrail.store.store import Store
from handrail.testing import row_factories as a
from handrail.testing.conformance_commits import check_chain, commit_writes, full_write
from handrail.testing.postgres import PostgresServer

pytest_plugins = ["tests.fixtures_postgres"]


@pytest.fixture
def store(postgres_url: str) -> Iterator[PostgresStore]:
    with closing(PostgresStore(postgres_url)) as store:
        yield store


@pytest.fixture
def admin(postgres_url: str) -> Iterator["psycopg.Connection[Any]"]:
    """Somebody else's connection to the database."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        yield connection


def complaint(url: str, *hints: str) -> "pytest.RaisesExc[StoreError]":
    """One line that names the database, does not tell the password, and says what to do."""
    parts = urlsplit(url)

    def fits(error: StoreError) -> bool:
        said = str(error)
        assert "\n" not in said
        assert "; " in said
        assert "secret" not in said
        assert all(hint in said for hint in (parts.path, *hints)), said
        return type(error) is StoreError

    return pytest.raises(StoreError, check=fits)


def tables(url: str) -> list[str]:
    with psycopg.connect(url) as db:
        found = db.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1")
        return [name for (name,) in found]


def together(*doings: Callable[[], object]) -> None:
    """At the same time; the first error of any of them is raised."""
    failed: list[BaseException] = []

    def run(do: Callable[[], object]) -> None:
        try:
            do()
        except BaseException as error:
            failed.append(error)

    threads = [Thread(target=run, args=(do,)) for do in doings]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


# What is said when it cannot be used


def test_a_url_that_cannot_be_read_is_not_repeated():
    for url in ("postgresql://u:secret@[", "postgresql://u:secret@h/d?secret=1", "secret"):
        with pytest.raises(StoreError, match="write it as postgresql://") as caught:
            PostgresStore(url)
        assert "secret" not in str(caught.value)


def test_a_server_that_is_not_there_is_named():
    url = "postgresql://ola:secret@127.0.0.1:1/work"
    with complaint(url, "ola@127.0.0.1:1", "refused", "start the server"):
        PostgresStore(url)
    nowhere = "postgresql://ola:secret@/work?host=/nowhere"
    with complaint(nowhere, "/nowhere", "start the server"):
        PostgresStore(nowhere)


def test_a_database_that_does_not_exist_is_named(postgres_server: PostgresServer):
    url = postgres_server.url("nothing")
    with complaint(url, 'database "nothing" does not exist', "createdb"):
        PostgresStore(url)


def test_a_wrong_password_is_not_told():
    with PostgresServer(tcp=True) as server:
        right = urlsplit(server.url())
        wrong = right._replace(netloc=f"postgres:secret@127.0.0.1:{right.port}").geturl()
        with complaint(wrong, "password authentication failed", "correct user and password"):
            PostgresStore(wrong)
        with closing(PostgresStore(server.url())) as store:
            assert right.password
            assert right.password not in store.database.display_name


def test_a_database_of_another_program_is_left_alone(postgres_url: str):
    with psycopg.connect(postgres_url) as db:
        db.execute("CREATE TABLE agents (name text)")
    with complaint(postgres_url, "another program (agents)", "search_path"):
        PostgresStore(postgres_url)
    assert tables(postgres_url) == ["agents"]


def test_a_schema_of_its_own_makes_room_beside_another_program(postgres_url: str):
    with psycopg.connect(postgres_url) as db:
        db.execute("CREATE TABLE agents (name text)")
    url = f"{postgres_url}&options=-csearch_path%3Dhandrail"
    with complaint(url, "no schema of its search_path exists", "create the schema"):
        PostgresStore(url)
    with psycopg.connect(postgres_url) as db:
        db.execute("CREATE SCHEMA handrail")
    with closing(PostgresStore(url)) as store:
        assert commit_writes(store, full_write("r1")) == [True]
    assert tables(postgres_url) == ["agents"]


def test_a_database_of_a_newer_handrail_is_left_alone(postgres_url: str, store: PostgresStore):
    with psycopg.connect(postgres_url) as db:
        db.execute("UPDATE handrail_schema SET version = 99")
    with complaint(postgres_url, "newer Handrail", "schema 99", "upgrade"):
        PostgresStore(postgres_url)


def test_a_database_made_before_the_first_release_is_refused(
    postgres_url: str, store: PostgresStore
):
    with psycopg.connect(postgres_url) as db:
        db.execute("UPDATE handrail_schema SET version = 6")
    with complaint(postgres_url, "before Handrail 0.1.0 (schema 6)", "name a new database"):
        PostgresStore(postgres_url)


@pytest.mark.parametrize("read_only", [False, True])
def test_a_database_of_another_build_with_the_same_number_is_refused(
    postgres_url: str, store: PostgresStore, read_only: bool
):
    with psycopg.connect(postgres_url) as db:
        db.execute("ALTER TABLE beads DROP COLUMN due_at")
    with complaint(postgres_url, "'beads' has no column 'due_at'", "another build"):
        PostgresStore(postgres_url, read_only=read_only)


def test_who_only_reads_makes_nothing(postgres_url: str):
    with complaint(postgres_url, "schema 0", "handrail serve"):
        PostgresStore(postgres_url, read_only=True)
    assert tables(postgres_url) == []
    with closing(PostgresStore(postgres_url)) as store:
        assert commit_writes(store, full_write("r1")) == [True]
    with closing(PostgresStore(postgres_url, read_only=True)) as store:
        assert store.runs.load(["r1"]).keys() == {"r1"}
        with complaint(postgres_url, "read-only"):
            store.beads.create(a.bead("b9"), None)
        with complaint(postgres_url, "read-only"):
            store.commit([full_write("r2")], a.at())


def test_a_server_that_does_not_sync_is_warned_of(postgres_url: str, store: PostgresStore):
    assert postgres_database(store).warnings == ()
    with PostgresServer(settings={"fsync": "off"}) as server:
        unsafe = PostgresStore(server.create_database())
        unsafe.close()
    (warning,) = postgres_database(unsafe).warnings
    assert "fsync = off" in warning


def test_a_store_that_was_closed_says_so(store: PostgresStore, postgres_url: str):
    store.close()
    for use in (store.journal.get_last_commit, lambda: store.commit([full_write("r1")], a.at())):
        with pytest.raises(StoreError, match="the store is closed"):
            use()


def test_many_may_open_an_empty_database_at_once(postgres_url: str):
    opened: list[PostgresStore] = []
    together(*[lambda: opened.append(PostgresStore(postgres_url))] * 4)
    for n, one in enumerate(opened):
        assert commit_writes(one, full_write(f"r{n}")) == [True]
        one.close()


# A connection that breaks


@contextmanager
def held(url: str, statement: str) -> "Iterator[psycopg.Connection[Any]]":
    """Rows that somebody else has locked, until the block ends."""
    with psycopg.connect(url) as db:
        db.execute(statement.encode())
        yield db
        db.rollback()


def end_who_waits(admin: "psycopg.Connection[Any]") -> None:
    """Ends the session that waits for a lock, once there is one."""
    waiting = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    while not admin.execute(waiting).fetchall():
        pass


def broken(
    store: PostgresStore,
    admin: "psycopg.Connection[Any]",
    url: str,
    lock: str,
    write: StreamWrite,
) -> StoreError:
    """What a commit raises whose connection breaks while it waits for that lock."""
    caught: list[StoreError] = []

    def commit() -> None:
        try:
            store.commit([write], a.at())
        except StoreError as error:
            caught.append(error)

    with held(url, lock):
        together(commit, lambda: end_who_waits(admin))
    (error,) = caught
    assert "\n" not in str(error)
    return error


def test_a_connection_that_breaks_before_the_end_of_a_commit_has_written_nothing(
    store: PostgresStore, admin: "psycopg.Connection[Any]", postgres_url: str
):
    before = a.snapshot(store)
    lock = "LOCK workflow_executions IN EXCLUSIVE MODE"
    error = broken(store, admin, postgres_url, lock, full_write("r1"))
    assert not isinstance(error, CommitOutcomeUnknownError)
    assert a.snapshot(store) == before
    assert commit_writes(store, full_write("r1")) == [True]


def test_a_connection_that_breaks_after_commit_was_sent_leaves_it_unsure(
    store: PostgresStore, admin: "psycopg.Connection[Any]", postgres_url: str
):
    begun = full_write("r1")
    assert commit_writes(store, begun) == [True]
    before = a.snapshot(store)
    for lock in ("SELECT FROM chain FOR UPDATE", "SELECT FROM workflow_executions FOR UPDATE"):
        error = broken(store, admin, postgres_url, lock, full_write("r1", begun))
        assert isinstance(error, CommitOutcomeUnknownError)
        assert a.snapshot(store) == before
    assert commit_writes(store, full_write("r1", begun)) == [True]


def test_a_commit_whose_answer_was_lost_is_unsure_and_there(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
):
    real = writing.run_pipeline

    def deaf(db: database.PostgresConnection, steps: list[PipelineStep]) -> Any:
        results = real(db, steps)
        if steps[-1] == writing.COMMIT:
            db.close()
            raise psycopg.OperationalError("server closed the connection unexpectedly")
        return results

    monkeypatch.setattr(writing, "run_pipeline", deaf)
    with pytest.raises(CommitOutcomeUnknownError):
        store.commit([full_write("r1")], a.at())
    monkeypatch.undo()
    assert store.runs.load(["r1"])["r1"].row.head == full_write("r1").entry.hash
    assert commit_writes(store, full_write("r1")) == [False]


def test_a_server_that_was_restarted_is_not_noticed():
    with (
        PostgresServer() as server,
        closing(PostgresStore(server.create_database())) as store,
    ):
        begun = full_write("r1")
        assert commit_writes(store, begun) == [True]
        for end in (server.crash, server.kill, server.stop):
            end()
            server.start()
            assert store.runs.load(["r1"])["r1"].row.head == begun.entry.hash
            store.engines.heartbeat("e1", a.at())
            begun = full_write("r1", begun)
            assert commit_writes(store, begun) == [True]
        check_chain(list(store.journal.iter_commits(0, 100)))


def test_a_server_that_is_gone_is_told_and_found_again(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("handrail.store.postgres.connection.RECONNECT_PAUSES_SECONDS", (0, 0))
    with PostgresServer() as server:
        url = server.create_database()
        with closing(PostgresStore(url)) as store:
            assert commit_writes(store, full_write("r1")) == [True]
            server.crash()
            with complaint(url, "start the server"):
                store.commit([full_write("r2")], a.at())
            with complaint(url, "start the server"):
                store.journal.get_last_commit()
            server.start()
            assert commit_writes(store, full_write("r2")) == [True]
            assert store.runs.load(["r1", "r2"]).keys() == {"r1", "r2"}


# Engines that share the database


def test_overlapping_commits_of_two_engines_never_wait_for_each_other(
    postgres_url: str, store: PostgresStore, admin: "psycopg.Connection[Any]"
):
    ids = [f"r{n}" for n in range(20)]
    assert all(commit_writes(store, *(a.begin(a.run(run_id)) for run_id in ids)))
    wins: list[bytes] = []

    def work(seed: int) -> None:
        chance = random.Random(seed)
        with closing(PostgresStore(postgres_url)) as one:
            for turn in range(30):
                chosen = chance.sample(ids, 10)
                loaded = one.runs.load(chosen)
                writes = [
                    a.follow(
                        loaded[run_id].row,
                        body=f"[{seed},{turn}]",
                        position_only=chance.random() < 0.5,
                        dispatches=[a.dispatch(run_id, 1000 * seed + turn, place=f"{seed} {turn}")],
                        keys=[a.key(f"{seed} {turn} {run_id}")],
                    )
                    for run_id in chosen
                ]
                _, who = one.commit(writes, a.at(turn))
                wins.extend(w.entry.hash for w, ok in zip(writes, who, strict=True) if ok)
                one.dispatches.reserve("coder", 5)
                one.runs.postpone(
                    [(w.entry.stream, w.entry.hash, a.at(700 + turn)) for w in writes]
                )

    together(*[lambda seed=seed: work(seed) for seed in (1, 2, 3)])
    assert admin.execute(
        "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    ).fetchall() == [(0,)]
    commits = list(store.journal.iter_commits(0, 10_000))
    check_chain(commits)
    recorded = [entry.hash for commit, entries in commits[1:] for entry in entries]
    assert sorted(recorded) == sorted(wins)
    assert [entry for _, entries in commits for entry in entries] == store.journal.read_feed(
        0, 10_000
    )


def test_engines_that_race_for_dispatches_never_get_the_same_one(
    postgres_url: str, store: PostgresStore
):
    offers = [a.dispatch("r1", fence, offered_at=a.at(fence)) for fence in range(200)]
    assert commit_writes(store, a.begin(a.run(), dispatches=offers)) == [True]
    got: list[int] = []

    def work() -> None:
        with closing(PostgresStore(postgres_url)) as one:
            mine: set[int] = set()
            for turn in range(1, 10):
                fences = [row.fence for row in one.dispatches.reserve("coder", 7 * turn)]
                assert fences == sorted(fences)
                mine.update(fences)
            got.extend(mine)

    together(work, work, work)
    got.extend(row.fence for row in store.dispatches.reserve("coder", 200))
    assert sorted(got) == list(range(200))


def test_who_reserved_a_dispatch_finds_it_again_and_others_do_not(
    postgres_url: str, store: PostgresStore
):
    offers = [a.dispatch("r1", fence, offered_at=a.at(fence)) for fence in range(3)]
    assert commit_writes(store, a.begin(a.run(), dispatches=offers)) == [True]
    with closing(PostgresStore(postgres_url)) as other:
        assert store.dispatches.reserve("coder", 2) == offers[:2]
        assert store.dispatches.reserve("coder", 2) == offers[:2]
        assert other.dispatches.reserve("coder", 3) == offers[2:]
        assert store.dispatches.reserve("coder", 3) == offers[:2]


def test_a_reservation_ends_with_a_claim_that_is_given_back(
    postgres_url: str, store: PostgresStore
):
    begun = a.begin(a.run(), dispatches=[offer := a.dispatch("r1", 1)])
    assert commit_writes(store, begun) == [True]
    assert store.dispatches.reserve("coder", 1) == [offer]
    claim = a.follow(begun, dispatches=[a.claimed_dispatch(offer)])
    back = a.follow(claim, dispatches=[offer])
    with closing(PostgresStore(postgres_url)) as other:
        assert not other.dispatches.reserve("coder", 1)
        assert commit_writes(store, claim) == [True]
        assert commit_writes(store, back) == [True]
        assert other.dispatches.reserve("coder", 1) == [offer]


def test_the_feed_never_skips_a_commit_that_is_under_way(postgres_url: str, store: PostgresStore):
    """Numbers are given in the order of commits: who has read n has seen all before it."""
    seen: list[int] = []

    def work(name: str) -> None:
        with closing(PostgresStore(postgres_url)) as one:
            for turn in range(40):
                assert commit_writes(one, a.begin(a.stream(f"{name} {turn}"))) == [True]

    def read() -> None:
        while len(seen) < 120:
            seen.extend(entry.n for entry in store.journal.read_feed(seen[-1] if seen else 0, 10))

    together(read, *[lambda name=name: work(name) for name in "abc"])
    assert seen == list(range(1, 121))


def test_deadlocks_are_tried_again_and_then_told(
    store: Store, postgres_url: str, monkeypatch: pytest.MonkeyPatch
):
    real, failures = writing.run_pipeline, [3]

    def stuck(db: database.PostgresConnection, steps: list[PipelineStep]) -> Any:
        if steps[-1] == writing.COMMIT and failures[0]:
            failures[0] -= 1
            raise psycopg.errors.DeadlockDetected("deadlock detected")
        return real(db, steps)

    monkeypatch.setattr(writing, "run_pipeline", stuck)
    assert commit_writes(store, full_write("r1")) == [True]
    failures[0] = 99
    with complaint(postgres_url, "deadlock", "try again"):
        store.commit([full_write("r2")], a.at())
    failures[0] = 0
    assert commit_writes(store, full_write("r2")) == [True]


# A write that cannot be written


@pytest.mark.parametrize(
    "impossible",
    [
        lambda: a.begin(a.run("bad", status="dancing")),
        lambda: a.begin(a.run("bad", current_node_id="a\0b")),
        lambda: a.begin(a.run("bad", state="no JSON")),
        lambda: a.begin(a.run("bad", state="[" * 100_000 + "]" * 100_000)),
        lambda: a.begin(a.run("bad", bead_id=random.Random(1).randbytes(9_000).hex())),
        lambda: a.begin(a.run("bad", priority=2**63)),
        lambda: a.begin(a.run("bad", created_at="yesterday or so")),
        lambda: a.begin(a.run("bad"), keys=[a.key("k-r3-1")]),
    ],
    ids=["check", "NUL", "JSON", "depth", "index", "number", "time", "key"],
)
def test_what_cannot_be_written_loses_alone(
    store: PostgresStore, impossible: Callable[[], StreamWrite]
):
    batch = [full_write(f"r{n}") for n in range(20)]
    batch.insert(7, impossible())
    assert commit_writes(store, *batch) == [True] * 7 + [False] + [True] * 13
    check_chain(list(store.journal.iter_commits(0, 10)))
    assert [entry.stream for entry in store.journal.read_feed(0, 100)] == [
        f"r{n}" for n in range(20)
    ]


def test_a_run_that_the_journal_contradicts_stops_nobody_else(
    store: PostgresStore, admin: "psycopg.Connection[Any]"
):
    """As after a repair by hand that took back the row of a run, but not its journal."""
    begun, other = full_write("r1"), full_write("r2")
    assert commit_writes(store, begun, other) == [True, True]
    assert commit_writes(store, full_write("r1", begun)) == [True]
    admin.execute(
        "UPDATE workflow_executions SET head = %s, seq = 1, state_seq = 1 WHERE id = 'r1'",
        (begun.entry.hash,),
    )
    again = a.follow(begun, body='["another"]')
    assert commit_writes(store, again, a.follow(other)) == [False, True]
    assert commit_writes(store, again) == [False]
    check_chain(list(store.journal.iter_commits(0, 10)))
