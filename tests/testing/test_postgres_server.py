"""The PostgreSQL for tests: real, durable, and gone without a trace when it is over."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from handrail.testing import postgres
from handrail.testing.postgres import PostgresError, PostgresServer

WAIT = 30


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as running:
        yield running


def processes(server: PostgresServer) -> list[psutil.Process]:
    postmaster = psutil.Process(server.pid)
    return [postmaster, *postmaster.children(recursive=True)]


def alive(found: list[psutil.Process]) -> list[psutil.Process]:
    return [process for process in found if not postgres._is_dead(process)]


def ask(url: str, query: str) -> list[object]:
    with psycopg.connect(url, autocommit=True) as connection:
        return [row[0] for row in connection.execute(query.encode())]


def write(url: str, number: int) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("create table if not exists kept (number bigint)")
        connection.execute("insert into kept values (%s)", (number,))


@pytest.mark.parametrize("end", ["crash", "kill", "stop"])
def test_a_committed_row_survives_the_end_of_the_server(server: PostgresServer, end: str):
    url = server.create_database()
    write(url, 7)
    with psycopg.connect(url) as open_transaction:
        open_transaction.execute("insert into kept values (8)")
        before = processes(server)
        getattr(server, end)()
        assert alive(before) == []
        assert not server.running
        server.start()
        with pytest.raises(psycopg.OperationalError):
            open_transaction.execute("select 1")
    assert ask(url, "select number from kept") == [7]


@pytest.mark.parametrize("end", ["crash", "kill"])
def test_a_crashed_server_recovers_from_its_log(end: str):
    with PostgresServer() as server:
        getattr(server, end)()
        server.start()
        assert "database system was not properly shut down" in server.log_tail()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("fsync", "on"),
        ("synchronous_commit", "on"),
        ("full_page_writes", "on"),
        ("autovacuum", "on"),
        ("max_connections", "100"),
        ("shared_buffers", "64MB"),
        ("timezone", "UTC"),
        ("server_encoding", "UTF8"),
    ],
)
def test_the_server_is_set_as_one_would_run_it(server: PostgresServer, name: str, value: str):
    assert ask(server.url(), f"show {name}") == [value]
    assert server.url().startswith("postgresql://postgres@/postgres?host=")


def test_two_databases_are_apart(server: PostgresServer):
    first, second = server.create_database(), server.create_database()
    write(first, 1)
    assert ask(second, "select to_regclass('kept')") == [None]


def test_a_database_can_be_copied_from_one_that_was_made_before(server: PostgresServer):
    first = server.create_database()
    write(first, 1)
    [name] = ask(first, "select current_database()")
    assert ask(server.create_database(template=str(name)), "select number from kept") == [1]


def test_a_database_is_dropped_even_while_someone_is_in_it(server: PostgresServer):
    url = server.create_database()
    with psycopg.connect(url) as connection:
        server.drop_database(url)
        with pytest.raises(psycopg.errors.AdminShutdown):
            connection.execute("select 1")
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(url)


def test_closing_leaves_no_process_and_no_folder():
    with PostgresServer() as server:
        server.create_database()
        before, folder = processes(server), server.folder
        assert len(before) > 3
    assert alive(before) == []
    assert not folder.exists()


def test_data_in_a_given_folder_is_kept_and_taken_up_again(tmp_path: Path):
    """Also if we are root and nobody else may enter that folder."""
    tmp_path.chmod(0o700)
    with PostgresServer(tmp_path / "kept") as server:
        url = server.create_database()
        write(url, 7)
        [name] = ask(url, "select current_database()")
    with PostgresServer(tmp_path / "kept") as server:
        assert ask(server.url(str(name)), "select number from kept") == [7]


def test_the_port_asks_for_a_password_and_stays_the_same():
    with PostgresServer(tcp=True) as server:
        url = server.create_database()
        assert "@127.0.0.1:" in url
        write(url, 7)
        server.crash()
        server.start()
        assert ask(url, "select number from kept") == [7]
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(url, password="a guess")


def test_a_server_that_does_not_start_shows_its_log():
    server = PostgresServer(settings={"shared_buffers": "much"})
    with pytest.raises(PostgresError, match='invalid value for parameter "shared_buffers"'):
        server.start()
    server.close()


@pytest.mark.parametrize("by", ["an exit", "kill -9"])
def test_the_server_ends_with_the_process_that_started_it(by: str):
    """The janitor holds the pipe's other end open until it has ended all and removed the folder."""
    program = f"""
import os, signal
from handrail.testing.postgres import PostgresServer, _current_workspace
server = PostgresServer()
server.start()
print(server.pid, _current_workspace().cleanup_process.pid, _current_workspace().folder, flush=True)
input()
if {by == "kill -9"}:
    os.kill(os.getpid(), signal.SIGKILL)
"""
    child = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    pid, janitor, folder = child.stdout.readline().split()
    postmaster = psutil.Process(int(pid))
    started = [postmaster, *postmaster.children(recursive=True), psutil.Process(int(janitor))]
    child.communicate("end", timeout=WAIT)
    assert child.returncode == (-signal.SIGKILL if by == "kill -9" else 0)
    assert postgres.wait_until(WAIT, lambda: not alive(started))
    assert not Path(folder).exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights to lend")
def test_as_root_the_server_runs_as_nobody(server: PostgresServer):
    assert {process.username() for process in processes(server)} == {"nobody"}


@pytest.mark.skipif(os.geteuid() != 0, reason="others can enter what they own")
def test_as_root_no_folder_needs_to_be_open_to_others(monkeypatch: pytest.MonkeyPatch):
    """Programs and data lie in folders that only root may enter."""
    monkeypatch.setattr(postgres, "_can_reach", lambda path, account: False)
    monkeypatch.setattr(postgres, "_workspaces", [])
    try:
        with PostgresServer() as server:
            write(server.url(), 7)
            assert ask(server.url(), "show data_directory") != [str(server.folder / "data")]
            assert "handrail-postgres-" in psutil.Process(server.pid).exe()
            server.kill()
            server.start()
            assert ask(server.url(), "select number from kept") == [7]
    finally:
        postgres._current_workspace().close()
