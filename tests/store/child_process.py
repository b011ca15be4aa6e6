"""Starting `child.py`, and waiting for what it says."""

import subprocess
import sys
from pathlib import Path

CHILD = Path(__file__).with_name("child.py")


def child(*command: str, before: list[str] | None = None) -> "subprocess.Popen[str]":
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [*(before or []), sys.executable, str(CHILD), *command],
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        text=True,
    )


def output(*command: str, before: list[str] | None = None) -> list[str]:
    """The lines that it said; it must have ended well."""
    process = child(*command, before=before)
    said, wrong = process.communicate(timeout=120)
    assert process.returncode == 0, wrong
    return said.splitlines()


def read_line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def send_line(process: "subprocess.Popen[str]", line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()
