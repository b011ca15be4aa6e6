"""`handrail webhook`: notify other systems that something waits or has ended."""

from typing import TYPE_CHECKING, Annotated

import typer

from handrail.cli import output
from handrail.cli.api import open_client
from handrail.cli.command import command_group
from handrail.cli.formatting import decode_argument, printable
from handrail.cli.ids import require_one_match
from handrail.cli.options import AsJson, Database, Server

if TYPE_CHECKING:
    from handrail.api.webhooks import WebhookView
    from handrail.client.clients import AsyncClient

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
    heads = ("webhook", "url", "events", "waiting", "last", "state")
    table = output.TextTable(heads, map(_webhook_row, page.items), "there is no webhook")
    output.show(page, table, as_json=as_json)


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
    note = f"webhook {created.id}; its secret is shown only once"
    output.show(created, [created.secret], as_json=as_json, note=note)


@webhook.command("enable")
async def enable_webhook(
    webhook: WebhookId, database: Database = "", server: Server = "", as_json: AsJson = False
) -> None:
    """Re-enable a disabled webhook."""
    async with open_client(database, server) as client:
        enabled = await client.webhooks.enable(await _find_webhook_id(client, webhook))
    line = f"webhook {enabled.id} is enabled; {enabled.waiting} notifications are pending"
    output.show(enabled, [line], as_json=as_json)


@webhook.command("remove")
async def remove_webhook(
    webhook: WebhookId, database: Database = "", server: Server = "", as_json: AsJson = False
) -> None:
    """Remove a webhook and its pending notifications."""
    async with open_client(database, server) as client:
        webhook_id = await _find_webhook_id(client, webhook)
        await client.webhooks.remove(webhook_id)
    document = {"id": webhook_id, "removed": True}
    output.show(document, [f"webhook {webhook_id} is removed"], as_json=as_json)


def _split_list(text: str) -> list[str]:
    return [part.strip() for part in decode_argument(text).split(",") if part.strip()]


async def _find_webhook_id(client: "AsyncClient", partial_id: str) -> str:
    webhook_ids = [webhook.id for webhook in (await client.webhooks.list()).items]
    return require_one_match(
        partial_id, webhook_ids, "webhook", "`handrail webhook list` lists them"
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
    return (f"{what}: {printable(webhook.reason)}", "red")
