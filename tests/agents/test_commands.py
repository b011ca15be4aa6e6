"""Commands with limits: real processes, and nothing of them is left behind."""

import asyncio
import os
import sys
import time
from pathlib import Path

import pytest
from tests.patience import wait_until

from handrail.agents.commands import CommandLimits, run_command, run_command_sync


def script(*lines: str) -> tuple[str, ...]:
    return ("sh", "-c", "\n".join(lines))


def alive(number: int) -> bool:
    """Whether that process is there and has not ended: a zombie is nobody."""
    try:
        state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def gone(number: int) -> bool:
    return wait_until(lambda: not alive(number), 60)


def test_a_command_says_what_it_says_and_how_it_ended(tmp_path: Path) -> None:
    ran = run_command_sync(script("echo out; echo wrong >&2; pwd; exit 3"), tmp_path)
    assert (ran.exit_code, ran.ended_by) == (3, "")
    assert ran.stdout == f"out\n{tmp_path}\n".encode()
    assert ran.stderr == b"wrong\n"


def test_a_command_that_is_not_there_is_what_a_shell_would_say_of_it(tmp_path: Path) -> None:
    ran = run_command_sync(("no-such-program",), tmp_path)
    assert ran.exit_code == 127
    assert b"no-such-program" in ran.stderr


def test_a_folder_that_is_not_there_is_an_answer_and_no_exception(tmp_path: Path) -> None:
    ran = run_command_sync(("true",), tmp_path / "nowhere")
    assert ran.exit_code == 127
    assert b"nowhere" in ran.stderr


def test_words_are_words_and_no_shell_reads_them(tmp_path: Path) -> None:
    ran = run_command_sync(("echo", "$(touch here); `touch here`"), tmp_path)
    assert ran.stdout == b"$(touch here); `touch here`\n"
    assert list(tmp_path.iterdir()) == []


def test_input_is_written_while_output_is_read(tmp_path: Path) -> None:
    large = b"x" * 1_000_000
    limits = CommandLimits(output_bytes=2_000_000)
    assert run_command_sync(("cat",), tmp_path, limits, stdin=large).stdout == large


def test_a_command_that_takes_too_long_goes_with_all_that_it_has_started(tmp_path: Path) -> None:
    words = script("sleep 1000 & echo $! > child", "sleep 1000")
    ran = run_command_sync(words, tmp_path, CommandLimits(seconds=0.3))
    assert ran.ended_by == "time"
    assert ran.seconds < 5
    assert gone(int((tmp_path / "child").read_text()))


def test_what_a_command_leaves_behind_ends_with_it(tmp_path: Path) -> None:
    ran = run_command_sync(script("sleep 1000 & echo $! > child"), tmp_path)
    assert (ran.exit_code, ran.ended_by) == (0, "")
    assert ran.seconds < 5
    assert gone(int((tmp_path / "child").read_text()))


def test_one_that_does_not_listen_is_killed(tmp_path: Path) -> None:
    words = script("trap '' TERM", "echo $$ > self", "while :; do sleep 0.1; done")
    ran = run_command_sync(words, tmp_path, CommandLimits(seconds=0.3))
    assert ran.ended_by == "time"
    assert gone(int((tmp_path / "self").read_text()))


def test_one_that_writes_too_much_is_ended_and_both_ends_are_kept(tmp_path: Path) -> None:
    words = script("echo first", "yes")
    ran = run_command_sync(words, tmp_path, CommandLimits(output_bytes=1_000))
    assert ran.ended_by == "output"
    assert ran.stdout.startswith(b"first\n")
    assert b"bytes left out" in ran.stdout
    assert len(ran.stdout) < 1_100


def test_one_that_takes_too_much_memory_fails(tmp_path: Path) -> None:
    words = (sys.executable, "-c", "x = 'a' * 10**9")
    ran = run_command_sync(words, tmp_path, CommandLimits(memory_bytes=500_000_000))
    assert ran.exit_code != 0
    assert b"MemoryError" in ran.stderr


def test_it_is_given_no_secret_of_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("HANDRAIL_TOKEN", "hr-secret")
    ran = run_command_sync(("env",), tmp_path, variables={"MORE": "1"})
    assert b"-secret" not in ran.stdout
    assert b"MORE=1" in ran.stdout
    assert f"PATH={os.environ['PATH']}".encode() in ran.stdout


def test_a_caller_that_is_cancelled_leaves_no_process_behind(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    async def play() -> int:
        words = script("echo $$ > pipe", "sleep 1000")
        limits = CommandLimits(seconds=600)
        task = asyncio.create_task(run_command(words, tmp_path, limits=limits))
        number = int(await asyncio.to_thread(pipe.read_text))
        assert alive(number)
        began = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert time.monotonic() - began < 300, "it was told, and did not run out of time"
        return number

    assert not alive(asyncio.run(play()))
