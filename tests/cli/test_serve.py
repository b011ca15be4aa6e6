"""`handrail serve` as a process: it listens, says so, drains, and loses nothing."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.cli.command_line import run_command, write_definition
from tests.client.live_server import free_port
from tests.engine.engines import chain, node

from handrail.teams import BUILTIN_IDS

pytest_plugins = ["tests.cli.fixtures_command_targets"]

SECONDS = 60
"""After so long a process that should have done something has failed."""


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HANDRAIL_")}
    return {**kept, **more}


class Process:
    """`handrail serve` in a folder."""

    def __init__(self, folder: Path, *arguments: str, **variables: str) -> None:
        self.folder = folder
        with (folder / "log").open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "handrail", "serve", *arguments],
                cwd=folder,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment(**variables),
                text=True,
            )

    def first_line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """The exit code, and what else it printed."""
        self.process.send_signal(number)
        return self.ended()

    def ended(self) -> tuple[int, str]:
        assert self.process.stdout is not None
        out = self.process.stdout.read()
        return self.process.wait(SECONDS), out

    def log(self) -> list[dict[str, Any]]:
        """Every line of it; one that is no JSON does not belong there."""
        return [json.loads(line) for line in (self.folder / "log").read_text().splitlines()]


@contextmanager
def serving(folder: Path, *arguments: str, **variables: str) -> Iterator[tuple[Process, str]]:
    process = Process(folder, "--port", "0", *arguments, **variables)
    try:
        line = process.first_line()
        found = re.fullmatch(r"Handrail is at (http://127\.0\.0\.1:\d+)\n", line)
        assert found, (line, (folder / "log").read_text())
        yield process, found.group(1)
    finally:
        process.process.kill()
        process.process.communicate(timeout=SECONDS)


def token() -> str:
    return run_command("token", "create", "--role", "admin").out.strip()


def cannot(*arguments: str) -> str:
    """The one line of a server that does not start; before it may stand its log."""
    called = run_command("serve", *arguments)
    assert (called.code, called.out) == (2, "")
    *log, line = called.err.splitlines()
    assert all(json.loads(one)["event"] for one in log)
    assert line.startswith("handrail serve: ")
    return line.removeprefix("handrail serve: ")


def test_a_server_makes_the_folders_database_says_where_it_is_and_how_to_come_in(
    here: Path, monkeypatch: pytest.MonkeyPatch
):
    with serving(here) as (process, url):
        assert (here / ".handrail/handrail.db").is_file()
        assert httpx.get(f"{url}/healthz").json()["status"] == "ok"
        assert httpx.get(f"{url}/api/v1/executions").status_code == 401
        monkeypatch.setenv("HANDRAIL_TOKEN", token())
        asked = run_command("runs", "--server", url)
        assert (asked.code, asked.err) == (0, "")
        link = run_command("sign-in", "--url", url).out.strip()
        assert httpx.post(link).status_code == 303
        code, out = process.end()
    assert code == 0
    assert out == (
        "Nobody has a token yet: handrail token create --role admin\n"
        f"To open the page: handrail sign-in --url {url}\n"
    )
    with serving(here) as (process, url):
        assert process.end(signal.SIGINT) == (0, "")


@pytest.mark.requirement("L4.6")
def test_a_server_that_is_told_to_end_drains_and_loses_nothing(here: Path):
    (here / "handrail.toml").write_text("drain = '10s'\n")
    write_definition(here, {**chain(node("a")), "id": "one"}, "one.yaml")
    with serving(here) as (process, url):
        headers = {"Authorization": f"Bearer {token()}"}
        filed = run_command("bead", "create", "one.yaml", "--title", "x", "--json")
        run = json.loads(filed.out)["execution_id"]
        waited: list[httpx.Response] = []

        def wait() -> None:
            path = f"{url}/api/v1/executions/{run}"
            waited.append(httpx.get(path, params={"wait": 50}, headers=headers, timeout=SECONDS))

        waiting = threading.Thread(target=wait)
        began = time.monotonic()
        waiting.start()
        with httpx.Client(base_url=url, headers=headers, timeout=SECONDS) as other:
            while "handrail_http_waiting_requests 1" not in other.get("/metrics").text:
                assert time.monotonic() - began < SECONDS
            process.process.send_signal(signal.SIGTERM)
            ready = 200
            while ready == 200:
                ready = other.get("/readyz").status_code
            assert ready == 503
            assert other.get("/healthz").status_code == 200
            late = {"title": "late", "workflow_id": "one"}
            posted = other.post("/api/v1/beads", json=late)
            assert posted.status_code == 201, "requests are still taken"
        waiting.join(SECONDS)
        assert waited[0].json()["status"] == "running", "whoever waited is answered"
        assert time.monotonic() - began < 45
        assert process.ended()[0] == 0
    assert "server_draining" in {line["event"] for line in process.log()}
    listed = json.loads(run_command("runs", "--json").out)
    assert {item["title"] for item in listed["items"]} == {"x", "late"}
    assert run_command("verify").code == run_command("doctor").code == 0


def test_a_second_signal_ends_it_at_once(here: Path):
    (here / "handrail.toml").write_text("drain = '10m'\n")
    with serving(here) as (process, url):
        process.process.send_signal(signal.SIGTERM)
        while httpx.get(f"{url}/readyz").status_code != 503:
            pass
        assert process.end()[0] == 0
    assert process.log()[-1]["event"] == "server_ended"


def test_built_in_agents_work_in_the_servers_process(here: Path):
    with serving(here, "--builtin-agents") as (process, _):
        filed = run_command("bead", "create", "helpdesk", "--title", "VPN drops", "--json")
        run = json.loads(filed.out)["execution_id"]
        watched = run_command("show", "--watch", run)
        assert (watched.code, watched.err) == (0, "")
        assert "  orchestrator -> memory" in watched.out
        assert "\nDone: ticket resolved.\n" in watched.out
        agents = json.loads(run_command("agents", "--json").out)
        assert "orchestrator" in {role for one in agents["items"] for role in one["roles"]}
        assert process.end()[0] == 0


@pytest.mark.requirement("L11.1")
def test_every_server_has_the_built_in_definitions_for_agents_of_ones_own(here: Path):
    with serving(here) as (process, url):
        headers = {"Authorization": f"Bearer {token()}"}
        listed = httpx.get(f"{url}/api/v1/workflows", headers=headers).json()["items"]
        assert sorted(one["id"] for one in listed) == sorted(BUILTIN_IDS)
        filed = run_command("bead", "create", "helpdesk", "--title", "VPN drops", "--json")
        assert json.loads(filed.out)["status"] == "in_progress"
        assert process.end()[0] == 0


def test_what_a_server_runs_with_can_be_asked(here: Path, monkeypatch: pytest.MonkeyPatch):
    (here / "handrail.toml").write_text("lease = '2m'\nroles = ['lawyer']\n")
    with serving(here, HANDRAIL_WAIT_MAX="7") as (process, url):
        monkeypatch.setenv("HANDRAIL_TOKEN", token())
        (here / "handrail.toml").unlink()
        asked = run_command("settings", "--server", url)
        assert (asked.code, asked.err) == (0, "")
        rows = {line.split()[0]: line.split()[1:3] for line in asked.out.splitlines()}
        assert rows["lease"] == ["2m", "handrail.toml"]
        assert rows["wait_max"] == ["7s", "HANDRAIL_WAIT_MAX"]
        assert rows["roles"] == ["lawyer", "handrail.toml"]
        assert rows["heartbeat"] == ["15s", "default"]
        assert process.end()[0] == 0


def test_what_keeps_a_server_from_starting_is_one_line(here: Path):
    told = cannot("--host", "0.0.0.0", "--port", str(free_port()))
    assert told == (
        "refusing to listen on 0.0.0.0: no API token exists; run "
        "`handrail token create --role admin`"
    )
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        told = cannot("--port", str(port))
        assert told.startswith(f"port {port} on 127.0.0.1 cannot be opened")
    told = cannot("--host", "no.such.host.invalid", "--port", "0")
    assert told.startswith("refusing to listen on no.such.host.invalid")
    assert "in memory" in cannot("--database", "sqlite://")
    assert "'mysql' is not a database" in cannot("--database", "mysql://x")
    (here / "text").write_text("no database")
    assert "name a Handrail database" in cannot("--database", "sqlite:///text")
    (here / "handrail.toml").write_text("lease = 'x'\n")
    assert "lease is 'x'" in cannot()
    (here / "handrail.toml").unlink()
    told = cannot("--database", "sqlite:///no/folder.db")
    assert "no/folder.db" in told


def test_a_server_whose_engine_fails_ends_with_exit_code_1(here: Path):
    """Here its database is taken away and replaced by something else."""
    (here / "handrail.toml").write_text("store_patience = 0\n")
    with serving(here) as (process, _):
        database = here / ".handrail/handrail.db"
        for file in (database, Path(f"{database}-wal"), Path(f"{database}-shm")):
            file.write_bytes(b"x" * 8192)
        assert process.ended()[0] == 1
    *log, line = (here / "log").read_text().splitlines()
    assert line == "handrail serve: the engine failed; see the log, then start it again"
    assert "engine_failed" in {json.loads(line)["event"] for line in log}
