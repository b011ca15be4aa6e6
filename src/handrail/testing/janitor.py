"""Clears up after the servers of a process, however that ended: a program of its own.

    python -I -S janitor.py FOLDER

It reads a pipe from that process: `+PID` for a server that was started, `-PID` for one that ended.
When the pipe ends, it ends the servers that are left and removes the folder. Nothing of the project
is imported: it starts in no time, and whatever happens to the rest does not happen to it.
"""

import contextlib
import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Iterable

END_SECONDS = 10
REMOVALS = 100
UNHELD = -1


def main() -> None:
    end(left_over(sys.stdin))
    for _ in range(REMOVALS):
        shutil.rmtree(sys.argv[1], ignore_errors=True)
        if not os.path.exists(sys.argv[1]):  # noqa: PTH110 - pathlib takes longer than all of this
            break
        time.sleep(0.1)


def left_over(lines: Iterable[str]) -> dict[int, int]:
    """The servers that did not end, with the descriptors that hold them where there are such."""
    held: dict[int, int] = {}
    for line in lines:
        pid = int(line[1:])
        if line[0] == "+":
            with contextlib.suppress(ProcessLookupError):
                held[pid] = os.pidfd_open(pid) if hasattr(os, "pidfd_open") else UNHELD
        elif held.get(pid, UNHELD) == UNHELD:
            held.pop(pid, None)
        else:
            os.close(held.pop(pid))
    return held


def end(held: dict[int, int]) -> None:
    for pid, descriptor in held.items():
        with contextlib.suppress(ProcessLookupError):
            if descriptor == UNHELD:
                os.kill(pid, signal.SIGQUIT)
            else:
                signal.pidfd_send_signal(descriptor, signal.SIGQUIT)
    for descriptor in held.values():
        if descriptor != UNHELD:
            select.select([descriptor], [], [], END_SECONDS)


if __name__ == "__main__":
    main()
