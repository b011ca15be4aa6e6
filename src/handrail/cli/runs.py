"""`handrail runs`: the list of runs, the newest first."""

from datetime import UTC, datetime, timedelta
from typing import NamedTuple, cast, get_args

from handrail.cli import tables
from handrail.cli.asking import Where, ask
from handrail.cli.database import InputError
from handrail.cli.words import clean, duration, typed
from handrail.client.calls import Status
from handrail.client.clients import AsyncClient
from handrail.engine.reading import RunItem
from handrail.kernel.reading import seconds

STYLES = {
    "done_success": "green",
    "done_partial": "yellow",
    "aborted_stuck": "red",
    "aborted_constraint": "red",
    "waiting": "cyan",
    "paused": "yellow",
}


class Wanted(NamedTuple):
    """Which runs; what is empty is not asked for. A status is how a run stands, or how it ended."""

    status: str = ""
    workflow: str = ""
    text: str = ""
    since: str = ""
    limit: int = 50


def list_runs(where: Where, wanted: Wanted) -> int:
    stands = wanted.status in get_args(Status)

    async def do(client: AsyncClient) -> None:
        known = await client.workflow(typed(wanted.workflow)) if wanted.workflow else None
        page = await client.executions(
            status=cast("Status", wanted.status) if stands else None,
            terminal_status=None if stands else wanted.status or None,
            workflow_id=known.id if known is not None else None,
            q=typed(wanted.text) or None,
            since=moment(wanted.since),
            limit=wanted.limit,
        )
        if where.as_json:
            tables.print_json(page)
            return
        heads = ("run", "status", "at, or by", "definition", "began", "took", "title")
        tables.print_table(heads, [_row(run) for run in page.items], "there is no such run", 2)
        if page.next_cursor:
            told = f"these are the newest {len(page.items)}, and there are more"
            tables.note(f"{told}; take a larger --limit, or fewer of them with --text or --since")

    return ask(where, do)


def moment(given: str) -> datetime | None:
    """So long ago, or at that time; without a time zone it is UTC."""
    if not given:
        return None
    now = datetime.now(UTC)
    try:
        ago = seconds(given)
        found = datetime.fromisoformat(given) if ago is None else now - timedelta(seconds=ago)
    except (ValueError, OverflowError):
        told = f"--since is '{clean(given)[:80]}'"
        raise InputError(f"{told}; write how long ago, such as 2h or 7d, or a date") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _row(run: RunItem) -> list[tables.Cell]:
    status = run.terminal_status or run.status
    return [
        tables.short(run.id),
        (status, STYLES.get(status, "")),
        run.current_node_id or run.stop_rule or "",
        f"{run.workflow_id} {run.workflow_version}",
        tables.at(run.created_at),
        duration(run.duration),
        run.title,
    ]
