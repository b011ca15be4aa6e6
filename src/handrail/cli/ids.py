"""From what a user types to an id: all of it, or as much of its beginning or end as is enough."""

import re
from collections.abc import AsyncIterator, Sequence

from handrail.cli.database import InputError
from handrail.cli.words import clean, typed
from handrail.client.clients import AsyncClient

WHOLE = 32
"""Characters of a run's or a token's id."""
WHOLE_QUESTION = re.compile(r"[0-9a-f]{32}\.q\d+")
LOOKED_AT_MAX = 5_000
"""Of the newest runs, so many are looked at for one whose id ends like that."""
PAGE = 500
NAMED_MAX = 3


async def run_id(client: AsyncClient, given: str) -> str:
    """The run that is meant. One that is named in full is asked for as it is."""
    given = typed(given)
    if len(given) == WHOLE:
        return given
    beginning = await client.executions(q=given, limit=PAGE)
    found = {run.id for run in beginning.items if run.id.startswith(given)}
    found |= {run async for run in _newest(client) if run.endswith(given)}
    return only(given, sorted(found), "run", "`handrail runs` lists them")


async def _newest(client: AsyncClient) -> AsyncIterator[str]:
    seen = 0
    async for run in client.each(client.executions, limit=PAGE):
        yield run.id
        seen += 1
        if seen >= LOOKED_AT_MAX:
            return


async def approval_id(client: AsyncClient, given: str) -> str:
    """The open question that is meant, by its own id or by that of its run; another one is left to
    the API to explain."""
    given = typed(given)
    found: list[str] = []
    async for approval in client.each(client.approvals, status="open", limit=PAGE):
        run = approval.id.partition(".")[0]
        if approval.id == given:
            return given
        if approval.id.startswith(given) or approval.id.endswith(given) or run.endswith(given):
            found.append(approval.id)
    if not found and WHOLE_QUESTION.fullmatch(given):
        return given
    return only(given, found, "open question", "`handrail answer` lists them")


async def token_id(client: AsyncClient, given: str) -> str:
    """The token that is meant."""
    given = typed(given)
    known = [token.id for token in (await client.tokens()).items]
    found = [one for one in known if one.startswith(given) or one.endswith(given)]
    return only(given, found, "token", "`handrail token list` lists them")


def only(given: str, found: Sequence[str], what: str, hint: str) -> str:
    if len(found) == 1 and given:
        return found[0]
    if not found or not given:
        raise InputError(f"there is no {what} '{clean(given)[:80]}'; {hint}")
    named = ", ".join(found[:NAMED_MAX]) + (", …" if len(found) > NAMED_MAX else "")
    told = f"'{clean(given)}' may be any of {len(found)} {what}s: {named}"
    raise InputError(f"{told}; give more of it")
