"""The command line: parse, call, print. Every command imports what it needs when it is called."""

import io
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typer import TyperException

WRONG_INPUT = 2


def main() -> None:
    """The entry point of `handrail` and of `python -m handrail`."""
    if not __debug__:
        # Asserts guard the kernel's invariants; a run without them could end wrongly, unnoticed.
        sys.stderr.write("handrail: python -O strips the checks; start python without -O\n")
        sys.exit(WRONG_INPUT)
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character shows its number instead of a traceback.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    from typer import Abort, TyperException

    from handrail.cli.app import app

    try:
        try:
            code = app(standalone_mode=False)
        except TyperException as error:
            code = _told(error)
        except Abort:
            code = 1
        finally:
            sys.stdout.flush()  # here, where a full disk can still be told
    except OSError as error:
        # Whatever can be read or written has its own message; what is left is standard output.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.stderr.write(f"handrail: {error}; make sure that the output can be written\n")
        sys.exit(WRONG_INPUT)
    sys.exit(code)


def _told(error: "TyperException") -> int:
    """Wrong usage in one line; a command that wants another word shows what there is."""
    said = error.format_message()
    if not said.startswith("Usage:"):
        context = getattr(error, "ctx", None)
        command = "handrail" if context is None else context.command_path
        said = f"{command}: {' '.join(said.split()).rstrip('.')}; see '{command} --help'"
    sys.stderr.write(f"{said}\n")
    return error.exit_code
