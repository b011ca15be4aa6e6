"""`handrail runs`: the list of runs, the newest first."""

from datetime import UTC, datetime, timedelta
from typing import NamedTuple, cast, get_args

from handrail.cli import output
from handrail.cli.api import ApiTarget, call_api
from handrail.cli.database import InputError
from handrail.cli.formatting import decode_argument, format_duration, printable
from handrail.client.calls import Status
from handrail.client.clients import AsyncClient
from handrail.kernel.definition.reader import parse_duration
from handrail.views.run_view import RunItem

STATUS_STYLES = {
    "done_success": "green",
    "done_partial": "yellow",
    "aborted_stuck": "red",
    "aborted_constraint": "red",
    "waiting": "cyan",
    "paused": "yellow",
}


class RunFilter(NamedTuple):
    """Which runs; empty fields do not filter. A status is how a run stands, or how it ended."""

    status: str = ""
    workflow: str = ""
    text: str = ""
    since: str = ""
    limit: int = 50


def list_runs(target: ApiTarget, run_filter: RunFilter) -> int:
    is_status = run_filter.status in get_args(Status)

    async def do(client: AsyncClient) -> None:
        definition = (
            await client.get_definition(decode_argument(run_filter.workflow))
            if run_filter.workflow
            else None
        )
        page = await client.list_runs(
            status=cast("Status", run_filter.status) if is_status else None,
            terminal_status=None if is_status else run_filter.status or None,
            workflow_id=definition.id if definition is not None else None,
            q=decode_argument(run_filter.text) or None,
            since=parse_since(run_filter.since),
            limit=run_filter.limit,
        )
        if target.as_json:
            output.print_json(page)
            return
        heads = ("run", "status", "at, or by", "definition", "began", "took", "title")
        output.print_table(heads, [_run_row(run) for run in page.items], "there is no such run", 2)
        if page.next_cursor:
            message = f"these are the newest {len(page.items)}, and there are more"
            output.print_note(
                f"{message}; take a larger --limit, or fewer of them with --text or --since"
            )

    return call_api(target, do)


def parse_since(since: str) -> datetime | None:
    """Parse an age or a time; without a time zone it is UTC."""
    if not since:
        return None
    now = datetime.now(UTC)
    try:
        ago = parse_duration(since)
        start = datetime.fromisoformat(since) if ago is None else now - timedelta(seconds=ago)
    except (ValueError, OverflowError):
        message = f"--since is '{printable(since)[:80]}'"
        raise InputError(f"{message}; write how long ago, such as 2h or 7d, or a date") from None
    return start if start.tzinfo is not None else start.replace(tzinfo=UTC)


def _run_row(run: RunItem) -> list[output.Cell]:
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
