"""`handrail override`: a person moves, closes, pauses, resumes or migrates a run, with a reason."""

from typing import NamedTuple, cast

from handrail.cli import ids, output
from handrail.cli.api import ApiTarget, call_api
from handrail.cli.formatting import decode_argument
from handrail.client.calls import OverrideAction
from handrail.client.clients import AsyncClient


class OverrideOptions(NamedTuple):
    run: str
    action: str
    reason: str
    node: str = ""
    version: int | None = None


def override_run(target: ApiTarget, options: OverrideOptions) -> int:
    async def do(client: AsyncClient) -> None:
        run = await client.override_run(
            await ids.find_run_id(client, options.run),
            cast("OverrideAction", options.action),
            decode_argument(options.reason),
            node=decode_argument(options.node) or None,
            version=options.version,
        )
        if target.as_json:
            output.print_json(run)
            return
        at = f" at {', '.join(run.current_node_ids)}" if run.current_node_ids else ""
        output.print_line(
            f"run {output.short_id(run.id)} is {run.terminal_status or run.status}{at}"
        )

    return call_api(target, do)
