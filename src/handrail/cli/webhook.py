"""`handrail webhook`: who is told outside that something waits or has ended."""

from handrail.cli import tables
from handrail.cli.asking import Where, ask
from handrail.cli.ids import only
from handrail.cli.words import clean, typed
from handrail.client.clients import AsyncClient
from handrail.client.review_calls import WebhookView


def list_webhooks(where: Where) -> int:
    async def do(client: AsyncClient) -> None:
        page = await client.webhooks()
        if where.as_json:
            tables.print_json(page)
            return
        heads = ("webhook", "url", "events", "waiting", "last", "state")
        tables.print_table(heads, [_row(one) for one in page.items], "there is no webhook")

    return ask(where, do)


def create_webhook(where: Where, url: str, events: str, people: str) -> int:
    """Prints the secret alone, so that a script can take it."""

    async def do(client: AsyncClient) -> None:
        named = [one.partition(":") for one in _parts(people)]
        linked = {name: role or "operator" for name, _, role in named}
        made = await client.create_webhook(
            typed(url), events=_parts(events) or None, people=linked or None
        )
        if where.as_json:
            tables.print_json(made)
        else:
            print(made.secret)
            tables.note(f"webhook {made.id}; its secret is shown this once")

    return ask(where, do)


def enable_webhook(where: Where, given: str) -> int:
    async def do(client: AsyncClient) -> None:
        found = await client.enable_webhook(await _webhook_id(client, given))
        if where.as_json:
            tables.print_json(found)
        else:
            tables.print_line(f"webhook {found.id} is told again; {found.waiting} waited for it")

    return ask(where, do)


def remove_webhook(where: Where, given: str) -> int:
    async def do(client: AsyncClient) -> None:
        webhook = await _webhook_id(client, given)
        await client.remove_webhook(webhook)
        if where.as_json:
            tables.print_json({"id": webhook, "removed": True})
        else:
            tables.print_line(f"webhook {webhook} is removed")

    return ask(where, do)


def _parts(text: str) -> list[str]:
    return [one.strip() for one in typed(text).split(",") if one.strip()]


async def _webhook_id(client: AsyncClient, given: str) -> str:
    given = typed(given)
    known = [one.id for one in (await client.webhooks()).items]
    found = [one for one in known if one.startswith(given) or one.endswith(given)]
    return only(given, found, "webhook", "`handrail webhook list` lists them")


def _row(one: WebhookView) -> list[tables.Cell]:
    return [
        tables.short(one.id),
        one.url,
        ", ".join(one.events),
        str(one.waiting),
        tables.at(one.delivered_at) or "never",
        _state(one),
    ]


def _state(one: WebhookView) -> tables.Cell:
    if one.enabled and not one.failures:
        return "well"
    what = "failing" if one.enabled else "disabled"
    return (f"{what}: {clean(one.reason)}", "red")
