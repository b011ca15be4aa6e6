"""`handrail report`: what happened in a run, and why it ended. Rendered on a terminal, else raw."""

import sys

from rich.markdown import Markdown

from handrail.cli import ids, tables
from handrail.cli.asking import Where, ask
from handrail.cli.words import clean
from handrail.client.clients import AsyncClient


def print_report(where: Where, given: str) -> int:
    async def do(client: AsyncClient) -> None:
        run = await ids.run_id(client, given)
        if where.as_json:
            tables.print_json(await client.report(run))
            return
        text = clean(await client.report_markdown(run))
        if tables.on_terminal():
            tables.console().print(Markdown(text, hyperlinks=False))
        else:
            sys.stdout.write(text)

    return ask(where, do)
