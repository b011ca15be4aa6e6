"""`handrail bead create`: file a bead for a definition that is stored, or in a file."""

from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from handrail.cli import output
from handrail.cli.api import ApiTarget, call_api
from handrail.cli.database import InputError
from handrail.cli.definitions import find_definition, read_context
from handrail.cli.formatting import decode_argument
from handrail.client.clients import AsyncClient
from handrail.client.errors import NotFoundError
from handrail.teams import BUILTIN_IDS


class BeadOptions(NamedTuple):
    definition: str
    title: str
    description: str = ""
    context: str = ""
    review: Literal["required", "skip"] | None = None
    priority: int = 0


def create_bead(target: ApiTarget, options: BeadOptions) -> int:
    async def do(client: AsyncClient) -> None:
        context = read_context(options.context)
        bead = await client.create_bead(
            decode_argument(options.title),
            description=decode_argument(options.description),
            workflow_id=await resolve_definition_id(client, options.definition),
            context=context or None,
            review=options.review,
            priority=options.priority or None,
        )
        if target.as_json:
            output.print_json(bead)
        else:
            output.print_line(f"bead {bead.id}, run {bead.execution_id}")

    return call_api(target, do)


async def resolve_definition_id(client: AsyncClient, definition: str) -> str:
    """Resolve a file, which is stored first, else an id, else a name."""
    if definition != "-" and not Path(definition).is_file():
        return await _find_stored_id(client, decode_argument(definition))
    source = find_definition(definition)
    if source.problems:
        raise InputError(source.format_problems(source.problems[:1], "error")[0])
    stored = await client.create_definition(cast("dict[str, Any]", source.document))
    for line in source.format_problems(stored.warnings, "warning"):
        output.print_note(line)
    return stored.id


async def _find_stored_id(client: AsyncClient, name: str) -> str:
    try:
        return (await client.get_definition(name)).id
    except NotFoundError:
        if name not in BUILTIN_IDS:
            raise
        message = f"'{name}' is built in, and nobody here works it yet"
        raise InputError(f"{message}; start `handrail serve --builtin-agents`") from None
