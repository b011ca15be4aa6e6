"""`handrail report`: what happened in a run, and why it ended. Rendered on a terminal, else raw."""

import sys

from handrail.cli import output
from handrail.cli.api import open_client
from handrail.cli.formatting import printable
from handrail.cli.ids import find_run_id
from handrail.cli.options import AsJson, Database, RunId, Server


async def report(
    run: RunId, database: Database = "", server: Server = "", as_json: AsJson = False
) -> None:
    """Print what happened in a run and why it ended, as Markdown."""
    async with open_client(database, server) as client:
        run_id = await find_run_id(client, run)
        if as_json:
            output.print_json(await client.runs.get_report(run_id))
            return
        text = printable(await client.runs.get_report_markdown(run_id))
    if not output.is_terminal():
        sys.stdout.write(text)
        return
    from rich.markdown import Markdown

    output.console().print(Markdown(text, hyperlinks=False))
