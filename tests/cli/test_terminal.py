"""What a person at a real terminal sees: tables that fit, short ids that work, runs as they go."""

import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from fcntl import ioctl
from pathlib import Path
from struct import pack
from termios import TIOCSWINSZ

from tests.cli.command_line import run_command
from tests.client.live_server import PATIENCE, Server
from tests.engine.sample_database import SampleDatabase

import handrail

pytest_plugins = ["tests.cli.fixtures_command_targets"]

ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def terminal(
    *arguments: str, columns: int = 100, heard: Callable[[str], None] | None = None
) -> tuple[int, str]:
    """Runs `handrail ARGUMENTS` at a terminal; the exit code, and what is seen there. `heard` is
    told everything so far, whenever something comes."""
    ours, theirs = pty.openpty()
    ioctl(theirs, TIOCSWINSZ, pack("HHHH", 40, columns, 0, 0))
    command = [sys.executable, "-m", "handrail", *arguments]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HANDRAIL_")}
    environment["TERM"] = "xterm-256color"
    with subprocess.Popen(
        command, env=environment, stdin=theirs, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        raw, out = b"", ""
        while True:
            try:
                piece = os.read(ours, 65_536)
            except OSError:  # the other end is closed
                break
            if not piece:
                break
            raw += piece
            out = raw.decode(errors="ignore")
            if heard is not None:
                heard(out)
    os.close(ours)
    return process.returncode, ANSI.sub("", out).replace("\r\n", "\n")


def test_a_table_fits_the_terminal_and_its_short_ids_are_enough(sample_database: SampleDatabase):
    code, seen = terminal("runs", "--database", sample_database.url, columns=80)
    assert code == 0
    lines = seen.splitlines()
    assert max(map(len, lines)) <= 80
    run = sample_database.runs["ended"]
    assert run not in seen
    assert run[-8:] in seen
    assert run_command("show", run[-8:], "--database", sample_database.url).code == 0


def test_a_report_is_rendered(sample_database: SampleDatabase):
    code, seen = terminal(
        "report", sample_database.runs["revised"], "--database", sample_database.url
    )
    assert code == 0
    assert "## " not in seen
    assert "Rounds of review" in seen


def test_a_run_is_watched_while_it_goes_and_the_question_says_how_to_answer(
    sample_database: SampleDatabase,
):
    run = sample_database.runs["waiting"]
    answered: list[str] = []

    def heard(so_far: str) -> None:
        found = re.search(r"answer with: handrail answer (\S+) TEXT", ANSI.sub("", so_far))
        if found and not answered:
            answered.append(found.group(1))
            assert (
                run_command("answer", found.group(1), "ok", "--database", sample_database.url).code
                == 0
            )

    code, seen = terminal("show", "--watch", run, "--database", sample_database.url, heard=heard)
    assert code == 0
    assert answered == [f"{run[-8:]}.q1"]
    assert "moves of the certificate" in seen
    assert "Done: " in seen


def test_a_watched_run_can_be_left(sample_database: SampleDatabase):
    """Ctrl-C: no traceback, and the exit code says so."""
    process = subprocess.Popen(
        [sys.executable, "-m", "handrail", "show", "--watch", sample_database.runs["waiting"],
         "--database", sample_database.url],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        cwd=Path(sample_database.path).parent,
    )  # fmt: skip
    assert process.stdout is not None
    while not process.stdout.readline().startswith("  answer with: "):
        assert process.poll() is None
    process.send_signal(2)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "")


def test_a_run_is_watched_on_when_its_server_is_started_again(
    sample_database: SampleDatabase, tmp_path: Path
):
    run = sample_database.runs["waiting"]
    with Server(sample_database.url) as server:
        token = server.token("admin", "ana")
        process = subprocess.Popen(
            [sys.executable, "-m", "handrail", "show", "--watch", run, "--server", server.url],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
            env={**os.environ, "HANDRAIL_TOKEN": token},
        )  # fmt: skip
        assert process.stdout is not None
        while not process.stdout.readline().startswith("  answer with: "):
            assert process.poll() is None
        server.stop()
        server.start()
        with handrail.Client(server.url, token) as client:
            client.approvals.answer(f"{run}.q1", "ok")
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (0, "")
    assert "Done: " in out
