"""`handrail run`: run one bead to its end in this process, with a person to ask."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from handrail.cli.arguments import read_context
from handrail.cli.command import InputError, as_input_error, file_as_input
from handrail.cli.formatting import decode_argument
from handrail.cli.options import AsJson
from handrail.store.rows import StoreError


def run(
    definition: Annotated[
        str, typer.Argument(help="A file, else the name of a built-in definition.")
    ],
    title: Annotated[str, typer.Option(help="The bead's title.")] = "",
    description: Annotated[str, typer.Option(help="The bead's description.")] = "",
    context: Annotated[
        str, typer.Option(help="The bead's context: a JSON object, or @FILE with one.")
    ] = "",
    review: Annotated[
        str, typer.Option(help="required or skip; default: as the definition says.")
    ] = "",
    answers: Annotated[
        str, typer.Option(help="Read answers from this file, one per line; - for stdin.")
    ] = "",
    report: Annotated[
        str, typer.Option(help="Write the full report to this file, as Markdown or .json.")
    ] = "",
    database: Annotated[
        str, typer.Option(metavar="URL", help="Store the run in this database; default: in memory.")
    ] = "",
    as_json: AsJson = False,
) -> int:
    """Run one bead to its end in this process, with scripted agents.

    Questions are asked in the terminal. Exit code 0 only if the run ends as done_success.
    """
    import asyncio

    from handrail.agents.model import BadModelError
    from handrail.cli import local_run
    from handrail.cli.definitions import find_definition
    from handrail.engine.errors import RefusedError

    with as_input_error(StoreError, RefusedError, BadModelError):
        source = find_definition(definition)
        plan = local_run.check_plan(source)
        if review not in ("", "required", "skip"):
            raise InputError(f"--review is '{review}'; write required or skip")
        bead = local_run.LocalBead(
            title=decode_argument(title) or local_run.sample_title(plan),
            description=decode_argument(description),
            context=read_context(context),
            review=review or None,
        )
        person = local_run.TerminalPerson(
            local_run.open_view(plan, bead, sys.stderr if as_json else sys.stdout),
            _read_answers(answers),
            is_present=answers != "-" and sys.stdin.isatty(),
        )
        interactive_run = asyncio.run(
            local_run.run_bead(source, plan, bead, person, database=database, as_json=as_json)
        )
        return local_run.print_end(interactive_run, person, plan.bound(bead.scope), report)


def _read_answers(path: str) -> list[str] | None:
    if not path:
        return None
    if path == "-":
        return sys.stdin.buffer.read().decode("utf-8", "replace").splitlines()
    with file_as_input(f"--answers {path}", "name a file with one answer a line"):
        return Path(path).read_text(encoding="utf-8").splitlines()
