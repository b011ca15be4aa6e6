"""The command line: parse, call, print. A command imports what it needs when it is called."""

import importlib.util
import io
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typer import TyperException

EXIT_WRONG_INPUT = 2
SERVER_PACKAGES = (
    "cel",
    "httptools",
    "httpx",
    "litestar",
    "prometheus_client",
    "psycopg",
    "re2",
    "rich",
    "structlog",
    "typer",
    "uvicorn",
    "yaml",
)
"""What the extra `server` brings, as it is imported."""


def main() -> None:
    """The entry point of `handrail` and of `python -m handrail`."""
    if not __debug__:
        # Asserts guard the kernel's invariants; a run without them could end wrongly, unnoticed.
        sys.stderr.write("handrail: python -O strips the checks; start python without -O\n")
        sys.exit(EXIT_WRONG_INPUT)
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character shows its number instead of a traceback.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if sys.argv[1:2] == ["hook"]:  # a coding agent waits: without the packages of other commands
        from handrail.cli.hook import main as answer_hook

        sys.exit(answer_hook(sys.argv[2:]))
    is_complete = all(importlib.util.find_spec(name) for name in SERVER_PACKAGES)
    try:
        try:
            code = _run_app() if is_complete else _run_small_install()
        finally:
            sys.stdout.flush()  # here, where a full disk can still be reported
    except OSError as error:
        # Reading and writing files has its own messages; what is left is standard output.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.stderr.write(f"handrail: {error}; make sure that the output can be written\n")
        sys.exit(EXIT_WRONG_INPUT)
    sys.exit(code)


def _run_small_install() -> int:
    from handrail.cli.small_install import main as run

    return run(sys.argv[1:], SERVER_PACKAGES)


def _run_app() -> int:
    from typer import Abort, TyperException

    from handrail.cli.app import app

    try:
        return app(standalone_mode=False)
    except TyperException as error:
        return _print_usage_error(error)
    except Abort:
        return 1


def _print_usage_error(error: "TyperException") -> int:
    """Print wrong usage in one line; a command that needs a subcommand lists what there is."""
    message = error.format_message()
    if not message.startswith("Usage:"):
        context = getattr(error, "ctx", None)
        command = "handrail" if context is None else context.command_path
        message = f"{command}: {' '.join(message.split()).rstrip('.')}; see '{command} --help'"
    sys.stderr.write(f"{message}\n")
    return error.exit_code
