"""Several servers, one of which takes writes: which one is it, and when has a commit happened?"""

import signal
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import psutil
import psycopg
import pytest
from tests.failover.replicated_database import Pair
from tests.store.databases import postgres_database

from handrail.store.postgres import connection
from handrail.store.postgres import database as opening
from handrail.store.postgres.primary import PrimaryFinder
from handrail.store.postgres.store import PostgresStore
from handrail.store.rows import (
    AcknowledgedDataLostError,
    CommitOutcomeUnknownError,
    CommitRow,
    StoreError,
    StreamWrite,
)
from handrail.store.urls import open_maintenance_store
from handrail.testing import row_factories as a
from handrail.testing.conformance_commits import commit_writes, full_write
from handrail.testing.postgres import PostgresServer, wait_until
from handrail.testing.replica import Replica

pytest_plugins = ["tests.fixtures_postgres"]

NOWHERE = "127.0.0.1:1"
SECONDS = 120
BEAD = a.bead("b1")


# Addresses


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("postgresql://ola:secret@h1:5432,h2:5433/work", "postgresql://ola@h1:5432,h2:5433/work"),
        ("postgresql://ola:secret@h1,h2:5433/work", "postgresql://ola@h1,h2:5433/work"),
        ("postgresql://h1,h2/work?password=secret", "postgresql://h1,h2/work"),
        ("postgresql:///work?host=/a,/b&port=7", "postgresql:///a:7,/b:7/work"),
    ],
)
def test_several_servers_are_named_without_their_password(url: str, named: str):
    where, servers = opening.parse_url(url)
    assert where == named
    assert len(servers) == 2
    assert not any("," in str(server.get(key)) for server in servers for key in ("host", "port"))


def test_hosts_and_ports_that_do_not_fit_are_told():
    with pytest.raises(StoreError, match="a host without a port") as caught:
        PrimaryFinder("postgresql://ola:secret@/work?host=a,b,c&port=1,2")
    assert "secret" not in str(caught.value)


def test_a_server_that_is_away_is_passed_over():
    with PostgresServer(tcp=True) as server:
        url = server.create_database()
        before = url.replace("@", f"@{NOWHERE},")
        behind = url.replace("/handrail", f",{NOWHERE}/handrail")
        for number, pair in enumerate((before, behind)):
            with closing(PostgresStore(pair)) as store:
                store.beads.create(a.bead(f"b{number}"), None)
            with closing(open_maintenance_store(pair, read_only=True)) as store:
                assert store.beads.get(f"b{number}") is not None


def test_when_none_takes_writes_all_are_told():
    with pytest.raises(StoreError, match="start the server") as caught:
        PostgresStore(f"postgresql://ola:secret@{NOWHERE},127.0.0.1:2/work")
    said = str(caught.value)
    assert f"postgresql://ola@{NOWHERE},127.0.0.1:2/work: " in said
    assert "port 1 failed" in said
    assert "port 2 failed" in said
    assert "secret" not in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("setting", "value"),
    [("connect_timeout", "5"), ("keepalives_idle", "5"), ("tcp_user_timeout", "10000")],
)
def test_a_server_that_vanished_is_noticed_in_seconds_unless_the_url_says_otherwise(
    postgres_url: str, setting: str, value: str
):
    for url, wanted in ((postgres_url, value), (f"{postgres_url}&{setting}=77", "77")):
        db, _ = PrimaryFinder(url).connect()
        assert db.info.get_parameters()[setting] == wanted
        db.close()


# Which server


def tell(server: PostgresServer, database: str, query: str) -> list[tuple[object, ...]]:
    """Somebody else's look."""
    with psycopg.connect(server.url(database), autocommit=True) as db:
        found = db.execute(query.encode())
        return found.fetchall() if found.description else []


def streams(server: Replica, database: str) -> list[object]:
    return [name for (name,) in tell(server, database, "SELECT stream FROM journal ORDER BY id")]


@pytest.mark.heavy
def test_a_promoted_standby_is_found_by_the_same_store(pair: Pair):
    with closing(PostgresStore(pair.url)) as store:
        assert commit_writes(store, full_write("r1")) == [True]
        pair.primary.kill()
        pair.take_over()
        assert commit_writes(store, full_write("r2")) == [True]
        assert store.runs.load(["r1", "r2"]).keys() == {"r1", "r2"}
        assert streams(pair.primary, pair.database) == ["r1", "r2"]


@pytest.mark.heavy
def test_an_old_primary_that_comes_back_is_not_written_to(pair: Pair):
    pair.primary.require_standby(False)
    with closing(PostgresStore(pair.url)) as store:
        assert commit_writes(store, full_write("r1")) == [True]
        pair.primary.kill()
        pair.take_over()
        pair.standby.start()  # by itself, as if nothing had happened
        assert not pair.standby.is_standby
        assert commit_writes(store, full_write("r2")) == [True]
        for name, url in (("r3", pair.url), ("r4", pair.url_reversed)):
            with closing(PostgresStore(url)) as another:
                assert commit_writes(another, full_write(name)) == [True]
        assert streams(pair.standby, pair.database) == ["r1"]
        assert streams(pair.primary, pair.database) == ["r1", "r2", "r3", "r4"]


