"""`handrail override`: a person moves, closes, pauses, resumes or migrates a run, with a reason."""

from typing import NamedTuple, cast

from handrail.cli import ids, tables
from handrail.cli.asking import Where, ask
from handrail.cli.words import typed
from handrail.client.calls import Override
from handrail.client.clients import AsyncClient


class Wanted(NamedTuple):
    run: str
    action: str
    reason: str
    node: str = ""
    version: int | None = None


def override_run(where: Where, wanted: Wanted) -> int:
    async def do(client: AsyncClient) -> None:
        run = await client.override(
            await ids.run_id(client, wanted.run),
            cast("Override", wanted.action),
            typed(wanted.reason),
            node=typed(wanted.node) or None,
            version=wanted.version,
        )
        if where.as_json:
            tables.print_json(run)
            return
        at = f" at {', '.join(run.current_node_ids)}" if run.current_node_ids else ""
        tables.print_line(f"run {tables.short(run.id)} is {run.terminal_status or run.status}{at}")

    return ask(where, do)
