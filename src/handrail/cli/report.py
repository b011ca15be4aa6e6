"""`handrail report`: what happened in a run, and why it ended. Rendered on a terminal, else raw."""

import sys

from rich.markdown import Markdown

from handrail.cli import ids, output
from handrail.cli.api import ApiTarget, call_api
from handrail.cli.formatting import printable
from handrail.client.clients import AsyncClient


def print_report(target: ApiTarget, partial_id: str) -> int:
    async def do(client: AsyncClient) -> None:
        run_id = await ids.find_run_id(client, partial_id)
        if target.as_json:
            output.print_json(await client.get_report(run_id))
            return
        text = printable(await client.get_report_markdown(run_id))
        if output.is_terminal():
            output.console().print(Markdown(text, hyperlinks=False))
        else:
            sys.stdout.write(text)

    return call_api(target, do)
