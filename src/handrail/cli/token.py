"""`handrail token` and `handrail sign-in`: who has access."""

from typing import TYPE_CHECKING, Annotated

import typer

from handrail.cli import output
from handrail.cli.api import local_user, open_client, server_url
from handrail.cli.command import InputError, command_group
from handrail.cli.database import load_settings
from handrail.cli.formatting import decode_argument, printable
from handrail.cli.ids import require_one_match
from handrail.cli.options import AsJson, Database, PersonRole, Server, TokenRole

if TYPE_CHECKING:
    from handrail.api.admin import TokenView

token = command_group("Create, list and revoke tokens.")


@token.command("create")
async def create_token(
    role: Annotated[TokenRole, typer.Option(help="What the token may do.")],
    name: Annotated[
        str, typer.Option(metavar="PERSON", help="The owner; default: the system's user.")
    ] = "",
    agent: Annotated[str, typer.Option(metavar="ID", help="The agent that owns it.")] = "",
    works_as: Annotated[
        str, typer.Option(metavar="ROLE,…", help="The only roles that the agent may register.")
    ] = "",
    expires: Annotated[
        str, typer.Option(metavar="IN", help="Lifetime such as 30d; default: unlimited.")
    ] = "",
    database: Database = "",
    server: Server = "",
    as_json: AsJson = False,
) -> None:
    """Create a token, and print it alone on standard output. It is shown only once."""
    async with open_client(database, server, create=True) as client:
        created = await client.tokens.create(
            role,
            name=decode_argument(name) or (None if role == "agent" else local_user()),
            agent=decode_argument(agent) or None,
            works_as=[part.strip() for part in works_as.split(",") if part.strip()] or None,
            expires=expires or None,
        )
    note = f"token {created.id} of {_owner(created)}; it is shown only once"
    output.show(created, [created.token], as_json=as_json, note=note)


@token.command("list")
async def list_tokens(
    database: Database = "", server: Server = "", as_json: AsJson = False
) -> None:
    """List tokens, without their secrets."""
    async with open_client(database, server) as client:
        page = await client.tokens.list()
    heads = ("token", "of", "made by", "at", "expires", "revoked")
    table = output.TextTable(heads, map(_token_row, page.items), "there is no token")
    output.show(page, table, as_json=as_json)


@token.command("revoke")
async def revoke_token(
    token: Annotated[
        str,
        typer.Argument(metavar="TOKEN", help="The token's id, or a unique beginning or end of it."),
    ],
    database: Database = "",
    server: Server = "",
    as_json: AsJson = False,
) -> None:
    """Revoke a token: requests with it are refused."""
    async with open_client(database, server) as client:
        token_ids = [item.id for item in (await client.tokens.list()).items]
        token_id = require_one_match(token, token_ids, "token", "`handrail token list` lists them")
        await client.tokens.revoke(token_id)
    document = {"id": token_id, "revoked": True}
    output.show(document, [f"token {token_id} is revoked"], as_json=as_json)


async def sign_in(
    name: Annotated[
        str,
        typer.Option(metavar="PERSON", help="The person to sign in; default: the system's user."),
    ] = "",
    role: Annotated[PersonRole, typer.Option(help="What the person may do.")] = "admin",
    url: Annotated[
        str, typer.Option(metavar="URL", help="The web page's address; default: the server's.")
    ] = "",
    database: Database = "",
    server: Server = "",
    as_json: AsJson = False,
) -> None:
    """Print a link that signs in to the web page.

    It works once, within ten minutes.
    """
    who = decode_argument(name) or local_user()
    async with open_client(database, server, create=True) as client:
        base_url = _web_app_url(url, database, server)
        created = await client.sessions.create_sign_in(who, role=role)
    link = f"{base_url}{created.path}"
    document = {"url": link, "expires_at": created.expires_at, "name": who, "role": role}
    note = f"signs in {who} ({role}), once, until {output.format_time(created.expires_at)}"
    output.show(document, [link], as_json=as_json, note=note)


def _web_app_url(url: str, database: str, server: str) -> str:
    """Return the page's address: the option, else the called server, else where one would
    listen.
    """
    from handrail.client.retry import parse_addresses

    configuration = load_settings(database=database, server=server)
    try:
        urls = parse_addresses(decode_argument(url)) or parse_addresses(server_url(configuration))
    except ValueError as error:
        raise InputError(f"--url: {error}") from error
    host = configuration["host"]
    return (
        urls[0]
        if urls
        else f"http://{f'[{host}]' if ':' in host else host}:{configuration['port']}"
    )


def _token_row(token: "TokenView") -> list[output.Cell]:
    return [
        output.short_id(token.id),
        _owner(token),
        token.created_by,
        output.format_time(token.created_at),
        output.format_time(token.expires_at) or "never",
        (output.format_time(token.revoked_at), "red"),
    ]


def _owner(token: "TokenView") -> str:
    works_as = f" as {', '.join(token.works_as)}" if token.works_as is not None else ""
    return printable(f"{token.agent or token.name} ({token.role}{works_as})")
