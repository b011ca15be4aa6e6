"""`handrail webhook`: notify other systems that something waits or has ended."""

from handrail.cli import output
from handrail.cli.api import ApiTarget, call_api
from handrail.cli.formatting import decode_argument, printable
from handrail.cli.ids import require_one_match
from handrail.client.clients import AsyncClient
from handrail.client.notification_calls import WebhookView


def list_webhooks(target: ApiTarget) -> int:
    async def do(client: AsyncClient) -> None:
        page = await client.list_webhooks()
        if target.as_json:
            output.print_json(page)
            return
        heads = ("webhook", "url", "events", "waiting", "last", "state")
        output.print_table(
            heads, [_webhook_row(webhook) for webhook in page.items], "there is no webhook"
        )

    return call_api(target, do)


def create_webhook(target: ApiTarget, url: str, events: str, people: str) -> int:
    """Print the secret alone, so that a script can take it."""

    async def do(client: AsyncClient) -> None:
        pairs = [part.partition(":") for part in _split_list(people)]
        roles_by_name = {name: role or "operator" for name, _, role in pairs}
        created = await client.create_webhook(
            decode_argument(url), events=_split_list(events) or None, people=roles_by_name or None
        )
        if target.as_json:
            output.print_json(created)
        else:
            print(created.secret)
            output.print_note(f"webhook {created.id}; its secret is shown this once")

    return call_api(target, do)


def enable_webhook(target: ApiTarget, partial_id: str) -> int:
    async def do(client: AsyncClient) -> None:
        webhook = await client.enable_webhook(await _find_webhook_id(client, partial_id))
        if target.as_json:
            output.print_json(webhook)
        else:
            output.print_line(
                f"webhook {webhook.id} is told again; {webhook.waiting} waited for it"
            )

    return call_api(target, do)


def remove_webhook(target: ApiTarget, partial_id: str) -> int:
    async def do(client: AsyncClient) -> None:
        webhook_id = await _find_webhook_id(client, partial_id)
        await client.remove_webhook(webhook_id)
        if target.as_json:
            output.print_json({"id": webhook_id, "removed": True})
        else:
            output.print_line(f"webhook {webhook_id} is removed")

    return call_api(target, do)


def _split_list(text: str) -> list[str]:
    return [part.strip() for part in decode_argument(text).split(",") if part.strip()]


async def _find_webhook_id(client: AsyncClient, partial_id: str) -> str:
    partial_id = decode_argument(partial_id)
    webhook_ids = [webhook.id for webhook in (await client.list_webhooks()).items]
    matches = [
        full_id
        for full_id in webhook_ids
        if full_id.startswith(partial_id) or full_id.endswith(partial_id)
    ]
    return require_one_match(partial_id, matches, "webhook", "`handrail webhook list` lists them")


def _webhook_row(webhook: WebhookView) -> list[output.Cell]:
    return [
        output.short_id(webhook.id),
        webhook.url,
        ", ".join(webhook.events),
        str(webhook.waiting),
        output.format_time(webhook.delivered_at) or "never",
        _describe_state(webhook),
    ]


def _describe_state(webhook: WebhookView) -> output.Cell:
    if webhook.enabled and not webhook.failures:
        return "well"
    what = "failing" if webhook.enabled else "disabled"
    return (f"{what}: {printable(webhook.reason)}", "red")
