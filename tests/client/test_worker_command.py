"""`handrail worker MODULE:NAME`: what it loads, what it says, and how it ends."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command_line import run_command
from tests.client.conftest import ONE
from tests.client.live_server import Server, free_port
from tests.patience import wait_until

ROLE = "backend-engineer"
PATIENCE = 60.0

AGENTS = """
import pathlib, time, threading, asyncio
import handrail

worker = handrail.Worker(grace=GRACE)

@worker.agent("backend-engineer")
WORK

@handrail.agent("backend-engineer")
def marked(dispatch):
    return handrail.success("marked")

nobody = handrail.Worker()

def unmarked(dispatch):
    return "x"
"""
QUICK = """def work(dispatch):
    return handrail.success("done in " + dispatch.role)
"""
ENDLESS = """async def work(dispatch):
    pathlib.Path("began").touch()
    await asyncio.Event().wait()
"""
STUCK = """def work(dispatch):
    pathlib.Path("began").touch()
    threading.Event().wait()
"""
SLOW = """async def work(dispatch):
    pathlib.Path("began").touch()
    while not pathlib.Path("go-on").exists():
        await asyncio.sleep(0.01)
    return handrail.success("finished")
"""


def written(folder: Path, work: str, grace: float = 30) -> None:
    text = AGENTS.replace("WORK", work).replace("GRACE", str(grace))
    (folder / "agents.py").write_text(text)


@contextmanager
def process(
    folder: Path, server: Server, *arguments: str, target: str = "agents:worker"
) -> Iterator["subprocess.Popen[str]"]:
    """The command, as a process of its own."""
    token = server.token("agent", "worker-1")
    found = subprocess.Popen(
        [sys.executable, "-m", "handrail", "worker", target, *arguments],
        cwd=folder,
        env={**os.environ, "HANDRAIL_TOKEN": token, "HANDRAIL_SERVER": server.url},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield found
    finally:
        found.kill()
        found.communicate()


def wait_for_file(path: Path) -> None:
    wait_until(path.exists, message=f"{path.name} is not there in time")


def filed(admin_client: Any) -> str:
    admin_client.definitions.create(ONE)
    return admin_client.beads.create("x", workflow_id="one").execution_id


@pytest.mark.parametrize("target", ["agents:worker", "agents:marked"])
def test_a_worker_from_a_module_of_the_current_folder(
    server: Server, admin_client: Any, tmp_path: Path, target: str
):
    written(tmp_path, QUICK)
    execution = filed(admin_client)
    with process(tmp_path, server, target=target) as running:
        assert admin_client.result(execution, timeout=PATIENCE).terminal_status == "done_success"
        running.send_signal(signal.SIGTERM)
        _, told = running.communicate(timeout=PATIENCE)
    assert running.returncode == 0
    first = json.loads(told.splitlines()[0])
    assert (first["event"], first["agent"]) == ("worker_started", "worker-1")
    assert (first["roles"], first["count"]) == ([ROLE], 1)
    assert "Traceback" not in told


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("work", [ENDLESS, STUCK], ids=["async", "thread"])
def test_a_worker_that_is_told_to_end_hands_back_what_it_cannot_finish(
    server: Server, admin_client: Any, tmp_path: Path, number: signal.Signals, work: str
):
    written(tmp_path, work, grace=0.1)
    execution = filed(admin_client)
    with process(tmp_path, server) as running:
        wait_for_file(tmp_path / "began")
        running.send_signal(number)
        _, told = running.communicate(timeout=PATIENCE)
    assert running.returncode == 0, told
    assert "Traceback" not in told
    lost, again = admin_client.runs.list_steps(execution).items
    assert (lost.outcome, again.outcome) == ("lost", "")
    assert "the worker was stopped" in lost.reason


def test_a_worker_that_is_told_to_end_finishes_what_it_can(
    server: Server, admin_client: Any, tmp_path: Path
):
    written(tmp_path, SLOW)
    execution = filed(admin_client)
    with process(tmp_path, server) as running:
        wait_for_file(tmp_path / "began")
        running.send_signal(signal.SIGTERM)
        (tmp_path / "go-on").touch()
        running.communicate(timeout=PATIENCE)
    assert running.returncode == 0
    assert admin_client.runs.get(execution).terminal_status == "done_success"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_it_at_once(
    server: Server, admin_client: Any, tmp_path: Path, number: signal.Signals
):
    written(tmp_path, STUCK, grace=600)
    filed(admin_client)
    with process(tmp_path, server) as running:
        wait_for_file(tmp_path / "began")
        running.send_signal(number)
        assert running.stderr is not None
        for line in running.stderr:
            if "worker_stopping" in line:
                break
        running.send_signal(number)
        running.communicate(timeout=PATIENCE)
    assert running.returncode == -number


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("agents", "'agents' is not MODULE:NAME"),
        ("nowhere:worker", "there is no module 'nowhere' here"),
        ("pack.nowhere:worker", "there is no module 'pack' here"),
        ("agents:missing", "module 'agents' has no 'missing'; name a Worker in it"),
        ("agents:unmarked", "'agents:unmarked' is a function, not a Worker"),
        ("agents:ROLES", "'agents:ROLES' is a list, not a Worker"),
        ("broken:worker", "module 'broken' cannot be imported: ZeroDivisionError"),
        (
            "lacking:worker",
            "No module named 'not_installed_at_all' (lacking.py, line 1); install it into",
        ),
        ("wrong:worker", "module 'wrong' cannot be imported: SyntaxError"),
        ("agents:nobody", "the worker has no function"),
    ],
)
def test_what_cannot_be_loaded_is_one_line_and_exit_code_2(
    target: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    written(tmp_path, QUICK + "\nROLES = []\n")
    (tmp_path / "broken.py").write_text("1 / 0\n")
    (tmp_path / "lacking.py").write_text("import not_installed_at_all\n")
    (tmp_path / "wrong.py").write_text("def f(:\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("agents", "broken", "lacking", "wrong"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    done = run_command("worker", target)
    sys.modules.pop("agents", None)
    assert done.code == 2
    assert told in done.err
    assert done.err.startswith("handrail worker: ")
    assert done.err.count("\n") == 1


def test_a_server_that_is_no_address_and_a_token_that_is_refused(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    written(tmp_path, QUICK)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("HANDRAIL_TOKEN", "hr_wrong")
    done = run_command("worker", "agents:worker", "--server", f"127.0.0.1:{free_port()}")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "write http://HOST:PORT" in done.err
    done = run_command("worker", "agents:worker", "--server", server.url)
    sys.modules.pop("agents", None)
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert "GET /api/v1/me (401)" in done.err
