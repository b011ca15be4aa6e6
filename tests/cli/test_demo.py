"""`handrail demo`: one command on a fresh folder, and everything that is built in at work."""

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.cli.command_line import run_command

from handrail.cli.demo_server import SAMPLES
from handrail.teams import BUILTIN_IDS


def test_once_answers_every_question_prints_a_table_and_exits_0(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    called = run_command("demo", "--once")
    assert (called.code, called.err) == (0, "")
    for sample in SAMPLES:
        row = next(line for line in called.out.splitlines() if sample.title in line)
        assert sample.definition in row
        assert sample.expected_status in row


def test_there_are_samples_of_every_definition_and_of_every_way_to_end():
    assert {sample.definition for sample in SAMPLES} == set(BUILTIN_IDS)
    assert {sample.expected_status for sample in SAMPLES} == {
        "done_success",
        "aborted_stuck",
        "aborted_constraint",
        "closed_by_human",
    }


@pytest.fixture
def served(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "handrail", "demo", "--port", "0"]
    started = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    try:
        yield started
    finally:
        started.kill()
        started.communicate()


def test_it_serves_prints_the_address_with_a_one_time_sign_in_and_ends_when_told(
    served: subprocess.Popen[str],
):
    assert served.stdout is not None
    lines = [served.stdout.readline() for _ in range(2)]
    url = lines[0].split()[-1]
    link = re.search(r"http\S+/sign-in/\S+", lines[1])
    assert link is not None
    with httpx.Client(base_url=url, follow_redirects=True) as browser:
        assert browser.get(link.group()).status_code == 200
        assert browser.post(link.group()).status_code == 200
        me = browser.get("/api/v1/me").json()
        assert (me["name"], me["role"]) == ("you", "admin")
        assert browser.get("/api/v1/executions").json()["items"]
        assert browser.post(link.group()).status_code in (401, 403), "the link works once"
    served.send_signal(signal.SIGINT)
    assert served.wait(timeout=60) == 0


def test_a_port_that_is_taken_is_one_line_and_exit_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        called = run_command("demo", "--port", str(port))
    assert called.code == 2
    assert called.err == (
        f"handrail demo: port {port} on 127.0.0.1 cannot be opened; is another server running? "
        "use another --port\n"
    )