@pytest.mark.heavy
def test_who_has_seen_the_new_primary_does_not_go_back_to_the_old_one(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(connection, "RECONNECT_PAUSES_SECONDS", (0,))
    pair.primary.require_standby(False)
    with closing(PostgresStore(pair.url)) as store:
        assert commit_writes(store, full_write("r1")) == [True]
        pair.primary.kill()
        pair.take_over()
        assert commit_writes(store, full_write("r2")) == [True]
        pair.primary.kill()
        pair.standby.start()
        for use in (
            store.journal.get_last_commit,
            lambda: store.commit([full_write("r3")], a.at()),
        ):
            with pytest.raises(StoreError, match=r"only an old primary takes writes .*standby"):
                use()
        pair.primary.start()
        assert commit_writes(store, full_write("r3")) == [True]
        assert streams(pair.standby, pair.database) == ["r1"]


@pytest.mark.heavy
def test_when_one_connection_has_found_the_new_primary_all_leave_the_old_one(pair: Pair):
    """The old one still runs, and would answer with what is over."""
    pair.primary.require_standby(False)
    with closing(PostgresStore(pair.url)) as store, closing(store.open_reader()) as reader:
        assert commit_writes(store, full_write("r1")) == [True]
        assert store.runs.load(["r1"])
        assert reader.runs.load(["r1"])
        pair.take_over()
        with postgres_database(store)._writer.use() as db:
            pid = db.info.backend_pid
        tell(pair.standby, pair.database, f"SELECT pg_terminate_backend({pid}, 60000)")
        assert commit_writes(store, full_write("r2")) == [True]
        for one in (store, reader):
            assert one.runs.load(["r1", "r2"]).keys() == {"r1", "r2"}
        assert streams(pair.standby, pair.database) == ["r1"]


@pytest.mark.heavy
def test_who_only_reads_asks_the_primary_and_is_content_with_a_standby(pair: Pair, tmp_path: Path):
    """A standby may be a moment behind: `verify --head` would miss what was just acknowledged."""
    with closing(PostgresStore(pair.url)) as store:
        assert commit_writes(store, full_write("r1")) == [True]
    ((position,),) = pair.primary.query("SELECT pg_current_wal_lsn()::text")
    pair.standby.wait_for_rows(f"SELECT pg_last_wal_replay_lsn() >= '{position}'", [(True,)])
    pair.standby.query("SELECT pg_wal_replay_pause()")
    with closing(PostgresStore(pair.url)) as store:
        assert commit_writes(store, full_write("r2")) == [True]
    for url in (pair.url, pair.url_reversed):
        with closing(open_maintenance_store(url, read_only=True)) as reading:
            assert reading.runs.load(["r1", "r2"]).keys() == {"r1", "r2"}
    pair.primary.kill()
    with closing(open_maintenance_store(pair.url, read_only=True)) as reading:
        assert reading.runs.load(["r1", "r2"]).keys() == {"r1"}
        reading.backup(tmp_path / "taken from a standby")
    pair.standby.query("SELECT pg_wal_replay_resume()")
    pair.primary.start()


def test_a_server_that_takes_no_more_writes_is_left(postgres_url: str):
    with closing(PostgresStore(postgres_url)) as store:
        database = postgres_database(store)
        for use in (database._writer.use, database._borrow_connection):
            with use() as db:
                db.execute("SET default_transaction_read_only = on")
        for write in (
            lambda: store.commit([full_write("r1")], a.at()),
            lambda: store.beads.create(BEAD, None),
        ):
            with pytest.raises(StoreError, match="connect to the server that takes writes"):
                write()
            write()


# When a commit has happened


def be_impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "ANSWER_SECONDS", 1)
    monkeypatch.setattr(connection, "RECONNECT_PAUSES_SECONDS", (0,))


def test_what_was_sent_before_the_connection_broke_is_not_done_after_the_look(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
):
    """The server has the commit, and waits for somebody else's lock while we look."""
    with closing(PostgresStore(postgres_url)) as store:
        assert commit_writes(store, full_write("r1")) == [True]
        be_impatient(monkeypatch)
        with psycopg.connect(postgres_url) as somebody:
            somebody.execute("SELECT FROM chain FOR UPDATE")
            with pytest.raises(CommitOutcomeUnknownError, match="no answer for 1 s"):
                store.commit([full_write("r2")], a.at())
            store.check_commit_settled()
            assert store.journal.read("r2") == []
        with psycopg.connect(postgres_url) as somebody:
            somebody.execute("SELECT FROM chain FOR UPDATE")  # whoever waited before us is done
        assert store.journal.read("r2") == []
        assert commit_writes(store, full_write("r2")) == [True]


def waits(pair: Pair) -> bool:
    waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
    return bool(tell(pair.primary, pair.database, waiting))


