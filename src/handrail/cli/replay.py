"""`handrail replay`: which runs other stop rules would have ended where, and what that saves."""

from typing import TYPE_CHECKING, Annotated

import typer

from handrail.cli import output
from handrail.cli.api import open_client
from handrail.cli.arguments import read_rules
from handrail.cli.command import InputError
from handrail.cli.formatting import decode_argument, format_count, format_duration
from handrail.cli.ids import find_run_id
from handrail.cli.options import AsJson, Database, Server

if TYPE_CHECKING:
    from handrail.client.clients import AsyncClient
    from handrail.replay.replay_report import ReplayReport, ReplayResults, Savings

VERDICT_STYLES = {"sooner": "yellow", "beyond": "cyan", "unlike": "red"}
CUT_STYLE = "red"


async def replay(
    rules: Annotated[
        str,
        typer.Option(
            metavar="FILE|PROFILE",
            help="A file with fields of stop_rules, or a profile: strict or yolo.",
        ),
    ],
    runs: Annotated[
        list[str] | None,
        typer.Argument(metavar="RUN…", help="Run ids, or unique beginnings or ends of them."),
    ] = None,
    workflow: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="Instead of RUN: the newest ended runs of this definition."
        ),
    ] = "",
    database: Database = "",
    server: Server = "",
    as_json: AsJson = False,
) -> None:
    """Show what other stop rules would have done to recorded runs.

    Prints where each would have stopped, by which rule, what that saves, and which good runs would
    have been cut. Rules that are not named stay as in the definition. No agent is run.
    """
    async with open_client(database, server) as client:
        overrides = read_rules(rules)
        if bool(runs) == bool(workflow):
            raise InputError("name runs, or a definition with --workflow")
        run_ids = (
            [await find_run_id(client, run) for run in runs]
            if runs
            else await _list_ended_run_ids(client, workflow)
        )
        replays = await client.runs.replay(run_ids, overrides)
    if as_json:
        output.print_json(replays)
    else:
        _print_replays(replays)


async def _list_ended_run_ids(client: "AsyncClient", workflow: str) -> list[str]:
    from handrail.replay.replay_report import REPLAYED_RUNS_MAX

    definition = await client.definitions.get(decode_argument(workflow))
    page = await client.runs.list(
        status="ended", workflow_id=definition.id, limit=REPLAYED_RUNS_MAX
    )
    if not page.items:
        raise InputError(f"no run of '{definition.id}' has ended; there is nothing to replay")
    return [run.id for run in page.items]


def _print_replays(replays: "ReplayResults") -> None:
    heads = ("run", "under these rules it", "saved")
    output.print_table(output.TextTable(heads, map(_replay_row, replays.items)))
    summary = replays.summary
    verdicts = ", ".join(f"{n} {name}" for name, n in summary.verdicts.items())
    cut = f"{summary.cut} of {format_count(summary.good, 'good run')} cut"
    savings = _format_savings(summary.saved) or "nothing"
    output.print_line(f"{format_count(summary.runs, 'run')}: {verdicts}; {cut}; saved: {savings}")


def _replay_row(replay: "ReplayReport") -> list[output.Cell]:
    style = CUT_STYLE if replay.cut else VERDICT_STYLES.get(replay.verdict, "")
    return [
        output.short_id(replay.execution_id),
        (replay.told, style),
        _format_savings(replay.saved),
    ]


def _format_savings(savings: "Savings") -> str:
    parts = [
        format_count(savings.steps, "step") if savings.steps else "",
        format_count(savings.tokens, "token") if savings.tokens else "",
        f"cost {savings.cost:g}" if savings.cost else "",
        format_duration(savings.seconds) if savings.seconds else "",
    ]
    return ", ".join(part for part in parts if part)
