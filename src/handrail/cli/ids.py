"""Find an id from what a user types: all of it, or enough of its beginning or end."""

import re
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING, TypeVar

from handrail.cli.command import InputError
from handrail.cli.formatting import decode_argument, printable

if TYPE_CHECKING:
    from handrail.client.clients import AsyncClient

T = TypeVar("T")
ID_CHARS = 32
"""Characters of a run's or a token's id."""
APPROVAL_ID_PATTERN = re.compile(r"[0-9a-f]{32}\.q\d+")
RUNS_SEARCHED_MAX = 5_000
"""The newest runs that are searched for an id with this end."""
PAGE_ITEMS = 500
MATCHES_SHOWN_MAX = 3


async def find_run_id(client: "AsyncClient", partial_id: str) -> str:
    """Return the run's id. A full id is used without a search."""
    partial_id = decode_argument(partial_id)
    if len(partial_id) == ID_CHARS:
        return partial_id
    page = await client.runs.list(q=partial_id, limit=PAGE_ITEMS)
    newest = await take(client.each(client.runs.list, limit=PAGE_ITEMS), RUNS_SEARCHED_MAX)
    run_ids = {run.id for run in (*page.items, *newest)}
    return require_one_match(partial_id, sorted(run_ids), "run", "`handrail runs` lists them")


async def take(items: AsyncIterator[T], count: int) -> list[T]:
    """Return the first items; the pages after them are not requested."""
    taken: list[T] = []
    async for item in items:
        taken.append(item)
        if len(taken) >= count:
            break
    return taken


async def find_approval_id(client: "AsyncClient", partial_id: str) -> str:
    """Return the open approval's id, from its own id or from that of its run. A full id is used
    without a search: the API explains one that is not open.
    """
    partial_id = decode_argument(partial_id)
    if APPROVAL_ID_PATTERN.fullmatch(partial_id):
        return partial_id
    each_open = client.each(client.approvals.list, status="open", limit=PAGE_ITEMS)
    approval_ids = [approval.id async for approval in each_open]
    return require_one_match(
        partial_id, approval_ids, "open question", "`handrail answer` lists them"
    )


def require_one_match(partial_id: str, full_ids: Iterable[str], noun: str, hint: str) -> str:
    """Return the one id that the partial id can mean."""
    partial_id = decode_argument(partial_id)
    matches = [full_id for full_id in full_ids if partial_id and _matches(full_id, partial_id)]
    if len(matches) == 1:
        return matches[0]
    if not matches:
        raise InputError(f"there is no {noun} '{printable(partial_id)[:80]}'; {hint}")
    shown_ids = ", ".join(matches[:MATCHES_SHOWN_MAX]) + (
        ", …" if len(matches) > MATCHES_SHOWN_MAX else ""
    )
    message = f"'{printable(partial_id)}' matches {len(matches)} {noun}s: {shown_ids}"
    raise InputError(f"{message}; type more of the id")


def _matches(full_id: str, partial_id: str) -> bool:
    """Return whether the id begins or ends so, or, of an approval, whether its run's id ends so."""
    run_id = full_id.partition(".")[0]
    ends = full_id.endswith(partial_id) or run_id.endswith(partial_id)
    return ends or full_id.startswith(partial_id)