@contextmanager
def waiting_for_its_standby(
    pair: Pair, store: PostgresStore, write: StreamWrite
) -> "Iterator[Future[tuple[CommitRow | None, list[bool]]]]":
    """A commit under way that the standby, which is away, does not confirm."""
    pair.standby.stop()
    with ThreadPoolExecutor(1) as thread:
        commit = thread.submit(store.commit, [write], a.at())
        assert wait_until(SECONDS, lambda: waits(pair))
        yield commit


def settled(store: PostgresStore) -> bool:
    try:
        store.check_commit_settled()
    except StoreError:
        return False
    return True


@pytest.mark.heavy
def test_a_commit_that_waits_for_its_standby_is_unsure_until_that_is_back(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
):
    with closing(PostgresStore(pair.url)) as store:
        begun = full_write("r1")
        assert commit_writes(store, begun) == [True]
        assert store.runs.load(["r1"])
        be_impatient(monkeypatch)
        with (
            waiting_for_its_standby(pair, store, full_write("r1", begun)) as commit,
            pytest.raises(CommitOutcomeUnknownError, match="no answer for 1 s"),
        ):
            commit.result(SECONDS)
        for use in (store.check_commit_settled, lambda: store.commit([full_write("r2")], a.at())):
            with pytest.raises(StoreError, match=r"waits for a standby .* start the standby"):
                use()
        assert len(store.journal.read("r1")) == 1
        pair.standby.start()
        assert wait_until(SECONDS, lambda: settled(store))
        assert len(store.journal.read("r1")) == 2
        assert commit_writes(store, full_write("r2")) == [True]


@pytest.mark.heavy
def test_what_a_crash_left_without_a_standby_is_shown_to_nobody_before_the_standby_has_it(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
):
    with closing(PostgresStore(pair.url)) as store:
        assert commit_writes(store, full_write("r1")) == [True]
        with waiting_for_its_standby(pair, store, full_write("r2")) as commit:
            pair.primary.crash()
            pair.primary.start()
            with pytest.raises(CommitOutcomeUnknownError):
                commit.result(SECONDS)
        assert streams(pair.primary, pair.database) == ["r1", "r2"], "PostgreSQL itself shows it"
        be_impatient(monkeypatch)
        for use in (
            store.check_commit_settled,
            lambda: store.journal.read("r2"),
            lambda: store.runs.load(["r2"]),
        ):
            with pytest.raises(StoreError, match="no answer for 1 s"):
                use()
        pair.primary.kill()
        pair.standby.start()
        pair.take_over()
        assert wait_until(SECONDS, lambda: settled(store))
        assert store.journal.read("r2") == []
        assert commit_writes(store, full_write("r2")) == [True]


@pytest.mark.heavy
def test_a_wait_for_the_standby_that_somebody_cancels_is_no_success(pair: Pair):
    with closing(PostgresStore(pair.url)) as store:
        assert commit_writes(store, full_write("r1")) == [True]
        with waiting_for_its_standby(pair, store, full_write("r2")) as commit:
            cancel = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = "
            tell(pair.primary, pair.database, cancel + "'SyncRep'")
            with pytest.raises(
                CommitOutcomeUnknownError, match="the wait for the standby was cancelled"
            ):
                commit.result(SECONDS)
        pair.standby.start()
        assert wait_until(SECONDS, lambda: settled(store))
        assert len(store.journal.read("r2")) == 1


@pytest.mark.heavy
def test_a_standby_that_lacks_what_was_acknowledged_is_not_gone_on_with(pair: Pair):
    pair.primary.require_standby(False)
    with closing(PostgresStore(pair.url)) as store:
        assert commit_writes(store, full_write("r1")) == [True]
        position = pair.primary.query("SELECT pg_current_wal_lsn()")
        pair.standby.wait_for_rows(
            f"SELECT pg_last_wal_replay_lsn() >= '{position[0][0]}'", [(True,)]
        )
        pair.standby.stop_streaming()
        assert commit_writes(store, full_write("r2")) == [True]
        pair.primary.kill()
        pair.take_over()
        with pytest.raises(AcknowledgedDataLostError, match=r"commit 2 .* is missing now"):
            store.commit([full_write("r3")], a.at())
        with closing(PostgresStore(pair.url)) as another:
            assert commit_writes(another, full_write("r3")) == [True]


def everything(server: PostgresServer) -> list[psutil.Process]:
    postmaster = psutil.Process(server.pid)
    return [postmaster, *postmaster.children(recursive=True)]


@pytest.mark.heavy
def test_a_server_that_stands_still_is_left_for_the_one_that_took_over(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
):
    with closing(PostgresStore(f"{pair.url}?connect_timeout=2")) as store:
        assert commit_writes(store, full_write("r1")) == [True]
        assert store.runs.load(["r1"])
        be_impatient(monkeypatch)
        frozen = everything(pair.primary)
        for process in frozen:
            process.send_signal(signal.SIGSTOP)
        pair.take_over()
        with pytest.raises(StoreError, match="no answer for 1 s"):
            store.commit([full_write("r2")], a.at())
        assert store.runs.load(["r1"])
        assert commit_writes(store, full_write("r2")) == [True]
        for process in frozen:
            process.send_signal(signal.SIGCONT)
        assert streams(pair.standby, pair.database) == ["r1"]
