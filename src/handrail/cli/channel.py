"""`handrail channel`: the members of a conversation, the turn, and a person's message to it."""

from handrail.cli import output
from handrail.cli.api import ApiTarget, call_api
from handrail.cli.formatting import decode_argument, printable
from handrail.client.channel_calls import TurnAction
from handrail.client.clients import AsyncClient
from handrail.views.channels import ChannelView, MessageView

MESSAGES_SHOWN = 20
"""Messages that are shown,"""
EVENTS_SEARCHED = 200
"""from this many last events."""
CHANNELS_LISTED_MAX = 1_000


def list_channels(target: ApiTarget) -> int:
    async def do(client: AsyncClient) -> None:
        channels: list[ChannelView] = []
        async for channel in client.each(client.list_channels):
            channels.append(channel)
            if len(channels) >= CHANNELS_LISTED_MAX:
                break
        if target.as_json:
            output.print_json({"items": channels})
            return
        heads = ("channel", "turn of", "queue", "messages", "turns", "state")
        output.print_table(
            heads, [_channel_row(channel) for channel in channels], "there is no channel"
        )

    return call_api(target, do)


def show_channel(target: ApiTarget, channel_id: str) -> int:
    async def do(client: AsyncClient) -> None:
        name = decode_argument(channel_id)
        channel = await client.get_channel(name)
        start_position = max(0, channel.position - EVENTS_SEARCHED)
        log = (await client.list_messages(name, after=start_position, limit=EVENTS_SEARCHED)).items[
            -MESSAGES_SHOWN:
        ]
        if target.as_json:
            output.print_json({"channel": channel, "log": log})
            return
        output.print_line(f"channel {channel.id}: {_describe_state(channel)}")
        members = [(member.agent_id, member.state.value) for member in channel.members]
        output.print_table(("agent", "state"), members, "nobody is in it")
        for message in log:
            output.print_line(_message_line(message))

    return call_api(target, do)


def say_in_channel(target: ApiTarget, channel_id: str, text: str, to: str) -> int:
    async def do(client: AsyncClient) -> None:
        posted = await client.post_message(
            decode_argument(channel_id), decode_argument(text), to=decode_argument(to) or None
        )
        if target.as_json:
            output.print_json(posted)
        else:
            output.print_line(f"{posted.id}: {posted.disposition}")

    return call_api(target, do)


def act_on_turn(target: ApiTarget, channel_id: str, action: TurnAction, agent: str = "") -> int:
    """Pause, unpause, or give an agent the turn."""

    async def do(client: AsyncClient) -> None:
        channel = await client.control_turn(
            decode_argument(channel_id), action, agent_id=decode_argument(agent)
        )
        if target.as_json:
            output.print_json(channel)
        else:
            output.print_line(f"channel {channel.id}: {_describe_state(channel)}")

    return call_api(target, do)


def _channel_row(channel: ChannelView) -> list[output.Cell]:
    holder = channel.turn.agent_id if channel.turn is not None else ""
    queue = ", ".join(channel.queue)
    return [
        channel.id,
        holder,
        queue,
        str(channel.messages),
        str(channel.turns),
        _describe_state(channel),
    ]


def _describe_state(channel: ChannelView) -> str:
    if channel.paused:
        return "paused"
    if channel.resting:
        return f"rests: {printable(channel.resting)}"
    if channel.turn is None:
        return "nobody has the turn"
    how = "waits in" if channel.turn.wait_until is not None else "has"
    return f"{channel.turn.agent_id} {how} turn {channel.turn.number}"


def _message_line(message: MessageView) -> str:
    author = message.author if message.kind == "message" else "—"
    return f"{output.format_time(message.at)}  {author}: {message.text}"
