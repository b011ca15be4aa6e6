"""Commands for a server's owner: `handrail agents`, `settings`, `token`, `sign-in`, `webhook`."""

import os
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from handrail.api.operation import PersonRole, Role
from handrail.cli import output
from handrail.cli.arguments import AsJson, Database, Server, decode_argument, require_one_match
from handrail.cli.command import InputError
from handrail.cli.command_group import command_group
from handrail.cli.connection import load_settings, local_user, open_client, server_url

if TYPE_CHECKING:
    from handrail.api.admin import SettingView, TokenView
    from handrail.api.webhooks import WebhookView
    from handrail.client.clients import AsyncClient
    from handrail.server.settings import SettingValue
    from handrail.views.agents import AgentView

STATE_STYLES = {"OFFLINE": "red", "ACTIVE": "green"}


async def agents(database: Database = "", server: Server = "", as_json: AsJson = False) -> None:
    """List agents, their state, and what they work on."""
    async with open_client(database, server) as client:
        page = await client.agents.list()
    output.show(
        page,
        output.TextTable(
            ("agent", "state", "works as", "at once", "works on", "last seen"),
            map(_agent_row, page.items),
            "no agent is registered",
        ),
        as_json=as_json,
    )


def _agent_row(agent: "AgentView") -> list[output.Cell]:
    state = agent.state.value if agent.enabled else f"{agent.state.value} (disabled)"
    return [
        agent.id,
        (state, STATE_STYLES.get(agent.state.value, "")),
        ", ".join(agent.roles),
        str(agent.capacity),
        ", ".join(output.short_id(work_id) for work_id in agent.current_work),
        output.format_time(agent.last_seen),
    ]


COLUMNS = ("setting", "value", "from", "what it is for")


async def settings(database: Database = "", server: Server = "", as_json: AsJson = False) -> None:
    """List settings, each with its value and where that came from.

    Flags override HANDRAIL_* variables, which override the file handrail.toml in this folder, which
    overrides the defaults. With --server, lists the settings of that server.
    """
    if not server:
        _show_local_settings(database, as_json=as_json)
        return
    async with open_client(database, server) as client:
        page = await client.settings.list()
    output.show(page, output.TextTable(COLUMNS, map(_setting_row, page.items)), as_json=as_json)


def _show_local_settings(database: str, *, as_json: bool) -> None:
    from handrail.server.settings import find_misspelled_variables, format_setting

    configuration = load_settings(database=database)
    for line in find_misspelled_variables(os.environ):
        output.print_note(line)
    values = [_hide_password(value) for value in configuration.values.values()]
    rows = [
        (
            item.setting.name,
            format_setting(item.setting, item.value),
            item.origin,
            item.setting.help,
        )
        for item in values
    ]
    output.show(
        {"items": [_setting_document(value) for value in values]},
        output.TextTable(COLUMNS, rows),
        as_json=as_json,
    )


def _setting_row(setting: "SettingView") -> list[output.Cell]:
    """Return a row; a server of another version may have settings that are unknown here."""
    from handrail.server.settings import SETTINGS_BY_NAME, format_setting

    known_setting = SETTINGS_BY_NAME.get(setting.name)
    value = (
        format_setting(known_setting, setting.value)
        if known_setting is not None
        else str(setting.value)
    )
    return [setting.name, value, setting.origin, setting.help]


def _hide_password(setting_value: "SettingValue") -> "SettingValue":
    """Hide the password in an address: the output may be shown to anybody."""
    if setting_value.setting.unit != "text":
        return setting_value
    try:
        password = urlsplit(str(setting_value.value)).password
    except ValueError:
        password = None
    hidden = (
        setting_value.value.replace(f":{password}@", ":***@") if password else setting_value.value
    )
    return setting_value._replace(value=hidden)


def _setting_document(setting_value: "SettingValue") -> dict[str, Any]:
    setting = setting_value.setting
    return {
        "name": setting.name,
        "value": setting_value.value,
        "origin": setting_value.origin,
        "default": setting.default,
        "unit": setting.unit,
        "help": setting.help,
    }


token = command_group("Create, list and revoke tokens.")


