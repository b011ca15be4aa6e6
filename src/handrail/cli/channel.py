"""`handrail channel`: the members of a conversation, the turn, and a person's message to it."""

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from handrail.cli import output
from handrail.cli.arguments import AsJson, Database, Server, decode_argument, take
from handrail.cli.command_group import command_group
from handrail.cli.connection import open_client

if TYPE_CHECKING:
    from handrail.views.channels import ChannelView, MessageView

ChannelId = Annotated[str, typer.Argument(metavar="CHANNEL", help="The channel's id.")]
MESSAGES_SHOWN = 20
"""Messages that are shown,"""
EVENTS_SEARCHED = 200
"""from this many last events."""
CHANNELS_LISTED_MAX = 1_000

channel = command_group("Show channels, post messages, and control turns.")


@channel.command("list")
async def list_channels(
    database: Database = "", server: Server = "", as_json: AsJson = False
) -> None:
    """List channels, and who has the turn."""
    async with open_client(database, server) as client:
        channels = await take(client.each(client.channels.list), CHANNELS_LISTED_MAX)
    output.show(
        {"items": channels},
        output.TextTable(
            ("channel", "turn of", "queue", "messages", "turns", "state"),
            map(_channel_row, channels),
            "there is no channel",
        ),
        as_json=as_json,
    )


@channel.command("show")
async def show_channel(
    channel: ChannelId, database: Database = "", server: Server = "", as_json: AsJson = False
) -> None:
    """Show the members and the last messages of a channel."""
    channel_id = decode_argument(channel)
    async with open_client(database, server) as client:
        stored = await client.channels.get(channel_id)
        page = await client.channels.list_messages(
            channel_id, after=max(0, stored.position - EVENTS_SEARCHED), limit=EVENTS_SEARCHED
        )
    log = page.items[-MESSAGES_SHOWN:]
    if as_json:
        output.print_json({"channel": stored, "log": log})
        return
    output.print_line(_state_line(stored))
    output.print_table(
        output.TextTable(
            ("agent", "state"),
            [(member.agent_id, member.state.value) for member in stored.members],
            "the channel has no members",
        )
    )
    for message in log:
        output.print_line(_message_line(message))


@channel.command("say")
async def say_in_channel(
    channel: ChannelId,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The message.")],
    to: Annotated[str, typer.Option(help="The agent that it is addressed to.")] = "",
    database: Database = "",
    server: Server = "",
    as_json: AsJson = False,
) -> None:
    """Post a message as a person, and print what happened to it."""
    async with open_client(database, server) as client:
        posted = await client.channels.post(
            decode_argument(channel), decode_argument(text), to=decode_argument(to) or None
        )
    output.show(posted, [f"{posted.id}: {posted.disposition}"], as_json=as_json)


@channel.command("pause")
async def pause_channel(
    channel: ChannelId, database: Database = "", server: Server = "", as_json: AsJson = False
) -> None:
    """Stop granting turns; the turn in progress goes on."""
    await _control_turn(channel, "pause", database, server, as_json=as_json)


@channel.command("unpause")
async def unpause_channel(
    channel: ChannelId, database: Database = "", server: Server = "", as_json: AsJson = False
) -> None:
    """Resume granting turns."""
    await _control_turn(channel, "unpause", database, server, as_json=as_json)


@channel.command("grant")
async def grant_turn(
    channel: ChannelId,
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="The agent that gets the turn.")],
    database: Database = "",
    server: Server = "",
    as_json: AsJson = False,
) -> None:
    """Give an agent the turn, if nobody has it."""
    await _control_turn(channel, "grant", database, server, agent=agent, as_json=as_json)


async def _control_turn(
    channel_id: str,
    action: Literal["pause", "unpause", "grant"],
    database: str,
    server: str,
    *,
    agent: str = "",
    as_json: bool,
) -> None:
    async with open_client(database, server) as client:
        channel = await client.channels.control_turn(
            decode_argument(channel_id), action, agent_id=decode_argument(agent)
        )
    output.show(channel, [_state_line(channel)], as_json=as_json)


def _channel_row(channel: "ChannelView") -> list[output.Cell]:
    return [
        channel.id,
        channel.turn.agent_id if channel.turn is not None else "",
        ", ".join(channel.queue),
        str(channel.messages),
        str(channel.turns),
        _describe_state(channel),
    ]


def _state_line(channel: "ChannelView") -> str:
    return f"channel {channel.id}: {_describe_state(channel)}"


def _describe_state(channel: "ChannelView") -> str:
    if channel.paused:
        return "paused"
    if channel.resting:
        return f"rests: {output.printable(channel.resting)}"
    if channel.turn is None:
        return "nobody has the turn"
    how = "waits in" if channel.turn.wait_until is not None else "has"
    return f"{channel.turn.agent_id} {how} turn {channel.turn.number}"


def _message_line(message: "MessageView") -> str:
    author = message.author if message.kind == "message" else "—"
    return f"{output.format_time(message.at)}  {author}: {message.text}"
