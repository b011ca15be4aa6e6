"""`handrail tune`: limits proposed from the runs of a definition, with lines to copy."""

from handrail.cli import output
from handrail.cli.api import ApiTarget, call_api
from handrail.cli.formatting import decode_argument
from handrail.client.clients import AsyncClient
from handrail.replay.tuning import LimitProposal, TuningReport

PAGE_ITEMS = 500


def tune_limits(target: ApiTarget, definition: str, share: float, runs: int) -> int:
    async def do(client: AsyncClient) -> None:
        definition_ids = (
            [decode_argument(definition)] if definition else await _list_definition_ids(client)
        )
        tunings = [
            await client.tune_definition(definition_id, share=share, runs=runs)
            for definition_id in definition_ids
        ]
        if target.as_json:
            output.print_json(tunings[0] if definition else {"items": tunings})
            return
        for tuning in tunings:
            _print_tuning(tuning)
        if not tunings:
            output.print_line("nothing is defined yet; `handrail bead create` files a first bead")

    return call_api(target, do)


async def _list_definition_ids(client: AsyncClient) -> list[str]:
    return [
        definition.id async for definition in client.each(client.list_definitions, limit=PAGE_ITEMS)
    ]


def _print_tuning(tuning: TuningReport) -> None:
    name = f"{tuning.workflow_id}, version {tuning.workflow_version}"
    output.print_line(f"{name}: {tuning.told}")
    if not tuning.proposals:
        return
    heads = ("limit", "now", "proposed", "good runs cut", "wasted steps", "because")
    output.print_table(
        heads, [_proposal_row(proposal, tuning) for proposal in tuning.proposals], no_wrap_columns=5
    )
    if tuning.rules:
        output.print_line("stop_rules:")
        for limit, value in tuning.rules.items():
            output.print_line(f"  {limit}: {_format_limit(value)}")


def _proposal_row(proposal: LimitProposal, tuning: TuningReport) -> list[output.Cell]:
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
