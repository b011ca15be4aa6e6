"""What a coding agent starts at each hook: sends the payload to the daemon and prints its answer.

Run as `python -I -S launcher.py OPTIONS`: it imports nothing of this package nor any other, because
an agent waits for it twice at each tool call. `_socket` is what `socket` wraps, in a tenth of the
time. It starts the daemon if there is none, and answers by a process of its own if that fails.

Both sides find each other by the launcher's own file: after an upgrade it is another one, so that
no launcher talks to the daemon of another version. Only a folder of this user alone is trusted.
"""

import _socket
import os
import sys
import time

PAYLOAD_BYTES_MAX = 16 * 1024 * 1024
READ_BYTES = 1 << 20
START_SECONDS, POLL_SECONDS = 3.0, 0.01
"""How long a daemon may take to listen, and the pause between two attempts."""
ANSWER_SECONDS, PROCESS_SECONDS = 5.0, 20.0
"""How long the answer of the daemon may take, and that of a process of its own."""
MAGIC = b"handrail-hook 1\n"
FAIL_VARIABLE = "HANDRAIL_HOOK_FAIL"
BLOCKING_EXIT_CODE = 2


def default_folder() -> str:
    """Return the folder in which conversations are kept, unless an option names another."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")  # noqa: PTH111 - pathlib costs milliseconds
    return f"{state}/handrail/hook"


def socket_name() -> str:
    """Return the daemon's socket, by the identity of this file."""
    status = os.stat(__file__)  # noqa: PTH116 - as above
    return f"{status.st_ino:x}-{status.st_mtime_ns:x}.sock"


def is_private(folder: str) -> bool:
    """Whether the folder is this user's alone."""
    status = os.stat(folder)  # noqa: PTH116 - as above
    return status.st_uid == os.getuid() and not status.st_mode & 0o077


def read_input() -> bytes:
    """Read standard input, at most one byte more than is taken."""
    parts: list[bytes] = []
    left = PAYLOAD_BYTES_MAX + 1
    while left > 0 and (part := os.read(0, min(left, READ_BYTES))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def connect(name: str) -> _socket.socket | None:
    """Connect to the daemon's socket in the current folder; None if nobody listens."""
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    connection.settimeout(ANSWER_SECONDS)
    try:
        connection.connect(name)
    except OSError:
        connection.close()
        return None
    return connection


def start_daemon(folder: str, name: str) -> _socket.socket:
    """Start the daemon, which outlives the agent, and connect to it. Raises OSError.

    `-I` keeps the folder in which the agent works off its path.
    """
    import subprocess

    daemon = subprocess.Popen(  # noqa: S603 - our own module
        [sys.executable, "-I", "-m", "handrail.hook.daemon", folder, name],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
    )
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and not daemon.poll():  # 0: another one was faster
        time.sleep(POLL_SECONDS)
        connection = connect(name)
        if connection is not None:
            return connection
    raise OSError("it does not start")


def ask_daemon(folder: str, arguments: list[str], payload: bytes) -> tuple[int, bytes, bytes]:
    """Return exit code, output and errors of the daemon. Raises OSError."""
    name = socket_name()
    os.makedirs(folder, 0o700, exist_ok=True)  # noqa: PTH103 - as above
    if not is_private(folder):
        raise OSError(f"{folder} is open to other users; run `chmod 700` on it")
    os.chdir(folder)  # a socket's path may have a hundred characters only
    connection = connect(name) or start_daemon(folder, name)
    header = "\0".join(arguments).encode(errors="surrogateescape")
    connection.sendall(MAGIC + b"%d %d\n" % (len(header), len(payload)) + header + payload)
    parts: list[bytes] = []
    while part := connection.recv(READ_BYTES):
        parts.append(part)
    head, separator, body = b"".join(parts).partition(b"\n")
    if not separator:
        raise OSError("the daemon gives no answer")
    exit_code, output_bytes = map(int, head.split())
    return exit_code, body[:output_bytes], body[output_bytes:]


def ask_process(arguments: list[str], payload: bytes) -> tuple[int, bytes, bytes]:
    """Return exit code, output and errors of a process of its own."""
    import subprocess

    answer = subprocess.run(  # noqa: S603 - our own module
        [sys.executable, "-I", "-m", "handrail", "hook", *arguments],
        input=payload,
        capture_output=True,
        timeout=PROCESS_SECONDS,
        check=False,
    )
    if answer.returncode not in (0, BLOCKING_EXIT_CODE):
        raise OSError(answer.stderr.decode(errors="replace"))
    return answer.returncode, answer.stdout, answer.stderr


def main() -> int:
    arguments = sys.argv[1:]
    if fail := os.environ.get(FAIL_VARIABLE):
        arguments += ["--fail", fail]
    folder = default_folder()
    if "--state" in arguments[:-1]:
        folder = arguments[arguments.index("--state") + 1]
    payload = read_input()
    try:
        exit_code, output, errors = ask_daemon(folder, arguments, payload)
    except (OSError, ValueError) as error:
        note = f"handrail hook: no daemon: {error}\n".encode(errors="replace")
        try:
            exit_code, output, errors = ask_process(arguments, payload)
        except Exception as failure:
            closed = "closed" in arguments[-1:] or "--fail=closed" in arguments
            exit_code, output = BLOCKING_EXIT_CODE if closed else 0, b""
            errors = f"handrail hook: no answer: {failure}\n".encode(errors="replace")
        errors = note + errors
    os.write(2, errors)
    while output:
        output = output[os.write(1, output) :]
    return exit_code


if __name__ == "__main__":
    sys.exit(main())
