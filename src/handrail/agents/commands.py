"""Run a command with limits: time, output, memory. No part of it outlives the call.

Rules
1. No shell reads the command: it is a list of words. `sh` only lowers the limits and then becomes
   the command, so that the command never runs without them.
2. It is the leader of a process group. When it ends, or has to, the whole group goes: SIGTERM,
   a moment of grace, SIGKILL. A process that has left the group on purpose is out of reach.
3. Its environment holds only names on a list, so no secret of this process is in it.
4. Output beyond the limit ends it; the first and the last part are kept.

A thread waits for the command. `run_command` is for async functions: if the caller is cancelled,
the command is ended before the cancellation goes on.
"""

import asyncio
import contextlib
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Literal

from handrail.kernel.decision import Value

CONCURRENT_COMMANDS_MAX = 64
"""Commands of this process at once; others wait."""
POLL_SECONDS = 0.02
GRACE_SECONDS = 2.0
READ_BYTES = 65_536
EXIT_NOT_FOUND = 127
"""A shell's exit code for a missing command."""
INHERITED_VARIABLES = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "SYSTEMROOT")
_LIMIT_SCRIPT = (
    'ulimit -c 0; [ "$1" = 0 ] || ulimit -v "$1"; [ "$2" = 0 ] || ulimit -t "$2"; '
    'shift 2; exec "$@"'
)

_executor = ThreadPoolExecutor(CONCURRENT_COMMANDS_MAX, "handrail-command")


class CommandLimits(Value):
    """The limits of a command. 0 of memory or CPU time: unlimited."""

    seconds: float = 120
    output_bytes: int = 200_000
    """Of each of stdout and stderr."""
    memory_bytes: int = 2 * 1024**3
    cpu_seconds: int = 0


DEFAULT_LIMITS = CommandLimits()


class CompletedCommand(Value):
    """The outcome of a command. `ended_by` names the limit that ended it, "" if it ended by
    itself.
    """

    exit_code: int
    stdout: bytes
    stderr: bytes
    seconds: float
    ended_by: Literal["", "time", "output", "cancelled"] = ""