@token.command("create")
async def create_token(
    role: Annotated[Role, typer.Option(help="What the token may do.")],
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
    output.show(
        created,
        [created.token],
        as_json=as_json,
        note=f"token {created.id} of {_owner(created)}; it is shown only once",
    )


@token.command("list")
async def list_tokens(
    database: Database = "", server: Server = "", as_json: AsJson = False
) -> None:
    """List tokens, without their secrets."""
    async with open_client(database, server) as client:
        page = await client.tokens.list()
    output.show(
        page,
        output.TextTable(
            ("token", "of", "made by", "at", "expires", "revoked"),
            map(_token_row, page.items),
            "there is no token",
        ),
        as_json=as_json,
    )


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
        token_id = require_one_match(
            token,
            [item.id for item in (await client.tokens.list()).items],
            "token",
            "`handrail token list` lists them",
        )
        await client.tokens.revoke(token_id)
    output.show(
        {"id": token_id, "revoked": True}, [f"token {token_id} is revoked"], as_json=as_json
    )


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
    output.show(
        {"url": link, "expires_at": created.expires_at, "name": who, "role": role},
        [link],
        as_json=as_json,
        note=f"signs in {who} ({role}), once, until {output.format_time(created.expires_at)}",
    )


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
    return output.printable(f"{token.agent or token.name} ({token.role}{works_as})")


WebhookId = Annotated[
    str,
    typer.Argument(metavar="WEBHOOK", help="The webhook's id, or a unique beginning or end of it."),
]

webhook = command_group("Create, list, enable and remove webhooks.")


@webhook.command("list")
async def list_webhooks(
    database: Database = "", server: Server = "", as_json: AsJson = False
) -> None:
    """List webhooks, and the result of their last deliveries."""
    async with open_client(database, server) as client:
        page = await client.webhooks.list()
    output.show(
        page,
        output.TextTable(
            ("webhook", "url", "events", "waiting", "last", "state"),
            map(_webhook_row, page.items),
            "there is no webhook",
        ),
        as_json=as_json,
    )


@webhook.command("create")
async def create_webhook(
    url: Annotated[str, typer.Argument(help="The address to notify: https://HOST/PATH.")],
    events: Annotated[
        str, typer.Option(help="Event types, separated by commas; default: all but talk.")
    ] = "",
    people: Annotated[
        str, typer.Option(help="People who get answer links: NAME:ROLE, separated by commas.")
    ] = "",
    database: Database = "",
    server: Server = "",
    as_json: AsJson = False,
) -> None:
    """Create a webhook, and print its secret alone. It is shown only once."""
    pairs = [part.partition(":") for part in _split_list(people)]
    recipients = [{"name": name, "role": role or "operator"} for name, _, role in pairs]
    async with open_client(database, server) as client:
        created = await client.webhooks.create(
            decode_argument(url), events=_split_list(events) or None, people=recipients
        )
    output.show(
        created,
        [created.secret],
        as_json=as_json,
        note=f"webhook {created.id}; its secret is shown only once",
    )


@webhook.command("enable")
async def enable_webhook(
    webhook: WebhookId, database: Database = "", server: Server = "", as_json: AsJson = False
) -> None:
    """Re-enable a disabled webhook."""
    async with open_client(database, server) as client:
        enabled = await client.webhooks.enable(await _find_webhook_id(client, webhook))
    output.show(
        enabled,
        [f"webhook {enabled.id} is enabled; {enabled.waiting} notifications are pending"],
        as_json=as_json,
    )


@webhook.command("remove")
async def remove_webhook(
    webhook: WebhookId, database: Database = "", server: Server = "", as_json: AsJson = False
) -> None:
    """Remove a webhook and its pending notifications."""
    async with open_client(database, server) as client:
        webhook_id = await _find_webhook_id(client, webhook)
        await client.webhooks.remove(webhook_id)
    output.show(
        {"id": webhook_id, "removed": True}, [f"webhook {webhook_id} is removed"], as_json=as_json
    )


def _split_list(text: str) -> list[str]:
    return [part.strip() for part in decode_argument(text).split(",") if part.strip()]


async def _find_webhook_id(client: "AsyncClient", partial_id: str) -> str:
    return require_one_match(
        partial_id,
        [webhook.id for webhook in (await client.webhooks.list()).items],
        "webhook",
        "`handrail webhook list` lists them",
    )


def _webhook_row(webhook: "WebhookView") -> list[output.Cell]:
    return [
        output.short_id(webhook.id),
        webhook.url,
        ", ".join(webhook.events),
        str(webhook.waiting),
        output.format_time(webhook.delivered_at) or "never",
        _describe_state(webhook),
    ]


def _describe_state(webhook: "WebhookView") -> output.Cell:
    if webhook.enabled and not webhook.failures:
        return "well"
    what = "failing" if webhook.enabled else "disabled"
    return (f"{what}: {output.printable(webhook.reason)}", "red")
