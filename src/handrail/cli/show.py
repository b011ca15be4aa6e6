"""`handrail show`: one run, as it stands or as it goes on."""

import sys
from collections.abc import Iterator

import msgspec

from handrail.cli import ids, output
from handrail.cli.api import ApiTarget, call_api, open_patient_client
from handrail.cli.database import EXIT_FAILED
from handrail.cli.formatting import first_line, printable
from handrail.cli.live_view import EventFormatter, LiveView, PlainView, RichView
from handrail.cli.run import summary_lines
from handrail.cli.why import waiting_lines
from handrail.client.clients import AsyncClient
from handrail.kernel.definition.certificate import Bound, ServiceTime
from handrail.kernel.definition.model import TerminalStatus
from handrail.kernel.definition.plan import check_definition
from handrail.kernel.run.events import Asked, RunEvent
from handrail.kernel.run.machine import Run, evolve
from handrail.views.report import RunReport

WATCH_PATIENCE_SECONDS = 600.0
"""How long a server may be away while a user watches: it is being restarted."""
ZERO_TIME = ServiceTime(queue=0, work=0, people=0, asks=0, total=0)
UNKNOWN_BOUND = Bound(
    dispatches=0, handoffs=0, transitions=0, questions=0, asks=0, time=ZERO_TIME, tight={}
)


def show_run(target: ApiTarget, partial_id: str) -> int:
    async def do(client: AsyncClient) -> None:
        run_id = await ids.find_run_id(client, partial_id)
        if target.as_json:
            output.print_json(await client.get_run(run_id))
            return
        report, why = await client.get_report(run_id), await client.explain_run(run_id)
        bound = await _load_bound(client, report)
        output.print_line(_headline(report))
        output.print_line(report.why)
        for line in (
            *_summary_lines(report, bound),
            *_history_lines(report),
            *waiting_lines(why.waiting),
        ):
            output.print_line(f"  {line}")

    return call_api(target, do)


def watch_run(target: ApiTarget, partial_id: str) -> int:
    """Print every event from the first on, until the run has ended: a line for each, or its
    JSON.
    """

    async def do(client: AsyncClient) -> int:
        run_id = await ids.find_run_id(client, partial_id)
        async with open_patient_client(target, client, WATCH_PATIENCE_SECONDS) as patient_client:
            if target.as_json:
                async for event in patient_client.follow_run(run_id):
                    print(msgspec.json.encode(event.data).decode(), flush=True)
            else:
                await _print_events(patient_client, run_id)
            ended = await patient_client.get_run(run_id)
        return 0 if ended.terminal_status == TerminalStatus.DONE_SUCCESS else EXIT_FAILED

    return call_api(target, do)


async def _print_events(client: AsyncClient, run_id: str) -> None:
    first_report = await client.get_report(run_id)
    bound = await _load_bound(client, first_report)
    formatter = EventFormatter(bound or UNKNOWN_BOUND, first_report.kind)
    view_class = RichView if output.is_terminal() else PlainView
    view: LiveView = view_class(formatter, sys.stdout)
    try:
        view.write(_headline(first_report))
        run: Run | None = None
        async for event in client.follow_run(run_id):
            run_event = msgspec.convert(event.data, RunEvent)
            run = evolve(run, run_event)
            view.show_event(run_event, run)
            if isinstance(run_event, Asked):
                for line in _approval_lines(run_event):
                    view.write(line, "person")
            sys.stdout.flush()
    finally:
        view.close()
    report = await client.get_report(run_id)
    output.print_line(report.why)
    for line in _summary_lines(report, bound):
        output.print_line(f"  {line}")


def _summary_lines(report: RunReport, bound: Bound | None) -> Iterator[str]:
    return summary_lines(report, bound) if bound is not None else iter(())


def _headline(report: RunReport) -> str:
    named = f"run {output.short_id(report.run_id)} of {report.definition_id} {report.version}"
    return f"{named}: {first_line(report.title)}"


def _history_lines(report: RunReport) -> Iterator[str]:
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


def _approval_lines(event: Asked) -> Iterator[str]:
    approval = event.approval
    yield f"  asks: {first_line(approval.text)}"
    yield f"  answer with: handrail answer {printable(output.short_id(approval.id))} TEXT"


async def _load_bound(client: AsyncClient, report: RunReport) -> Bound | None:
    """Return the most that the run can cost, by its version and its bead's scope; None if the
    definition is no longer valid.
    """
    definition = await client.get_definition(report.definition_id, version=report.version)
    plan, _ = check_definition(definition.definition)
    bead = await client.get_bead(report.bead_id)
    return plan.bound(bead.context.get("task_scope")) if plan is not None else None
