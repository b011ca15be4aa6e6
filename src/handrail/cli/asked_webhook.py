"""`handrail webhook …`: the options of its commands."""

from typing import Annotated

import typer

from handrail.cli.options import AsJson, Database, Server

Which = Annotated[
    str, typer.Argument(metavar="WEBHOOK", help="Its id, or enough of the beginning or end of it.")
]

webhook = typer.Typer(rich_markup_mode=None, no_args_is_help=True)


@webhook.callback()
def webhooks() -> None:
    """Make, list, enable and remove webhooks."""


@webhook.command("list")
def webhook_list(database: Database = "", server: Server = "", as_json: AsJson = False) -> None:
    """List webhooks, and how their last attempts went."""
    from handrail.cli.api import ApiTarget
    from handrail.cli.webhook import list_webhooks

    raise typer.Exit(list_webhooks(ApiTarget("webhook list", database, server, as_json)))


@webhook.command("create")
def webhook_create(
    url: Annotated[str, typer.Argument(help="The address that is told: https://HOST/PATH.")],
    events: Annotated[
        str, typer.Option(help="Kinds of events with commas between; left out, all but talk.")
    ] = "",
    people: Annotated[
        str, typer.Option(help="Who gets links to answer with: NAME:ROLE, with commas between.")
    ] = "",
    database: Database = "",
    server: Server = "",
    as_json: AsJson = False,
) -> None:
    """Make a webhook, and print its secret alone; it is shown this once."""
    from handrail.cli.api import ApiTarget
    from handrail.cli.webhook import create_webhook

    target = ApiTarget("webhook create", database, server, as_json)
    raise typer.Exit(create_webhook(target, url, events, people))


@webhook.command("enable")
def webhook_enable(
    webhook: Which, database: Database = "", server: Server = "", as_json: AsJson = False
) -> None:
    """Tell one again that was disabled."""
    from handrail.cli.api import ApiTarget
    from handrail.cli.webhook import enable_webhook

    raise typer.Exit(
        enable_webhook(ApiTarget("webhook enable", database, server, as_json), webhook)
    )


@webhook.command("remove")
def webhook_remove(
    webhook: Which, database: Database = "", server: Server = "", as_json: AsJson = False
) -> None:
    """Remove one, with what was to be told to it."""
    from handrail.cli.api import ApiTarget
    from handrail.cli.webhook import remove_webhook

    raise typer.Exit(
        remove_webhook(ApiTarget("webhook remove", database, server, as_json), webhook)
    )
