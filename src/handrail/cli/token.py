"""`handrail token` and `handrail sign-in`: who may come in."""

from typing import NamedTuple

from handrail.cli import ids, tables
from handrail.cli.asking import Where, ask, local_user, server_of
from handrail.cli.database import InputError, settings
from handrail.cli.words import clean, typed
from handrail.client.clients import AsyncClient
from handrail.client.shapes import TokenView
from handrail.client.talk import addresses


class NewToken(NamedTuple):
    role: str
    name: str = ""
    agent: str = ""
    works_as: str = ""
    expires: str = ""


def create_token(where: Where, wanted: NewToken) -> int:
    """Prints the token alone, so that a script can take it."""

    async def do(client: AsyncClient) -> None:
        is_agent = wanted.role == "agent"
        works_as = [one.strip() for one in wanted.works_as.split(",") if one.strip()]
        made = await client.create_token(
            wanted.role,
            name=typed(wanted.name) or (None if is_agent else local_user()),
            agent=typed(wanted.agent) or None,
            works_as=works_as or None,
            expires=wanted.expires or None,
        )
        if where.as_json:
            tables.print_json(made)
        else:
            print(made.token)
            tables.note(f"token {made.id} of {_owner(made)}; it is shown this once")

    return ask(where, do)


def list_tokens(where: Where) -> int:
    async def do(client: AsyncClient) -> None:
        page = await client.tokens()
        if where.as_json:
            tables.print_json(page)
            return
        heads = ("token", "of", "made by", "at", "expires", "revoked")
        tables.print_table(heads, [_row(token) for token in page.items], "there is no token")

    return ask(where, do)


def revoke_token(where: Where, given: str) -> int:
    async def do(client: AsyncClient) -> None:
        token = await ids.token_id(client, given)
        await client.revoke_token(token)
        if where.as_json:
            tables.print_json({"id": token, "revoked": True})
        else:
            print(f"token {token} is revoked")

    return ask(where, do)


def sign_in(where: Where, *, name: str, role: str, url: str) -> int:
    """Prints the whole link."""

    async def do(client: AsyncClient) -> None:
        base = _address(where, url)
        who = typed(name) or local_user()
        made = await client.create_sign_in(who, role=role)
        link = f"{base}{made.path}"
        if where.as_json:
            found = {"url": link, "expires_at": made.expires_at, "name": who, "role": role}
            tables.print_json(found)
        else:
            print(link)
            tables.note(f"signs in {who} ({role}), once, until {tables.at(made.expires_at)}")

    return ask(where, do)


def _address(where: Where, url: str) -> str:
    """Where the page is: as said, else the server that is asked, else where one would listen."""
    found = settings(database=where.database, server=where.server)
    try:
        known = addresses(typed(url)) or addresses(server_of(found))
    except ValueError as error:
        raise InputError(f"--url: {error}") from error
    host = found["host"]
    return known[0] if known else f"http://{f'[{host}]' if ':' in host else host}:{found['port']}"


def _row(token: TokenView) -> list[tables.Cell]:
    return [
        tables.short(token.id),
        _owner(token),
        token.created_by,
        tables.at(token.created_at),
        tables.at(token.expires_at) or "never",
        (tables.at(token.revoked_at), "red"),
    ]


def _owner(token: TokenView) -> str:
    works_as = f" as {', '.join(token.works_as)}" if token.works_as is not None else ""
    return clean(f"{token.agent or token.name} ({token.role}{works_as})")
