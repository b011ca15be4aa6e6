"""`handrail why`: why a run stopped, or what each of its open places waits for."""

from collections.abc import Iterator

from handrail.cli import ids, tables
from handrail.cli.asking import Where, ask
from handrail.client.clients import AsyncClient
from handrail.engine.why import Waiting, Why
from handrail.kernel.shown import StopShown


def explain(where: Where, given: str) -> int:
    async def do(client: AsyncClient) -> None:
        found = await client.why(await ids.run_id(client, given))
        if where.as_json:
            tables.print_json(found)
            return
        tables.print_line(found.why)
        for line in _lines(found):
            tables.print_line(f"  {line}")

    return ask(where, do)


def _lines(found: Why) -> Iterator[str]:
    yield from stopped(found.stop)
    yield from waits(found.waiting)
    if found.stop is not None:
        yield f"what to do: {found.next}"
    for note in found.notes:
        yield f"note: {note}"


def stopped(stop: StopShown | None) -> Iterator[str]:
    """The rule, what it saw, and what would have let the run go on."""
    if stop is None:
        return
    also = f", and {', '.join(stop.also)}" if stop.also else ""
    yield f"rule: {stop.rule}{also}"
    if stop.limit is not None:
        yield f"limit {stop.limit}, seen {stop.seen}"
    for name, said in (
        ("pattern", ", then ".join(stop.pattern)),
        ("evidence", ", ".join(stop.evidence)),
        ("what would have let it go on", stop.remedy),
        ("left to do", "; ".join(stop.remaining)),
    ):
        if said:
            yield f"{name}: {said}"


def waits(waiting: tuple[Waiting, ...]) -> Iterator[str]:
    """Each open place: what it waits for, since when, and what to do."""
    for one in waiting:
        yield f"{one.place}, since {tables.at(one.since)}: {one.message.rstrip('.')}"
        yield f"  what to do: {one.hint}"