def command_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables of every command, and these."""
    inherited_variables = {
        name: os.environ[name] for name in INHERITED_VARIABLES if name in os.environ
    }
    return {**inherited_variables, **(extra or {})}


async def run_command(
    args: Sequence[str],
    folder: Path,
    *,
    limits: CommandLimits = DEFAULT_LIMITS,
    stdin: bytes = b"",
    variables: Mapping[str, str] | None = None,
) -> CompletedCommand:
    """Run the command in that folder, to its end or to the first limit it meets."""
    stop = threading.Event()
    loop = asyncio.get_running_loop()
    future = loop.run_in_executor(
        _executor, lambda: run_command_sync(args, folder, limits, stdin, variables, stop)
    )
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait((future,))
        raise


def run_command_sync(
    args: Sequence[str],
    folder: Path,
    limits: CommandLimits = DEFAULT_LIMITS,
    stdin: bytes = b"",
    variables: Mapping[str, str] | None = None,
    stop: threading.Event | None = None,
) -> CompletedCommand:
    """Like `run_command`, on this thread, until `stop` is set."""
    started = time.monotonic()
    stop = stop or threading.Event()
    kilobytes = str(limits.memory_bytes // 1024)
    try:
        process = subprocess.Popen(  # noqa: S603 - a list of words, which no shell reads
            ["/bin/sh", "-c", _LIMIT_SCRIPT, "sh", kilobytes, str(limits.cpu_seconds), *args],
            cwd=folder,
            env=command_environment(variables),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        message = f"{args[0] if args else 'no command'}: {error}".encode()
        return CompletedCommand(exit_code=EXIT_NOT_FOUND, stdout=b"", stderr=message, seconds=0.0)
    with process:
        process_io = _ProcessIO(process, limits, stdin)
        try:
            ended_by = process_io.pump_until(started + limits.seconds, stop)
        finally:
            _kill_group(process)
            process_io.drain()
    return CompletedCommand(
        exit_code=process.returncode,
        stdout=process_io.out.content(),
        stderr=process_io.err.content(),
        seconds=time.monotonic() - started,
        ended_by=ended_by,
    )


class _BoundedOutput:
    """Keeps the first half and the last half of one stream's limit."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max, self.total_bytes = bytes_max, 0
        self._head, self._tail = bytearray(), bytearray()

    def add(self, chunk: bytes) -> None:
        self.total_bytes += len(chunk)
        room = max(0, self.bytes_max // 2 - len(self._head))
        self._head += chunk[:room]
        self._tail = (self._tail + chunk[room:])[-(self.bytes_max - self.bytes_max // 2) :]

    @property
    def is_exceeded(self) -> bool:
        return self.total_bytes > self.bytes_max

    def content(self) -> bytes:
        left_out = self.total_bytes - len(self._head) - len(self._tail)
        gap = f"\n… {left_out} bytes left out …\n".encode() if left_out else b""
        return bytes(self._head) + gap + bytes(self._tail)


class _ProcessIO:
    """Reads both streams and writes the input, whichever is ready, so that the command never
    blocks.
    """

    def __init__(
        self, process: subprocess.Popen[bytes], limits: CommandLimits, stdin: bytes
    ) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdin is not None
        self.process, self.pending_stdin = process, memoryview(stdin)
        self.out, self.err = (
            _BoundedOutput(limits.output_bytes),
            _BoundedOutput(limits.output_bytes),
        )
        self.selector = selectors.DefaultSelector()
        for stream, output in ((process.stdout, self.out), (process.stderr, self.err)):
            os.set_blocking(stream.fileno(), False)
            self.selector.register(stream, selectors.EVENT_READ, output)
        os.set_blocking(process.stdin.fileno(), False)
        self.selector.register(process.stdin, selectors.EVENT_WRITE)

    def pump_until(
        self, deadline: float, stop: threading.Event
    ) -> Literal["", "time", "output", "cancelled"]:
        while not _has_exited(self.process):
            if stop.is_set():
                return "cancelled"
            if time.monotonic() >= deadline:
                return "time"
            if self.out.is_exceeded or self.err.is_exceeded:
                return "output"
            if not self._pump_once():
                time.sleep(POLL_SECONDS)  # both streams are closed, and it still runs
        return ""

    def drain(self) -> None:
        """Read the rest from the pipes of a dead group: at most as much as a pipe holds."""
        for _ in range(100):
            if not self._pump_once():
                break
        self.selector.close()

    def _pump_once(self) -> bool:
        """Read and write what is ready within a moment; return whether any stream is open."""
        if not self.selector.get_map():
            return False
        for key, _ in self.selector.select(POLL_SECONDS):
            stream: IO[bytes] = key.fileobj  # pyright: ignore[reportAssignmentType] - registered
            done = self._read(stream, key.data) if key.data is not None else self._write(stream)
            if done:
                self.selector.unregister(stream)
                stream.close()
        return any(key.data is not None for key in self.selector.get_map().values())

    def _read(self, stream: IO[bytes], output: _BoundedOutput) -> bool:
        try:
            chunk = os.read(stream.fileno(), READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            return True
        output.add(chunk)
        return not chunk

    def _write(self, stream: IO[bytes]) -> bool:
        try:
            if self.pending_stdin:
                self.pending_stdin = self.pending_stdin[
                    os.write(stream.fileno(), self.pending_stdin[:READ_BYTES]) :
                ]
        except BlockingIOError:
            return False
        except OSError:  # the command does not read its input, which is allowed
            return True
        return not self.pending_stdin


def _has_exited(process: subprocess.Popen[bytes]) -> bool:
    """Return whether it has ended, without reaping it, so that its pid is not reused."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Give the leader a moment to end in good order; then kill the rest of the group."""
    if not _has_exited(process):
        os.killpg(process.pid, signal.SIGTERM)
        deadline = time.monotonic() + GRACE_SECONDS
        while not _has_exited(process) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
