"""`handrail why`: why a run stopped, or what each of its positions waits for."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from handrail.cli import output
from handrail.cli.api import open_client
from handrail.cli.ids import find_run_id
from handrail.cli.options import AsJson, Database, RunId, Server
from handrail.cli.report_lines import stop_lines, waiting_lines

if TYPE_CHECKING:
    from handrail.views.run_details import RunExplanation


async def why(
    run: RunId, database: Database = "", server: Server = "", as_json: AsJson = False
) -> None:
    """Explain why a run stopped, waits, or is not worked on."""
    async with open_client(database, server) as client:
        explanation = await client.runs.explain(await find_run_id(client, run))
    lines = (f"  {line}" for line in _explanation_lines(explanation))
    output.show(explanation, (explanation.why, *lines), as_json=as_json)


def _explanation_lines(explanation: "RunExplanation") -> Iterator[str]:
    yield from stop_lines(explanation.stop)
    yield from waiting_lines(explanation.waiting)
    if explanation.stop is not None:
        yield f"what to do: {explanation.next}"
    for note in explanation.notes:
        yield f"note: {note}"
