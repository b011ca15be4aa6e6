"""`handrail why`: why a run stopped, or what each of its positions waits for."""

from collections.abc import Iterator

from handrail.cli import ids, output
from handrail.cli.api import ApiTarget, call_api
from handrail.client.clients import AsyncClient
from handrail.views.run_details import RunExplanation, WaitReason
from handrail.views.view_types import StopView


def explain_run(target: ApiTarget, partial_id: str) -> int:
    async def do(client: AsyncClient) -> None:
        explanation = await client.explain_run(await ids.find_run_id(client, partial_id))
        if target.as_json:
            output.print_json(explanation)
            return
        output.print_line(explanation.why)
        for line in _explanation_lines(explanation):
            output.print_line(f"  {line}")

    return call_api(target, do)


def _explanation_lines(explanation: RunExplanation) -> Iterator[str]:
    yield from stop_lines(explanation.stop)
    yield from waiting_lines(explanation.waiting)
    if explanation.stop is not None:
        yield f"what to do: {explanation.next}"
    for note in explanation.notes:
        yield f"note: {note}"


def stop_lines(stop: StopView | None) -> Iterator[str]:
    """Yield the rule, what it saw, and what would have let the run go on."""
    if stop is None:
        return
    also = f", and {', '.join(stop.also)}" if stop.also else ""
    yield f"rule: {stop.rule}{also}"
    if stop.limit is not None:
        yield f"limit {stop.limit}, seen {stop.seen}"
    for name, text in (
        ("pattern", ", then ".join(stop.pattern)),
        ("evidence", ", ".join(stop.evidence)),
        ("what would have let it go on", stop.remedy),
        ("left to do", "; ".join(stop.remaining)),
    ):
        if text:
            yield f"{name}: {text}"


def waiting_lines(waiting: tuple[WaitReason, ...]) -> Iterator[str]:
    """Yield for each position: what it waits for, since when, and what to do."""
    for wait in waiting:
        yield f"{wait.place}, since {output.format_time(wait.since)}: {wait.message.rstrip('.')}"
        yield f"  what to do: {wait.hint}"
