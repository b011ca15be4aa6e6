"""`handrail channel …`: the options of its commands."""

from typing import Annotated

import typer

from handrail.cli.options import AsJson, Database, Server

Which = Annotated[str, typer.Argument(metavar="CHANNEL", help="Its id.")]

channel = typer.Typer(rich_markup_mode=None, no_args_is_help=True)


@channel.callback()
def channels() -> None:
    """Look at channels, speak in them, and pass the turn."""


@channel.command("list")
def channel_list(database: Database = "", server: Server = "", as_json: AsJson = False) -> None:
    """List channels, and who has the turn."""
    from handrail.cli.api import ApiTarget
    from handrail.cli.channel import list_channels

    raise typer.Exit(list_channels(ApiTarget("channel list", database, server, as_json)))


@channel.command("show")
def channel_show(
    channel: Which, database: Database = "", server: Server = "", as_json: AsJson = False
) -> None:
    """Show who is in a channel, and what was said last."""
    from handrail.cli.api import ApiTarget
    from handrail.cli.channel import show_channel

    raise typer.Exit(show_channel(ApiTarget("channel show", database, server, as_json), channel))


@channel.command("say")
def channel_say(
    channel: Which,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What is said.")],
    to: Annotated[str, typer.Option(help="The agent that is meant.")] = "",
    database: Database = "",
    server: Server = "",
    as_json: AsJson = False,
) -> None:
    """Say something as a person, and print what became of it."""
    from handrail.cli.api import ApiTarget
    from handrail.cli.channel import say_in_channel

    raise typer.Exit(
        say_in_channel(ApiTarget("channel say", database, server, as_json), channel, text, to)
    )


@channel.command("pause")
def channel_pause(
    channel: Which, database: Database = "", server: Server = "", as_json: AsJson = False
) -> None:
    """Grant no turn from now on; the one in progress ends as it will."""
    from handrail.cli.api import ApiTarget
    from handrail.cli.channel import act_on_turn

    raise typer.Exit(
        act_on_turn(ApiTarget("channel pause", database, server, as_json), channel, "pause")
    )


@channel.command("unpause")
def channel_unpause(
    channel: Which, database: Database = "", server: Server = "", as_json: AsJson = False
) -> None:
    """Grant turns again."""
    from handrail.cli.api import ApiTarget
    from handrail.cli.channel import act_on_turn

    raise typer.Exit(
        act_on_turn(ApiTarget("channel unpause", database, server, as_json), channel, "unpause")
    )


@channel.command("grant")
def channel_grant(
    channel: Which,
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="Who is to have the turn.")],
    database: Database = "",
    server: Server = "",
    as_json: AsJson = False,
) -> None:
    """Give an agent the turn, if nobody has it."""
    from handrail.cli.api import ApiTarget
    from handrail.cli.channel import act_on_turn

    target = ApiTarget("channel grant", database, server, as_json)
    raise typer.Exit(act_on_turn(target, channel, "grant", agent))
