"""`handrail show`: one run, as it stands or as it goes on."""

import sys
from collections.abc import Iterator

import msgspec

from handrail.cli import ids, tables
from handrail.cli.asking import Where, ask, patient
from handrail.cli.database import FAILED
from handrail.cli.run import in_short
from handrail.cli.view import Lines, PlainView, RichView, View
from handrail.cli.why import waits
from handrail.cli.words import clean, first_line
from handrail.client.clients import AsyncClient
from handrail.kernel.certificate import Bound, ServiceTime
from handrail.kernel.definition import TerminalStatus
from handrail.kernel.plan import check
from handrail.kernel.report import Report
from handrail.kernel.run.events import Asked, RunEvent
from handrail.kernel.run.machine import Run, evolve

WATCHING = 600.0
"""Seconds that a server may be away while somebody watches: it is being started again."""
NO_TIME = ServiceTime(queue=0, work=0, people=0, asks=0, total=0)
UNKNOWN = Bound(
    dispatches=0, handoffs=0, transitions=0, questions=0, asks=0, time=NO_TIME, tight={}
)


def show_run(where: Where, given: str) -> int:
    async def do(client: AsyncClient) -> None:
        run = await ids.run_id(client, given)
        if where.as_json:
            tables.print_json(await client.execution(run))
            return
        report, why = await client.report(run), await client.why(run)
        bound = await _bound(client, report)
        tables.print_line(_head(report))
        tables.print_line(report.why)
        for line in (*_in_short(report, bound), *_went(report), *waits(why.waiting)):
            tables.print_line(f"  {line}")

    return ask(where, do)


def watch_run(where: Where, given: str) -> int:
    """Every event from the first on, until the run has ended: a line for each, or its JSON."""

    async def do(client: AsyncClient) -> int:
        run = await ids.run_id(client, given)
        async with patient(where, client, WATCHING) as watching:
            if where.as_json:
                async for event in watching.events(run):
                    print(msgspec.json.encode(event.data).decode(), flush=True)
            else:
                await _watch(watching, run)
            ended = await watching.execution(run)
        return 0 if ended.terminal_status == TerminalStatus.DONE_SUCCESS else FAILED

    return ask(where, do)


async def _watch(client: AsyncClient, run_id: str) -> None:
    first = await client.report(run_id)
    bound = await _bound(client, first)
    lines = Lines(bound or UNKNOWN, first.kind)
    kind = RichView if tables.on_terminal() else PlainView
    view: View = kind(lines, sys.stdout)
    try:
        view.write(_head(first))
        run: Run | None = None
        async for event in client.events(run_id):
            happened = msgspec.convert(event.data, RunEvent)
            run = evolve(run, happened)
            view.heard(happened, run)
            if isinstance(happened, Asked):
                for line in _asked(happened):
                    view.write(line, "person")
            sys.stdout.flush()
    finally:
        view.close()
    report = await client.report(run_id)
    tables.print_line(report.why)
    for line in _in_short(report, bound):
        tables.print_line(f"  {line}")


def _in_short(report: Report, bound: Bound | None) -> Iterator[str]:
    return in_short(report, bound) if bound is not None else iter(())


def _head(report: Report) -> str:
    named = f"run {tables.short(report.run_id)} of {report.definition_id} {report.version}"
    return f"{named}: {first_line(report.title)}"


def _went(report: Report) -> Iterator[str]:
    """Where it went, one line each; then what was doubtful."""
    for one in report.transitions:
        way = f"{one.from_node_id} -> {one.to_node_id}".strip()
        reason = f": {first_line(one.reason)}" if one.reason else ""
        yield f"{tables.at(one.timestamp)}  {way}  {one.outcome}{reason}"
    for edge, counter in report.loop_counters.items():
        if counter.limit is not None and counter.count:
            yield f"{edge}: {counter.count} of {counter.limit} since the last progress"
    for warning in report.warnings:
        yield f"warning: {first_line(warning.message)} [{warning.code}]"


def _asked(event: Asked) -> Iterator[str]:
    question = event.question
    yield f"  asks: {first_line(question.text)}"
    yield f"  answer with: handrail answer {clean(tables.short(question.id))} TEXT"


async def _bound(client: AsyncClient, report: Report) -> Bound | None:
    """What the run can cost at most, by its version and its bead's scope; None if the definition
    is no longer valid."""
    known = await client.workflow(report.definition_id, version=report.version)
    plan, _ = check(known.definition)
    bead = await client.bead(report.bead_id)
    return plan.bound(bead.context.get("task_scope")) if plan is not None else None
