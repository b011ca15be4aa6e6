"""`handrail tune`: limits proposed from the runs of a definition, with lines to copy."""

from typing import TYPE_CHECKING, Annotated

import typer

from handrail.cli import output
from handrail.cli.api import open_client
from handrail.cli.formatting import decode_argument
from handrail.cli.ids import PAGE_ITEMS
from handrail.cli.options import AsJson, Database, Server

if TYPE_CHECKING:
    from handrail.replay.tuning import LimitProposal, TuningReport


async def tune(
    definition: Annotated[
        str,
        typer.Argument(
            metavar="DEFINITION", help="A definition, by id or name; default: all of them."
        ),
    ] = "",
    share: Annotated[
        float, typer.Option(min=0, max=1, help="The share of good runs that a limit may cut.")
    ] = 0.0,
    runs: Annotated[
        int, typer.Option(min=1, max=500, help="How many ended runs to use, the newest first.")
    ] = 100,
    database: Database = "",
    server: Server = "",
    as_json: AsJson = False,
) -> None:
    """Propose limits from the runs that have ended.

    Each comes with the good runs that it would have cut and the steps that it would have saved.
    Nothing is changed: copy what you want into the definition's stop_rules.
    """
    async with open_client(database, server) as client:
        definition_ids = [decode_argument(definition)]
        if not definition:
            each_definition = client.each(client.definitions.list, limit=PAGE_ITEMS)
            definition_ids = [stored.id async for stored in each_definition]
        tunings = [
            await client.definitions.tune(definition_id, share=share, runs=runs)
            for definition_id in definition_ids
        ]
    if as_json:
        output.print_json(tunings[0] if definition else {"items": tunings})
        return
    for tuning in tunings:
        _print_tuning(tuning)
    if not tunings:
        output.print_line("nothing is defined yet; `handrail bead create` files a first bead")


def _print_tuning(tuning: "TuningReport") -> None:
    name = f"{tuning.workflow_id}, version {tuning.workflow_version}"
    output.print_line(f"{name}: {tuning.told}")
    if not tuning.proposals:
        return
    heads = ("limit", "now", "proposed", "good runs cut", "wasted steps", "because")
    rows = [_proposal_row(proposal, tuning) for proposal in tuning.proposals]
    output.print_table(output.TextTable(heads, rows, no_wrap_columns=5))
    if tuning.rules:
        output.print_line("stop_rules:")
        for limit, value in tuning.rules.items():
            output.print_line(f"  {limit}: {_format_limit(value)}")


def _proposal_row(proposal: "LimitProposal", tuning: "TuningReport") -> list[output.Cell]:
    changes = proposal.limit in tuning.rules
    return [
        proposal.limit,
        _format_limit(proposal.now),
        (_format_limit(proposal.proposed), "green" if changes else ""),
        f"{proposal.cut} of {tuning.good}, at most {proposal.cut_at_most:.1%}",
        f"{proposal.wasted_now} -> {proposal.wasted}"
        if proposal.wasted != proposal.wasted_now
        else f"{proposal.wasted}",
        proposal.why,
    ]


def _format_limit(value: float | None) -> str:
    return "off" if value is None else f"{value:.10g}"
