"""`handrail show`: one run, as it stands or as it goes on."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from handrail.cli import output
from handrail.cli.api import open_client
from handrail.cli.command import EXIT_FAILED
from handrail.cli.formatting import first_line, printable
from handrail.cli.ids import find_run_id
from handrail.cli.options import AsJson, Database, RunId, Server
from handrail.cli.report_lines import summary_lines, waiting_lines
from handrail.kernel.definition.model import TerminalStatus

if TYPE_CHECKING:
    from handrail.client.clients import AsyncClient
    from handrail.kernel.definition.certificate import Bound
    from handrail.kernel.run.events import Asked
    from handrail.views.report import RunReport
    from handrail.views.run_details import RunExplanation

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
    from handrail.cli.live_view import EventFormatter, PlainView, RichView
    from handrail.kernel.run.events import Asked, RunEvent

    first_report = await client.runs.get_report(run_id)
    bound = await _load_bound(client, first_report)
    formatter = EventFormatter(bound, first_report.kind)
    view = (RichView if output.is_terminal() else PlainView)(formatter, sys.stdout)
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
    run = f"run {output.short_id(report.run_id)} of {report.definition_id} {report.version}"
    return f"{run}: {first_line(report.title)}"


def _history_lines(report: "RunReport") -> Iterator[str]:
    """Yield the run's path, one line each; then its warnings."""
    for transition in report.transitions:
        move = f"{transition.from_node_id} -> {transition.to_node_id}".strip()
        reason = f": {first_line(transition.reason)}" if transition.reason else ""
        yield f"{output.format_time(transition.timestamp)}  {move}  {transition.outcome}{reason}"
    for edge, counter in report.loop_counters.items():
        if counter.limit is not None and counter.count:
            yield f"{edge}: {counter.count} of {counter.limit} since the last progress"
    for warning in report.warnings:
        yield f"warning: {first_line(warning.message)} [{warning.code}]"


def _approval_lines(event: "Asked") -> Iterator[str]:
    approval = event.approval
    yield f"  asks: {first_line(approval.text)}"
    yield f"  answer with: handrail answer {printable(output.short_id(approval.id))} TEXT"


async def _load_bound(client: "AsyncClient", report: "RunReport") -> "Bound | None":
    """Return the most that the run can cost, by its version and its bead's scope; None if the
    definition is no longer valid.
    """
    from handrail.kernel.definition.plan import check_definition

    definition = await client.definitions.get(report.definition_id, version=report.version)
    plan, _ = check_definition(definition.definition)
    bead = await client.beads.get(report.bead_id)
    return plan.bound(bead.context.get("task_scope")) if plan is not None else None
