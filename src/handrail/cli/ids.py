"""Find an id from what a user types: all of it, or enough of its beginning or end."""

import re
from collections.abc import AsyncIterator, Sequence

from handrail.cli.database import InputError
from handrail.cli.formatting import decode_argument, printable
from handrail.client.clients import AsyncClient

ID_CHARS = 32
"""Characters of a run's or a token's id."""
APPROVAL_ID_PATTERN = re.compile(r"[0-9a-f]{32}\.q\d+")
RUNS_SEARCHED_MAX = 5_000
"""The newest runs that are searched for an id with this end."""
PAGE_ITEMS = 500
MATCHES_SHOWN_MAX = 3


async def find_run_id(client: AsyncClient, partial_id: str) -> str:
    """Return the run's id. A full id is used without a search."""
    partial_id = decode_argument(partial_id)
    if len(partial_id) == ID_CHARS:
        return partial_id
    page = await client.list_runs(q=partial_id, limit=PAGE_ITEMS)
    matches = {run.id for run in page.items if run.id.startswith(partial_id)}
    matches |= {run async for run in _newest_run_ids(client) if run.endswith(partial_id)}
    return require_one_match(partial_id, sorted(matches), "run", "`handrail runs` lists them")


async def _newest_run_ids(client: AsyncClient) -> AsyncIterator[str]:
    count = 0
    async for run in client.each(client.list_runs, limit=PAGE_ITEMS):
        yield run.id
        count += 1
        if count >= RUNS_SEARCHED_MAX:
            return


async def find_approval_id(client: AsyncClient, partial_id: str) -> str:
    """Return the open approval's id, from its own id or from that of its run; the API explains any
    other.
    """
    partial_id = decode_argument(partial_id)
    matches: list[str] = []
    async for approval in client.each(client.list_approvals, status="open", limit=PAGE_ITEMS):
        run = approval.id.partition(".")[0]
        if approval.id == partial_id:
            return partial_id
        if (
            approval.id.startswith(partial_id)
            or approval.id.endswith(partial_id)
            or run.endswith(partial_id)
        ):
            matches.append(approval.id)
    if not matches and APPROVAL_ID_PATTERN.fullmatch(partial_id):
        return partial_id
    return require_one_match(partial_id, matches, "open question", "`handrail answer` lists them")


async def find_token_id(client: AsyncClient, partial_id: str) -> str:
    """Return the token's id."""
    partial_id = decode_argument(partial_id)
    token_ids = [token.id for token in (await client.list_tokens()).items]
    matches = [
        candidate
        for candidate in token_ids
        if candidate.startswith(partial_id) or candidate.endswith(partial_id)
    ]
    return require_one_match(partial_id, matches, "token", "`handrail token list` lists them")


def require_one_match(partial_id: str, matches: Sequence[str], noun: str, hint: str) -> str:
    if len(matches) == 1 and partial_id:
        return matches[0]
    if not matches or not partial_id:
        raise InputError(f"there is no {noun} '{printable(partial_id)[:80]}'; {hint}")
    shown_ids = ", ".join(matches[:MATCHES_SHOWN_MAX]) + (
        ", …" if len(matches) > MATCHES_SHOWN_MAX else ""
    )
    message = f"'{printable(partial_id)}' may be any of {len(matches)} {noun}s: {shown_ids}"
    raise InputError(f"{message}; give more of it")
