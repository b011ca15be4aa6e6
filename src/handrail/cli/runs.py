"""`handrail runs`: the list of runs, the newest first."""

from typing import TYPE_CHECKING, Annotated

import typer

from handrail.cli import output
from handrail.cli.api import open_client
from handrail.cli.arguments import parse_since
from handrail.cli.formatting import decode_argument, format_duration
from handrail.cli.options import AsJson, Database, RunStatusFilter, Server, Since, WorkflowName

if TYPE_CHECKING:
    from handrail.views.run_view import RunItem

STATUS_STYLES = {
    "done_success": "green",
    "done_partial": "yellow",
    "aborted_stuck": "red",
    "aborted_constraint": "red",
    "waiting": "cyan",
    "paused": "yellow",
}


async def runs(
    status: Annotated[
        RunStatusFilter | None, typer.Option(help="Only runs with this status.")
    ] = None,
    workflow: WorkflowName = "",
    text: Annotated[
        str,
        typer.Option(help="Only runs with this in the title, or with this beginning of the id."),
    ] = "",
    since: Since = "",
    limit: Annotated[int, typer.Option(min=1, max=500, help="The most runs to list.")] = 50,
    database: Database = "",
    server: Server = "",
    as_json: AsJson = False,
) -> None:
    """List runs, the newest first."""
    state = status if status in ("running", "waiting", "paused", "ended") else None
    async with open_client(database, server) as client:
        definition = await client.definitions.get(decode_argument(workflow)) if workflow else None
        page = await client.runs.list(
            status=state,
            terminal_status=status if state is None else None,
            workflow_id=definition.id if definition is not None else None,
            q=decode_argument(text) or None,
            since=parse_since(since),
            limit=limit,
        )
    heads = ("run", "status", "at, or by", "definition", "began", "took", "title")
    table = output.TextTable(heads, map(_run_row, page.items), "there is no such run", 2)
    message = f"only the newest {len(page.items)} are listed"
    note = f"{message}; raise --limit, or filter with --text or --since"
    output.show(page, table, as_json=as_json, note=note if page.next_cursor else "")


def _run_row(run: "RunItem") -> list[output.Cell]:
    status = run.terminal_status or run.status
    return [
        output.short_id(run.id),
        (status, STATUS_STYLES.get(status, "")),
        run.current_node_id or run.stop_rule or "",
        f"{run.workflow_id} {run.workflow_version}",
        output.format_time(run.created_at),
        format_duration(run.duration),
        run.title,
    ]
