"""Cleans up the servers of a process, however that process ended: a separate program.

    python -I -S server_cleanup.py FOLDER

The program reads a pipe from that process: `+PID` for a started server, `-PID` for an ended one.
When the pipe ends, the program ends the remaining servers and removes the folder. It imports
nothing of the project: so it starts at once, and no failure of the project affects it.
"""

import contextlib
import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Iterable

STOP_SECONDS = 10
REMOVE_ATTEMPTS = 100
NO_PIDFD = -1


def main() -> None:
    stop_servers(read_running_servers(sys.stdin))
    for _ in range(REMOVE_ATTEMPTS):
        shutil.rmtree(sys.argv[1], ignore_errors=True)
        if not os.path.exists(sys.argv[1]):  # noqa: PTH110 - pathlib is slow to import
            break
        time.sleep(0.1)


def read_running_servers(lines: Iterable[str]) -> dict[int, int]:
    """Return the servers that did not end, with their pidfds where available."""
    pidfds: dict[int, int] = {}
    for line in lines:
        pid = int(line[1:])
        if line[0] == "+":
            with contextlib.suppress(ProcessLookupError):
                pidfds[pid] = os.pidfd_open(pid) if hasattr(os, "pidfd_open") else NO_PIDFD
        elif pidfds.get(pid, NO_PIDFD) == NO_PIDFD:
            pidfds.pop(pid, None)
        else:
            os.close(pidfds.pop(pid))
    return pidfds


def stop_servers(pidfds: dict[int, int]) -> None:
    for pid, descriptor in pidfds.items():
        with contextlib.suppress(ProcessLookupError):
            if descriptor == NO_PIDFD:
                os.kill(pid, signal.SIGQUIT)
            else:
                signal.pidfd_send_signal(descriptor, signal.SIGQUIT)
    for descriptor in pidfds.values():
        if descriptor != NO_PIDFD:
            select.select([descriptor], [], [], STOP_SECONDS)


if __name__ == "__main__":
    main()
