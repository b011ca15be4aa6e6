"""`handrail override`: a person moves, closes, pauses, resumes or migrates a run, with a reason."""

from typing import Annotated

import typer

from handrail.cli import output
from handrail.cli.api import open_client
from handrail.cli.formatting import decode_argument
from handrail.cli.ids import find_run_id
from handrail.cli.options import AsJson, Database, OverrideAction, RunId, Server


async def override(
    run: RunId,
    action: Annotated[
        OverrideAction,
        typer.Argument(metavar="ACTION", help="move, close, pause, resume or migrate."),
    ],
    reason: Annotated[str, typer.Option(help="The reason; it is recorded.")],
    node: Annotated[str, typer.Option(help="For move: the target node, or agent of a team.")] = "",
    version: Annotated[
        int | None, typer.Option(min=1, help="For migrate: the version of the definition.")
    ] = None,
    database: Database = "",
    server: Server = "",
    as_json: AsJson = False,
) -> None:
    """Move, close, pause, resume or migrate a run, with a reason."""
    async with open_client(database, server) as client:
        changed = await client.runs.override(
            await find_run_id(client, run),
            action,
            decode_argument(reason),
            node=decode_argument(node) or None,
            version=version,
        )
    at = f" at {', '.join(changed.current_node_ids)}" if changed.current_node_ids else ""
    status = changed.terminal_status or changed.status
    output.show(changed, [f"run {output.short_id(changed.id)} is {status}{at}"], as_json=as_json)
