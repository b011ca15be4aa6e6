"""Which database or server a command means, and what is said when it cannot be asked."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from tests.cli.command_line import CommandResult, run_command
from tests.cli.command_targets import CommandTargets
from tests.client.live_server import free_port
from tests.engine.sample_database import SampleDatabase

pytest_plugins = ["tests.cli.fixtures_command_targets", "tests.fixtures_postgres"]

COMMANDS = (
    ["runs"],
    ["show", "x"],
    ["show", "--watch", "x"],
    ["report", "x"],
    ["why", "x"],
    ["metrics"],
    ["answer"],
    ["answer", "x", "ok"],
    ["override", "x", "close", "--reason", "y"],
    ["agents"],
    ["bead", "create", "x", "--title", "y"],
    ["token", "list"],
    ["token", "revoke", "x"],
)


def line(called: CommandResult, code: int = 2) -> str:
    assert (called.code, called.out) == (code, "")
    (told,) = called.err.splitlines()
    assert told.startswith("handrail ")
    return told.partition(": ")[2]


@pytest.fixture(autouse=True)
def _here(here: Path) -> None:
    """Nobody's folder."""


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_without_a_database_nothing_is_made_and_the_remedy_is_named(command: list[str], here: Path):
    told = "there is no database .handrail/handrail.db; `handrail serve` makes one here; else "
    assert line(run_command(*command)) == f"{told}name one with --database or HANDRAIL_DATABASE"
    assert list(here.iterdir()) == []


def test_a_database_that_is_none_is_told(here: Path):
    (here / "text").write_text("no database")
    for url, why in (
        ("sqlite:///no.db", "there is no database no.db"),
        ("sqlite:///text", "name a Handrail database"),
        ("sqlite://", "in memory"),
        ("mysql://x", "'mysql' is not a database that Handrail supports"),
        ("sqlite:no", "'sqlite' is not a database that Handrail supports"),
        ("postgresql://127.0.0.1:1/x", "127.0.0.1"),
    ):
        assert why in line(run_command("runs", "--database", url))


def test_a_flag_counts_before_the_environment_and_that_before_the_file(
    sample_database: SampleDatabase, here: Path, monkeypatch: pytest.MonkeyPatch
):
    (here / "handrail.toml").write_text('server = "http://127.0.0.1:1"\n')
    assert "no server answers at http://127.0.0.1:1" in line(run_command("runs"), 1)
    monkeypatch.setenv("HANDRAIL_DATABASE", "sqlite:///no.db")
    assert "there is no database no.db" in line(run_command("runs"))
    assert run_command("runs", "--database", sample_database.url).code == 0
    assert "http://127.0.0.1:2" in line(run_command("runs", "--server", "http://127.0.0.1:2"), 1)


def test_both_a_database_and_a_server_are_one_too_many(monkeypatch: pytest.MonkeyPatch):
    targets = ["--database", "sqlite:///x.db", "--server", "http://127.0.0.1:1"]
    told = "are both set; remove one of them"
    assert line(run_command("runs", *targets)) == f"--server and --database {told}"
    monkeypatch.setenv("HANDRAIL_DATABASE", "sqlite:///x.db")
    monkeypatch.setenv("HANDRAIL_SERVER", "http://127.0.0.1:1")
    assert line(run_command("token", "list")) == f"HANDRAIL_SERVER and HANDRAIL_DATABASE {told}"


def test_a_server_that_is_away_is_told_soon(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("handrail.cli.connection.PATIENCE_SECONDS", 0.0)
    address = f"http://127.0.0.1:{free_port()}"
    for command in COMMANDS:
        told = line(run_command(*command, "--server", address), 1)
        assert told.startswith(f"no server answers at {address}, tried once: ")
        assert told.endswith(
            "; start one with 'handrail serve', or name another with HANDRAIL_SERVER"
        )


def test_an_address_that_is_none_is_wrong_usage():
    for address in ("nowhere", "ftp://x", "http:/x"):
        told = f"'{address}' is not the URL of a server; write http://HOST:PORT"
        assert line(run_command("runs", "--server", address)) == told


def test_a_token_that_is_wrong_or_missing_is_told_with_how_to_make_one(
    targets: CommandTargets, monkeypatch: pytest.MonkeyPatch
):
    missing = line(run_command("runs", "--server", targets.address))
    assert missing == (
        "the server requires a token, but HANDRAIL_TOKEN is not set; create one where the server's "
        "database is: `handrail token create --database URL`"
    )
    monkeypatch.setenv("HANDRAIL_TOKEN", "hr_wrong")
    wrong = line(run_command("runs", "--server", targets.address))
    assert wrong.startswith("the API token is unknown, revoked or expired")
    assert "hr_wrong" not in wrong
    assert targets.server("runs").code == 0
    monkeypatch.setenv("HANDRAIL_TOKEN", "kein Schlüssel")
    told = "the API token contains characters that no token has; set HANDRAIL_TOKEN again"
    assert line(run_command("runs", "--server", targets.address)) == told
    assert targets.database("runs").code == 0, "whoever has the database needs no token"


class Other(BaseHTTPRequestHandler):
    """Some web server that is not Handrail."""

    def do_GET(self) -> None:
        status, body = (500, b"oh \x1b[2J no") if "agents" in self.path else (200, b"<html>hello")
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (its name there)
        """Nothing."""


@pytest.fixture
def other() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Other) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_server_that_is_no_handrail_is_no_traceback(other: str):
    told = line(run_command("runs", "--server", other))
    assert told.endswith("; is this a Handrail server of this version?")
    broken = line(run_command("agents", "--server", other), 1)
    assert broken.startswith("oh ")
    assert "\x1b" not in broken


def test_a_database_on_postgresql_is_asked_in_the_same_way(postgres_url: str):
    assert "(admin)" not in run_command("token", "list", "--database", postgres_url).out
    assert run_command("token", "create", "--role", "admin", "--database", postgres_url).code == 0
    assert "(admin)" in run_command("token", "list", "--database", postgres_url).out
    assert run_command("runs", "--database", postgres_url).out.split()[0] == "run"


def test_the_settings_of_the_file_hold_for_a_database_too(
    sample_database: SampleDatabase, here: Path
):
    (here / "handrail.toml").write_text("leese = 3\n")
    for command in (["runs"], ["verify"], ["doctor"], ["db"]):
        told = line(run_command(*command, "--database", sample_database.url))
        assert told == "handrail.toml: there is no setting 'leese'; did you mean 'lease'?"
    (here / "handrail.toml").write_text(f"database = '{sample_database.url}'\n")
    for command in (["runs"], ["verify"], ["doctor"], ["db"]):
        assert run_command(*command).code == 0
