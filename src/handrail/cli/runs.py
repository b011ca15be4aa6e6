"""Commands about runs: `handrail bead create` starts one; `runs`, `show`, `report` and `why` read
them; `override` changes one.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import msgspec
import typer

from handrail.cli import output
from handrail.cli.arguments import (
    AsJson,
    Database,
    OverrideAction,
    ReviewMode,
    RunId,
    RunStatusFilter,
    Server,
    Since,
    WorkflowName,
    decode_argument,
    find_run_id,
    parse_since,
    read_context,
)
from handrail.cli.command import EXIT_FAILED, InputError
from handrail.cli.command_group import command_group
from handrail.cli.connection import open_client
from handrail.cli.run_view import stop_lines, summary_lines, waiting_lines
from handrail.client.errors import NotFoundError
from handrail.kernel.definition.model import TerminalStatus

if TYPE_CHECKING:
    from handrail.client.clients import AsyncClient
    from handrail.kernel.definition.certificate import Bound
    from handrail.kernel.run.events import Asked
    from handrail.views.report import RunReport
    from handrail.views.run_view import RunExplanation, RunItem

bead = command_group("File beads.")


@bead.command("create")
async def create_bead(
    definition: Annotated[
        str, typer.Argument(help="The definition: a file, else an id, else a name.")
    ],
    title: Annotated[str, typer.Option(help="The bead's title.")],
    description: Annotated[str, typer.Option(help="The bead's description.")] = "",
    context: Annotated[
        str, typer.Option(help="The bead's context: a JSON object, or @FILE with one.")
    ] = "",
    review: Annotated[
        ReviewMode | None, typer.Option(help="Default: as the definition says.")
    ] = None,
    priority: Annotated[
        int, typer.Option(help="Dispatches of a higher priority are offered first.")
    ] = 0,
    due: Annotated[
        str, typer.Option(help="When the work should be done, such as 2026-01-31T12:00:00Z.")
    ] = "",
    database: Database = "",
    server: Server = "",
    as_json: AsJson = False,
) -> None:
    """File a bead, and start a run of it.

    A definition in a file is stored first. A server on the database works on the run.
    """
    async with open_client(database, server) as client:
        created = await client.beads.create(
            decode_argument(title),
            description=decode_argument(description),
            context=read_context(context) or None,
            workflow_id=await _resolve_definition_id(client, definition),
            review=review,
            priority=priority or None,
            due_at=due or None,
        )
    output.show(created, [f"bead {created.id}, run {created.execution_id}"], as_json=as_json)


async def _resolve_definition_id(client: "AsyncClient", definition: str) -> str:
    """Resolve a file, which is stored first, else an id, else a name."""
    if definition != "-" and not Path(definition).is_file():
        return await _find_stored_id(client, decode_argument(definition))
    from handrail.cli.definitions import find_definition

    source = find_definition(definition)
    if source.problems:
        raise InputError(source.format_problems(source.problems[:1], "error")[0])
    stored = await client.definitions.create(cast("dict[str, Any]", source.document))
    for line in source.format_problems(stored.warnings, "warning"):
        output.print_note(line)
    return stored.id


async def _find_stored_id(client: "AsyncClient", name: str) -> str:
    from handrail.teams import BUILTIN_IDS

    try:
        return (await client.definitions.get(name)).id
    except NotFoundError:
        if name not in BUILTIN_IDS:
            raise
        raise InputError(
            f"'{name}' is built in, but no server has started it here; start "
            "`handrail serve --builtin-agents`"
        ) from None


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
    table = output.TextTable(
        ("run", "status", "at, or by", "definition", "began", "took", "title"),
        map(_run_row, page.items),
        "there is no such run",
        no_wrap_columns=2,
    )
    note = (
        f"only the newest {len(page.items)} are listed; raise --limit, or filter with --text or "
        "--since"
    )
    output.show(page, table, as_json=as_json, note=note if page.next_cursor else "")


def _run_row(run: "RunItem") -> list[output.Cell]:
    status = run.terminal_status or run.status
    return [
        output.short_id(run.id),
        (status, STATUS_STYLES.get(status, "")),
        run.current_node_id or run.stop_rule or "",
        f"{run.workflow_id} {run.workflow_version}",
        output.format_time(run.created_at),
        output.format_duration(run.duration),
        run.title,
    ]


WATCH_PATIENCE_SECONDS = 600.0
"""How long a server may be away while a user watches: it is being restarted."""


async def show(
    run: RunId,
    watch: Annotated[
        bool, typer.Option("--watch", help="Print every event, and new ones as they happen.")
    ] = False,
    database: Database = "",
    server: Server = "",
    as_json: AsJson = False,
) -> int:
    """Show one run.

    Prints its state and its path, against its certificate. With --watch, follows the run until it
    ends, with exit code 1 unless it ends as done_success; --json then prints one line per event.
    """
    async with open_client(database, server) as client:
        run_id = await find_run_id(client, run)
        if not watch and as_json:
            output.print_json(await client.runs.get(run_id))
        elif not watch:
            report, why = await client.runs.get_report(run_id), await client.runs.explain(run_id)
            for line in _run_lines(report, why, await _load_bound(client, report)):
                output.print_line(line)
    if not watch:
        return 0
    async with open_client(database, server, patience=WATCH_PATIENCE_SECONDS) as client:
        if as_json:
            async for event in client.runs.follow(run_id):
                print(msgspec.json.encode(event.data).decode(), flush=True)
        else:
            await _print_events(client, run_id)
        ended = await client.runs.get(run_id)
    return 0 if ended.terminal_status == TerminalStatus.DONE_SUCCESS else EXIT_FAILED


def _run_lines(
    report: "RunReport", explanation: "RunExplanation", bound: "Bound | None"
) -> Iterator[str]:
    yield _headline(report)
    yield from _end_lines(report, bound)
    for line in (*_history_lines(report), *waiting_lines(explanation.waiting)):
        yield f"  {line}"


async def _print_events(client: "AsyncClient", run_id: str) -> None:
    from handrail.cli.run_view import EventFormatter, PlainView, RichView
    from handrail.kernel.run.events import Asked, RunEvent

    first_report = await client.runs.get_report(run_id)
    bound = await _load_bound(client, first_report)
    view = (RichView if output.is_terminal() else PlainView)(
        EventFormatter(bound, first_report.kind), sys.stdout
    )
    try:
        view.write(_headline(first_report))
        async for event in client.runs.follow(run_id):
            run_event = msgspec.convert(event.data, RunEvent)
            view.show_event(run_event)
            if isinstance(run_event, Asked):
                for line in _approval_lines(run_event):
                    view.write(line, "person")
            sys.stdout.flush()
    finally:
        view.close()
    for line in _end_lines(await client.runs.get_report(run_id), bound):
        output.print_line(line)


def _end_lines(report: "RunReport", bound: "Bound | None") -> Iterator[str]:
    yield report.why
    if bound is not None:
        for line in summary_lines(report, bound):
            yield f"  {line}"


def _headline(report: "RunReport") -> str:
    return (
        f"run {output.short_id(report.run_id)} of {report.definition_id} {report.version}: "
        f"{output.first_line(report.title)}"
    )


def _history_lines(report: "RunReport") -> Iterator[str]:
    """Yield the run's path, one line each; then its warnings."""
    for transition in report.transitions:
        move = f"{transition.from_node_id} -> {transition.to_node_id}".strip()
        reason = f": {output.first_line(transition.reason)}" if transition.reason else ""
        yield f"{output.format_time(transition.timestamp)}  {move}  {transition.outcome}{reason}"
    for edge, counter in report.loop_counters.items():
        if counter.limit is not None and counter.count:
            yield f"{edge}: {counter.count} of {counter.limit} since the last progress"
    for warning in report.warnings:
        yield f"warning: {output.first_line(warning.message)} [{warning.code}]"


