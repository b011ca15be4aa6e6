"""`handrail tune`: limits proposed from the runs of a definition, with lines to copy."""

from handrail.cli import tables
from handrail.cli.asking import Where, ask
from handrail.cli.words import typed
from handrail.client.clients import AsyncClient
from handrail.kernel.tune import Proposal, Tuning

PAGE = 500


def tune_limits(where: Where, definition: str, share: float, runs: int) -> int:
    async def do(client: AsyncClient) -> None:
        names = [typed(definition)] if definition else await _all(client)
        found = [await client.tune(name, share=share, runs=runs) for name in names]
        if where.as_json:
            tables.print_json(found[0] if definition else {"items": found})
            return
        for one in found:
            _print(one)
        if not found:
            tables.print_line("nothing is defined yet; `handrail bead create` files a first bead")

    return ask(where, do)


async def _all(client: AsyncClient) -> list[str]:
    return [one.id async for one in client.each(client.workflows, limit=PAGE)]


def _print(tuning: Tuning) -> None:
    name = f"{tuning.workflow_id}, version {tuning.workflow_version}"
    tables.print_line(f"{name}: {tuning.told}")
    if not tuning.proposals:
        return
    heads = ("limit", "now", "proposed", "good runs cut", "wasted steps", "because")
    tables.print_table(heads, [_row(one, tuning) for one in tuning.proposals], whole=5)
    if tuning.rules:
        tables.print_line("stop_rules:")
        for limit, value in tuning.rules.items():
            tables.print_line(f"  {limit}: {_limit(value)}")


def _row(one: Proposal, tuning: Tuning) -> list[tables.Cell]:
    changes = one.limit in tuning.rules
    return [
        one.limit,
        _limit(one.now),
        (_limit(one.proposed), "green" if changes else ""),
        f"{one.cut} of {tuning.good}, at most {one.cut_at_most:.1%}",
        f"{one.wasted_now} -> {one.wasted}" if one.wasted != one.wasted_now else f"{one.wasted}",
        one.why,
    ]


def _limit(value: float | None) -> str:
    return "off" if value is None else f"{value:.10g}"
