"""The command line as a whole: help, exit codes, no traceback, `python -O`, a real terminal."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.cli.command_line import run_command

import handrail.cli
import handrail.testing

COMMANDS = ("check", "run", "sim")


def python(*arguments: str, **rest: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=60, **rest
    )


def test_help_names_every_command():
    called = run_command("--help")
    assert called.code == 0
    for command in COMMANDS:
        assert f"\n  {command} " in called.out
        assert run_command(command, "--help").code == 0


def test_help_imports_neither_the_engine_nor_anything_to_draw_with():
    code = (
        "import sys; from handrail.cli.app import app\n"
        "try: app(['--help'])\n"
        "except SystemExit: pass\n"
        "print(*sorted(sys.modules))"
    )
    done = python("-c", code)
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "typer" in loaded
    assert not loaded & {"yaml", "rich.live", "handrail.engine.engine", "handrail.testing"}


@pytest.mark.parametrize(
    "arguments", [["nope"], ["check"], ["run"], ["check", "--nope"], ["sim", "--seeds", "x"],
                  ["sim", "--seeds", "0"]],
)  # fmt: skip
def test_wrong_usage_is_exit_code_2_and_one_line(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(sys, "argv", ["handrail", *arguments])
    with pytest.raises(SystemExit) as ended:
        handrail.cli.main()
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    command = "handrail" if arguments == ["nope"] else f"handrail {arguments[0]}"
    assert line.startswith(f"{command}: ")
    assert line.endswith(f"; see '{command} --help'")


def test_python_m_handrail_is_the_same_and_optimised_python_is_refused():
    done = python("-m", "handrail", "check", "helpdesk")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == run_command("check", "helpdesk").out
    refused = python("-O", "-m", "handrail", "check", "helpdesk")
    assert refused.returncode == 2
    assert refused.stderr == "handrail: python -O strips the checks; start python without -O\n"


def test_output_that_the_terminal_cannot_show_is_no_traceback():
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    arguments = ["-m", "handrail", "run", "helpdesk", "--title", "VPN fällt aus 😀"]
    done = python(*arguments, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert "VPN f\\xe4llt aus" in done.stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device here")
def test_a_full_disk_is_one_line_and_no_traceback():
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "handrail", "check", "helpdesk"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "handrail: [Errno 28] No space left on device; make sure that the output can be written"
    ]


def test_options_that_are_no_utf_8_are_no_traceback():
    broken = b"caf\xff".decode("utf-8", "surrogateescape")
    for option in ("--title", "--description"):
        called = run_command("run", "finance", option, broken)
        assert called.code == 1
        assert "is open, and there is no terminal" in called.err
    for option in ("--context", "--answers", "--review"):
        assert run_command("run", "finance", option, broken).code == 2
    assert run_command("run", broken).code == run_command("check", broken).code == 2


def test_a_person_at_a_real_terminal_is_asked_and_answers():
    ours, theirs = pty.openpty()
    os.write(ours, b"use 10% tax\nhm\nlooks good\n")
    command = [sys.executable, "-m", "handrail", "run", "finance"]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        out = bytearray()
        while True:
            try:
                piece = os.read(ours, 65_536)
            except OSError:  # the other end is closed
                break
            if not piece:
                break
            out += piece
    os.close(ours)
    assert process.returncode == 0
    assert "Done: you approved the result." in out.decode()
    assert "moves of the certificate" in out.decode()


def test_sim_prints_how_the_seeds_ended():
    called = run_command("sim", "--seeds", "2")
    assert called.code == 0
    assert "ended: 2 of 2" in called.out


def test_sim_in_json():
    shown = json.loads(run_command("sim", "--seeds", "2", "--json").out)
    assert (shown["seeds"], shown["all_ended"]) == (2, True)
    assert shown["seeds_per_second"] > 0


def test_sim_shows_one_seed_with_its_history():
    called = run_command("sim", "--seed", "3")
    assert called.code == 0
    assert '"type":"started"' in called.out
    assert called.out.splitlines()[-1].startswith("seed 3: ")
    shown = json.loads(run_command("sim", "--seed", "3", "--json").out)
    assert (shown["seed"], shown["history"][0]["type"]) == (3, "started")


def test_sim_with_a_failing_seed_is_exit_code_1(monkeypatch: pytest.MonkeyPatch):
    failed = SimpleNamespace(failure="seed 7: boom\x1b", status="", rule="", events=0)
    summary = SimpleNamespace(all_ended=False, table=lambda: "failing seeds: 7")
    fake = SimpleNamespace(
        run_seed=lambda seed: failed,
        run_seeds=lambda first, count, processes: summary,
        describe_seed=lambda seed: "what it drew",
    )
    monkeypatch.setattr(handrail.testing, "simulator", fake)
    one = run_command("sim", "--seed", "7")
    assert (one.code, one.out.splitlines()[-1]) == (1, "seed 7: boom\N{REPLACEMENT CHARACTER}")
    many = run_command("sim", "--seeds", "5")
    assert (many.code, many.out) == (1, "failing seeds: 7\n")