def _approval_lines(event: "Asked") -> Iterator[str]:
    approval = event.approval
    yield f"  asks: {output.first_line(approval.text)}"
    yield f"  answer with: handrail answer {output.printable(output.short_id(approval.id))} TEXT"


async def _load_bound(client: "AsyncClient", report: "RunReport") -> "Bound | None":
    """Return the most that the run can cost, by its version and its bead's scope; None if the
    definition is no longer valid.
    """
    from handrail.kernel.definition.plan import check_definition

    plan, _ = check_definition(
        (await client.definitions.get(report.definition_id, version=report.version)).definition
    )
    bead = await client.beads.get(report.bead_id)
    return plan.bound(bead.context.get("task_scope")) if plan is not None else None


async def report(
    run: RunId, database: Database = "", server: Server = "", as_json: AsJson = False
) -> None:
    """Print what happened in a run and why it ended, as Markdown."""
    async with open_client(database, server) as client:
        run_id = await find_run_id(client, run)
        if as_json:
            output.print_json(await client.runs.get_report(run_id))
            return
        text = output.printable(await client.runs.get_report_markdown(run_id))
    if not output.is_terminal():
        sys.stdout.write(text)
        return
    from rich.markdown import Markdown

    output.console().print(Markdown(text, hyperlinks=False))


async def why(
    run: RunId, database: Database = "", server: Server = "", as_json: AsJson = False
) -> None:
    """Explain why a run stopped, waits, or is not worked on."""
    async with open_client(database, server) as client:
        explanation = await client.runs.explain(await find_run_id(client, run))
    output.show(
        explanation,
        (explanation.why, *(f"  {line}" for line in _explanation_lines(explanation))),
        as_json=as_json,
    )


def _explanation_lines(explanation: "RunExplanation") -> Iterator[str]:
    yield from stop_lines(explanation.stop)
    yield from waiting_lines(explanation.waiting)
    if explanation.stop is not None:
        yield f"what to do: {explanation.next}"
    for note in explanation.notes:
        yield f"note: {note}"


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
