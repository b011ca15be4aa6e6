"""`handrail token` and `handrail sign-in`: who has access."""

from typing import NamedTuple

from handrail.cli import ids, output
from handrail.cli.api import ApiTarget, call_api, local_user, server_url
from handrail.cli.database import InputError, load_settings
from handrail.cli.formatting import decode_argument, printable
from handrail.client.clients import AsyncClient
from handrail.client.retry import parse_addresses
from handrail.client.shapes import TokenView


class TokenOptions(NamedTuple):
    role: str
    name: str = ""
    agent: str = ""
    works_as: str = ""
    expires: str = ""


def create_token(target: ApiTarget, options: TokenOptions) -> int:
    """Print the token alone, so that a script can take it."""

    async def do(client: AsyncClient) -> None:
        is_agent = options.role == "agent"
        works_as = [role.strip() for role in options.works_as.split(",") if role.strip()]
        created = await client.create_token(
            options.role,
            name=decode_argument(options.name) or (None if is_agent else local_user()),
            agent=decode_argument(options.agent) or None,
            works_as=works_as or None,
            expires=options.expires or None,
        )
        if target.as_json:
            output.print_json(created)
        else:
            print(created.token)
            output.print_note(f"token {created.id} of {_owner(created)}; it is shown this once")

    return call_api(target, do)


def list_tokens(target: ApiTarget) -> int:
    async def do(client: AsyncClient) -> None:
        page = await client.list_tokens()
        if target.as_json:
            output.print_json(page)
            return
        heads = ("token", "of", "made by", "at", "expires", "revoked")
        output.print_table(heads, [_token_row(token) for token in page.items], "there is no token")

    return call_api(target, do)


def revoke_token(target: ApiTarget, partial_id: str) -> int:
    async def do(client: AsyncClient) -> None:
        token_id = await ids.find_token_id(client, partial_id)
        await client.revoke_token(token_id)
        if target.as_json:
            output.print_json({"id": token_id, "revoked": True})
        else:
            print(f"token {token_id} is revoked")

    return call_api(target, do)


def print_sign_in_link(target: ApiTarget, *, name: str, role: str, url: str) -> int:
    """Print the whole link."""

    async def do(client: AsyncClient) -> None:
        base_url = _web_app_url(target, url)
        who = decode_argument(name) or local_user()
        created = await client.create_sign_in(who, role=role)
        link = f"{base_url}{created.path}"
        if target.as_json:
            document = {"url": link, "expires_at": created.expires_at, "name": who, "role": role}
            output.print_json(document)
        else:
            print(link)
            output.print_note(
                f"signs in {who} ({role}), once, until {output.format_time(created.expires_at)}"
            )

    return call_api(target, do)


def _web_app_url(target: ApiTarget, url: str) -> str:
    """Return the page's address: the option, else the called server, else where one would
    listen.
    """
    configuration = load_settings(database=target.database, server=target.server)
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


def _token_row(token: TokenView) -> list[output.Cell]:
    return [
        output.short_id(token.id),
        _owner(token),
        token.created_by,
        output.format_time(token.created_at),
        output.format_time(token.expires_at) or "never",
        (output.format_time(token.revoked_at), "red"),
    ]


def _owner(token: TokenView) -> str:
    works_as = f" as {', '.join(token.works_as)}" if token.works_as is not None else ""
    return printable(f"{token.agent or token.name} ({token.role}{works_as})")
