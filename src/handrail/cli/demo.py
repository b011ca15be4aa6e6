"""`handrail demo`: the built-in teams at work on sample beads, to look at and to try."""

from typing import Annotated

import typer

from handrail.cli.command import EXIT_FAILED, as_input_error
from handrail.store.rows import StoreError


def demo(
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65_535, help="The port; default: 8080 if it is free."),
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Answer every question, print a table and exit.")
    ] = False,
) -> int:
    """Start a server with built-in teams at work on sample beads.

    Prints the page's address with a one-time sign-in. Has a database of its own in this folder.
    """
    import asyncio

    from handrail.cli.demo_server import Demo
    from handrail.server.process import CannotServeError

    server = Demo(once=once)
    with as_input_error(CannotServeError, StoreError, OSError):
        code = asyncio.run(server.serve(port))
    return code or (EXIT_FAILED if server.has_failed else 0)
