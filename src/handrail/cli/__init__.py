"""The command line: parse, call, print. Every command imports what it needs when it is called."""

import io
import os
import sys

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
    from handrail.cli.app import app

    try:
        try:
            app()
        finally:
            sys.stdout.flush()  # here, where a full disk can still be told
    except OSError as error:
        # Whatever can be read or written has its own message; what is left is standard output.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.stderr.write(f"handrail: {error}; make sure that the output can be written\n")
        sys.exit(WRONG_INPUT)
