"""Answers launchers from a warm process: `python -m handrail.hook.daemon FOLDER SOCKET`.

It listens on a socket in a folder that is its user's alone, one daemon for each launcher file (a
lock file decides), and ends by itself when nobody has asked for `IDLE_SECONDS`, or its socket is
gone. Requests are answered one after the other; each takes a millisecond or two.

Between requests it does what no agent should wait for: it writes ended runs to the record, reports
running ones to a server, and ends turns that were quiet after their end.
"""

import fcntl
import os
import socket
import sys
import time
from functools import lru_cache
from pathlib import Path

from handrail.hook import launcher
from handrail.hook.options import HookOptions, parse_options
from handrail.hook.payloads import PAYLOAD_BYTES_MAX
from handrail.hook.recording import RunRecorders
from handrail.hook.service import HookAnswer, HookService

IDLE_SECONDS = 900.0
TICK_SECONDS = 5.0
"""Pause between two rounds of what is done between requests."""
REQUEST_SECONDS = 2.0
"""How long a launcher may take to send its request."""
HEADER_BYTES_MAX = 64 * 1024
CONNECTIONS_WAITING_MAX = 128


class BadRequestError(ValueError):
    """What no launcher of this version sends."""


@lru_cache
def _options(header: bytes) -> HookOptions:
    arguments = header.decode(errors="surrogateescape").split("\0") if header else []
    return parse_options(arguments)


class HookDaemon:
    """One listening socket, and the service behind it."""

    def __init__(self, folder: Path, name: str, idle_seconds: float = IDLE_SECONDS) -> None:
        self._folder, self._name, self._idle_seconds = folder, name, idle_seconds
        self._service = HookService(folder)
        self._recorders = RunRecorders(self._service)

    def serve(self) -> None:
        """Answer until nobody asks any more; return at once if another daemon does already."""
        os.umask(0o077)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.chdir(self._folder)
        with Path(f"{self._name}.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            Path(self._name).unlink(missing_ok=True)
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
                listener.bind(self._name)
                listener.listen(CONNECTIONS_WAITING_MAX)
                listener.settimeout(min(TICK_SECONDS, self._idle_seconds))
                try:
                    self._answer_all(listener)
                finally:
                    Path(self._name).unlink(missing_ok=True)
                    self._recorders.close()
                    self._service.store.close()

    def _answer_all(self, listener: socket.socket) -> None:
        asked_at = time.monotonic()
        while time.monotonic() - asked_at < self._idle_seconds and Path(self._name).exists():
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                self._recorders.tick()
                continue
            with connection:
                connection.settimeout(REQUEST_SECONDS)
                try:
                    _send(connection, self._answer(connection))
                except (OSError, ValueError):
                    continue  # the launcher answers by a process of its own
            asked_at = time.monotonic()
            self._recorders.tick()

    def _answer(self, connection: socket.socket) -> HookAnswer:
        with connection.makefile("rb") as request:
            if request.readline(HEADER_BYTES_MAX) != launcher.MAGIC:
                raise BadRequestError("another version")
            header_bytes, payload_bytes = map(int, request.readline(HEADER_BYTES_MAX).split())
            if header_bytes > HEADER_BYTES_MAX or payload_bytes > PAYLOAD_BYTES_MAX + 1:
                raise BadRequestError("too large")
            header, payload = request.read(header_bytes), request.read(payload_bytes)
        options = _options(header)
        answer = self._service.answer(payload, options)
        self._recorders.follow()
        return answer


def _send(connection: socket.socket, answer: HookAnswer) -> None:
    head = f"{answer.exit_code} {len(answer.stdout)}\n".encode()
    errors = f"{answer.stderr}\n".encode(errors="replace") if answer.stderr else b""
    connection.sendall(head + answer.stdout + errors)


def main() -> None:
    folder, name = sys.argv[1:]
    HookDaemon(Path(folder), name).serve()


if __name__ == "__main__":
    main()
